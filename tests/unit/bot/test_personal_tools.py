"""What is one person's alone: who joins another person's turn, or writes elsewhere, moves none of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.memory.visibility import LinkKind, MemoryKind, MemoryScope
from agent.messages import Author, Message, Origin, Thread
from agent.schedules import ScheduleRequest
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database.database import Database, Execute
from bot.journey import claims
from bot.memory.facts import place_of
from bot.memory.turn import TurnMemory
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.schedules.turns import TurnSchedules
from bot.storage import conversations, inbox, runs
from bot.storage.schedules import find_schedule
from bot.tasks.turns import TurnTasks
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.schedule_rows import add_schedule
from tests.unit.bot.test_memory import learn

JANE, SAID = Author("7", "Jane"), "I prefer tabs to spaces"
CONFIG = Config(channels=(ChannelConfig("telegram", None, AccessConfig(open=True)),))
GROUP, DIRECT = Thread("telegram", "bot", "-900"), Thread("telegram", "bot", "7")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def begin(store: Database, current: Current, place: Thread, *, joined: bool) -> tuple[int, ClaimedRun]:
    """Store a schedule of Jane, and begin a run of hers, which Eve may have joined."""
    now = time.time()

    def work(execute: Execute) -> tuple[int, ClaimedRun]:
        row = add_schedule(execute, now)
        conversation = conversations.current_conversation(execute, place, now)
        said = Message(place, "k", "1", JANE, SAID, now, private=place == DIRECT, origin=Origin.PERSON)
        inbox.store_message(execute, said, conversation, ready=now, received=now)
        conversations.refresh_pending(execute, conversation)
        [job] = claims.claim_conversations(execute, current.access, "p", now, 10.0, 5)
        runs.add_people(execute, job.run, ["78"] if joined else [])
        return row.id, job

    return await store.run(work)


def questions_asked(execute: Execute) -> list[str]:
    return [str(row["key"]) for row in execute("SELECT key FROM outbox ORDER BY id", {})]


@pytest.mark.parametrize("place", [GROUP, DIRECT])
@pytest.mark.parametrize("joined", [False, True])
async def test_a_turn_moves_a_schedule_only_in_its_place_for_its_owner_alone_and_with_their_word(
    store: Database, place: Thread, joined: bool
) -> None:
    current = Current(CONFIG)
    number, job = await begin(store, current, place, joined=joined)
    turn = TurnSchedules(store, current, job)
    may = place == DIRECT and not joined
    for answer in (
        await turn.propose(ScheduleRequest(number=number, what="Else")),
        await turn.pause(number),
        await turn.delete(number),
    ):
        assert answer.startswith("Not possible") != may, answer
    found = await store.run(lambda execute: find_schedule(execute, number))
    assert found
    assert found.state == "active", "its owner has not decided"
    asked = [f"sched:{number + 1}:ask", f"sched:{number}:pause:{job.run}", f"sched:{number}:delete:{job.run}"]
    assert await store.run(questions_asked) == (asked if may else [])


@pytest.mark.parametrize("joined", [False, True])
async def test_no_personal_tool_changes_anything_while_others_take_part(
    store: Database, tmp_path: Path, joined: bool
) -> None:
    async def embed(_text: str) -> None:
        return None

    current = Current(CONFIG)
    number, job = await begin(store, current, DIRECT, joined=joined)
    schedules = TurnSchedules(store, current, job)
    memory = TurnMemory(store, current, embed, job, place_of(job.messages[0]), JANE)
    tasks = TurnTasks(store, current, job, lambda _run, _by: None)
    started = await tasks.start_command("k", "bash", "build", "true", "")
    answers = [
        await schedules.propose(ScheduleRequest(number=number, what="Else")),
        await schedules.pause(number),
        await schedules.delete(number),
        await memory.save(SAID, SAID, MemoryKind.PREFERENCE, MemoryScope.PERSON, 0),
        await memory.forget(1, SAID),
        await memory.link(1, LinkKind.ABOUT, 2),
        await memory.unlink(1, 2),
        await tasks.cancel(1),
    ]
    assert started.startswith("Started as background task 1")
    assert [("several people" in answer) for answer in answers] == [joined] * len(answers), answers
    assert [answer.startswith("Not ") for answer in answers] == [joined] * len(answers), answers
    [state] = await store.run(lambda execute: execute("SELECT state FROM tasks", {}))
    assert state["state"] == ("queued" if joined else "cancelled")


async def test_notes_are_linked_found_by_their_links_shown_and_unlinked(store: Database) -> None:
    async def embed(_text: str) -> None:
        return None

    current = Current(CONFIG)
    _number, job = await begin(store, current, DIRECT, joined=False)
    memory = TurnMemory(store, current, embed, job, place_of(job.messages[0]), JANE)
    here = place_of(job.messages[0])
    older = await learn(store, "the launch is in May", here, JANE, subject="launch date", at=1.0)
    launch = await learn(store, "the launch is in June", here, JANE, subject="launch date", at=2.0)
    board = await learn(store, "the board met in Bergen", here, JANE, at=3.0)
    other = await learn(store, "likes tea", here, JANE, at=4.0)
    assert await memory.link(launch, LinkKind.DECIDED_BY, board) == f"Note #{launch} is linked: decided_by #{board}."
    assert await memory.link(launch, LinkKind.DECIDED_BY, board), "again is the same"
    found = await memory.search(f"#{board}")
    assert f"- #{launch} (preference, 1970-01-01, replaces #{older}, decided_by #{board}) " in found
    assert (f"- #{board} " in found, f"- #{other} " in found) == (True, False)
    for wrong in (await memory.link(launch, LinkKind.ABOUT, 99), await memory.link(99, LinkKind.ABOUT, launch)):
        assert wrong == "There is no other note #99 of Jane."
    assert "no other note" in await memory.link(board, LinkKind.ABOUT, board)
    assert "not linked" in await memory.unlink(launch, board)
    assert "decided_by" not in await memory.search(f"{launch}")
