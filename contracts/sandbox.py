"""What every sandbox provider promises to the agent's tools."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.base import (
    OUTPUTS,
    ROOT,
    SKILLS,
    UPLOADS,
    WORKSPACE,
    Entry,
    Sandbox,
    SandboxFileError,
    SandboxProvider,
    SandboxUnavailable,
    ShellCommand,
)


async def count_alive(computer: Sandbox, mark: str) -> int:
    """Return the processes whose command line is `sleep MARK`."""
    program = (
        "import glob\nn = 0\nfor path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try: n += open(path).read().split(chr(0)) == ['sleep', 'MARK', '']\n    except OSError: pass\nprint(n)"
    )
    found = await computer.run(ShellCommand(f"python3 -c {shlex.quote(program.replace('MARK', mark))}"))
    return int(found.output)


@pytest.mark.asyncio
class SandboxContract:
    """A subclass has the async fixture `provider`, which closes it afterwards."""

    @pytest_asyncio.fixture
    async def sandbox(self, provider: SandboxProvider, tmp_path: Path) -> AsyncIterator[Sandbox]:
        async with provider.acquire("thread/1", tmp_path / "one") as sandbox:
            yield sandbox

    async def test_check_passes_where_the_provider_works(self, provider: SandboxProvider) -> None:
        await provider.check()

    async def test_a_sandbox_is_as_its_provider_says(self, provider: SandboxProvider, sandbox: Sandbox) -> None:
        assert sandbox.runs_commands == provider.runs_commands
        assert not sandbox.gone

    async def test_folders_are_created_and_survive_destroy(self, provider: SandboxProvider, tmp_path: Path) -> None:
        async with provider.acquire("a", tmp_path / "a") as sandbox:
            await sandbox.write(f"{WORKSPACE}/kept.txt", b"kept")
        await provider.destroy("a")
        assert (tmp_path / "a" / "workspace" / "kept.txt").read_bytes() == b"kept"
        async with provider.acquire("a", tmp_path / "a") as sandbox:
            assert await sandbox.read(f"{WORKSPACE}/kept.txt") == b"kept"

    async def test_two_keys_do_not_see_each_other(self, provider: SandboxProvider, tmp_path: Path) -> None:
        async with provider.acquire("a", tmp_path / "a") as one, provider.acquire("b", tmp_path / "b") as other:
            await one.write(f"{WORKSPACE}/mine.txt", b"mine")
            with pytest.raises(SandboxFileError):
                await other.read(f"{WORKSPACE}/mine.txt")
            if provider.runs_commands:
                found = await other.run(ShellCommand("find / -name mine.txt 2>/dev/null; true"))
                assert found.output == "", "nor anywhere else"

    async def test_the_key_may_be_any_text(self, provider: SandboxProvider, tmp_path: Path) -> None:
        async with provider.acquire("../../x y/\n→", tmp_path / "odd") as sandbox:
            await sandbox.write(f"{OUTPUTS}/a", b"1")
        assert (tmp_path / "odd" / "outputs" / "a").read_bytes() == b"1"

    async def test_write_read_append_and_windows(self, sandbox: Sandbox) -> None:
        path = f"{WORKSPACE}/deep/er/日本.txt"
        await sandbox.write(path, b"hello ")
        await sandbox.write(path, b"world", append=True)
        assert await sandbox.read(path) == b"hello world"
        assert await sandbox.read(path, offset=6, limit=3) == b"wor"
        assert await sandbox.read(path, offset=100) == b""
        await sandbox.write(path, b"short")
        assert await sandbox.read(path) == b"short"

    async def test_megabytes_are_transferred_unchanged(self, sandbox: Sandbox) -> None:
        data = bytes(range(256)) * 12_000
        await sandbox.write(f"{UPLOADS}/big.bin", data)
        assert await sandbox.read(f"{UPLOADS}/big.bin", limit=4 << 20) == data

    async def test_writing_replaces_a_file_atomically_without_temporary_files(self, sandbox: Sandbox) -> None:
        for text in (b"one", b"two"):
            await sandbox.write(f"{WORKSPACE}/a.txt", text)
        assert [entry.path for entry in await sandbox.ls(WORKSPACE)] == [f"{WORKSPACE}/a.txt"]

    @pytest.mark.parametrize("path", ["/etc/passwd", f"{ROOT}/../../etc/x", f"{SKILLS}/x", "/usr/x", "relative", ROOT])
    async def test_writing_outside_the_folders_is_refused(self, sandbox: Sandbox, path: str) -> None:
        with pytest.raises(SandboxFileError):
            await sandbox.write(path, b"x")

    async def test_errors_name_the_virtual_path_and_the_reason(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for work, reason in (
            (lambda: sandbox.read(f"{WORKSPACE}/none"), "No such file"),
            (lambda: sandbox.read(WORKSPACE), "folder"),
            (lambda: sandbox.ls(f"{WORKSPACE}/none"), "No such file"),
            (lambda: sandbox.grep("(", WORKSPACE), "regular expression"),
        ):
            with pytest.raises(SandboxFileError, match=reason) as caught:
                await work()
            assert str(tmp_path) not in str(caught.value)
        with pytest.raises(SandboxFileError, match=f"{WORKSPACE}/none"):
            await sandbox.stat(f"{WORKSPACE}/none")

    async def test_nul_in_a_path_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(SandboxFileError):
            await sandbox.read(f"{WORKSPACE}/a\0b")

    async def test_stat_returns_size_and_kind(self, sandbox: Sandbox) -> None:
        await sandbox.write(f"{OUTPUTS}/a.txt", b"123")
        assert await sandbox.stat(f"{OUTPUTS}/a.txt") == Entry(f"{OUTPUTS}/a.txt", 3, "file")
        assert (await sandbox.stat(OUTPUTS)).folder

    @pytest.mark.parametrize(
        "path",
        [
            f"/{OUTPUTS}//a.txt",
            f"{WORKSPACE}/../outputs/./a.txt",
            f"{UPLOADS}/none/../../outputs/a.txt",
            f"{OUTPUTS}/a.txt/",
            "/../..//mnt/user-data/outputs/a.txt",
        ],
    )
    async def test_every_spelling_of_a_path_resolves_to_the_file(
        self, sandbox: Sandbox, tmp_path: Path, path: str
    ) -> None:
        await sandbox.write(f"{OUTPUTS}/a.txt", b"123")
        assert await sandbox.realpath(path) == f"{OUTPUTS}/a.txt"
        assert await sandbox.realpath(path.replace("a.txt", "new/b.txt")) == f"{OUTPUTS}/new/b.txt"
        assert str(tmp_path) not in await sandbox.realpath(path)

    async def test_ls_is_sorted_and_limited_in_count_and_depth(self, sandbox: Sandbox) -> None:
        for name in ("b", "a", "sub/c", "sub/deep/d"):
            await sandbox.write(f"{WORKSPACE}/{name}", b"x")
        assert [e.path.removeprefix(WORKSPACE) for e in await sandbox.ls(WORKSPACE)] == ["/a", "/b", "/sub"]
        deep = [e.path.removeprefix(WORKSPACE) for e in await sandbox.ls(WORKSPACE, depth=2)]
        assert deep == ["/a", "/b", "/sub", "/sub/c", "/sub/deep"]
        assert len(await sandbox.ls(WORKSPACE, limit=2)) == 2
        assert {e.path for e in await sandbox.ls(ROOT)} == {WORKSPACE, UPLOADS, OUTPUTS}

    async def test_glob_returns_the_newest_first(self, sandbox: Sandbox) -> None:
        for name in ("old.py", "pkg/mid.py", "pkg/deep/new.py", "other.txt"):
            await sandbox.write(f"{WORKSPACE}/{name}", b"x")
            await asyncio.sleep(0.02)
        names = [f"{WORKSPACE}/{name}" for name in ("pkg/deep/new.py", "pkg/mid.py", "old.py")]
        assert await sandbox.glob("*.py", WORKSPACE) == names
        assert await sandbox.glob("**/*.py", WORKSPACE) == names
        assert await sandbox.glob("pkg/*.py", WORKSPACE) == [names[1]]
        assert await sandbox.glob("{old,new}.p?", WORKSPACE, limit=1) == [names[0]]
        assert await sandbox.glob("*.py", ROOT) == names
        assert await sandbox.glob("*.rs", ROOT) == []

    async def test_grep_returns_lines_and_skips_binary_files(self, sandbox: Sandbox) -> None:
        await sandbox.write(f"{WORKSPACE}/a.py", b"import os\nprint(1)\nimport re\n")
        await sandbox.write(f"{WORKSPACE}/b.txt", b"import nothing\n")
        await sandbox.write(f"{WORKSPACE}/c.py", b"import\0binary")
        found = await sandbox.grep(r"^import \w+$", WORKSPACE, glob="*.py")
        assert [(m.path, m.line, m.text) for m in found] == [
            (f"{WORKSPACE}/a.py", 1, "import os"),
            (f"{WORKSPACE}/a.py", 3, "import re"),
        ]
        assert len(await sandbox.grep("import", ROOT)) == 3
        assert len(await sandbox.grep("import", ROOT, limit=1)) == 1

    async def test_files_that_the_host_puts_into_uploads_are_visible(self, sandbox: Sandbox, tmp_path: Path) -> None:
        from sandbox.disk.safe_files import write_file

        write_file(tmp_path / "one" / "uploads", "photo.jpg", b"jpeg")
        assert await sandbox.read(f"{UPLOADS}/photo.jpg") == b"jpeg"
        await sandbox.write(f"{UPLOADS}/photo.jpg", b"changed")
        assert (tmp_path / "one" / "uploads" / "photo.jpg").read_bytes() == b"changed"

    async def test_run_without_commands_explains_why(self, provider: SandboxProvider, sandbox: Sandbox) -> None:
        if provider.runs_commands:
            assert (await sandbox.run(ShellCommand("true"))).exit_code == 0
        else:
            with pytest.raises(SandboxUnavailable, match="bubblewrap"):
                await sandbox.run(ShellCommand("true"))


@pytest.mark.asyncio
class CommandContract:
    """What a provider that runs commands promises beside that. A subclass has the async fixture `provider`."""

    @pytest_asyncio.fixture
    async def computer(self, provider: SandboxProvider, tmp_path: Path) -> AsyncIterator[Sandbox]:
        assert provider.runs_commands
        async with provider.acquire("thread/1", tmp_path / "one") as sandbox:
            yield sandbox

    async def test_a_command_gives_exit_code_output_in_order_and_cwd(self, computer: Sandbox) -> None:
        result = await computer.run(ShellCommand("cd /tmp; echo out; echo err >&2; exit 3"))
        assert (result.exit_code, result.output, result.cwd, result.dropped) == (3, "out\nerr\n", "/tmp", 0)

    async def test_cwd_is_kept_between_commands_and_can_be_given(self, computer: Sandbox) -> None:
        assert (await computer.run(ShellCommand("pwd"))).output.strip() == WORKSPACE
        await computer.run(ShellCommand("mkdir -p app; cd app"))
        assert (await computer.run(ShellCommand("pwd"))).output.strip() == f"{WORKSPACE}/app"
        assert (await computer.run(ShellCommand("pwd", cwd="/tmp"))).output.strip() == "/tmp"

    async def test_a_cwd_that_went_away_is_said_and_replaced(self, computer: Sandbox) -> None:
        await computer.run(ShellCommand("mkdir gone; cd gone; rmdir ../gone"))
        result = await computer.run(ShellCommand("pwd", cwd=f"{WORKSPACE}/gone"))
        assert result.exit_code == 0
        assert result.output.endswith(f"{WORKSPACE}\n")
        assert "gone" in result.output.splitlines()[0]

    async def test_environment_and_script_of_any_size(self, computer: Sandbox) -> None:
        assert (await computer.run(ShellCommand("echo $GREETING", env={"GREETING": "hé"}))).output == "hé\n"
        script = "x='" + "y" * 300_000 + "'\necho ${#x}"
        assert (await computer.run(ShellCommand(script))).output == "300000\n"

    async def test_stdin_is_empty(self, computer: Sandbox) -> None:
        assert (await computer.run(ShellCommand("cat; echo done", timeout_seconds=5))).output == "done\n"

    async def test_a_command_reads_its_stdin_while_it_answers(self, computer: Sandbox) -> None:
        to_send: asyncio.Queue[bytes | None] = asyncio.Queue()
        heard: list[str] = []

        async def stdin() -> AsyncIterator[bytes]:
            while (data := await to_send.get()) is not None:
                yield data

        async def answer(text: str) -> None:
            heard.append(text)
            to_send.put_nowait(b"two\n" if len(heard) == 1 else None)

        to_send.put_nowait(b"one\n")
        script = "while read -r line; do echo got $line; done; echo end"
        result = await computer.run(ShellCommand(script, on_output=answer, stdin=stdin()))
        assert (result.exit_code, result.output) == (0, "got one\ngot two\nend\n")
        assert heard[0] == "got one\n"

    async def test_output_is_streamed_while_it_runs(self, computer: Sandbox) -> None:
        got: list[tuple[str, bool]] = []
        task = asyncio.create_task(
            computer.run(ShellCommand("echo a; read -t 0.5 < <(sleep 5); echo 谢", on_output=lambda t: add(t)))
        )

        async def add(text: str) -> None:
            got.append((text, task.done()))

        result = await task
        assert got == [("a\n", False), ("谢\n", False)]
        assert result.output == "a\n谢\n"

    async def test_a_character_split_between_two_chunks_is_joined(self, computer: Sandbox) -> None:
        got: list[str] = []

        async def add(text: str) -> None:
            got.append(text)

        result = await computer.run(ShellCommand(r"printf '\xe8\xb0'; sleep 0.2; printf '\xa2'", on_output=add))
        assert "".join(got) == result.output == "谢"

    async def test_long_output_keeps_beginning_and_end(self, computer: Sandbox) -> None:
        result = await computer.run(
            ShellCommand("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last", max_output_bytes=1000)
        )
        assert result.output.startswith("first\nxxx")
        assert result.output.endswith("xxx\nlast\n")
        assert result.dropped == 1_000_012 - 1000
        assert "999,012 bytes left out" in result.output
        assert len(result.output) < 1100

    async def test_a_timeout_kills_the_whole_tree(self, computer: Sandbox) -> None:
        escape = "setsid sleep 7001 & (setsid nohup sleep 7001 &) ; (sleep 7001 & disown); echo begun; sleep 7001"
        result = await computer.run(ShellCommand(escape, timeout_seconds=0.5))
        assert result.timed_out
        assert result.exit_code is None
        assert result.output == "begun\n"
        assert await count_alive(computer, "7001") == 0

    async def test_an_error_in_the_output_callback_kills_the_command(self, computer: Sandbox) -> None:
        async def fail(_: str) -> None:
            raise ValueError("nobody listens")

        with pytest.raises(ValueError, match="nobody listens"):
            await computer.run(ShellCommand("echo x; sleep 7002", on_output=fail))
        for _ in range(100):
            if not await count_alive(computer, "7002"):
                break
            await asyncio.sleep(0.02)
        assert await count_alive(computer, "7002") == 0

    async def test_background_output_does_not_hold_up_or_block(self, computer: Sandbox) -> None:
        result = await computer.run(
            ShellCommand("(while :; do echo noise; sleep 0.001; done) & echo $!", timeout_seconds=20)
        )
        assert not result.timed_out
        pid = next(line for line in result.output.split() if line.isdigit())
        await asyncio.sleep(0.3)
        assert (await computer.run(ShellCommand(f"kill -0 {pid} && kill {pid} && echo lived"))).output == "lived\n"

    async def test_commands_may_end_in_any_way(self, computer: Sandbox) -> None:
        assert (await computer.run(ShellCommand("kill -9 $$"))).exit_code == 137
        assert (await computer.run(ShellCommand("exec false"))).exit_code == 1
        assert (await computer.run(ShellCommand("if then"))).exit_code != 0
        assert (await computer.run(ShellCommand("trap 'echo bye' EXIT; cd /tmp"))).output == "bye\n"
        assert (await computer.run(ShellCommand("exec 1>&- 2>&-; sleep 0.1; exit 4"))).exit_code == 4
        assert (await computer.run(ShellCommand(""))).exit_code == 0
