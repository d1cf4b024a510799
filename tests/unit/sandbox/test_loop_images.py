"""Disk images of conversations: the limit, mounts, and failures."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandbox.base import (
    OUTPUTS,
    WORKSPACE,
    SandboxError,
    SandboxFileError,
    SandboxProvider,
    SandboxUnavailable,
    ShellCommand,
)
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.loop_images import LoopImageFolders
from sandbox.disk.quota import QuotaProvider
from sandbox.disk.safe_files import make_folders, write_file
from sandbox.select import select_provider
from sandbox.settings import SandboxSettings
from tests.support.engines import docker_provider, docker_settings, need_docker, need_images, unmounted, unprivileged

MB = 1 << 20


@pytest.fixture
async def threads(tmp_path: Path) -> AsyncIterator[Path]:
    need_images()
    with unmounted(tmp_path):
        yield tmp_path / "threads"


@pytest.fixture(params=["bubblewrap", "docker"])
async def inner(request: pytest.FixtureRequest, threads: Path, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    async with AsyncExitStack() as stack:
        if request.param == "docker":
            yield await stack.enter_async_context(docker_provider(docker_settings(tmp_path)))
        else:
            provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
            stack.push_async_callback(provider.close)
            yield provider


def on_disk(folder: Path) -> int:
    """Return the bytes that the image takes."""
    return folder.with_name(folder.name + ".img").stat().st_blocks * 512


def devices(folder: Path) -> list[str]:
    """List the loop devices that use the image."""
    return run("losetup", "-nO", "NAME", "-j", f"{folder}.img").split()


def run(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


async def rest(images: LoopImageFolders, keep: Path = Path()) -> None:
    """Release all unused folders. Sandboxes of other tests, which start with a copy of all mounts, may hold one for a
    moment."""
    async with asyncio.timeout(60):
        while images._uses.keys() - {keep}:
            await images.release_idle(0, keep={keep})
            await asyncio.sleep(0.05)


def leave(folder: Path, text: str = "kept") -> None:
    """Write a file, as an upload does."""
    make_folders(folder)
    write_file(folder / "uploads", "note", text.encode())


def left(folder: Path) -> str:
    return (folder / "uploads" / "note").read_text()


# ---------------------------------------------------------------- the bound


async def test_a_full_image_is_reported_and_does_not_affect_others(inner: SandboxProvider, threads: Path) -> None:
    disk = QuotaProvider(inner, LoopImageFolders(threads, 40, make=True))
    watching = asyncio.create_task(disk.watch(), name="watch")
    a, b = threads / "a", threads / "b"
    async with disk.acquire("a", a) as one, disk.acquire("b", b) as two:
        full = await one.run(
            ShellCommand("head -c 100M /dev/zero > x; (head -c 100M /dev/zero > y) &>/dev/null & wait; false")
        )
        assert full.output.startswith("head: error writing 'standard output': No space left on device\n"), full.output
        assert "[the conversation has 0 MB and" in full.output
        assert "left (sandbox.disk_mb); delete files that are not needed]" in full.output
        assert (await two.run(ShellCommand("head -c 20M /dev/zero > x && echo written"))).output == "written\n"
        with pytest.raises(SandboxFileError, match=r"more: No space left on device: the conversation has 0 MB and"):
            await one.write(f"{WORKSPACE}/more", b"x" * MB)
        with pytest.raises(SandboxFileError, match="No space left"):  # uploads count, too
            write_file(a / "uploads", "note", b"x" * MB)
        assert (await one.run(ShellCommand("rm x y; head -c 20M /dev/zero > z && echo again"))).output == "again\n"
        many = "import os\nfor i in range(100000):\n  os.close(os.open(f'f{i}', os.O_CREAT))\n"
        none = await one.run(ShellCommand(f'mkdir d; cd d; python3 -c "{many}"', timeout_seconds=60))
        assert "MB and 0 files left (sandbox.disk_mb)" in none.output
        assert (
            await one.run(ShellCommand("rm -r /mnt/user-data/workspace/d; ls", cwd=WORKSPACE, timeout_seconds=60))
        ).output == "z\n"
        assert on_disk(a) >= 40 * MB
    watching.cancel()
    await asyncio.wait([watching])
    assert watching.cancelled()


async def test_an_image_is_mounted_for_its_sandbox_and_small_at_rest(inner: SandboxProvider, threads: Path) -> None:
    images = LoopImageFolders(threads, 40, make=True)
    disk = QuotaProvider(inner, images)
    folder = threads / "a"
    async with disk.acquire("a", folder) as one, disk.acquire("a", folder) as same:  # concurrent callers
        assert one.gone is same.gone is False
        await one.run(ShellCommand("echo kept > note"))
    assert len(devices(folder)) == 1
    options = run("findmnt", "-no", "OPTIONS", folder)
    assert "nosuid" in options
    assert "nodev" in options
    # It is unused, but its sandbox still runs and may have servers in the background.
    images._uses[folder].since = -1e9
    await disk.reap(1000)
    assert os.path.ismount(folder)
    await disk.reap(0)
    await rest(images)
    assert not os.path.ismount(folder)
    assert not devices(folder)
    assert on_disk(folder) < 6 * MB
    async with disk.acquire("a", folder) as again:
        assert (await again.run(ShellCommand("cat note"))).output == "kept\n"


async def test_a_sandbox_does_not_hold_mounts_of_others(threads: Path, tmp_path: Path) -> None:
    """Its mount namespace begins as a copy of all mounts."""
    images = LoopImageFolders(threads, 16, make=True)
    provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
    disk = QuotaProvider(provider, images)
    async with images.open_folder(threads / "a with space"), disk.acquire("b", threads / "b") as sandbox:
        await sandbox.run(ShellCommand("true"))
    await rest(images, keep=threads / "b")
    assert not devices(threads / "a with space")
    assert devices(threads / "b")
    await disk.close()
    assert not os.path.ismount(threads / "b")


# ---------------------------------------------------------------- without a sandbox


async def test_concurrent_opens_share_one_image(threads: Path) -> None:
    images, folder = LoopImageFolders(threads, 16, make=True), threads / "a"

    async def use(number: int) -> None:
        async with images.open_folder(folder) as bound:
            assert bound
            await asyncio.to_thread(make_folders, folder)
            (folder / "uploads" / str(number)).touch()
            await images.release_idle(0)  # not under them
            assert os.path.ismount(folder)

    await asyncio.gather(*(use(number) for number in range(6)))
    assert len(os.listdir(folder / "uploads")) == 6
    assert len(devices(folder)) == 1
    assert sorted(path.name for path in threads.iterdir()) == ["a", "a.img"]
    with (folder / "uploads" / "0").open():
        await images.release_idle(0)  # busy: another process has it open
        assert os.path.ismount(folder)
    await rest(images)
    assert not os.path.ismount(folder)


async def test_mounting_does_not_block_the_loop(threads: Path) -> None:
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = asyncio.get_running_loop().time()
            await asyncio.sleep(0.001)
            longest = max(longest, asyncio.get_running_loop().time() - before)

    ticking = asyncio.create_task(tick())
    images = LoopImageFolders(threads, 16, make=True)
    run("true")  # the time of a program here
    begun = asyncio.get_running_loop().time()
    async with images.open_folder(threads / "a"):
        took = asyncio.get_running_loop().time() - begun
    ticking.cancel()
    assert longest < max(0.05, took / 3)
    await rest(images)


async def test_existing_folders_and_images_keep_their_kind(threads: Path) -> None:
    plain, image = threads / "plain", threads / "image"
    on, off = LoopImageFolders(threads, 16, make=True), LoopImageFolders(threads, 16, make=False)
    async with off.open_folder(plain) as bound:
        assert not bound
        leave(plain)
    async with on.open_folder(plain) as bound:
        assert not bound
        assert left(plain) == "kept"
    async with on.open_folder(image):
        leave(image)
    await rest(on)
    async with off.open_folder(image) as bound:
        assert bound
        assert left(image) == "kept"
    await rest(off)
    assert not os.path.ismount(image)


async def test_an_image_grows_with_the_limit_and_is_measured_above_it(threads: Path) -> None:
    folder = threads / "a"
    for size, bound in ((16, True), (64, True), (32, False)):
        images = LoopImageFolders(threads, size, make=True)
        async with images.open_folder(folder) as kept:
            assert kept is bound
            leave(folder) if size == 16 else None
            assert left(folder) == "kept"
            disk = os.statvfs(folder)
            assert 0.6 * max(size, 64 * (size > 16)) * MB < disk.f_blocks * disk.f_frsize <= 64 * MB
        await rest(images)


async def test_mounts_of_a_killed_service_are_released(threads: Path) -> None:
    mounted, unused = threads / "mounted", threads / "unused"
    script = (
        "import asyncio, pathlib, os, signal\n"
        "from sandbox.disk.loop_images import LoopImageFolders\nfrom tests.unit.sandbox.test_loop_images import leave\n"
        "async def main():\n"
        f"  images = LoopImageFolders(pathlib.Path({str(threads)!r}), 16, make=True)\n"
        f"  async with images.open_folder(pathlib.Path({str(unused)!r})),"
        f" images.open_folder(pathlib.Path({str(mounted)!r})):\n"
        f"    leave(pathlib.Path({str(mounted)!r}))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], cwd=Path(__file__).parents[3])
    assert killed.returncode == -signal.SIGKILL
    assert os.path.ismount(mounted)
    run("umount", unused)  # as a reboot does
    (threads / "x.draft").write_bytes(b"of an image that was being made")
    images = LoopImageFolders(threads, 16, make=True)
    await images.adopt_leftovers()
    async with images.open_folder(mounted):
        assert left(mounted) == "kept"
        assert len(devices(mounted)) == 1
    await rest(images)
    assert not os.path.ismount(mounted)
    assert not devices(mounted)
    assert max(on_disk(mounted), on_disk(unused)) < 6 * MB
    assert not (threads / "x.draft").exists()


async def test_a_leftover_container_and_the_mount_share_one_device(threads: Path, tmp_path: Path) -> None:
    """Two file systems on one image would damage it."""
    folder, settings = threads / "a", docker_settings(tmp_path)
    async with docker_provider(settings) as killed, docker_provider(settings) as second:
        left = LoopImageFolders(threads, 16, make=True)
        disk = QuotaProvider(killed, left)
        async with disk.acquire("a", folder) as one:
            await one.run(ShellCommand("echo kept > note; (while sleep 0.05; do date > beat; done) &>/dev/null &"))
        await left.release_idle(0)  # the container stays with its processes
        assert not os.path.ismount(folder)
        assert on_disk(folder) >= 16 * MB
        images = LoopImageFolders(threads, 16, make=True)
        disk = QuotaProvider(second, images)
        async with disk.acquire("a", folder) as again:
            assert len(devices(folder)) == 1
            assert "needs_recovery" in run("dumpe2fs", "-h", f"{folder}.img")  # it was not repaired under the container
            assert (
                await again.run(ShellCommand("cat note; pgrep sleep -c"))
            ).output == "kept\n1\n"  # that of its first process
            assert (folder / "workspace" / "note").read_text() == "kept\n"
        await second.reap(0)
        await rest(images)
    assert not devices(folder)
    run("e2fsck", "-fn", f"{folder}.img")


# ---------------------------------------------------------------- faults


async def test_a_damaged_image_is_repaired_or_left_alone(threads: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = threads / "a"
    image = Path(f"{folder}.img")
    images = LoopImageFolders(threads, 16, make=True)
    async with images.open_folder(folder):
        leave(folder)
    await rest(images)
    run("debugfs", "-w", "-R", "set_super_value free_blocks_count 1", image)
    run("debugfs", "-w", "-R", "set_super_value state 2", image)  # "has errors"
    assert "with errors" in run("dumpe2fs", "-h", image)
    async with images.open_folder(folder):
        assert left(folder) == "kept"
        assert "with errors" not in run("dumpe2fs", "-h", image)
    await rest(images)
    whole = image.read_bytes()
    image.write_bytes(bytes(64 << 10) + whole[64 << 10 :])
    ruined = image.read_bytes()
    with pytest.raises(SandboxError, match="Nothing was deleted; the operator finds the reason in the log") as caught:
        async with images.open_folder(folder):
            pass
    assert str(threads) not in str(caught.value)
    assert "a.img" in caplog.text
    assert "e2fsck" in caplog.text
    assert image.read_bytes() == ruined
    await rest(images)
    image.write_bytes(whole)
    async with images.open_folder(folder):
        assert left(folder) == "kept"
    await rest(images)


async def test_a_mount_never_hides_existing_files(threads: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = threads / "a"
    images = LoopImageFolders(threads, 16, make=True)
    async with images.open_folder(folder):
        leave(folder, "inside")
    await rest(images)
    leave(folder, "outside")
    with pytest.raises(SandboxError, match="cannot be mounted"):
        async with images.open_folder(folder):
            pass
    assert "move them away" in caplog.text
    assert left(folder) == "outside"


async def test_a_full_host_disk_refuses_a_mount_before_data_is_lost(threads: Path, tmp_path: Path) -> None:
    """Two images of 24 MB do not fit on a disk of 60 MB, because the service keeps a part."""
    (tmp_path / "host").mkdir()
    run("truncate", "-s", "60M", tmp_path / "host.img")
    run("mkfs.ext4", "-q", "-m", "0", tmp_path / "host.img")
    run("mount", "-o", "loop", tmp_path / "host.img", tmp_path / "host")
    threads = tmp_path / "host" / "threads"
    images, one, two = LoopImageFolders(threads, 24, make=True), threads / "one", threads / "two"
    async with images.open_folder(one):
        leave(one)
        with pytest.raises(SandboxError, match="does not have 24 MB of free disk space for this conversation"):
            async with images.open_folder(two):
                pass
        assert on_disk(two) < 6 * MB  # no space stays reserved for it
        async with images.open_folder(two, writes=False):  # a backup works
            assert os.path.ismount(two)
        await images.release_folder(two)
        with pytest.raises(OSError, match="No space left"):
            (one / "full").write_bytes(bytes(24 * MB))
        run("sync", "-f", one)
        assert left(one) == "kept"
        (one / "full").unlink()
    await rest(images)
    async with images.open_folder(two):
        leave(two, "fits now")
    await rest(images)
    for folder in (one, two):
        run("e2fsck", "-fn", f"{folder}.img")
    run("umount", tmp_path / "host")


async def test_removing_a_folder_removes_its_image(threads: Path) -> None:
    images = LoopImageFolders(threads, 16, make=True)
    for name in ("at rest", "mounted", "plain"):
        folder = threads / name
        async with (LoopImageFolders(threads, 16, make=False) if name == "plain" else images).open_folder(folder):
            leave(folder)
        if name == "at rest":
            await rest(images)
    with (threads / "mounted" / "uploads" / "note").open():  # it is in use
        for name in ("mounted", "at rest", "plain"):
            await images.remove_folder(threads / name)
        assert not list(threads.iterdir())
    assert str(threads) not in run("losetup", "-nO", "BACK-FILE")


# ---------------------------------------------------------------- requirements of the host


async def test_images_without_root_are_reported_at_startup(tmp_path: Path) -> None:
    with unprivileged(), pytest.raises(SandboxUnavailable, match=r"need root .* or set `sandbox: {disk: measured}`"):
        await select_provider("none", docker_settings(tmp_path), LoopImageFolders(tmp_path, 16, make=True))


async def test_the_description_says_how_the_limit_is_enforced(threads: Path, tmp_path: Path) -> None:
    for make, words in ((True, "64 MB of files each (in an image)."), (False, "64 MB of files each (measured).")):
        provider, sentence = await select_provider(
            "local", docker_settings(tmp_path), LoopImageFolders(threads, 64, make=make)
        )
        await provider.close()
        assert str(sentence).endswith(words)
    assert not list(threads.iterdir())  # the probe was deleted


def test_an_engine_without_our_mounts_is_detected(threads: Path, tmp_path: Path) -> None:
    """As under systemd with a private mount namespace, or in a container."""
    need_docker()
    script = (
        "import asyncio, pathlib\nfrom sandbox.disk.loop_images import LoopImageFolders\n"
        "from sandbox.docker.provider import DockerProvider\n"
        "from tests.support.engines import docker_settings\n"
        "async def main():\n"
        f"  provider = DockerProvider(docker_settings(pathlib.Path({str(tmp_path)!r})))\n"
        f"  try: await LoopImageFolders(pathlib.Path({str(threads)!r}), 16, make=True).check(provider)\n"
        "  finally: await provider.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", script],
        capture_output=True, text=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert "SandboxUnavailable: Disk images do not work here" in done.stderr, done.stderr
    assert "sandbox: {disk: measured}" in done.stderr


async def test_files_only_sandboxes_use_images(threads: Path, tmp_path: Path) -> None:
    disk = QuotaProvider(FilesOnlyProvider(tmp_path / "skills"), LoopImageFolders(threads, 16, make=True))
    async with disk.acquire("a", threads / "a") as sandbox:
        await sandbox.write(f"{OUTPUTS}/x", b"x")
        with pytest.raises(SandboxFileError, match="No space left"):
            await sandbox.write(f"{OUTPUTS}/y", bytes(20 * MB))
    await disk.close()
    assert not os.path.ismount(threads / "a")
