"""The lifecycle of bubblewrap sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import h11
import orjson
import pytest

from sandbox.base import OUTPUTS, WORKSPACE, Sandbox, SandboxGone, SandboxUnavailable, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider, ProcessStream, explain_failure
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.docker.spec import DockerSettings
from sandbox.engines.select import LazySandbox, select_provider
from sandbox.settings import SandboxSettings
from sandbox.wire.client import StreamSandbox
from tests.fakes.server import until
from tests.support.engines import measured, need_bubblewrap


def children(pid: int | None = None) -> list[int]:
    """List the children of all threads of this process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def bubblewraps() -> list[int]:
    return [pid for pid in children() if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n"]


async def test_concurrent_callers_share_one_sandbox(provider: BubblewrapProvider, folder: Path) -> None:
    async def use() -> Sandbox:
        async with provider.acquire("t", folder) as sandbox:
            assert (await sandbox.run(ShellCommand("echo here"))).output == "here\n"
            return sandbox

    first, *others = await asyncio.gather(*(use() for _ in range(5)))
    assert all(other is first for other in others)
    assert len(bubblewraps()) == 1


async def test_cancelling_one_caller_keeps_the_start_for_the_other(provider: BubblewrapProvider, folder: Path) -> None:
    async def use() -> str:
        async with provider.acquire("t", folder) as sandbox:
            return (await sandbox.run(ShellCommand("echo here"))).output

    first, second = asyncio.create_task(use()), asyncio.create_task(use())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "here\n"
    assert first.cancelled()


async def test_many_sandboxes_start_in_parallel(provider: BubblewrapProvider, tmp_path: Path) -> None:
    async def use(number: int) -> str:
        async with provider.acquire(f"t{number}", tmp_path / f"t{number}") as sandbox:
            return (await sandbox.run(ShellCommand(f"echo {number} > {OUTPUTS}/n; cat {OUTPUTS}/n"))).output

    assert await asyncio.gather(*(use(i) for i in range(20))) == [f"{i}\n" for i in range(20)]
    assert len(bubblewraps()) == 20
    await provider.close()
    assert bubblewraps() == []


# Case 76 of docs/cases.md
@pytest.mark.parametrize("victim", ["bubblewrap", "server"])
async def test_a_sandbox_killed_during_a_command_is_replaced(
    provider: BubblewrapProvider, folder: Path, victim: str
) -> None:
    async with provider.acquire("t", folder) as sandbox:
        await sandbox.write(f"{WORKSPACE}/kept", b"kept")
        running = asyncio.create_task(sandbox.run(ShellCommand("touch begun; sleep 7020")))
        await until((folder / "workspace" / "begun").exists, what="the command")
        (outer,) = bubblewraps()
        os.kill(outer if victim == "bubblewrap" else children(outer)[0], signal.SIGKILL)
        with pytest.raises(SandboxGone, match="files are intact"):
            await running
        assert sandbox.gone
    async with provider.acquire("t", folder) as fresh:
        assert await fresh.read(f"{WORKSPACE}/kept") == b"kept"
        assert (await fresh.run(ShellCommand("ls -d /proc/[0-9]* | wc -l"))).exit_code == 0
    left = ["pgrep", "-f", "sleep 702[0]"]
    await until(lambda: subprocess.run(left, stdout=subprocess.DEVNULL).returncode, what="the end of its processes")


FLOOD = """
import os, struct
os.read(0, 1 << 20)
frame = b'{"hello": 1}'
os.write(1, struct.pack(">II", len(frame), 0) + frame)
while True:
    os.write(1, b"!" * 65536)
"""


async def test_a_sandbox_that_keeps_writing_still_ends() -> None:
    """After a protocol error its output is still read; otherwise its end is never seen."""
    for _ in range(5):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FLOOD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        sandbox = StreamSandbox(ProcessStream(process, "t"), "t", SandboxSettings(Path()))
        async with asyncio.timeout(60):
            with contextlib.suppress(SandboxGone):  # when the first of the remaining bytes is read
                await sandbox.start()
                await sandbox.run(ShellCommand("true"))
            await sandbox.close()
        assert process.returncode is not None


async def test_a_lazy_sandbox_is_replaced_after_it_ended(provider: BubblewrapProvider, folder: Path) -> None:
    machine = LazySandbox(provider, "t", folder)
    assert machine.runs_commands
    machine.warm()
    machine.warm()
    first = await machine.get()
    assert await machine.get() is first
    os.kill(bubblewraps()[0], signal.SIGKILL)
    with pytest.raises(SandboxGone):
        await first.run(ShellCommand("sleep 5"))
    second = await machine.get()
    assert (await second.run(ShellCommand("echo again"))).output == "again\n"
    assert await provider.reap(0) == []
    await machine.aclose()
    assert await provider.reap(0) == ["t"]


async def test_an_unused_lazy_sandbox_does_not_start(provider: BubblewrapProvider, folder: Path) -> None:
    machine = LazySandbox(provider, "t", folder)
    await machine.aclose()
    assert bubblewraps() == []
    assert not folder.exists()


async def test_destroying_during_the_start_leaves_nothing(provider: BubblewrapProvider, folder: Path) -> None:
    machine = LazySandbox(provider, "t", folder)
    waiting = asyncio.create_task(machine.get())
    async with asyncio.timeout(60):
        while "t" not in provider.keys:  # its start begins now
            await asyncio.sleep(0)
    await provider.destroy("t")
    with pytest.raises(SandboxGone):
        await waiting
    await machine.aclose()
    await until(lambda: not bubblewraps(), what="the end of what had begun")


async def test_the_settings_limit_the_timeout_of_a_command(tmp_path: Path, folder: Path) -> None:
    need_bubblewrap()
    provider = BubblewrapProvider(SandboxSettings(tmp_path, command_seconds=0.5))
    async with provider.acquire("t", folder) as sandbox:
        assert (await sandbox.run(ShellCommand("sleep 60", timeout_seconds=9999))).timed_out
    await provider.close()


async def test_folders_above_the_data_may_be_closed_to_others(tmp_path: Path, provider: BubblewrapProvider) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    async with provider.acquire("h", hidden / "deep" / "thread") as sandbox:
        assert (await sandbox.run(ShellCommand(f"echo x > {OUTPUTS}/a"))).exit_code == 0
    assert (hidden / "deep" / "thread" / "outputs" / "a").read_text() == "x\n"


async def test_provider_selection(tmp_path: Path) -> None:
    need_bubblewrap()
    settings = DockerSettings(tmp_path, state=tmp_path, host=f"unix://{tmp_path}/none")
    provider, said, why = await select_provider("auto", settings, measured())
    assert provider.runs_commands
    assert "bubblewrap" in str(said)
    assert "Docker" not in str(said), "the advice is in `fawn check`, not in every status"
    assert "Docker is not used" in str(why)
    await provider.close()
    assert bubblewraps() == []
    provider, said, _why = await select_provider("none", settings, measured())
    assert isinstance(provider, FilesOnlyProvider)
    assert "as configured" in str(said)


WITHOUT = """
import asyncio, os, sys
from pathlib import Path
from sandbox.base import SandboxUnavailable
from sandbox.docker.spec import DockerSettings
from sandbox.disk.folders import ConversationFolders
from sandbox.engines.select import select_provider

measured = ConversationFolders(Path("threads"), 16)

async def main() -> None:
    settings = DockerSettings(Path("skills"), state=Path("state"), host="unix:///nowhere")
    provider, said, _why = await select_provider("auto", settings, measured)
    print(provider.runs_commands, said)
    try:
        await select_provider("local", settings, measured)
    except SandboxUnavailable as error:
        print("refused:", error)

asyncio.run(main())
"""


def elsewhere(path: str, folder: Path) -> list[str]:
    """Run WITHOUT in `folder`, in a process that finds programs only below `path`."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    return done.stdout.splitlines()


def test_without_bubblewrap_the_message_has_the_fix(tmp_path: Path) -> None:
    auto, local = elsewhere(str(tmp_path), tmp_path)
    assert auto.startswith("False files only, commands are off. bubblewrap is not installed")
    assert "apt install bubblewrap" in auto
    assert local.startswith("refused: bubblewrap is not installed")


def test_a_namespace_failure_is_explained_without_host_paths(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(
        textwrap.dedent(
            """\
            #!/bin/sh
            [ "$1" = --version ] && echo bubblewrap 0.8.0 && exit
            echo "bwrap: setting up uid map: Permission denied in /secret/place" >&2
            exit 1
            """
        )
    )
    fake.chmod(0o755)
    tmp_path.chmod(0o755)
    auto, local = elsewhere(f"{tmp_path}:/usr/bin:/bin", tmp_path)
    assert auto.startswith("False files only")
    assert "bubblewrap" in local
    assert "/secret/place" not in auto + local


REFUSED = "bwrap: setting up uid map: Permission denied"


@pytest.mark.parametrize(
    ("file", "content", "fix"),
    [
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "in /etc/apparmor.d/bwrap"),
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0", "try `bwrap --unshare-all"),
        ("proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        (".dockerenv", "", "--security-opt seccomp=unconfined"),
        ("run/.containerenv", "", "--security-opt apparmor=unconfined"),
    ],
)
def test_what_forbids_namespaces_is_named_with_its_fix(tmp_path: Path, file: str, content: str, fix: str) -> None:
    """The machine is a folder with the files of another one."""
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(f"{content}\n")
    assert fix in str(explain_failure(REFUSED, tmp_path))


def test_the_profile_that_is_advised_is_the_one_of_the_docs(tmp_path: Path) -> None:
    file = tmp_path / "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    file.parent.mkdir(parents=True)
    file.write_text("1\n")
    advice = str(explain_failure(REFUSED, tmp_path))
    page = (Path(__file__).parents[3] / "docs/security.md").read_text("utf-8")
    [path] = re.findall(r"/etc/apparmor\.d/\w+", advice)
    [profile] = [block for block in re.findall(r"```\n(.*?)```", page, re.DOTALL) if "profile" in block]
    assert f"save this as `{path}`" in page
    assert "profile bwrap /usr/bin/bwrap" in profile
    assert "userns," in profile


@pytest.mark.skipif(os.geteuid() != 0, reason="already an ordinary user: every test here is the test")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv: apt install util-linux")
def test_an_ordinary_user_can_run_sandboxes() -> None:
    need_bubblewrap()
    script = textwrap.dedent(
        """
        import asyncio, os, tempfile
        from pathlib import Path
        from sandbox.bubblewrap.provider import BubblewrapProvider, supplementary_groups
        from sandbox.base import ShellCommand
        from sandbox.settings import SandboxSettings

        async def main() -> None:
            assert os.geteuid() == 64321
            scratch = Path(tempfile.mkdtemp())
            provider = BubblewrapProvider(SandboxSettings(scratch, processes=32))
            await provider.check()
            async with provider.acquire("t", scratch / "t") as sandbox:
                bomb = "for i in $(seq 50); do sleep 9 & done; wait"
                result = await sandbox.run(ShellCommand(f"id -u; echo hi > ../outputs/a; {bomb}", timeout_seconds=2))
            made = (scratch / "t" / "outputs" / "a").read_text().strip()
            print(result.output.split()[0], made, "Resource" in result.output, supplementary_groups())
            await provider.close()

        asyncio.run(main())
        """
    )
    # That user may not be able to read our source and libraries, so use a copy.
    with tempfile.TemporaryDirectory(prefix="fawn-") as home:
        for package in ("sandbox", "catalogue"):
            shutil.copytree(Path(__file__).parents[3] / package, Path(home, package))
        for library in (orjson, h11):
            shutil.copytree(Path(library.__file__ or "").parent, Path(home, library.__name__))
        subprocess.run(["chmod", "-R", "a+rX", home], check=True)
        done = subprocess.run(
            ["setpriv", "--reuid=64321", "--regid=64321", "--groups=60,64322", "/usr/bin/python3", "-c", script],
            cwd=home, capture_output=True, text=True, timeout=180, env={"PATH": os.defpath},
        )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == "1000 hi True ['64322', 'games']\n"


ORPHAN = """
import asyncio, sys
from pathlib import Path
from sandbox.base import ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings

async def main() -> None:
    async with BubblewrapProvider(SandboxSettings(Path("skills"))).acquire("t", Path(sys.argv[1])) as sandbox:
        await sandbox.run(ShellCommand("setsid sleep 7030 &"))
        print("ready", flush=True)
        await sandbox.run(ShellCommand("sleep 7030"))

asyncio.run(main())
"""


async def test_sandboxes_end_when_the_service_is_killed(folder: Path) -> None:
    need_bubblewrap()
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHAN, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert service.stdout
    assert await service.stdout.readline() == b"ready\n"
    os.kill(service.pid, signal.SIGKILL)
    await service.wait()
    left = ["pgrep", "-f", "sleep 703[0]"]
    await until(lambda: subprocess.run(left, stdout=subprocess.DEVNULL).returncode, what="the end of its processes")


async def test_relative_folders_are_resolved(provider: BubblewrapProvider, tmp_path: Path) -> None:
    relative = Path(os.path.relpath(tmp_path / "r"))
    assert not relative.is_absolute()
    async with provider.acquire("r", relative) as sandbox:
        await sandbox.write(f"{WORKSPACE}/a", b"x")
    assert (tmp_path / "r" / "workspace" / "a").read_bytes() == b"x"


async def test_a_failed_start_is_reported(tmp_path: Path, provider: BubblewrapProvider) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises((SandboxUnavailable, OSError)):
        async with provider.acquire("x", blocked):
            pass
    assert bubblewraps() == []


async def test_the_folder_of_the_trial_is_named_after_its_process_so_that_a_kill_leaves_none_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_bubblewrap()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    provider = BubblewrapProvider(SandboxSettings(Path("skills")))
    try:
        trial = asyncio.create_task(provider.check())
        while not (seen := [*tmp_path.glob("fawn-*/workspace")]) and not trial.done():
            await asyncio.sleep(0)
        await trial
    finally:
        await provider.close()
    [workspace] = seen
    assert workspace.parent.name.startswith(f"fawn-{os.getpid()}-"), "`make_socket_dir` removes it"


async def test_a_start_that_is_cut_off_leaves_no_program_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = tmp_path / "pid"
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho $$ > {number}.new && mv {number}.new {number}\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    provider = BubblewrapProvider(SandboxSettings(Path("skills")))
    starting = asyncio.create_task(provider.check(), name="start")
    await until(number.exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not Path("/proc", number.read_text().strip()).exists()
