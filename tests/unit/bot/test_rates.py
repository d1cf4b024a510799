"""Rate limits of people, chats and tools."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Kind, Message, Origin, Thread
from bot.config.schema import Config
from bot.config.spending import RateLimitConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.states import InboxState
from bot.rights.current import Current
from bot.rights.rates import LAST_ROW, ToolAndMessageRates
from bot.storage import blanked, conversations, inbox
from bot.storage.blanked import StillCounted
from bot.storage.forgetting import PersonKey, forget_loose
from bot.storage.uses import RATE_LIMIT
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

NOON = 1_800_000_000.0


def limiter(*limits: RateLimitConfig) -> ToolAndMessageRates:
    return ToolAndMessageRates(Current(Config(rate_limits=limits)))


NUMBERS = itertools.count()


def said(person: str = "jane", chat: str = "c", topic: str = "") -> Message:
    return Message(
        Thread("telegram", "w", chat, topic),
        f"k{next(NUMBERS)}",
        "1",
        Author(person, person),
        "hello",
        NOON,
        origin=Origin.PERSON,
    )


def test_the_window_slides() -> None:
    rates = limiter(RateLimitConfig("person", count=2, seconds=60))
    assert rates.take_message(said(), NOON) is None
    assert rates.take_message(said(), NOON + 30) is None
    refused = rates.take_message(said(), NOON + 50)
    assert refused
    assert refused.until == NOON + 60
    assert rates.take_message(said(), NOON + 59)
    assert rates.take_message(said(), NOON + 60) is None, "refused messages do not count"
    refused = rates.take_message(said(), NOON + 61)
    assert refused
    assert refused.until == NOON + 90


def test_people_and_chats_are_counted_apart() -> None:
    rates = limiter(RateLimitConfig("person", count=2, seconds=60), RateLimitConfig("chat", count=3, seconds=60))
    assert [rates.take_message(said("jane"), NOON) is None for _ in range(3)] == [True, True, False]
    assert rates.take_message(said("bob", topic="7"), NOON) is None
    refused = rates.take_message(said("eve", topic="8"), NOON)
    assert refused
    assert refused.limit.scope == "chat"
    assert rates.take_message(said("eve", chat="other"), NOON) is None
    assert "This chat may send 3 messages in 1 min" in refused.sentence("Europe/Berlin")


def test_a_limit_for_one_replaces_that_for_all() -> None:
    rates = limiter(
        RateLimitConfig("person", "telegram:jane", 2, 60),
        RateLimitConfig("person", "", 1, 60),
        RateLimitConfig("tool", "web_search", 1, 60),
    )
    assert [rates.take_message(said("jane"), NOON) is None for _ in range(3)] == [True, True, False]
    assert [rates.take_message(said("bob"), NOON) is None for _ in range(2)] == [True, False]
    assert rates.take("web_search") is None
    assert rates.take("web_search")
    assert [rates.take("bash") for _ in range(100)] == [None] * 100


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as opened:
        yield opened


def keep(execute: Execute, key: str, at: float, *, bundle: str = "", **changes: object) -> int:
    """Store a message as the inbox does."""
    message = replace(said(), key=key, **changes)  # type: ignore[arg-type]  # any fields
    row = inbox.store_message(execute, message, f"{message.thread}#1", ready=at, received=at, bundle=bundle)
    assert row
    return row


async def test_a_new_process_counts_the_messages_of_the_inbox(store: Database) -> None:
    """Not those that were refused, and none of what Fawn made of a command or a schedule; pieces count once."""

    def work(execute: Execute) -> list[float | None]:
        keep(execute, "telegram:1", NOON - 90)
        keep(execute, "telegram:2", NOON - 50)
        for piece in range(3):
            keep(execute, f"telegram:album{piece}", NOON - 40 + piece, bundle="album:1")
        keep(execute, "telegram:3", NOON - 30, kind=Kind.COMMAND, text="plan a trip")
        keep(execute, "plan:telegram:3", NOON - 30)
        keep(execute, "telegram:4", NOON - 29, kind=Kind.COMMAND, text="status")
        keep(execute, "retry:telegram:4:0", NOON - 28)
        keep(execute, "sched:1:1.000", NOON - 28)
        inbox.set_state(execute, keep(execute, "telegram:5", NOON - 20), InboxState.DONE, RATE_LIMIT)
        keep(execute, "telegram:6", NOON - 10, author=Author("bob", "Bob"), thread=Thread("telegram", "w", "c", "7"))
        row = keep(execute, "telegram:7", NOON)
        rates = limiter(RateLimitConfig("person", count=4, seconds=60), RateLimitConfig("chat", count=5, seconds=60))
        found: list[float | None] = []
        for _ in range(2):
            rates.read_messages(execute, row, NOON, lambda command: command.text.startswith("plan"))
            refused = rates.take_message(said(), NOON)
            found.append(refused.until if refused else None)
        rates.read_messages(execute, LAST_ROW, NOON, lambda command: True)
        chat = rates.take_message(said("eve"), NOON)
        assert chat
        assert chat.limit.scope == "chat"
        return found

    assert await store.run(work) == [None, NOON - 50 + 60]


async def test_a_new_process_counts_the_tool_calls_of_the_audit(store: Database) -> None:
    def work(execute: Execute) -> None:
        for outcome in ("success", "rate", "replayed", "error"):
            event = AuditEvent(AuditKind.TOOL_RESULT, what={"tool": "web_search"}, result=outcome)
            audit.record(execute, event)
        audit.record(execute, AuditEvent(AuditKind.TOOL_CALL, what={"tool": "web_search"}, result="allowed"))

    await store.run(work)
    rates = limiter(RateLimitConfig("tool", count=3, seconds=60), RateLimitConfig("tool", "ls", 1, 60))
    for _ in range(2):
        await rates.read_tools(store)
    assert [rates.take("web_search") is None for _ in range(2)] == [True, False]
    assert rates.take("ls") is None


async def test_a_change_of_the_limits_counts_what_was_sent_before(store: Database) -> None:
    def work(execute: Execute) -> None:
        row = keep(execute, "telegram:1", NOON - 500)
        rates.read_messages(execute, row + 1, NOON, lambda _: True)
        assert rates.take_message(first, NOON) is None
        current.config = replace(current.config, rate_limits=(RateLimitConfig("person", count=1, seconds=3600),))
        rates.read_messages(execute, row + 1, NOON, lambda _: True)
        assert rates.take_message(said(), NOON)

    first = said()
    current = Current(Config(rate_limits=(RateLimitConfig("person", count=1, seconds=60),)))
    rates = ToolAndMessageRates(current)
    await store.run(work)


async def test_forgetting_a_person_is_no_way_around_a_limit(store: Database) -> None:
    """A new process, or new limits, still count what was blanked, until the longest window is over."""
    limits = RateLimitConfig("person", count=3, seconds=60), RateLimitConfig("chat", count=4, seconds=60)

    def begins_work(command: Message) -> bool:
        return command.text.startswith("plan")

    def work(execute: Execute) -> list[float | None]:
        keep(execute, "telegram:1", NOON - 90)
        keep(execute, "telegram:2", NOON - 50)
        for piece in range(3):
            keep(execute, f"telegram:album{piece}", NOON - 40 + piece, bundle="album:1")
        keep(execute, "telegram:3", NOON - 30, kind=Kind.COMMAND, text="plan a trip")
        keep(execute, "telegram:4", NOON - 29, kind=Kind.COMMAND, text="status")
        keep(execute, "plan:telegram:3", NOON - 30)
        inbox.set_state(execute, keep(execute, "telegram:5", NOON - 20), InboxState.DONE, RATE_LIMIT)
        keep(execute, "telegram:6", NOON - 10, author=Author("bob", "Bob"))
        counted = StillCounted(NOON - 60, begins_work)
        assert forget_loose(execute, PersonKey("telegram", "jane"), counted)
        assert "jane" not in str([dict(row) for row in execute("SELECT author, bundle, payload FROM inbox", {})])
        found: list[float | None] = []
        for person in ("jane", "eve", "eve"):
            rates = limiter(*limits)
            rates.read_messages(execute, LAST_ROW, NOON, begins_work)
            if person == "eve":
                assert rates.take_message(said("eve", chat="elsewhere"), NOON) is None
            refused = rates.take_message(said(person), NOON)
            found.append(refused.until if refused else None)
        assert inbox.count_recent(execute, said(), NOON - 60) == 3
        assert blanked.end_counts(execute, NOON - 45) == 1
        assert blanked.end_counts(execute, NOON) == 2
        assert not execute("SELECT 1 FROM inbox WHERE author LIKE 'forgotten%'", {})
        return found

    assert await store.run(work) == [NOON - 50 + 60] + [NOON - 50 + 60] * 2


async def test_counting_messages_does_not_keep_tool_calls_from_being_counted(store: Database) -> None:
    """Each kind of use is read once for the limits in force."""
    event = AuditEvent(AuditKind.TOOL_RESULT, what={"tool": "web_search"}, result="success")
    await store.run(lambda execute: audit.record(execute, event))
    rates = limiter(RateLimitConfig("tool", "web_search", 1, 60), RateLimitConfig("person", count=1, seconds=60))
    now = time.time()
    await store.run(lambda execute: rates.read_messages(execute, LAST_ROW, now, lambda command: True))
    assert rates.take_message(said(), now) is None
    await rates.read_tools(store)
    assert rates.take("web_search"), "the call of the last process counts"
    assert rates.take_message(said(), now), "and the message is not forgotten"


async def test_a_message_to_a_schedule_is_counted_like_any_other(store: Database) -> None:
    def work(execute: Execute) -> None:
        message = replace(said(), key="telegram:1")
        for conversation in ("schedule:1", "schedule:2"):
            row = replace(message, key=f"telegram:{conversation}")
            inbox.store_message(execute, row, conversation, ready=NOON - 9, received=NOON - 9)
        conversations.place_conversation(execute, "schedule:1", said().thread, "", NOON)
        rates = limiter(RateLimitConfig("person", count=2, seconds=60), RateLimitConfig("chat", count=1, seconds=60))
        rates.read_messages(execute, LAST_ROW, NOON, lambda command: True)
        refused = rates.take_message(said("eve"), NOON)
        assert refused
        assert refused.limit.scope == "chat"
        assert rates.take_message(said(chat="elsewhere"), NOON)

    await store.run(work)
