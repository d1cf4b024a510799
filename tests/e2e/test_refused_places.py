"""An answer that its place refuses for good, in whatever words: its person gets it in the private chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask
from tests.support.thread_talk import TOPIC, ThreadTalk, calls, question, tool

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


@pytest.mark.parametrize("name", ["telegram", "slack"])
async def test_the_questions_of_a_refused_answer_are_answered_in_private(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["write_file"]}) as talk:
        rig = talk.service.rigs[name]

        async def shows(words: str) -> None:
            await until(lambda: any(words in each for each in rig.visible()), what=f"{words!r} in private")

        rig.mutter(ask(text="Hello in private."))
        await shows("Hello in private.")
        rig.thread(TOPIC)  # it exists from now on
        rig.wire.fault("error", "post", topic=TOPIC, code=403, times=-1)
        written = tool("write_file", path="/mnt/user-data/outputs/a.txt", content="first")
        talk.say(ask(steps=[calls(written)], text="The first is written."))
        await until(lambda: "Approve" in rig.offers(), what="the button in private")
        await shows("a.txt")
        rig.press("Approve")
        await shows("The first is written.")
        both = calls(*(each for text in ("Which size?", "Which colour?") for each in question(text, "a", "b")["calls"]))
        talk.say(ask(steps=[both], text="Both are known."))
        await until(lambda: rig.offers().count("b") == 2, what="the buttons of both questions")
        [(number,)] = talk.service.rows("SELECT max(number) FROM waiting_numbers")
        rig.press("b")
        answers = "SELECT answer FROM questions WHERE text LIKE 'Which%' ORDER BY answer"
        await until(lambda: ("b",) in talk.service.rows(answers), what="the answer of the press")
        for each in (number - 1, number):  # the other one still waits
            rig.mutter(f"!waiting {each} a")
        await shows("Both are known.")
        assert talk.service.rows(answers) == [("a",), ("b",)]
