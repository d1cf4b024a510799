"""Background tasks: the rights that a queued and a repeated one have now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from agent.messages import Author, Thread
from bot.config.schema import AccessConfig
from bot.current import Current
from bot.storage import person_roles, tasks
from bot.storage.database import Database, Execute
from bot.storage.migrate import migrate_database
from bot.storage.tasks import TaskRow
from bot.tasks.starting import TaskPlace, TaskRefused, is_forbidden, retry_task, start_command
from tests.support.current_config import current_of

JANE, OPERATOR = Author("7", "Jane"), Author("8", "Olga")
DIRECT, GROUP = Thread("telegram", "bot", "7"), Thread("telegram", "bot", "-1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    migrate_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        yield store


@pytest.fixture
def current() -> Current:
    return current_of(telegram=AccessConfig(open=True, operators=("8",)))


def queue(execute: Execute, current: Current, thread: Thread, command: str = "make", title: str = "") -> TaskRow:
    who = TaskPlace(JANE, thread, thread is DIRECT, "conversation")
    number = start_command(execute, current, who, f"{thread}/{title}", title or command, command, "", 0.0)
    row = tasks.find_task(execute, number)
    assert row
    return row


async def test_a_queued_command_begins_with_the_rights_of_its_person_now(store: Database, current: Current) -> None:
    row = await store.run(partial(queue, current=current, thread=GROUP))
    forbidden = partial(is_forbidden, current=current, row=row)
    assert not await store.run(forbidden)
    take = partial(person_roles.store_role, place=GROUP, subject="7", role="viewer", name="", by=OPERATOR, now=0.0)
    await store.run(take)
    assert await store.run(forbidden)
    rows = await store.run(lambda execute: execute("SELECT CAST(body AS TEXT) AS body FROM audit", {}))
    assert [("tool.call" in row["body"], "denied" in row["body"]) for row in rows] == [(True, True)]


async def test_an_operator_repeats_what_others_began_but_not_in_their_private_chat(
    store: Database, current: Current
) -> None:
    """There, it would be taken for the operator's own chat, with what only the operator may see."""
    taken: list[str] = []

    async def retry(thread: Thread, person: Author, command: str = "make", title: str = "") -> None:
        row = await store.run(partial(queue, current=current, thread=thread, command=command, title=title))
        work = partial(retry_task, current=current, row=row, person=person, key=f"retry {row.id}", now=0.0)
        await store.run(partial(work, take_tool=taken.append))
        await store.run(lambda execute: execute("DELETE FROM tasks", {}))

    await retry(GROUP, OPERATOR)
    await retry(DIRECT, JANE)
    with pytest.raises(TaskRefused, match="another person's private chat"):
        await retry(DIRECT, OPERATOR)
    await retry(GROUP, JANE, "cd /skills/add && ./run", "add")
    assert taken == ["bash", "bash", "run_skill"], "the program of a skill is judged and counted as such"
