"""WhatsApp end to end: through the relay, kills of the process, and a window that is over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.fakes.whatsapp import JANE, FakeWhatsApp
from tests.support.all_platforms import AllPlatforms
from tests.support.kills import KillRun, Plan
from tests.support.rigs.whatsapp import WhatsAppRig
from tests.support.service_process import ask

DAY = 86_400


def server_of(service: AllPlatforms) -> FakeWhatsApp:
    rig = service.rigs["whatsapp"]
    assert isinstance(rig, WhatsAppRig)
    return rig.server


async def test_what_is_written_while_the_service_is_down_is_answered_once(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp") as service:
        server = server_of(service)
        server.send(ask(text="the first answer"))
        await service.shows("whatsapp", "the first answer")
        await service.kill()
        server.send(ask(text="the second answer"))
        await service.start()
        await service.shows("whatsapp", "the second answer", seconds=40)
        await service.quiet()
        texts = [one.text for one in server.visible()]
        assert [text for text in texts if "answer" in text] == ["the first answer", "the second answer"]


async def test_an_answer_waits_for_the_window_over_a_restart(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp") as service:
        server = server_of(service)
        server.send(ask(text="late answer", delay_ms=1500))
        await until(lambda: server.reads, 20, "the read mark")
        server.heard[JANE] = time.time() - DAY - 10  # the platform's day ends before the answer is ready
        await until(lambda: [call for call in server.calls_of("post") if call.code], 30, "a refusal")
        await service.kill()
        await service.start()
        assert "late answer" not in "".join(one.text for one in server.visible())
        server.send(ask(text="the next answer"))
        await service.shows("whatsapp", "late answer", seconds=40)
        await service.shows("whatsapp", "the next answer", seconds=40)
        await service.quiet()
        assert service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


@pytest.mark.usefixtures("bubblewrap")
async def test_each_message_is_answered_once_through_kills(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp") as service:
        figures = await KillRun(service, Plan(kills=3, life=(1.0, 3.0), unborn=0, talkers=1, gateway=0.5)).run()
        assert not figures.faults, f"{figures}\n" + "\n".join(figures.faults)
        assert figures.answered >= 3
