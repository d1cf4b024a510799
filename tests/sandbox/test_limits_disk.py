"""What conversations may hold on the disk, on every provider that runs commands."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from sandbox.base import OUTPUTS, WORKSPACE, FileFault, Gone, SandboxError, SandboxProvider
from sandbox.bubblewrap.provider import Bubblewrap
from sandbox.disk.quota import Disk, measure
from sandbox.settings import Settings
from tests.engines import docker_provider, docker_settings, measured, need_bubblewrap, unprivileged

MB = 1 << 20


@pytest.fixture(params=["bubblewrap", "docker"])
async def inner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    async with AsyncExitStack() as stack:
        if request.param == "docker":
            yield await stack.enter_async_context(docker_provider(docker_settings(tmp_path)))
        else:
            need_bubblewrap()
            provider = Bubblewrap(Settings(tmp_path / "skills"))
            stack.push_async_callback(provider.close)
            yield provider


@asynccontextmanager
async def watched(inner: SandboxProvider, mb: int = 40, files: int = 10_000) -> AsyncIterator[Disk]:
    """A bound of 40 MB."""
    disk = Disk(inner, measured(mb), files, tick=0.2)
    watching = asyncio.create_task(disk.watch(), name="watch")
    yield disk
    watching.cancel()
    await asyncio.wait([watching])
    assert watching.cancelled()


def grow(name: str, mb: int) -> str:
    """Write `mb` MB, a piece at a time, about 50 MB a second."""
    return f"for i in $(seq {mb}); do head -c 1M /dev/zero >> {name}; sleep 0.02; done; echo written"


async def test_a_writer_over_the_bound_is_stopped_and_others_go_on(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner) as disk, disk.acquire("a", tmp_path / "a") as a, disk.acquire("b", tmp_path / "b") as b:
        other = asyncio.create_task(b.run(grow("x", 30), timeout=60))
        begun = time.monotonic()
        with pytest.raises(SandboxError, match=r"take \d+ MB of the disk, and 40 MB are allowed .sandbox.disk_mb."):
            await a.run(f"trap '' TERM; (setsid sh -c '{grow('y', 3000)}' &); {grow('x', 3000)}", timeout=60)
        assert time.monotonic() - begun < 10
        assert (await other).output == "written\n"
        size = (await measure([tmp_path / "a"])).size
        await asyncio.sleep(0.5)
        assert (await measure([tmp_path / "a"])).size < size + MB  # nobody writes any more
        # Over it, files can be looked at and deleted, not made.
        with pytest.raises(FileFault, match="nothing can be written"):
            await a.write(f"{WORKSPACE}/more", b"x" * 1000)
        with pytest.raises(SandboxError, match="40 MB are allowed"):
            await a.run(grow("z", 3000), timeout=60)
        assert (await a.run("rm -f x y z; echo gone")).output == "gone\n"
        await a.write(f"{WORKSPACE}/more", b"x" * 1000)
        assert (await a.run(grow("x", 5), timeout=60)).output == "written\n"


async def test_who_writes_in_the_background_loses_the_machine(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner) as disk:
        async with disk.acquire("a", tmp_path / "a") as sandbox:
            await sandbox.run(f"({grow('x', 3000)}) >/dev/null 2>&1 &")
            async with asyncio.timeout(15):
                while not sandbox.gone:
                    await asyncio.sleep(0.1)
            with pytest.raises(Gone):
                await sandbox.run("true")
        size = (await measure([tmp_path / "a"])).size
        assert size < 1000 * MB
        async with disk.acquire("a", tmp_path / "a") as again:
            result = await again.run("rm x; echo gone")
            assert result.output.startswith("gone\n[The sandbox was stopped, with all that ran in it: the files of")
            assert (await again.run("echo fine")).output == "fine\n"


async def test_a_million_empty_files_are_not_made(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner, files=3000) as disk, disk.acquire("a", tmp_path / "a") as sandbox:
        many = "import os\nfor i in range(1000000):\n  os.close(os.open(f'f{i}', os.O_CREAT))\n"
        with pytest.raises(SandboxError, match=r"are [\d,]+, and 3,000 are allowed"):
            await sandbox.run(f'mkdir d; cd d; python3 -c "{many}"', timeout=120)
        again = "until rm -r d 2>/dev/null; do sleep 0.1; done; echo gone"  # who is killed may yet make a last file
        assert (await sandbox.run(again, timeout=120)).output == "gone\n"


async def test_sparse_files_and_links_count_once_and_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "full").write_bytes(b"x" * MB)
    os.link(folder / "full", folder / "again")
    (folder / "out").symlink_to("/usr")
    usage = await measure([folder])
    assert MB <= usage.size < 1.2 * MB
    assert usage.files == 4  # the folder itself, two files and a link


async def test_what_nobody_uses_is_not_measured_again(inner: SandboxProvider, tmp_path: Path) -> None:
    async with watched(inner, 1 << 20, 1 << 30) as disk:  # far away, whatever else is written on this machine
        async with disk.acquire("a", tmp_path / "a") as sandbox:
            await sandbox.write(f"{OUTPUTS}/x", b"x")
        (one,) = disk._known.values()
        async with asyncio.timeout(10):
            while not one.measured:
                await asyncio.sleep(0.05)
        first = one.measured
        await asyncio.sleep(1.5)
        assert one.measured == first
        await disk.destroy("a")
        assert not disk._known


async def test_hidden_folders_are_measured() -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        Path(folder).chmod(0o777)
        with unprivileged():  # root sees everything
            hidden = Path(folder) / "f" / "hidden"
            hidden.mkdir(parents=True)
            (hidden / "x").write_bytes(b"x" * MB)
            hidden.chmod(0)
            assert (await measure([Path(folder) / "f"])).size >= MB
