"""kill -9 at every named point: one final reply per message, every effect at most once."""

from __future__ import annotations

import asyncio
import random
import re
import time

import pytest

from bot.journey.scheduler import alone_seconds
from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, bash, said

REPEAT = re.compile(r"^↻[^\n]*:\s*", re.MULTILINE)


async def test_killed_right_after_the_update_was_handed_out(telegram: FakeTelegram, start: Start) -> None:
    """Whether the update was stored or not, it is answered once."""
    service = await start()
    telegram.send(ask(text="hello there"))
    await until(lambda: telegram.deliveries(JANE), what="the delivery")
    await service.restart()
    await telegram.wait(JANE, "hello there")
    await service.quiet()
    assert said(telegram, JANE) == ["hello there"]


# Case 55 of docs/cases.md
async def test_killed_after_the_acknowledgement_before_the_model(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(ask(text="the answer", delay_ms=3000))
    await until(lambda: telegram.waiting() == 0 and telegram.deliveries(JANE), what="the acknowledgement")
    await service.kill()
    before = time.monotonic()
    await service.start()
    await until(lambda: [r for r in model.requests() if r.at > before], what="a new model call")
    await telegram.wait(JANE, "the answer")
    await service.quiet()
    assert said(telegram, JANE) == ["the answer"]


async def test_killed_during_an_answer_it_continues_in_the_same_message(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(tokens=60, tok_ms=50, id="mid"))
    first = await telegram.wait(JANE, "w0")
    await until(lambda: service.rows("SELECT 1 FROM posts WHERE sent=1"), what="the stored message id")
    await service.restart()
    await telegram.wait(JANE, "w59")
    await service.quiet()
    shown = [message for message in telegram.visible(JANE) if message.by_bot]
    assert [message.text.split() for message in shown] == [[f"w{n}" for n in range(60)]]
    assert shown[0].id == first.id


# Case 56 of docs/cases.md
async def test_killed_during_20_streaming_replies(telegram: FakeTelegram, start: Start) -> None:
    service = await start(channels={"telegram": {"overall": 1000}})
    chats = range(1000, 1020)
    for chat in chats:
        telegram.send(ask(tokens=60, tok_ms=50, word=f"c{chat}-"), chat=chat)
    await asyncio.gather(*(telegram.wait(chat, f"c{chat}-0") for chat in chats))
    await until(lambda: service.rows("SELECT count(*) FROM posts WHERE sent=1") == [(20,)], what="all message ids")
    await service.restart()
    await asyncio.gather(*(telegram.wait(chat, f"c{chat}-59") for chat in chats))
    await service.quiet()
    for chat in chats:
        assert said(telegram, chat) == [" ".join(f"c{chat}-{n}" for n in range(60))]


# Case 57 of docs/cases.md
@pytest.mark.usefixtures("bubblewrap")
async def test_a_finished_tool_call_does_not_run_again(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """Killed after the tool call, while the model processes its result."""
    service = await start()
    steps = [bash("echo once >> /mnt/user-data/workspace/effects")]
    telegram.send(ask(steps=steps, text="all done", delay_ms=1500))
    await until(lambda: len(model.requests()) == 2, what="the model call after the tool")
    await until(lambda: service.rows("SELECT 1 FROM posts WHERE sent=1"), what="the stored message id")
    await service.restart()
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert (service.folder_of() / "workspace" / "effects").read_text() == "once\n"
    assert said(telegram, JANE) == ["all done"]
    assert service.rows("SELECT agent, kind FROM usage") == [("lead", "turn")] * 2, "of both processes"


@pytest.mark.usefixtures("bubblewrap")
async def test_killed_during_a_tool_call_the_model_learns_that_the_outcome_is_unknown(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """A command with an unknown outcome is not repeated."""
    service = await start()
    steps = [bash("echo begun >> /mnt/user-data/workspace/effects; sleep 4")]
    telegram.send(ask(steps=steps, text="looked at it"))
    await until(lambda: list(service.data.glob("threads/*/workspace/effects")), what="the tool's start")
    await until(lambda: service.rows("SELECT 1 FROM posts WHERE sent=1"), what="the stored message id")
    await service.restart()
    await telegram.wait(JANE, "looked at it")
    await service.quiet()
    assert (service.folder_of() / "workspace" / "effects").read_text() == "begun\n"
    results = [message["content"] for message in model.requests()[-1].messages if message["role"] == "tool"]
    assert len(results) == 1
    assert "outcome" in results[0]
    assert said(telegram, JANE) == ["looked at it"]


async def test_killed_after_the_outbox_write_before_the_platform(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.fault("slow", "sendMessage", seconds=30, contains="the last word")
    telegram.fault("slow", "editMessageText", seconds=30, contains="the last word")
    telegram.send(ask(text="this is the last word"))
    await until(lambda: service.rows("SELECT 1 FROM outbox WHERE kind='reply'"), what="the outbox row")
    await service.kill()
    telegram.clear_faults()
    await service.start()
    await telegram.wait(JANE, "the last word")
    await service.quiet()
    texts = [REPEAT.sub("", text) for text in said(telegram, JANE)]
    assert texts == ["this is the last word"]


# Case 63 of docs/cases.md
async def test_killed_after_the_platform_accepted(telegram: FakeTelegram, start: Start) -> None:
    """The platform showed the post but its answer was lost: at most one repeat, with a mark."""
    service = await start()
    telegram.fault("hang", "sendMessage", after=True, contains="accepted")
    telegram.send(ask(text="accepted once"))
    await telegram.wait(JANE, "accepted once")
    await service.restart()
    await service.quiet(30)
    texts = said(telegram, JANE)
    assert texts[0] == "accepted once"
    assert len(texts) <= 2
    assert all(REPEAT.match(text) and REPEAT.sub("", text) == "accepted once" for text in texts[1:])


# Case 58 of docs/cases.md
async def test_three_crashes_of_one_run_end_in_one_failure_reply(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(ask(text="never", delay_ms=60_000))

    async def attempts(count: int) -> None:
        await until(lambda: len(model.requests()) == count, what=f"attempt {count}")

    for attempt in range(1, 4):
        await attempts(attempt)
        await service.restart()
    await telegram.wait(JANE, "interrupted 3 times")
    await service.quiet()
    assert len(said(telegram, JANE)) == 1
    telegram.send(ask(text="the thread goes on"))
    await telegram.wait(JANE, "the thread goes on")


def test_many_suspects_keep_nobody_waiting_for_long() -> None:
    """Two crashes from outside make suspects of all that is in progress."""
    assert alone_seconds(0, 1) == alone_seconds(0, 3) == 20.0
    assert 30 * alone_seconds(0, 30) == 60.0
    assert alone_seconds(3, 30) == 8 * alone_seconds(0, 30)
    assert alone_seconds(1000, 1) == 600.0


async def test_what_kills_the_process_is_given_up_and_nothing_else(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """One request kills the process whenever it reaches the model. Nine others work beside it, ten come later."""
    service = await start(channels={"telegram": {"overall": 1000, "per_chat": 50}}, limits={"attempts": 2})
    poison, innocent, later = 3000, range(3001, 3010), range(3010, 3020)

    def is_given_up() -> bool:
        return any("gave up" in text for text in said(telegram, poison))

    async def next_death(deaths: int) -> bool:
        def deadly() -> int:
            return sum("poison" in str(each.messages) for each in model.requests())

        await until(lambda: deadly() > deaths or is_given_up(), 60, "a death")
        return deadly() > deaths

    telegram.send(ask(text="poison", delay_ms=60_000), chat=poison)
    for chat in innocent:
        telegram.send(ask(text=f"answer {chat}", delay_ms=1000), chat=chat)
    deaths = 0
    while await next_death(deaths):
        deaths += 1
        await service.kill()
        for chat in later if deaths == 2 else ():
            telegram.send(ask(text=f"answer {chat}"), chat=chat)
        await service.start()
    await asyncio.gather(*(telegram.wait(chat, f"answer {chat}") for chat in (*innocent, *later)))
    await service.quiet(30)
    assert deaths == 4, "two among others, two alone"
    assert [text for chat in (*innocent, *later) for text in said(telegram, chat) if "gave up" in text] == []
    (notice,) = said(telegram, poison)
    assert "poison" in notice, "it says what has no answer"


# Case 87 of docs/cases.md
async def test_killed_between_two_messages_of_an_album(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    album = telegram.new_album()
    telegram.send_photo(b"first", caption="three photos", album=album)
    await until(lambda: telegram.waiting() == 0 and telegram.deliveries(JANE), what="the first piece")
    await service.kill()
    telegram.send_photo(b"second", album=album)
    telegram.send_photo(b"third", album=album)
    await service.start()
    await telegram.wait(JANE, "three photos")
    await service.quiet()
    assert len(model.requests()) == 1
    assert len(list((service.folder_of() / "uploads").iterdir())) == 3


async def test_a_restarted_process_resumes_by_itself(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """A process of its own, which loads everything, and nothing arrives that wakes it."""
    service = await start()
    telegram.send(ask(text="back again", delay_ms=4000))
    await until(lambda: model.requests(), what="the model call")
    await service.kill()
    service.forked = False
    await service.start()
    await until(lambda: len(model.requests()) == 2, what="the resumed model call")


@pytest.mark.usefixtures("bubblewrap")
async def test_killed_at_random_under_load(telegram: FakeTelegram, start: Start) -> None:
    """8 chats with 4 messages each, a tool effect in every turn, and repeated kill -9."""
    dice = random.Random()
    settings = {"channels": {"telegram": {"overall": 1000, "per_chat": 50}}, "limits": {"attempts": 50}}
    service = await start(**settings)
    chats = range(2000, 2008)

    async def over(chat: int, runs: int) -> None:
        done = f"SELECT 1 FROM runs WHERE state='done' AND conversation LIKE '%/{chat}/%'"  # noqa: S608 — a number
        await until(lambda: len(service.rows(done)) == runs, 120, f"the end of turn {runs} in {chat}")

    async def talk(chat: int) -> None:
        for number in range(4):
            name = f"{chat}-{number}"
            steps = [bash(f"echo {name} >> /mnt/user-data/workspace/effects")]
            telegram.send(ask(steps=steps, text=f"answer {name}", delay_ms=100, id=name), chat=chat)
            await telegram.wait(chat, f"answer {name}", seconds=120)
            await over(chat, number + 1)  # an earlier message might steer the same turn

    async def havoc() -> None:
        for _ in range(6):
            await asyncio.sleep(dice.uniform(0.8, 2.5))
            await service.restart()

    await asyncio.gather(havoc(), *(talk(chat) for chat in chats))
    await service.quiet(60)
    for chat in chats:
        expected = [f"answer {chat}-{number}" for number in range(4)]
        # The others: steps of a lost post, and that an answer was sent without a confirmation, as each attempt was cut.
        texts = [text for text in said(telegram, chat) if "answer 20" in text]
        assert list(dict.fromkeys(REPEAT.sub("", text) for text in texts)) == expected
        assert len([text for text in texts if not REPEAT.match(text)]) <= 4
        for answer in expected:
            assert sum(text == answer for text in texts) <= 1, "only a marked repeat may come"
    effects = [line for file in service.data.glob("threads/*/workspace/effects") for line in file.read_text().split()]
    assert sorted(set(effects)) == sorted(effects), "an effect happened twice"
