"""One conversation fills a small disk; the service and other conversations continue."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.engines import IMAGE, need_bubblewrap, need_docker, small_disk
from tests.support.service_process import Service, ask, bash

BOB = 77
SPACE = "for i in $(seq 300); do fallocate -l 20M x$i || fallocate -l 64K y$i; done; sleep 30"
INODES = "mkdir d; cd d; seq 1000000 | xargs touch; sleep 30"
BACKGROUND = "(for i in $(seq 300); do fallocate -l 20M x$i; done; sleep 30) >/dev/null 2>&1 & sleep 30"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A data_dir on its own file system."""
    with small_disk(tmp_path, 400) as place:
        yield place


@pytest.fixture(params=["local", "docker"])
def sandbox(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "docker":
        need_docker()
        return {"provider": "docker", "image": IMAGE}
    need_bubblewrap()
    return {"provider": "local"}


async def answered(service: Service, telegram: FakeTelegram, seconds: float) -> list[float]:
    """Measure how long another user waited for each answer."""
    waited: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        word = f"answer {len(waited)}"
        begun = time.monotonic()
        telegram.send(ask(text=word), chat=BOB)
        await telegram.wait(BOB, word)
        waited.append(time.monotonic() - begun)
    return waited


@pytest.mark.parametrize("attack", [SPACE, INODES, BACKGROUND], ids=["space", "inodes", "background"])
async def test_a_disk_filled_by_one_conversation_is_freed_and_others_are_answered(
    telegram: FakeTelegram, model: FakeModel, start: Start, small: Path, sandbox: dict[str, str], attack: str
) -> None:
    service = await start(sandbox=sandbox)
    telegram.send(ask(text="hello"), chat=BOB)
    await telegram.wait(BOB, "hello")
    telegram.send(ask(steps=[bash(attack, timeout=60)], text="I am done"))
    waited = await answered(service, telegram, 8)
    print("waited", [round(each, 2) for each in waited])
    await telegram.wait(JANE, "I am done")
    await service.quiet()
    told = str([request.messages for request in model.requests()])
    assert "The sandbox was stopped with all its processes" in told
    assert "Deleted the newest files" in told

    def is_freed() -> bool:  # more than was left when it was detected; what a program held open goes with its end
        disk = os.statvfs(small)
        return disk.f_bavail > disk.f_blocks // 8 and disk.f_favail > disk.f_files // 8

    await until(is_freed, what="the freed space")
    assert "database or disk is full" not in service.log()
