"""Contract of every sandbox provider. Providers without commands run only the file tests."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.sandbox import CommandContract, SandboxContract, count_alive
from sandbox.base import (
    SKILLS,
    UPLOADS,
    WORKSPACE,
    Sandbox,
    SandboxFileError,
    SandboxProvider,
    ShellCommand,
)
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.settings import SandboxSettings
from tests.support.cluster import kubernetes_provider
from tests.support.engines import docker_provider, docker_settings, need_bubblewrap


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    (folder / "plot").mkdir(parents=True)
    (folder / "plot" / "SKILL.md").write_text("# How to plot\n")
    return folder


@pytest.fixture(params=["bubblewrap", "docker", "kubernetes", "folders"])
async def provider(request: pytest.FixtureRequest, skills: Path, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    made: SandboxProvider
    if request.param == "docker":
        async with docker_provider(docker_settings(tmp_path)) as made:
            yield made
        return
    if request.param == "kubernetes":
        async with kubernetes_provider(tmp_path) as (made, _):
            yield made
        return
    if request.param == "bubblewrap":
        need_bubblewrap()
        made = BubblewrapProvider(SandboxSettings(skills))
    else:
        made = FilesOnlyProvider(skills)
    yield made
    await made.close()


@pytest.fixture
async def sandbox(provider: SandboxProvider, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire("thread/1", tmp_path / "one") as sandbox:
        yield sandbox


@pytest.fixture
def computer(sandbox: Sandbox) -> Sandbox:
    """A sandbox that runs commands, for tests that are marked for it."""
    assert sandbox.runs_commands
    return sandbox


commands = pytest.mark.parametrize("provider", ["bubblewrap", "docker", "kubernetes"], indirect=True)


class TestEveryProvider(SandboxContract):
    """The kit's suite on each provider."""


@commands
class TestEveryProviderWithCommands(CommandContract):
    """The kit's suite of commands on those that run them."""


# ---------------------------------------------------------------- beyond the kit


# ---------------------------------------------------------------- files


@commands
async def test_a_link_resolves_to_the_file_that_reading_and_writing_reach(computer: Sandbox) -> None:
    await computer.write(f"{UPLOADS}/s.txt", b"secret")
    await computer.run(
        ShellCommand(
            f"ln -s {UPLOADS}/s.txt link; ln -s link chain; ln -s {UPLOADS} folder; ln -s ../uploads/new.txt absent;"
            " ln -s / root; ln -s loop2 loop; ln -s loop loop2"
        )
    )
    for link in ("link", "chain", "folder/s.txt", "folder/../uploads/s.txt", f"root{UPLOADS}/s.txt"):
        path = f"{WORKSPACE}/{link}"
        real = await computer.realpath(path)
        assert real == f"{UPLOADS}/s.txt", path
        assert (await computer.stat(path)).path == real
        assert await computer.read(path) == await computer.read(real) == b"secret"
    assert await computer.realpath(f"{WORKSPACE}/absent") == f"{UPLOADS}/new.txt"
    assert await computer.realpath(f"{WORKSPACE}/folder/new/deep") == f"{UPLOADS}/new/deep"
    assert await computer.realpath(f"{WORKSPACE}/loop/x") == f"{WORKSPACE}/loop/x"
    with pytest.raises(SandboxFileError):
        await computer.read(f"{WORKSPACE}/loop")
    await computer.write(f"{WORKSPACE}/folder/s.txt", b"changed")
    assert await computer.read(f"{UPLOADS}/s.txt") == b"changed"


@pytest.mark.parametrize("provider", ["folders"], indirect=True)
async def test_without_commands_a_link_resolves_to_itself_and_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.write(f"{UPLOADS}/s.txt", b"secret")
    (tmp_path / "one" / "workspace" / "link").symlink_to(tmp_path / "one" / "uploads" / "s.txt")
    (tmp_path / "one" / "workspace" / "folder").symlink_to("../uploads")
    for path in (f"{WORKSPACE}/link", f"{WORKSPACE}/folder/s.txt"):
        assert await sandbox.realpath(path) == path
        with pytest.raises(SandboxFileError):
            await sandbox.read(path)
        with pytest.raises(SandboxFileError):
            await sandbox.stat(path)


async def test_skills_can_be_read(sandbox: Sandbox) -> None:
    assert await sandbox.read(f"{SKILLS}/plot/SKILL.md") == b"# How to plot\n"
    assert await sandbox.glob("SKILL.md", SKILLS) == [f"{SKILLS}/plot/SKILL.md"]


# ---------------------------------------------------------------- commands


@commands
@pytest.mark.parametrize("script", ["sha256sum; sleep 0", "head -c 5; exit 0", "exit 0"])
async def test_megabytes_of_stdin_arrive_unchanged_or_are_dropped(computer: Sandbox, script: str) -> None:
    data = bytes(range(256)) * 20_000

    async def stdin() -> AsyncIterator[bytes]:
        yield data

    result = await computer.run(ShellCommand(script, timeout_seconds=30, stdin=stdin()))
    assert result.exit_code == 0
    if script.startswith("sha256sum"):
        assert result.output.split()[0] == hashlib.sha256(data).hexdigest()
    assert (await computer.run(ShellCommand("cat; echo next"))).output == "next\n"


@commands
async def test_ten_commands_run_concurrently(computer: Sandbox) -> None:
    # Each waits until all have started; if run one after the other, they would all time out.
    meet = "touch m{0}; until [ $(ls | grep -c '^m') = 10 ]; do sleep 0.02; done; echo {0}"
    results = await asyncio.gather(*(computer.run(ShellCommand(meet.format(i), timeout_seconds=20)) for i in range(10)))
    assert [result.output for result in results] == [f"{i}\n" for i in range(10)]


@commands
async def test_67_cancelling_kills_the_whole_tree_within_two_seconds(computer: Sandbox) -> None:
    begun = asyncio.Event()

    async def seen(_: str) -> None:
        begun.set()

    task = asyncio.create_task(
        computer.run(ShellCommand("(setsid sleep 600 &); echo begun; sleep 600", on_output=seen))
    )
    await begun.wait()
    assert await count_alive(computer, "600") == 2
    stopped = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while await count_alive(computer, "600"):
        assert time.monotonic() - stopped < 60, "it sleeps for 600 s"
        await asyncio.sleep(0.05)
    assert (await computer.run(ShellCommand("echo next"))).output == "next\n"


@commands
async def test_83_background_processes_live_on_between_commands(computer: Sandbox) -> None:
    await computer.run(ShellCommand("echo hi > index.html; python3 -m http.server 8000 --bind 127.0.0.1 > log 2>&1 &"))
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').status)"
    command = f'for i in $(seq 50); do python3 -c "{fetch}" 2>/dev/null && break; sleep 0.1; done'
    assert (await computer.run(ShellCommand(command))).output == "200\n"
    assert (await computer.run(ShellCommand(command))).output == "200\n"


@commands
async def test_an_idle_sandbox_is_reaped_and_a_used_one_is_not(
    provider: SandboxProvider, computer: Sandbox, tmp_path: Path
) -> None:
    async with provider.acquire("idle", tmp_path / "idle") as idle:
        await idle.run(ShellCommand("true"))
    assert await provider.reap(3600) == []
    assert await provider.reap(0) == ["idle"]
    assert idle.gone
    assert (await computer.run(ShellCommand("echo here"))).output == "here\n"


@commands
async def test_releasing_a_sandbox_keeps_it_warm(provider: SandboxProvider, computer: Sandbox, tmp_path: Path) -> None:
    async with provider.acquire("warm", tmp_path / "warm") as first:
        await first.run(ShellCommand("sleep 7003 &"))
    async with provider.acquire("warm", tmp_path / "warm") as second:
        assert await count_alive(second, "7003") == 1
