"""Who is gone from the platform on two days is offboarded; nobody is because of a fault."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.config.schema import AccessConfig
from bot.database import audit
from bot.database.database import Database, Execute
from bot.database.states import ScheduleState
from bot.storage import outbox, people
from bot.storage.jobs import BackgroundJob
from bot.team.offboarding import CONFIRM_SECONDS, DepartureJobs
from channels.base import AccountChecker
from tests.fakes.slack import JANE, OPS, TEAM
from tests.support.current_config import current_of
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.rigs.registry import ready
from tests.support.rigs.slack import SlackRig
from tests.support.schedule_rows import add_schedule, find

GONE, BOSS = "U8", "U9"
HERE = Thread("slack", TEAM, OPS)
JOB = BackgroundJob("departures", "departures", 0.0, b"{}", 1, "", "")


class Office:
    """Jane and a person who may go have a schedule each; the boss is an operator. `now` is the time."""

    def __init__(self, rig: SlackRig, store: Database) -> None:
        self.rig = rig
        self.server = rig.server
        self.store = store
        self.now = time.time()
        access = AccessConfig(open=True, operators=(BOSS,))
        connected = {"slack": rig.channel}.get
        self._jobs = DepartureJobs(store, current_of(slack=access), connected, lambda: self.now)

    def prepare(self, execute: Execute) -> None:
        for owner in (JANE, GONE):
            add_schedule(execute, self.now, channel="slack", owner=owner, thread=str(HERE), private=0)
        subject = people.person_subject(TEAM, GONE)
        people.store_role(execute, HERE, subject, "operator", name="", by=Author(BOSS, ""), now=self.now)
        chat = Thread("slack", TEAM, f"D{BOSS}")
        hello = Message(chat, "k", "1", Author(BOSS, "Boss"), "hello", 0.0, private=True, origin=Origin.PERSON)
        people.store_address(execute, hello)

    async def check(self, *, later: float = CONFIRM_SECONDS + 1) -> None:
        await self._jobs.check(JOB)
        self.now += later

    async def states(self) -> tuple[str, str]:
        """Return the states of Jane's schedule and of the other."""
        first, other = await self.store.run(lambda execute: (find(execute, 1), find(execute, 2)))
        return first.state, other.state


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    make_empty_database(tmp_path / "fawn.db")
    async with SlackRig.start(tmp_path) as rig, rehearsed_database(tmp_path / "fawn.db") as store:
        await ready(rig)
        rig.server.person(GONE)
        made = Office(rig, store)
        await store.run(made.prepare)
        yield made


KEPT = (ScheduleState.ACTIVE, ScheduleState.ACTIVE)
ENDED = (ScheduleState.ACTIVE, ScheduleState.ENDED)


async def test_an_account_deactivated_on_two_days_is_offboarded_and_the_operators_know(office: Office) -> None:
    office.server.person(GONE, deleted=True)
    await office.check(later=60.0)
    await office.check()
    assert await office.states() == KEPT, "the second answer was of the same day"
    await office.check()
    assert await office.states() == ENDED
    assert not await office.store.run(people.list_roles)
    rows = await office.store.run(lambda execute: execute("SELECT thread, payload FROM outbox", {}))
    assert [row["thread"] for row in rows] == [f"slack/{TEAM}/D{BOSS}/"]
    for words in (
        b"U8 has left: on two days, slack said",
        b"Offboarded U8 on slack.",
        b"Schedules that were ended: 2.",
    ):
        assert words in rows[0]["payload"]
    [row] = [
        row
        for row in await office.store.run(lambda execute: audit.read_newest(execute, 9))
        if row.event["kind"] == "person.offboarded"
    ]
    assert row.event["what"]["via"] == "platform"
    await office.check()
    assert await office.store.run(lambda execute: outbox.count_notices(execute, "gone:")) == 1


async def test_one_who_came_back_in_between_is_not_gone(office: Office) -> None:
    for deleted in (True, False, True):
        office.server.person(GONE, deleted=deleted)
        await office.check()
    assert await office.states() == KEPT


@pytest.mark.parametrize("code", [0, 200, 400, 429, 500])
async def test_a_fault_says_nothing(office: Office, code: int) -> None:
    """Slack does not answer, knows nobody, lacks the scope, is busy or fails."""
    office.server.person(GONE, deleted=True)
    await office.check()
    if code == 200:
        del office.server.people[GONE]
    elif code:
        names = {400: "missing_scope", 429: "ratelimited", 500: "internal_error"}
        office.server.fault("error", "users.info", code=code, description=names[code], times=-1)
    else:
        office.server.fault("drop", "users.info", times=-1)
    await office.check()
    assert await office.states() == KEPT


async def test_the_workspace_tells_active_deactivated_and_unknown_accounts_apart(office: Office) -> None:
    office.server.person(GONE, deleted=True)
    channel = office.rig.channel
    assert isinstance(channel, AccountChecker)
    assert [await channel.is_gone(person) for person in (GONE, JANE, "U404")] == [True, False, None]
