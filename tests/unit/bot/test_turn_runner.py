"""Turns with the real agent (demo model) and no channel: stopping them and recording their end."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from agent.blocks import Final, internal_fault
from agent.core.context import ToolServices
from agent.messages import Author, Message, Origin, Thread
from agent.settings.sections import AgentSettings
from agent.turn.factory import build_agent
from bot.base.data_dir import conversation_folder
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database.database import Database
from bot.journey import claims
from bot.journey.outbox import Outbox
from bot.journey.scheduler import Scheduler
from sandbox.base import Sandbox
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.folders import ConversationFolders
from tests.fakes.server import until
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import open_inbox, open_turns
from tests.support.rehearsed_database import RehearsedDatabase, make_empty_database

HELLO = Message(
    Thread("wall", "1", "42"), "k1", "1", Author("42", "Jane"), "hello", 0.0, private=True, origin=Origin.PERSON
)


class Lingering(FilesOnlyProvider):
    """A sandbox that is released slowly; its turn has not ended until then."""

    def __init__(self, skills: Path) -> None:
        super().__init__(skills)
        self.lingering = False
        self.held: list[asyncio.Event] = []  # one for each use

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        async with super().acquire(key, folder) as sandbox:
            yield sandbox
        if self.lingering:
            self.held.append(asyncio.Event())
            await self.held[-1].wait()


class TurnHarness:
    """A database, its turns and an inbox; `at_once` stops every turn before its first step. Nothing is delivered."""

    def __init__(self, store: Database, folder: Path, provider: Lingering, limits: ServiceLimits) -> None:
        self.store = store
        self.folder = folder
        self.provider = provider
        self.current = current_of(limits, wall=AccessConfig(open=True))
        self.at_once = False
        self.threads = Scheduler(store, self.current)
        self.inbox = open_inbox(store, self.current, self.threads)

    def channel(self, name: str) -> None:
        """Called when a turn is about to start, so that `at_once` acts before its first step."""
        if self.at_once:
            self.at_once = False
            asyncio.get_running_loop().call_soon(self.threads.stop_run, 1, "42")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Work while the context is open."""
        folders = ConversationFolders(self.folder / "threads", 16)
        agent = await build_agent((), AgentSettings(), self.store, ToolServices(runs_commands=False))
        await self.current.replace(self.current.config, agent)
        outbox = Outbox(self.store, self.channel, self.current)
        parts = (self.store, self.current, self.provider, folders, outbox, self.channel, self.folder)
        turns, _begun = open_turns(*parts)
        serving = [asyncio.create_task(outbox.serve()), asyncio.create_task(self.threads.serve(turns))]
        try:
            yield
        finally:
            for task in serving:
                task.cancel()
            await asyncio.wait(serving)

    async def states(self) -> list[str]:
        rows = await self.store.run(lambda execute: execute("SELECT state FROM runs ORDER BY id", {}))
        return [row["state"] for row in rows]

    async def replies(self) -> list[str]:
        rows = await self.store.run(
            lambda execute: execute("SELECT payload FROM outbox WHERE kind='reply' ORDER BY id", {})
        )
        return [Final.load(row["payload"]).text for row in rows]

    async def idle(self) -> None:
        async with asyncio.timeout(60):
            await self.threads.wait_until_idle()

    async def refuse(self, table: str, when: str = "1", event: str = "INSERT") -> None:
        """Make the database refuse such rows, like a fault in the statement that writes them."""
        sql = f"CREATE TRIGGER refuse_{table} BEFORE {event} ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, '!'); END"
        await self.store.run(lambda execute: execute(sql, {}))


@pytest.fixture
def limits() -> ServiceLimits:
    return ServiceLimits()


@pytest.fixture
async def idle_harness(tmp_path: Path, limits: ServiceLimits) -> AsyncIterator[TurnHarness]:
    """A harness without a running scheduler."""
    make_empty_database(tmp_path / "fawn.db")
    async with RehearsedDatabase(tmp_path / "fawn.db", busy_timeout_seconds=0.1) as store:
        yield TurnHarness(store, tmp_path, Lingering(tmp_path / "skills"), limits)


@pytest.fixture
async def harness(idle_harness: TurnHarness) -> AsyncIterator[TurnHarness]:
    async with idle_harness.serving():
        yield idle_harness


async def test_a_turn_stopped_before_its_first_step_is_recorded(harness: TurnHarness) -> None:
    harness.at_once = True
    await harness.inbox.receive([HELLO])
    async with asyncio.timeout(60):
        await harness.threads.wait_until_idle()
    assert await harness.states() == ["stopped"]


@pytest.mark.slow
async def test_a_stop_does_not_interrupt_the_commit_of_the_end(harness: TurnHarness, tmp_path: Path) -> None:
    """The disk is busy while the turn ends. Until the end is recorded, the turn is registered; then new messages
    start the next one."""
    holder = sqlite3.connect(tmp_path / "fawn.db", isolation_level=None, check_same_thread=False)
    await harness.inbox.receive([HELLO])
    await until(lambda: harness.threads.running_turns, what="the turn")
    (live,) = harness.threads.running_turns
    holder.execute("BEGIN IMMEDIATE")
    await until(lambda: live.working, what="the work")
    await until(lambda: not live.working, what="the end of the work")
    harness.threads.stop_run(live.job.run, "42")
    await asyncio.sleep(0.3)
    assert harness.threads.running_turns == (live,)
    holder.execute("ROLLBACK")
    holder.close()
    async with asyncio.timeout(60):
        await harness.threads.wait_until_idle()
    assert await harness.states() == ["done"]


@pytest.mark.slow
async def test_a_turn_that_starts_while_the_previous_one_ends_stays_registered(harness: TurnHarness) -> None:
    """It can be stopped and steered, counts towards the limit, and is not started again."""
    harness.provider.lingering = True
    await harness.inbox.receive([replace(HELLO, text="plot")])
    await until_async(harness.states, ["done"])
    assert len(harness.threads.running_turns) == 1
    await harness.inbox.receive([replace(HELLO, key="k2", text="plot once more")])
    await until_async(harness.states, ["done", "done"])
    (second,) = harness.threads.running_turns
    assert second.job.run == 2
    ending = next(task for task in asyncio.all_tasks() if task.get_name() == "turn 1")
    await until(lambda: len(harness.provider.held) == 2, what="the end of the second turn")
    harness.provider.held[0].set()
    await asyncio.wait([ending])
    await asyncio.sleep(0)
    assert harness.threads.running_turns == (second,)
    harness.provider.held[1].set()
    await harness.idle()
    assert not harness.threads.running_turns


@pytest.mark.slow
async def test_a_message_is_claimed_where_it_is_stored(harness: TurnHarness) -> None:
    """Its turn begins before `receive` returns, and does not take it a second time, as a message to a running turn."""
    for number in range(20):  # while the scheduler looks for what waits, it has all places
        await harness.idle()
        await harness.inbox.receive([replace(HELLO, key=f"k{number}")])
        if begun := harness.threads.running_turns:
            break
    (live,) = begun
    assert [message.key for message in live.job.messages] == [f"k{number}"]
    assert not live.has_unread
    await harness.idle()
    assert {*await harness.states()} == {"done"}


@pytest.mark.parametrize("limits", [ServiceLimits(live_turns=1)])
async def test_messages_that_come_at_once_do_not_exceed_the_limit(harness: TurnHarness) -> None:
    await harness.idle()
    chats = [replace(HELLO, key=chat, thread=Thread("wall", "1", chat)) for chat in ("a", "b")]
    await asyncio.gather(*(harness.inbox.receive([message]) for message in chats))
    assert len(harness.threads.running_turns) <= 1
    await until_async(harness.states, ["done", "done"], 60)


@pytest.mark.parametrize("limits", [ServiceLimits(live_turns=1)])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_place_that_becomes_free_is_for_the_conversation_that_waits_for_one(
    harness: TurnHarness, waits: bool
) -> None:
    harness.provider.lingering = True
    await harness.inbox.receive([replace(HELLO, text="plot")])
    await until_async(harness.states, ["done"])
    if waits:
        await harness.inbox.receive([replace(HELLO, key="second", thread=Thread("wall", "1", "43"))])
        await until_async(harness.states, ["done", "queued"])
    [live] = harness.threads.running_turns
    assert live.work
    places: list[int] = []

    def arrive(_: object) -> None:  # as a message of a third chat does, before the scheduler looks again
        with harness.threads.reserve_places(1) as free:
            places.append(free)

    live.work.add_done_callback(arrive)
    await until(lambda: harness.provider.held, what="the sandbox that is kept")
    harness.provider.held[0].set()
    await harness.idle()
    assert places == [0 if waits else 1]


async def test_what_is_claimed_during_a_shutdown_is_suspended(harness: TurnHarness) -> None:
    """A graceful shutdown does not count as an attempt."""
    await harness.idle()
    received = asyncio.create_task(harness.inbox.receive([HELLO]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await harness.threads.close(grace=0.0)
    await received
    rows = await harness.store.run(lambda execute: execute("SELECT attempt FROM runs", {}))
    assert [row["attempt"] for row in rows] in ([], [0])
    rows = await harness.store.run(lambda execute: execute("SELECT pending, owner FROM conversations", {}))
    assert [(row["pending"], row["owner"]) for row in rows] == [(1, None)]


@pytest.mark.parametrize("name", [b"\xff.txt", b"caf\xe9/menu.txt"])
async def test_a_name_that_is_not_utf8_is_reported_once(idle_harness: TurnHarness, name: bytes) -> None:
    harness = idle_harness
    await open_inbox(harness.store, current_of(wall=AccessConfig(open=True)), IDLE_TURNS).receive([HELLO])
    await harness.store.run(
        lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "crashed", time.time(), 10.0, 1)
    )
    await harness.store.run(claims.release_stale_claims)  # a second attempt reads outputs/
    conversation = str(HELLO.thread) + "#1"
    outputs = os.fsencode(conversation_folder(harness.folder, conversation) / "outputs")
    file = os.path.join(outputs, name)
    os.makedirs(os.path.dirname(file))
    with open(file, "wb") as made:
        made.write(b"x")
    async with harness.serving():
        await harness.idle()
        await harness.inbox.receive([replace(HELLO, key="k2", text="plot")])
        await harness.idle()
    assert await harness.states() == ["done", "done"]
    first, second = await harness.replies()
    assert "Not sent: `" in first
    assert "Not sent" not in second
    rows = await harness.store.run(lambda execute: execute("SELECT path, stamp FROM outputs ORDER BY path", {}))
    assert [row["path"] for row in rows] == [f"/{quote(name)}", "visits.csv"]


async def test_an_end_that_cannot_be_recorded_ends_without_files(harness: TurnHarness) -> None:
    await harness.refuse("outputs")
    await harness.inbox.receive([replace(HELLO, text="plot")])
    await harness.idle()
    assert await harness.states() == ["failed"]
    (reply,) = await harness.replies()
    assert "when I stored this answer" in reply
    rows = await harness.store.run(lambda execute: execute("SELECT kind FROM outbox", {}))
    assert [row["kind"] for row in rows] == ["reply"]


@pytest.mark.slow
async def test_the_last_fallback_records_one_plain_sentence(harness: TurnHarness) -> None:
    await harness.refuse("usage", "1")
    await harness.refuse("runs", "new.state='done'", "UPDATE")
    await harness.refuse("outbox", "instr(new.payload, 'stored this answer')")
    await harness.inbox.receive([HELLO])
    await harness.idle()
    assert await harness.states() == ["failed"]
    assert await harness.replies() == [f"⚠️ {internal_fault()}"]


@pytest.mark.slow
async def test_an_end_that_cannot_be_recorded_at_all_does_not_affect_other_turns(harness: TurnHarness) -> None:
    await harness.refuse("outbox", "new.run=1")
    elsewhere = replace(HELLO, key="k2", thread=Thread("wall", "1", "43"))
    await harness.inbox.receive([HELLO])
    await until_async(harness.states, ["running"])
    await until(lambda: not harness.threads.running_turns, what="the end of the turn")
    await harness.inbox.receive([elsewhere])
    await until_async(harness.states, ["running", "done"])


# Case 85 of docs/cases.md
@pytest.mark.slow
@pytest.mark.parametrize("limits", [ServiceLimits(live_turns=1)])
async def test_a_queued_paste_is_one_run(harness: TurnHarness) -> None:
    harness.provider.lingering = True
    await harness.inbox.receive([replace(HELLO, text="plot")])
    await until_async(harness.states, ["done"])
    paste = replace(HELLO, thread=Thread("wall", "1", "43"), long=True)
    await harness.inbox.receive([replace(paste, key=f"p{n}", text=f"part {n}", long=n < 3) for n in (1, 2, 3)])
    await until_async(harness.states, ["done", "queued"])
    harness.provider.held[0].set()
    await harness.idle()
    assert await harness.states() == ["done", "done"]


async def until_async(look: Callable[[], Awaitable[list[str]]], wanted: list[str], seconds: float = 60) -> None:
    """Wait until `look()` returns the expected value."""
    async with asyncio.timeout(seconds):
        while await look() != wanted:
            await asyncio.sleep(0.01)


async def test_a_final_has_its_steps_in_words_and_its_time(harness: TurnHarness) -> None:
    await harness.inbox.receive([replace(HELLO, text="plot")])
    await harness.idle()
    [row] = await harness.store.run(lambda execute: execute("SELECT payload FROM outbox WHERE kind='reply'", {}))
    final = Final.load(row["payload"])
    assert final.state == "done"
    assert final.step_count == len(final.steps) > 0
    assert {step.state for step in final.steps} == {"done"}
    assert final.steps[0].title.startswith("Writing ")
    assert final.steps[0].detail.startswith("write_file: ")
    assert final.seconds > 0
