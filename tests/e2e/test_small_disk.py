"""A disk that is nearly full: the check, the status and the log of a start say the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.fakes.server import until
from tests.support.engines import need_mounts

MEGABYTES = 150


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    need_mounts()
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "small", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_check_status_and_the_start_name_a_disk_that_is_nearly_full(small_disk: Path, start: Start) -> None:
    service = await start(data_dir=str(small_disk / "data"))
    service.data = small_disk / "data"
    await until(lambda: "app.ready" in service.log(), what="the agent")
    sentence = " MB left → free space, or set `data_dir`"
    code, text = await service.fawn("status")
    assert (code, "UNHEALTHY" in text, sentence in text) == (1, True, True), text
    code, text = await service.fawn("check")
    assert (code, " MB left" in text, "free space, or set `data_dir`" in text) == (2, True, True), text
    assert "disk.low" in service.log()
