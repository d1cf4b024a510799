"""The outbox over a small failing channel: order, retries by error, dead letters, age."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Block, Final
from agent.messages import Attachment, Author, Message, Origin, Thread
from bot.config.schema import ServiceLimits
from bot.database.database import Database, Execute
from bot.database.states import OutboxState
from bot.journey.claims import release_stale_claims
from bot.journey.outbox import REFUSAL_RETRIES, RETRY_LIMIT, Outbox, files_payload
from bot.storage import people
from bot.storage.outbox import enqueue_notice, list_dead, oldest_rows, oldest_unfinished, requeue_dead
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    Channel,
    ChannelError,
    ChatGone,
    CommandInfo,
    FilesRefused,
    Health,
    MayPass,
    OutcomeUnknown,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
    TryLater,
    Unattended,
    WaitsForPerson,
)
from channels.base import (
    ChannelLimits as Allowed,
)
from tests.fakes.server import until
from tests.support.current_config import current_of
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.rigs.telegram import TelegramRig

HERE, THERE = Thread("wall", "1", "here"), Thread("wall", "1", "there")


class RecordingChannel:
    """A channel that records posts. `faults` are raised by the next posts in a chat, `always` by those with a text."""

    name = "wall"
    limits = Allowed(text_limit=1000, upload=1000, download=1000)
    window = 0.1

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.faults: dict[str, list[ChannelError]] = {}
        self.always: dict[str, ChannelError] = {}
        self.tried: list[str] = []

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        await asyncio.Event().wait()

    def readiness(self) -> Readiness:
        return Readiness(Health.READY, 0.0)

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        return Chalk(self, thread, posts)

    async def send_files(self, thread: Thread, files: Sequence[OutgoingFile], posts: SentMessages) -> None:
        await self.write(thread, " ".join(file.name for file in files), posts)

    async def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        for chunk in (b"nothing", b"much"):
            yield chunk

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        return message

    def spell_command(self, thread: Thread, command: str) -> str:
        return f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        return

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        if faults := self.faults.get("opening"):
            raise faults.pop(0)
        return Thread(near.channel, near.workspace, f"private {person}")

    async def write(self, thread: Thread, text: str, posts: SentMessages) -> None:
        self.tried.append(text)
        faults = self.faults.get(thread.chat)
        fault = faults.pop(0) if faults else self.always.get(text)
        await posts.sending(0)
        if fault:
            if not isinstance(fault, OutcomeUnknown):
                await posts.unsent(0)
            raise fault
        self.shown.append((thread.chat, text))
        await posts.sent(0, str(len(self.shown)))


class Chalk:
    def __init__(self, wall: RecordingChannel, thread: Thread, posts: SentMessages) -> None:
        self._wall, self._thread, self._posts = wall, thread, posts

    def show(self, block: Block) -> None:
        return

    async def finish(self, final: Final) -> None:
        mark = "again: " if any(post.id is None for post in self._posts.known) else ""
        await self._wall.write(self._thread, mark + final.text, self._posts)

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        return


class Hasty(Outbox):
    OVERTAKE_SECONDS = 0.3
    UNKNOWN_SECONDS = 0.1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


@asynccontextmanager
async def serving(
    store: Database, channel: Channel | None, limits: ServiceLimits | None = None, kind: type[Outbox] = Hasty
) -> AsyncIterator[Outbox]:
    outbox = kind(store, lambda name: channel, current_of(limits or ServiceLimits()))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outbox.serve(), name="outbox")
        yield outbox
        task.cancel()


async def say(store: Database, thread: Thread, text: str, age: float = 0.0) -> None:
    await store.run(lambda execute: enqueue_notice(execute, thread, text, key=f"{thread}{text}", now=time.time() - age))


async def states(store: Database) -> list[int]:
    rows = await store.run(lambda execute: execute("SELECT state FROM outbox ORDER BY id", {}))
    return [row["state"] for row in rows]


async def test_rows_of_a_chat_are_delivered_once_and_in_order(store: Database) -> None:
    wall = RecordingChannel()
    for number in range(5):
        await say(store, HERE, str(number))
        await say(store, HERE, str(number))  # a key is enqueued once
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("here", str(number)) for number in range(5)]
    assert await states(store) == [2] * 5


async def test_who_waits_for_a_notice_goes_on_when_it_was_posted_or_took_too_long(store: Database) -> None:
    wall = RecordingChannel()
    wall.always["told"] = TryLater("flood", 60)
    await say(store, HERE, "told")
    async with serving(store, wall) as outbox:
        await until(lambda: "told" in wall.tried, what="the first try")
        await outbox.wait_for([f"{HERE}told"], 0.0)
        await outbox.wait_for(["another"], 3600.0)
        waiting = asyncio.create_task(outbox.wait_for([f"{HERE}told"], 3600.0))
        wall.always.clear()
        outbox.try_again("wall")
        await waiting
        assert wall.shown == [("here", "told")]
        await outbox.wait_for([f"{HERE}told"], 3600.0)


async def test_rows_that_wait_for_a_person_and_those_behind_them_are_not_late(store: Database) -> None:
    """A closed console, or a platform where the person has to write first; a channel that is down is late."""
    wall, console = RecordingChannel(), Thread("console", "local", "1")
    wall.always["first"], wall.always["down"] = WaitsForPerson("write first", 60), Unattended("no connection", 60)
    for thread, text in ((HERE, "first"), (HERE, "behind it"), (THERE, "down"), (console, "closed")):
        await say(store, thread, text, age=100.0)
    outbox = Hasty(store, {"wall": wall}.get, current_of(ServiceLimits()))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outbox.serve(), name="outbox")
        await until(lambda: len(outbox.waiting_for_people()) == 3 and "down" in wall.tried, what="the tries")
        waiting = outbox.waiting_for_people()
        late = await store.run(lambda execute: (oldest_unfinished(execute, waiting), oldest_unfinished(execute)))
        task.cancel()
    assert [text for text in ("first", "behind it", "down", "closed") if text in wall.tried] == ["first", "down"]
    assert waiting == {1, 2, 4}
    assert all(late)


async def test_a_notice_expires_after_a_week_without_its_person_and_an_answer_does_not(store: Database) -> None:
    """A closed console, or a platform where the person has to write first; not one that is not connected."""
    wall, week, day = RecordingChannel(), 7 * 86400.0, 86400.0
    for place, age in {"notice": week, "new notice": day, "answer": week, "no line": week}.items():
        away = Unattended("no line", 60) if place == "no line" else WaitsForPerson("write first", 60)
        wall.faults[place] = [away] * 9
        await say(store, Thread("wall", "", place), place, age)
    await store.run(lambda execute: execute("UPDATE outbox SET kind='reply' WHERE id=3", {}))
    async with serving(store, wall) as outbox:
        await until(lambda: len(wall.tried) == 4 and outbox.waiting_for_people() == {2, 3}, what="the tries")
        assert await states(store) == [OutboxState.DROPPED, *[OutboxState.CLAIMED] * 3]


async def test_the_oldest_rows_are_named_with_the_reason_of_their_last_failure(store: Database) -> None:
    wall = RecordingChannel()
    wall.always = {"first": TryLater("the token was revoked", 60), "second": WaitsForPerson("write first", 60)}
    for thread, text, age in ((THERE, "second", 300.0), (HERE, "first", 200.0), (HERE, "third", 100.0)):
        await say(store, thread, text, age)
    async with serving(store, wall) as outbox:
        await until(lambda: outbox.waiting_for_people() and "first" in wall.tried, what="the tries")
        rows = await store.run(lambda execute: oldest_rows(execute, outbox.waiting_for_people(), 1))
    assert [(row.thread, row.error) for row in rows] == [(str(HERE), "the token was revoked")]


# Case 61 of docs/cases.md
async def test_a_waiting_chat_does_not_delay_others(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults["here"] = [TryLater("flood", 60)]
    await say(store, HERE, "later")
    await say(store, THERE, "now")
    async with serving(store, wall):
        while not wall.shown:
            await asyncio.sleep(0.01)
    assert wall.shown == [("there", "now")]


async def test_what_waits_for_a_channel_is_tried_at_once_on_its_next_connection(store: Database) -> None:
    revoked, walls = RecordingChannel(), {}
    revoked.faults["here"] = [TryLater("the token is refused", 60)]
    walls["wall"] = revoked
    await say(store, HERE, "kept")
    outbox = Hasty(store, walls.get, current_of(ServiceLimits()))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outbox.serve(), name="outbox")
        while not revoked.tried:
            await asyncio.sleep(0)
        walls["wall"] = renewed = RecordingChannel()
        outbox.try_again("wall")
        while not renewed.shown:
            await asyncio.sleep(0)
        task.cancel()
    assert renewed.shown == [("here", "kept")]


# Case 62 of docs/cases.md
async def test_a_refused_row_becomes_a_dead_letter_with_a_notice_and_the_lane_continues(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults["here"] = [Refused("no")]
    await say(store, HERE, "refused")
    await say(store, HERE, "next")
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("here", "next")]
    assert await states(store) == [3, 2]
    assert len(wall.tried) == 2


# Case 84 of docs/cases.md
async def test_a_deleted_chat_gets_no_notice(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults["here"] = [ChatGone("blocked")]
    await say(store, HERE, "nobody reads this")
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert (wall.shown, len(wall.tried), await states(store)) == ([], 1, [4])


async def test_a_notice_of_a_topic_that_is_gone_reaches_whom_it_mentions(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults["there"] = [ChatGone("deleted")]
    jane = Message(
        replace(HERE, topic="31"), "m1", "1", Author("7", "Jane"), "hello", 0.0, private=True, origin=Origin.PERSON
    )

    def enqueue(execute: Execute) -> None:
        people.store_address(execute, jane)
        enqueue_notice(execute, replace(THERE, topic="5"), "The report.", key="n1", now=time.time(), mention="7")

    await store.run(enqueue)
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    [(place, text)] = wall.shown
    assert place == "here"
    assert text.endswith("The report.")


@pytest.mark.parametrize("faults", [[], [TryLater("flood", 0.1), OutcomeUnknown("504")]])
async def test_an_answer_whose_chat_is_gone_opens_the_private_chat_of_who_asked(
    store: Database, faults: list[ChannelError]
) -> None:
    wall = RecordingChannel()
    wall.faults = {"there": [ChatGone("removed")] * (1 + len(faults)), "opening": faults}

    def enqueue(execute: Execute) -> None:
        enqueue_notice(execute, THERE, "The answer.", key="n1", now=time.time(), mention="7")

    await store.run(enqueue)
    async with serving(store, wall):
        await until(lambda: wall.shown)
    [(place, text)] = wall.shown
    assert place == "private 7"
    assert text.endswith("The answer.")


async def test_an_answer_to_whom_the_platform_opens_no_chat_is_dropped(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults = {"there": [ChatGone("removed")], "opening": [Refused("bots may not write first")]}

    def enqueue(execute: Execute) -> None:
        enqueue_notice(execute, THERE, "The answer.", key="n1", now=time.time(), mention="7")

    await store.run(enqueue)
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert (wall.shown, await states(store)) == ([], [4])


# Case 63 of docs/cases.md
async def test_an_unknown_outcome_is_retried_as_a_possible_repeat(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults["here"] = [OutcomeUnknown("cut")]
    await say(store, HERE, "hello")
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("here", "again: hello")]


async def test_a_post_of_unknown_outcome_is_not_repeated_at_once(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "bot.journey.outbox")
    wall = RecordingChannel()
    wall.faults["here"] = [OutcomeUnknown("cut")]
    await say(store, HERE, "hello")
    async with serving(store, wall, kind=Outbox):
        await until(lambda: "outbox.later" in caplog.text, what="the failure")
    [wait] = re.findall(r"outbox.later row=1 attempt=1 wait=(\S+)", caplog.text)
    assert float(wait) >= 5.0
    assert wall.shown == []


async def test_a_late_reply_mentions_its_age(store: Database) -> None:
    wall = RecordingChannel()
    await say(store, HERE, "old news", age=15 * 3600)
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert "15 hours" in wall.shown[0][1]
    assert wall.shown[0][1].endswith("old news")


async def test_a_disconnected_channel_loses_no_row(store: Database) -> None:
    await say(store, HERE, "kept")
    async with serving(store, None), asyncio.timeout(60):
        while await states(store) != [1]:
            await asyncio.sleep(0.01)
    assert await states(store) == [1]  # claimed; the next process releases it
    wall = RecordingChannel()
    await store.run(release_stale_claims)
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("here", "kept")]


async def write(store: Database, kind: str, thread: str, payload: bytes) -> None:
    sql = "INSERT INTO outbox(key, kind, thread, payload, created) VALUES (:key, :kind, :thread, :payload, :now)"
    values = {"key": f"{thread}{payload!r}", "kind": kind, "thread": thread, "payload": payload, "now": time.time()}
    await store.run(lambda execute: execute(sql, values))


@pytest.mark.parametrize("kind", ["say", "reply", "file", "ping"])
@pytest.mark.parametrize("payload", [b"", b"{}", b"[]", b"\xff"])
async def test_a_damaged_row_becomes_a_dead_letter_and_the_lane_continues(
    store: Database, kind: str, payload: bytes
) -> None:
    wall = RecordingChannel()
    await write(store, kind, str(HERE), payload)
    await say(store, HERE, "next")
    await say(store, THERE, "elsewhere")
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert {("here", "next"), ("there", "elsewhere")} <= set(wall.shown)
    assert (await states(store))[:3] == [3, 2, 2]


async def test_a_row_without_an_address_does_not_block_others(store: Database) -> None:
    wall = RecordingChannel()
    await write(store, "say", "nowhere", b"{}")
    await say(store, HERE, "next")
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("here", "next")]
    assert await states(store) == [3, 2]


async def test_a_spool_copy_that_cannot_be_removed_does_not_stop_the_outbox(store: Database, tmp_path: Path) -> None:
    wall = RecordingChannel()
    await write(store, "file", str(HERE), files_payload([OutgoingFile(tmp_path, "report.txt", 1, "")]))  # a folder
    await say(store, HERE, "next")
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("here", "report.txt"), ("here", "next")]
    assert await states(store) == [2, 2]


async def test_no_row_overtakes_one_that_failed_just_now(store: Database) -> None:
    wall = RecordingChannel()
    wall.faults["here"] = [TryLater("the server answered 502", 0.1)]
    for text in ("first", "second"):
        await say(store, HERE, text)
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert [text for _, text in wall.shown] == ["first", "second"]


@pytest.mark.slow
async def test_a_failing_row_is_overtaken_and_still_retried(store: Database) -> None:
    wall = RecordingChannel()
    wall.always["never"] = TryLater("the server answered 502", 0.1)
    for text in ("never", "one", "two"):
        await say(store, HERE, text)
    async with serving(store, wall) as outbox:
        await until(lambda: len(wall.shown) == 2, what="the later rows")
        await say(store, HERE, "three")
        await until(lambda: len(wall.shown) == 3, what="a row that came later")
        del wall.always["never"]
        await outbox.wait_until_idle()
    assert [text for _, text in wall.shown] == ["one", "two", "three", "never"]


@pytest.mark.slow
async def test_after_an_outage_replies_are_delivered_in_order(store: Database) -> None:
    wall = RecordingChannel()
    texts = ("first", "second", "third")
    for text in texts:
        wall.always[text] = TryLater("cannot reach the server", 0.2)
        await say(store, HERE, text)
    async with serving(store, wall) as outbox:
        await until(lambda: wall.tried[-1:] == ["third"], what="a try of all of them")
        wall.always.clear()
        await outbox.wait_until_idle()
    assert [text for _, text in wall.shown] == [*texts]


async def test_a_row_becomes_a_dead_letter_after_the_retry_limit_and_a_day(store: Database) -> None:
    wall = RecordingChannel()
    for age, attempts in ((2 * 86400.0, RETRY_LIMIT - 2), (2 * 86400.0, 0), (0.0, RETRY_LIMIT)):
        await say(store, Thread("wall", "1", f"{age} {attempts}"), "hello", age)
    await store.run(lambda execute: execute("UPDATE outbox SET attempts=:n WHERE id=1", {"n": RETRY_LIMIT - 2}))
    await store.run(lambda execute: execute("UPDATE outbox SET attempts=:n WHERE id=3", {"n": RETRY_LIMIT}))
    for late in (True, False):
        wall.always[_late("hello", 48) if late else "hello"] = TryLater("the server answered 502", 0.1)
    async with serving(store, wall):
        await until(lambda: len(wall.tried) >= 6, what="some tries")
        async with asyncio.timeout(60):
            while (await states(store))[0] == OutboxState.CLAIMED:  # its end is recorded after its last attempt
                await asyncio.sleep(0.01)
    rows = await store.run(lambda execute: execute("SELECT state, attempts FROM outbox ORDER BY id", {}))
    assert rows[0]["state"] == 3
    assert [row["state"] for row in rows[1:]] == [1, 1]
    assert 1 <= rows[1]["attempts"] < 10  # counted in the row, for the next process


def _late(text: str, hours: int) -> str:
    return f"_(Late by {hours} hours: I couldn't reach this chat.)_\n\n{text}"


async def test_a_disconnected_channel_does_not_count_as_an_attempt(store: Database) -> None:
    await say(store, HERE, "kept")
    async with serving(store, None), asyncio.timeout(60):
        while await states(store) != [1]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    [row] = await store.run(lambda execute: execute("SELECT attempts FROM outbox", {}))
    assert row["attempts"] == 0


# ---------------------------------------------------------------- gateway timeouts


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramRig]:
    async with TelegramRig.start(tmp_path / "rig") as made:
        yield made


async def enqueued(store: Database, thread: Thread, kind: str, payload: bytes) -> None:
    await write(store, kind, str(thread), payload)
    await store.run(lambda execute: execute("UPDATE outbox SET run=7", {}))


@pytest.mark.slow
async def test_a_reply_whose_posts_are_never_confirmed_is_posted_twice_and_then_given_up(
    store: Database, rig: TelegramRig
) -> None:
    await enqueued(store, rig.thread(), "reply", Final("The answer.").dump())
    await store.run(lambda execute: execute("UPDATE outbox SET created=created+60", {}))  # by the process that posts it
    rig.wire.fault("error", "post", code=504, after=True, times=2)
    async with serving(store, rig.channel) as outbox:
        await outbox.wait_until_idle()
        assert await states(store) == [3, 2]
        first, second, notice = rig.visible()
        assert "no confirmation" in notice
        assert first == "The answer."
        assert second.endswith("already: The answer.")
        [row] = await store.run(lambda execute: execute("SELECT error, attempts FROM outbox WHERE id=1", {}))
        assert "2 times" in row["error"]
        rig.server.clear_faults()
        assert await store.run(lambda execute: requeue_dead(execute, 1))
        await outbox.wait_until_idle()
    assert rig.visible()[3:] == [second]  # once more, as requested
    assert await states(store) == [2, 2]


@pytest.mark.slow
async def test_people_are_told_of_lost_posts_when_the_platform_answers_again(store: Database, rig: TelegramRig) -> None:
    await enqueued(store, rig.thread(), "reply", Final("The answer.").dump())
    await store.run(lambda execute: execute("UPDATE outbox SET created=created+60", {}))
    rig.wire.fault("error", "post", code=504, times=2)  # none of them had an effect
    async with serving(store, rig.channel) as outbox:
        await until(lambda: rig.wire.count("post") == 2, what="both posts")
        rig.server.fault("error", "sendChatAction", code=504, times=2)  # the gateway still fails
        await until(lambda: len(rig.server.calls_of("sendChatAction")) >= 3, what="looks whether it works")
        await outbox.wait_until_idle()
    [notice] = rig.visible()
    assert "no confirmation" in notice
    assert rig.wire.count("post") == 3


@pytest.mark.slow
async def test_a_notice_that_is_not_confirmed_either_is_not_repeated(store: Database, rig: TelegramRig) -> None:
    await enqueued(store, rig.thread(), "reply", Final("The answer.").dump())
    rig.wire.fault("error", "post", code=504, after=True, times=-1)
    async with serving(store, rig.channel) as outbox:
        await outbox.wait_until_idle()
    assert len(rig.visible()) == 3


@pytest.mark.slow
async def test_a_reply_that_a_crash_may_have_cut_off_is_not_given_up_without_a_notice(
    store: Database, rig: TelegramRig
) -> None:
    await enqueued(store, rig.thread(), "reply", Final("The answer.").dump())
    rig.wire.fault("error", "post", code=504, times=2)
    async with serving(store, rig.channel) as outbox:  # it began after the row was written
        await outbox.wait_until_idle()
        assert await states(store) == [3, 2]
    [notice] = rig.visible()
    assert "no confirmation" in notice


async def test_an_unconfirmed_file_is_posted_twice_also_across_a_restart(
    store: Database, rig: TelegramRig, tmp_path: Path
) -> None:
    (tmp_path / "copy").write_bytes(b"a,b\n")
    file = OutgoingFile(tmp_path / "copy", "a.csv", 4, "Here")
    await enqueued(store, rig.thread(), "file", files_payload([file]))
    rig.wire.fault("error", "upload", code=504, after=True, times=-1)
    async with serving(store, rig.channel):
        await until(lambda: len(rig.visible()) == 1, what="the first")
    await store.run(release_stale_claims)
    async with serving(store, rig.channel) as outbox:
        await outbox.wait_until_idle()
    assert await states(store) == [3, 2]
    assert [("a.csv" in text) for text in rig.visible()] == [True, True, True]
    assert "no confirmation" in rig.visible()[2]
    assert rig.wire.count("upload") == 2


LOCKED = MayPass("the topic is locked")


async def ask_for(store: Database, kind: str, payload: bytes) -> None:
    """Enqueue what the run of person 7 delivers in THERE."""
    await write(store, kind, str(THERE), payload)
    await store.run(lambda execute: execute("UPDATE outbox SET person='7'", {}))


@pytest.mark.parametrize("kind", ["say", "reply", "file"])
async def test_a_refusal_that_may_pass_is_retried_in_its_place(store: Database, tmp_path: Path, kind: str) -> None:
    wall = RecordingChannel()
    wall.faults["there"] = [LOCKED, LOCKED]
    file = files_payload([OutgoingFile(tmp_path / "gone", "a.csv", 4, "")])
    await ask_for(store, kind, file if kind == "file" else Final("42").dump())
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.shown == [("there", "a.csv" if kind == "file" else "42")]
    assert (len(wall.tried), await states(store)) == (3, [2])


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (LOCKED, 1 + REFUSAL_RETRIES),
        (Refused("the app lacks a permission"), 1),
        (ChatGone("archived"), 1),
        (MayPass("`x`" * 200), 1 + REFUSAL_RETRIES),
    ],
    ids=["unknown", "final", "gone", "long"],
)
async def test_an_answer_refused_for_good_goes_to_its_person_with_the_reason_and_to_the_operators(
    store: Database, error: Refused, tries: int
) -> None:
    wall = RecordingChannel()
    wall.always["42"] = error
    await ask_for(store, "reply", Final("42").dump())
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert wall.tried.count("42") == tries
    [private] = [text for place, text in wall.shown if place == "private 7"]
    assert str(error).replace("`", "'")[:150] in private
    assert private.endswith("\n\n42")
    assert [text for place, text in wall.shown if place == "there"] == (
        [] if isinstance(error, ChatGone) else ["I can't post my answer here, so I've sent it to your private chat."]
    )
    dead = await store.run(list_dead)
    assert [(row.error, row.kind) for row in dead] == [(str(error), "reply")]


@pytest.mark.parametrize("error", [LOCKED, ChatGone("archived"), FilesRefused({"a.csv": LOCKED})], ids=repr)
async def test_files_that_their_place_refuses_go_to_their_person_and_wait_for_the_operators(
    store: Database, tmp_path: Path, error: Refused
) -> None:
    wall = RecordingChannel()
    wall.always["a.csv"] = error
    (tmp_path / "spool" / "run-7").mkdir(parents=True)
    copy = tmp_path / "spool" / "run-7" / "1"
    copy.write_bytes(b"a,b\n")
    await ask_for(store, "file", files_payload([OutgoingFile(copy, "a.csv", 4, "")]))
    current = current_of(ServiceLimits())
    current.config = replace(current.config, data_dir=tmp_path)
    outbox = Hasty(store, lambda name: wall, current)
    delivered: list[bytes] = []

    async def send_files(thread: Thread, files: Sequence[OutgoingFile], posts: SentMessages) -> None:
        if thread.chat == "there":
            await wall.write(thread, "a.csv", posts)
        delivered.extend(file.path.read_bytes() for file in files)

    wall.send_files = send_files  # type: ignore[method-assign] # this channel is the test's
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outbox.serve(), name="outbox")
        await outbox.wait_until_idle()
        task.cancel()
    assert delivered == [b"a,b\n"]
    [private] = [text for place, text in wall.shown if place == "private 7"]
    assert "a.csv" in private
    assert str(error.refused["a.csv"] if isinstance(error, FilesRefused) else error) in private
    assert [row.kind for row in await store.run(list_dead)] == ["file"]
    assert copy.exists(), "the dead letter can be sent again"


async def test_a_file_that_is_too_large_everywhere_is_not_sent_elsewhere(store: Database, tmp_path: Path) -> None:
    wall = RecordingChannel()
    wall.faults["there"] = [FilesRefused({"a.csv": Refused("it has 60 MB; Slack takes at most 50 MB here")})]
    await ask_for(store, "file", files_payload([OutgoingFile(tmp_path / "x", "a.csv", 4, "")]))
    async with serving(store, wall) as outbox:
        await outbox.wait_until_idle()
    assert [place for place, _ in wall.shown] == ["there"]
    assert len(wall.tried) == 2
