"""Background tasks: the rights that a queued and a repeated one have now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.config.schema import AccessConfig
from bot.database import audit
from bot.database.audit import AuditKind
from bot.database.database import Database, Execute
from bot.database.states import RunState, TaskState
from bot.journey.questions import attribute_request
from bot.rights.current import Current
from bot.storage import inbox, runs, tasks
from bot.storage.people import person_subject, store_role
from bot.storage.tasks import TaskRow
from bot.tasks.reports import TaskEnd, record_end
from bot.tasks.starting import (
    TaskPlace,
    TaskRefused,
    Worker,
    is_forbidden,
    retry_task,
    start_agent,
    start_command,
    store_follow_up,
)
from tests.support.current_config import current_of
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

JANE, OPERATOR = Author("7", "Jane"), Author("8", "Olga")
GROUP = Thread("telegram", "bot", "-1")
PERSON_7 = person_subject("bot", JANE.id)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        yield store


@pytest.fixture
def current() -> Current:
    return current_of(telegram=AccessConfig(open=True, operators=("8",)))


def queue(
    execute: Execute,
    current: Current,
    thread: Thread,
    command: str = "make",
    title: str = "",
    tool: str = "bash",
) -> TaskRow:
    who = TaskPlace(JANE, thread, False, "conversation")
    number = start_command(execute, current, who, f"{thread}/{title}", tool, title or command, command, "", 0.0)
    row = tasks.find_task(execute, number)
    assert row
    return row


async def test_a_queued_command_begins_with_the_rights_of_its_person_now(store: Database, current: Current) -> None:
    row = await store.run(partial(queue, current=current, thread=GROUP))
    forbidden = partial(is_forbidden, current=current, row=row)
    assert not await store.run(forbidden)
    give = partial(store_role, place=GROUP, subject=PERSON_7, role="viewer", name="", by=OPERATOR, now=0.0)
    await store.run(give)
    assert await store.run(forbidden)
    rows = await store.run(lambda execute: execute("SELECT CAST(body AS TEXT) AS body FROM audit", {}))
    assert [("tool.call" in row["body"], "denied" in row["body"]) for row in rows] == [(False, False), (True, True)]


async def test_a_repeated_command_has_the_rights_of_its_person_and_counts_as_a_call(
    store: Database, current: Current
) -> None:
    taken: dict[str, str] = {}  # key → tool

    def take(_execute: Execute, tool: str, key: str) -> None:
        taken[key] = tool

    async def retry(command: str, title: str, tool: str) -> None:
        row = await store.run(partial(queue, current=current, thread=GROUP, command=command, title=title, tool=tool))
        work = partial(retry_task, current=current, row=row, key=f"retry {row.id}", now=0.0, take_tool=take)
        number = await store.run(work)
        again = await store.run(partial(tasks.find_task, number=number))
        assert again
        assert again.person == JANE.id
        await store.run(lambda execute: execute("DELETE FROM tasks", {}))

    await retry("make", "make", "bash")
    await retry("cd /skills/add && ./run", "add", "run_skill")
    await retry("add", "add", "run_skill")
    await retry("rm -rf /x", "add", "bash")
    expected = ["bash", "run_skill", "run_skill", "bash"]
    assert [*taken.values()] == expected, "the tool that started it counts, whatever its title looks like"
    give = partial(store_role, place=GROUP, subject=PERSON_7, role="viewer", name="", by=OPERATOR, now=0.0)
    row = await store.run(partial(queue, current=current, thread=GROUP))
    await store.run(give)
    with pytest.raises(TaskRefused, match="does not allow work here"):
        await store.run(partial(retry_task, current=current, row=row, key="x", now=0.0, take_tool=take))


async def test_a_background_agent_has_the_rights_of_all_for_whom_its_caller_works(
    store: Database, current: Current
) -> None:
    """Also when it is repeated."""
    worker = Worker("general-purpose", "", "default", "")
    who = TaskPlace(JANE, GROUP, False, "conversation", people=(JANE.id, OPERATOR.id))

    def begin(execute: Execute) -> list[list[str]]:
        first = start_agent(execute, current, who, "k1", "work", "work", 0.0, worker)
        row = tasks.find_task(execute, first)
        assert row
        again = retry_task(execute, current, row, "k2", 0.0, lambda _execute, _tool, _key: None)
        return [people_of(execute, number) for number in (first, again)]

    def people_of(execute: Execute, number: int) -> list[str]:
        row = inbox.find_message(execute, f"task:{number}")
        assert row
        first, people = attribute_request(execute, f"task:{number}", [row.message])
        assert first.author.id == JANE.id
        return sorted(people)

    assert await store.run(begin) == [[JANE.id, OPERATOR.id]] * 2


async def test_a_command_and_its_follow_up_have_the_rights_of_all_of_the_run_that_began_them(
    store: Database, current: Current
) -> None:
    """Otherwise a request of two people would get by a command's end what one of them may not do."""
    hello = Message(GROUP, "k", "1", JANE, "hello", 0.0, origin=Origin.PERSON)

    def begin(execute: Execute) -> TaskRow:
        runs.create_run(execute, 5, "conversation", hello, RunState.RUNNING, 0.0)
        execute("UPDATE runs SET people='7 9' WHERE id=5", {})
        who = TaskPlace(JANE, GROUP, False, "conversation", run=5)
        number = start_command(execute, current, who, "key", "bash", "make", "make", "tell me", 0.0)
        row = tasks.find_task(execute, number)
        assert row
        store_follow_up(execute, row, "it ended", 1.0)
        return row

    row = await store.run(begin)
    found = await store.run(lambda execute: inbox.find_message(execute, f"task:{row.id}"))
    assert found
    assert found.message.author == JANE
    assert found.message.people == ("7", "9")
    forbidden = partial(is_forbidden, current=current, row=row)
    assert not await store.run(forbidden)
    subject = person_subject("bot", "9")
    take = partial(store_role, place=GROUP, subject=subject, role="viewer", name="", by=OPERATOR, now=0.0)
    await store.run(take)
    assert await store.run(forbidden)


@pytest.mark.parametrize(("state", "code"), [(TaskState.DONE, 0), (TaskState.FAILED, 2), (TaskState.LOST, None)])
async def test_the_end_of_a_command_has_its_row_in_the_audit(
    store: Database, current: Current, state: TaskState, code: int | None
) -> None:
    def work(execute: Execute) -> list[dict[str, object]]:
        row = queue(execute, current, GROUP)
        assert tasks.claim_queued(execute, "me", 1.0)
        end = TaskEnd(state, code)
        record_end(execute, current.config, row, end, 2.0)
        record_end(execute, current.config, row, end, 3.0)  # its end is recorded once
        return [row.event for row in audit.read_newest(execute, 9) if row.event["kind"] == AuditKind.TASK_CHANGED]

    ended, begun = await store.run(work)
    assert ended["result"] == state
    assert isinstance(ended["what"], dict)
    assert ended["what"].get("exit_code") == code
    assert ended["subject"] == begun["who"], "the person whose task it was"
