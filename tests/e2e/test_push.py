"""The ping at the end of a long task: once, to the requester, in the same place."""

from __future__ import annotations

import re

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, said

SLOW = {"delay_ms": 700}


async def test_a_long_task_pings_once_at_its_end_as_each_person_chose(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(limits={"notify_seconds": 0.5})

    telegram.send(ask(text="the long answer", **SLOW))
    await telegram.wait(JANE, "Done after")
    await service.quiet()
    answer, ping = telegram.visible(JANE)[-2:]
    assert answer.text == "the long answer"
    assert re.fullmatch(r"Done after \d s\.", ping.text)

    telegram.send(ask(text="a quick one"))
    await telegram.wait(JANE, "a quick one")
    await service.quiet()
    assert said(telegram, JANE)[-1] == "a quick one"

    telegram.send("/notify off")
    await telegram.wait(JANE, "I don't ping you")
    telegram.send(ask(text="long and silent", **SLOW))
    await telegram.wait(JANE, "long and silent")
    await service.quiet()
    assert said(telegram, JANE)[-1] == "long and silent"

    telegram.send("/notify 0.6")
    await telegram.wait(JANE, "longer than 0.6 s")
    telegram.send("/notify soon")
    await telegram.wait(JANE, "/notify 120")
    question = {"name": "ask_clarification", "args": {"question": "Which colour?", "options": ["red", "blue"]}}
    telegram.send(ask(steps=[{"calls": [question]}], text="red it is", **SLOW))
    await telegram.wait(JANE, "I need your answer to continue")
    await service.quiet()
    assert len([text for text in said(telegram, JANE) if "after" in text and "s." in text and "Done" in text]) == 1


async def test_a_ping_survives_a_crash_and_is_sent_once(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(limits={"notify_seconds": 0.5})
    telegram.send(ask(text="worth waiting for", delay_ms=1500))
    await until(lambda: model.requests(), what="the model call")
    await service.restart()
    await telegram.wait(JANE, "Done after", seconds=30)
    await service.restart()
    await service.quiet()
    texts = said(telegram, JANE)
    assert len([text for text in texts if text.startswith("Done after")]) == 1
    assert texts.count("worth waiting for") == 1
