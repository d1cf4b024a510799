"""The schedules of a turn: who joins another person's turn, or writes elsewhere, moves none of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from agent.schedules import ScheduleRequest
from bot import claims
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.current import Current
from bot.schedules.turns import TurnSchedules
from bot.storage import conversations, inbox, runs
from bot.storage.database import Database, Execute
from bot.storage.migrate import migrate_database
from bot.storage.schedules import find_schedule
from tests.support.schedule_rows import add_schedule

GROUP, DIRECT = Thread("telegram", "bot", "-900"), Thread("telegram", "bot", "7")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    migrate_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as made:
        yield made


@pytest.mark.parametrize("place", [GROUP, DIRECT])
@pytest.mark.parametrize("joined", [False, True])
async def test_a_turn_moves_a_schedule_only_in_its_place_and_for_its_owner_alone(
    store: Database, place: Thread, joined: bool
) -> None:
    config = Config(channels=(ChannelConfig("telegram", None, AccessConfig(open=True)),))
    current, now = Current(config), time.time()

    def begin(execute: Execute) -> tuple[int, claims.ClaimedRun]:
        row = add_schedule(execute, now)
        conversation = conversations.current_conversation(execute, place, now)
        is_private = place == DIRECT
        said = Message(place, "k", "1", Author("7", "Jane"), "x", now, private=is_private, origin=Origin.PERSON)
        inbox.store_message(execute, said, conversation, ready=now, received=now)
        conversations.refresh_pending(execute, conversation)
        [job] = claims.claim_conversations(execute, current.access, "p", now, 10.0, 5)
        runs.add_people(execute, job.run, ["78"] if joined else [])
        return row.id, job

    number, job = await store.run(begin)
    turn = TurnSchedules(store, current, job, lambda: None)
    may = place == DIRECT and not joined
    for answer in (
        await turn.propose(ScheduleRequest(number=number, what="Else")),
        await turn.pause(number),
        await turn.delete(number),
    ):
        assert answer.startswith("Not possible") != may, answer
    found = await store.run(lambda execute: find_schedule(execute, number))
    assert (found is None or found.state != "active") == may
