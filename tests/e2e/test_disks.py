"""A service whose conversations have separate file systems."""

from __future__ import annotations

import asyncio
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.engines import need_bubblewrap, need_images, unmounted
from tests.support.service_process import PROGRAM, Service, ask, bash

IMAGES = {"provider": "local", "disk": "images", "disk_mb": 16}


@pytest.fixture(autouse=True)
def images(tmp_path: Path) -> Iterator[None]:
    need_bubblewrap()
    need_images()
    with unmounted(tmp_path):
        yield


def mounts(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [place for place in (line.split(" ")[1] for line in lines) if place.startswith(str(folder))]


async def saved(service: Service, folder: Path) -> set[str]:
    """Return the files in a backup, without the name of their conversation."""
    code, words = await service.fawn("backup", "saved.tar.gz")
    assert code == 0, words
    assert "LEFT OUT" not in words
    with tarfile.open(folder / "saved.tar.gz") as tar:
        return {name.split("/", 2)[2] for name in tar.getnames() if name.count("/") > 1}


async def test_files_survive_a_kill_a_backup_and_a_shutdown(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    service = await start(sandbox=IMAGES)
    # An upload arrives before any sandbox; the output is collected from the same disk.
    loud = bash("tr a-z A-Z < ../uploads/notes.csv > ../outputs/loud.csv")
    telegram.send_document("notes.csv", b"a,b\n", caption=ask(steps=[loud], text="made it loud"))
    await telegram.wait(JANE, "made it loud", seconds=30)
    await service.quiet()
    assert [shown.file for shown in telegram.visible(JANE) if shown.by_bot and shown.file] == [b"A,B\n"]
    assert "16 MB of files each (in an image)" in (await service.fawn("status"))[1]
    assert "16 MB of files each (in an image)" in (await service.fawn("check"))[1]
    assert len(mounts(tmp_path)) == 1
    files = {"uploads/notes.csv", "outputs/loud.csv"}
    assert files < await saved(service, tmp_path)

    await service.restart()
    telegram.send(ask(steps=[bash("cat ../outputs/loud.csv; head -c 30M /dev/zero > x")], text="and full"))
    await telegram.wait(JANE, "and full", seconds=30)
    told = str(model.requests()[-1].messages)
    assert "A,B" in told
    assert "the conversation has 0 MB and" in told
    telegram.send_document("big.bin", bytes(4 << 20), caption=ask(text="I see"))
    await telegram.wait(JANE, "I see", seconds=30)
    assert "big.bin: No space left on device" in str(model.requests()[-1].messages)
    await service.quiet()
    assert await service.stop() == 0
    assert not mounts(tmp_path)

    assert files < await saved(service, tmp_path)  # of a service that does not run
    assert not mounts(tmp_path)
    (image,) = (service.data / "threads").glob("*.img")
    # A sandbox of another test may have begun with a copy of our mounts.
    await until(lambda: not subprocess.run(["losetup", "-j", image], capture_output=True).stdout, 60)
    image.write_bytes(bytes(image.stat().st_size))
    code, words = await service.fawn("backup", "saved.tar.gz")
    assert code == 0
    assert f"LEFT OUT: threads/{image.stem}: The disk of this conversation cannot be mounted" in words


async def test_without_the_right_to_mount_the_service_does_not_start(
    telegram: FakeTelegram, model: FakeModel, tmp_path: Path
) -> None:
    """As in most containers."""
    service = Service(tmp_path, telegram, model, {"sandbox": {**IMAGES, "provider": "none"}})
    done = await asyncio.to_thread(
        subprocess.run,
        ["setpriv", "--bounding-set=-sys_admin", *PROGRAM, "check", "--config", "config.yaml"],
        cwd=tmp_path, env=service.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert "FAULT sandbox: Disk images do not work here" in done.stdout, done.stdout + done.stderr
    assert "threads/" not in done.stdout
