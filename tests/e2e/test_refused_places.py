"""An answer that its place refuses for good, in whatever words: its person gets it in the private chat."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask

FORUM = -1005
WORDS = [
    "TOPIC_CLOSED",
    "CHAT_RESTRICTED",
    "the message can't be sent",
    "a reason of next year",
    "CHAT_SEND_PLAIN_FORBIDDEN",
]


@pytest.mark.parametrize("words", WORDS)
async def test_an_answer_that_its_place_refuses_comes_in_private_and_is_a_dead_letter(
    telegram: FakeTelegram, model: FakeModel, start: Start, words: str
) -> None:
    service = await start()
    telegram.send("hi " + ask(text="private hello"))
    await telegram.wait(JANE, "private hello")
    telegram.forum(FORUM, 11)
    telegram.fault("error", "sendMessage", code=400, description=f"Bad Request: {words}", chat=FORUM, times=-1)
    telegram.send("@fawn_bot " + ask(text="the answer 4711"), chat=FORUM, topic=11)
    await telegram.wait(JANE, "4711")
    shown = [each.text or "" for each in telegram.visible(JANE) if "4711" in (each.text or "")]
    assert len(shown) == 1
    assert words.lower() in shown[0].lower()
    _code, listed = await service.fawn("dead", "list")
    assert words.lower() in listed.lower()
