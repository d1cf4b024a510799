"""The allowance of work without a person: one per message, one per person and day, counted in the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.config.schema import FollowUpLimits
from bot.database.database import Database
from bot.rights import allowance
from bot.rights.allowance import Lineage
from bot.storage.follow_ups import DAY_SECONDS
from catalogue import localized
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

LIMITS = FollowUpLimits(per_message=2, per_day=3, time_zone="Europe/Berlin")
SAID = Message(Thread("telegram", "b", "7"), "telegram:b:7:1", "1", Author("7", "Jane"), "x", 1.0, origin=Origin.PERSON)
ROOT = Lineage.of_message(SAID)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def take(store: Database, key: str, root: Lineage = ROOT, person: str = "7", now: float = 0.0) -> str:
    """Return "" if the work may begin, else what people are told."""
    used_up = await store.run(lambda execute: allowance.take(execute, LIMITS, key, root, "telegram", person, now))
    return localized(used_up.text) if used_up else ""


async def test_one_message_has_one_allowance_whatever_the_shape_of_the_tree(store: Database) -> None:
    assert not await take(store, "task:1")
    child = await store.run(lambda execute: allowance.next_step(execute, "task:1"))
    assert child == replace(ROOT, generation=1)
    made = replace(SAID, key="task:1", origin=Origin.TOOL, root=child.root, generation=child.generation)
    assert not await take(store, "task:2", Lineage.of_message(made))
    assert not await take(store, "task:2", Lineage.of_message(made)), "the same work counts once"
    assert "(2 times)" in await take(store, "task:3", Lineage.of_message(made))
    assert "(2 times)" in await take(store, "task:3")


async def test_one_person_has_one_allowance_of_a_day_over_all_messages(store: Database) -> None:
    for number in range(3):
        assert not await take(store, f"sched:{number}", Lineage(f"root {number}"), now=number * 3600.0)
    refused = await take(store, "sched:9", Lineage("root 9"), now=DAY_SECONDS - 1)
    assert "(3 times)" in refused
    assert "1970-01-02 01:00" in refused
    assert not await take(store, "sched:9", Lineage("root 9"), person="8", now=DAY_SECONDS - 1)
    assert not await take(store, "sched:9b", Lineage("root 9b"), now=DAY_SECONDS + 1)


def test_work_for_several_messages_follows_from_that_of_a_person() -> None:
    made = replace(SAID, key="task:1", origin=Origin.TOOL, root="r", generation=2)
    assert Lineage.of_run([made, SAID]) == ROOT
    assert Lineage.of_run([made]) == Lineage("r", 2)
