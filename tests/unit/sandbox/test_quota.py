"""Disk limits of conversations, on each provider that runs commands."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from sandbox.base import OUTPUTS, WORKSPACE, SandboxError, SandboxProvider, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.quota import QuotaProvider
from sandbox.disk.usage import DiskUsage, delete_newest, measure_usage
from sandbox.settings import SandboxSettings
from tests.fakes.server import until
from tests.support.engines import docker_provider, docker_settings, need_bubblewrap, unprivileged

MB = 1 << 20


@pytest.fixture(params=["bubblewrap", "docker"])
async def inner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    async with AsyncExitStack() as stack:
        if request.param == "docker":
            yield await stack.enter_async_context(docker_provider(docker_settings(tmp_path)))
        else:
            need_bubblewrap()
            provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
            stack.push_async_callback(provider.close)
            yield provider


@asynccontextmanager
async def watched(
    inner: SandboxProvider, mb: int = 40, files: int = 10_000, root: Path = Path(), measure_seconds: float = 10.0
) -> AsyncIterator[QuotaProvider]:
    """A quota of 40 MB."""
    disk = QuotaProvider(inner, ConversationFolders(root, mb), files, measure_seconds=measure_seconds)
    async with watching(disk):
        yield disk


@asynccontextmanager
async def watching(disk: QuotaProvider) -> AsyncIterator[None]:
    """Its readings of the disk, until the block ends."""
    task = asyncio.create_task(disk.watch(), name="watch")
    yield
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def grow(name: str, mb: int) -> str:
    """Return a command that writes `mb` MB in pieces, about 50 MB a second."""
    return f"for i in $(seq {mb}); do head -c 1M /dev/zero >> {name}; sleep 0.02; done; echo written"


async def freed(folder: Path, mb: int) -> None:
    """Wait until the folder holds less."""
    async with asyncio.timeout(60):
        while (await measure_usage([folder])).size > mb * MB:
            await asyncio.sleep(0.1)


async def test_a_sandbox_over_its_limit_is_stopped_and_others_continue(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner) as disk, disk.acquire("a", tmp_path / "a") as a, disk.acquire("b", tmp_path / "b") as b:
        await a.write(f"{WORKSPACE}/mine", bytes(10 * MB))
        await a.write(f"{WORKSPACE}/small", b"x" * 1000)
        other = asyncio.create_task(b.run(ShellCommand(grow("x", 30), timeout_seconds=60)))
        words = (
            r"The sandbox was stopped with all its processes: the files of this conversation take \d+ MB of the disk,"
            r" and 40 MB are allowed .sandbox.disk_mb.. Deleted the newest files: workspace/x .\d+.\d MB."
        )
        with pytest.raises(SandboxError, match=words):
            await a.run(
                ShellCommand(
                    f"trap '' TERM; (setsid sh -c '{grow('x', 3000)}' &); {grow('x', 3000)}", timeout_seconds=60
                )
            )
        assert a.gone
        assert (await measure_usage([tmp_path / "a"])).size < 40 * MB
        assert (await other).output == "written\n"
        async with disk.acquire("a", tmp_path / "a") as again:
            assert (
                await again.run(ShellCommand("ls; " + grow("y", 5), timeout_seconds=60))
            ).output == "mine\nsmall\nwritten\n"
            assert not b.gone


async def test_a_burst_between_two_readings_is_deleted(inner: SandboxProvider, tmp_path: Path) -> None:
    burst = ShellCommand("for i in 1 2 3; do fallocate -l 30M ../outputs/x$i; done; fallocate -l 1M y; sleep 20")
    last = tmp_path / "a" / "workspace" / "y"
    disk = QuotaProvider(inner, ConversationFolders(Path(), 40), 10_000)
    async with disk.acquire("a", tmp_path / "a") as sandbox:
        running = asyncio.create_task(sandbox.run(burst))
        await until(last.exists, what="all of the burst")
        async with watching(disk):
            with pytest.raises(SandboxError, match=r"Deleted the newest files: outputs/x\d \(30.0 MB\), outputs/x\d"):
                await running
        assert (await measure_usage([tmp_path / "a"])).size < 40 * MB
        assert last.exists()  # the largest was deleted, and no more than necessary


async def test_background_writers_are_stopped_too(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner) as disk:
        async with disk.acquire("a", tmp_path / "a") as sandbox:
            await sandbox.run(
                ShellCommand("(touch x; fallocate -n -l 1G x; sleep 100) >/dev/null 2>&1 &")
            )  # its stated size is 0
            async with asyncio.timeout(60):
                while not sandbox.gone:
                    await asyncio.sleep(0.1)
        await freed(tmp_path / "a", 40)
        async with disk.acquire("a", tmp_path / "a") as again:
            result = await again.run(ShellCommand("ls; echo gone"))
            assert result.output.startswith("gone\n[The sandbox was stopped with all its processes: the files of")
            assert "workspace/x (1,024.0 MB)" in result.output
            assert (await again.run(ShellCommand("echo fine"))).output == "fine\n"


async def test_older_files_stay_and_can_be_deleted(inner: SandboxProvider, tmp_path: Path) -> None:
    """As after the limit was lowered: the files are older and exceed it."""
    work = tmp_path / "a" / "workspace"
    work.mkdir(parents=True)
    (work / "old").write_bytes(bytes(60 * MB))
    async with watched(inner) as disk:
        async with disk.acquire("a", tmp_path / "a") as sandbox:
            assert (await sandbox.run(ShellCommand("echo fine; sleep 1"))).output == "fine\n"
            with pytest.raises(SandboxError, match="workspace/new"):
                await sandbox.run(ShellCommand("fallocate -l 5M new; touch -d 2001-01-01 new; sleep 20"))
        assert (work / "old").exists()
        async with disk.acquire("a", tmp_path / "a") as sandbox:
            assert (await sandbox.run(ShellCommand("rm old; fallocate -l 5M new; sleep 1; ls"))).output == "new\n"


async def test_a_million_empty_files_are_prevented(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner, files=3000) as disk, disk.acquire("a", tmp_path / "a") as sandbox:
        many = "import os\nfor i in range(1000000):\n  os.close(os.open(f'f{i}', os.O_CREAT))\n"
        with pytest.raises(SandboxError, match=r"are [\d,]+, and 3,000 are allowed"):
            await sandbox.run(ShellCommand(f'mkdir d; cd d; python3 -c "{many}"', timeout_seconds=120))
        assert (await measure_usage([tmp_path / "a"])).files <= 3004


async def test_files_that_no_measurement_ends_for_are_limited_by_what_the_disk_loses(
    inner: SandboxProvider, tmp_path: Path
) -> None:
    """What others take of the disk meanwhile counts, too: then nothing is deleted."""
    async with watched(inner, files=3000, measure_seconds=1e-4) as disk, disk.acquire("a", tmp_path / "a") as sandbox:
        many = "import os\nfor i in range(1000000):\n  os.close(os.open(f'f{i}', os.O_CREAT))\n"
        with pytest.raises(SandboxError, match=r"are [\d,]+, and 3,000 are allowed|changed too fast to be measured"):
            await sandbox.run(ShellCommand(f'mkdir d; cd d; python3 -c "{many}"', timeout_seconds=120))
        assert (await measure_usage([tmp_path / "a"])).files <= 3004


@pytest.mark.usefixtures("deep_tree_removed")
async def test_a_million_folders_are_prevented(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner, 10_000, files=3000) as disk, disk.acquire("a", tmp_path / "a") as sandbox:
        # deeper than any path
        deep = "import os, time\nfor _ in range(20_000):\n  os.mkdir('d')\n  os.chdir('d')\ntime.sleep(60)\n"
        with pytest.raises(SandboxError, match=r"are [\d,]+, and 3,000 are allowed"):
            await sandbox.run(ShellCommand(f'python3 -c "{deep}"', timeout_seconds=60))
        assert (await measure_usage([tmp_path / "a"])).files <= 3004


async def test_a_large_file_among_many_files_is_deleted(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner) as disk, disk.acquire("a", tmp_path / "a") as sandbox:
        hide = "mkdir -p .h; chmod 700 .h; fallocate -l 60M .h/x; for i in $(seq 50); do ln .h/x l$i; done"
        with pytest.raises(SandboxError, match=r"60\.0 MB"):
            await sandbox.run(ShellCommand(f"{hide}; chmod 0 .h; sleep 20", timeout_seconds=60))
        assert (await measure_usage([tmp_path / "a"])).size < MB


# ---------------------------------------------------------------- without a sandbox


async def test_newest_files_are_deleted_before_changed_ones(tmp_path: Path) -> None:
    (tmp_path / "workspace" / "d").mkdir(parents=True)
    for name in ("uploads", "outputs"):
        (tmp_path / name).mkdir()
    old, new = tmp_path / "workspace" / "old", tmp_path / "workspace" / "d" / "new"
    old.write_bytes(bytes(4 * MB))
    await asyncio.sleep(0.1)  # file time stamps have a coarse clock
    since = time.time() - 0.02
    with old.open("ab") as file:
        file.write(bytes(MB))
    new.write_bytes(bytes(MB))
    (tmp_path / "outputs" / "a\nb").write_bytes(bytes(2 * MB))
    os.symlink("/usr", tmp_path / "workspace" / "link")
    assert await delete_newest(tmp_path, since, DiskUsage()) == (DiskUsage(), [])
    assert await delete_newest(tmp_path, since, DiskUsage(MB, 0)) == (DiskUsage(2 * MB, 1), [(2 * MB, "outputs/a\nb")])
    assert (await delete_newest(tmp_path, since, DiskUsage(2 * MB, 0)))[0].size >= 6 * MB
    assert not new.exists()
    assert not old.exists()
    assert Path("/usr/bin").exists()


async def test_sparse_files_and_links_count_their_real_size_once(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "full").write_bytes(b"x" * MB)
    os.link(folder / "full", folder / "again")
    (folder / "out").symlink_to("/usr")
    usage = await measure_usage([folder])
    assert MB <= usage.size < 1.2 * MB
    assert usage.files == 4  # the folder itself, two files and a link


async def test_idle_conversations_are_not_measured_again(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner, 1 << 20, 1 << 30) as disk:
        async with disk.acquire("a", tmp_path / "a") as sandbox:
            await sandbox.write(f"{OUTPUTS}/x", b"x")
        (one,) = disk._known.values()
        async with asyncio.timeout(60):
            while one.loss_mark is None or not one.measured:
                await asyncio.sleep(0.05)
        first = one.measured
        await asyncio.sleep(1.5)
        assert one.measured is first
        await disk.destroy("a")
        assert not disk._known


async def test_closed_folders_are_measured() -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        Path(folder).chmod(0o777)
        with unprivileged():  # root may read everything
            hidden = Path(folder) / "f" / "hidden"
            hidden.mkdir(parents=True)
            (hidden / "x").write_bytes(b"x" * MB)
            hidden.chmod(0)
            assert (await measure_usage([Path(folder) / "f"])).size >= MB
