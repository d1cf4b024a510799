"""WeChat end to end: through kills of the process, and more messages than the person's last one allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.fakes.wechat import JANE, FakeWeChat
from tests.support.all_platforms import AllPlatforms
from tests.support.kills import KillRun, Plan
from tests.support.rigs.wechat import WeChatRig
from tests.support.service_process import ask


def server_of(service: AllPlatforms) -> FakeWeChat:
    rig = service.rigs["wechat"]
    assert isinstance(rig, WeChatRig)
    return rig.server


async def test_an_answer_beyond_the_budget_waits_for_the_person_over_a_restart(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "wechat") as service:
        server = server_of(service)
        server.send(ask(text="late answer", delay_ms=1500))
        await until(lambda: server.typing, 20, "the typing action")
        server.windows[JANE].left = 0
        await until(lambda: [call for call in server.calls_of("post") if call.code], 30, "a refusal")
        await service.kill()
        await service.start()
        assert server.visible() == []
        server.send(ask(text="the next answer"))
        await service.shows("wechat", "late answer", seconds=40)
        await service.shows("wechat", "the next answer", seconds=40)
        await service.quiet()
        assert service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


@pytest.mark.usefixtures("bubblewrap")
async def test_each_message_is_answered_once_through_kills(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "wechat") as service:
        figures = await KillRun(service, Plan(kills=3, life=(1.0, 3.0), unborn=0, talkers=1, gateway=0.5)).run()
        assert not figures.faults, f"{figures}\n" + "\n".join(figures.faults)
        assert figures.answered >= 3
