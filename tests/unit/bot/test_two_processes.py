"""Two processes on one database do together what one does: once, and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent.blocks import ALWAYS_ALLOW, DENY, Approve
from agent.messages import Author, Kind, Message, Origin, Thread
from agent.permissions.rules import Grant
from bot.config.schema import AccessConfig
from bot.database.database import Database, Execute
from bot.journey import questions
from bot.main.startup import follow_languages
from bot.rights.access import AccessPolicy
from bot.rights.approvals import question_columns
from bot.schedules.firing import fire_due
from bot.storage import calls, conversations
from bot.storage import questions as stored_questions
from bot.storage.inbox import pending_commands
from bot.storage.languages import choose_language
from tests.fakes.server import until
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.postgres_sessions import beside, session
from tests.support.reception import command_runner, command_service, open_inbox
from tests.support.rehearsed_database import make_empty_database
from tests.support.schedule_rows import add_schedule

HOME = Thread("telegram", "1", "42")
NEW = Message(
    HOME, "k1", "1", Author("42", "Jane"), "new", 0.0, Kind.COMMAND, private=True, origin=Origin.PERSON
)  # fmt: skip
CURRENT = current_of(telegram=AccessConfig(open=True))
NOBODY = AccessPolicy({"telegram": AccessConfig(operators=("1",))})
APPROVE = Approve("a", "May I?", call="bash", grant=Grant("bash", "make deploy"), option_count=4)


# ------------------------------------------------------------ commands


async def test_a_command_that_two_processes_have_read_runs_once(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        await open_inbox(store, CURRENT, IDLE_TURNS).receive([NEW])
        runners = [command_runner(store, command_service(CURRENT)) for _ in range(2)]
        [row] = await store.run(lambda execute: pending_commands(execute, 10))
        await asyncio.gather(*(runner._answer_command(row) for runner in runners))
        assert await store.run(_count_commands) == 1
        assert await store.run(lambda execute: conversations.find_current(execute, HOME)) == f"{HOME}#2"


async def test_a_command_that_another_process_is_running_is_waited_for(url: str) -> None:
    runner = command_runner(Database(Path("unused")), command_service(CURRENT))
    with session(url) as one:
        open_inbox(Database(Path("unused")), CURRENT, IDLE_TURNS)._store_event(one.execute, NEW, 1.0)
        [row] = pending_commands(one.execute, 10)
        one.commit()

    def run(execute: Execute) -> int:
        runner._run(execute, row, row.message)
        return _count_commands(execute)

    assert await asyncio.to_thread(beside, url, run, run) == (1, 1)


def _count_commands(execute: Execute) -> int:
    return sum(b'"command"' in bytes(row["body"]) for row in execute("SELECT body FROM audit", {}))


# ------------------------------------------------------------ schedules


async def test_a_schedule_that_another_process_fires_is_left_to_it(url: str) -> None:
    with session(url) as one:
        add_schedule(one.execute, 1000.0)
        one.commit()

    def fire(execute: Execute, now: float) -> int:
        fire_due(execute, NOBODY, now, 3600.0)
        return len(execute("SELECT 1 FROM outbox", {}))

    fires = (lambda execute: fire(execute, 3601.0)), (lambda execute: fire(execute, 3603.0))
    assert await asyncio.to_thread(beside, url, *fires) == (1, 0)
    with session(url) as one:
        assert len(one.execute("SELECT 1 FROM outbox")) == 1  # it was paused, and that was said


# ------------------------------------------------------------ languages


async def test_a_language_that_is_chosen_at_another_process_is_followed(pair: tuple[Database, Database]) -> None:
    following = asyncio.create_task(follow_languages(pair[0], CURRENT, 0.05))
    await pair[1].run(lambda execute: choose_language(execute, HOME, "42", "zh"))
    await until(lambda: CURRENT.languages.find(HOME, "42") == "zh", what="the choice")
    following.cancel()
    await asyncio.wait([following])


# ------------------------------------------------------------ answers


async def test_of_two_answers_at_once_only_the_first_is_recorded_and_grants(url: str) -> None:
    with session(url) as one:
        key = conversations.current_conversation(one.execute, HOME, 1.0)
        stored_questions.store_question(
            one.execute, APPROVE, key, run=1, number=1, answerers=question_columns(APPROVE, "42"), now=1.0
        )
        one.commit()

    def press(execute: Execute, option: str) -> list[str]:
        click = Message(
            HOME, option, "1", Author("42", "Jane"), option, 2.0, Kind.CLICK, target="a", origin=Origin.PERSON
        )
        questions.record_answers(execute, OPEN_ACCESS, key, [click], 2.0)
        return [row.answer for row in stored_questions.unresolved_questions(execute, key)]

    first, second = await asyncio.to_thread(
        beside, url, lambda execute: press(execute, DENY), lambda execute: press(execute, ALWAYS_ALLOW)
    )
    assert (first, second) == ([DENY], [DENY]), "the second one changes nothing"
    with session(url) as one:
        assert calls.list_grants(one.execute, key) == []
        found = stored_questions.find_question(one.execute, key, "a")
        assert found
        assert found.answer == DENY
