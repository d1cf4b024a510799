"""Schedules: the times, daylight saving, missed times, each time once, the owner's rights, who decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pytest

from agent.blocks import Ask
from agent.messages import Author, Kind, Message, Origin, Requester, Thread
from agent.schedules import ScheduleRequest, Timing
from agent.spending import ModelCall
from bot.base.times import TimingError, next_time, parse_timing, times_after, times_until
from bot.config.schema import AccessConfig, ChannelConfig, Config, ScheduleConfig
from bot.config.spending import BudgetConfig, TokenCount
from bot.config.team import RoleAssignment
from bot.database import audit
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.journey import claims
from bot.main.features import gather_presses
from bot.rights import allowance
from bot.rights.access import AccessPolicy
from bot.rights.budgets import StandingBudgets
from bot.rights.claimed_run import RunEnding
from bot.rights.current import Current
from bot.schedules import proposals
from bot.schedules.command import begins_work
from bot.schedules.feature import FEATURE
from bot.schedules.firing import MAX_MADE_UP, fire_due, pause_and_say
from bot.schedules.proposals import ProposalRefused, propose_schedule
from bot.schedules.watches import describe_changes
from bot.service.schedule_words import describe_next, describe_timing
from bot.storage import conversations, people, schedules
from bot.storage.schedules import ScheduleRow, move_next
from bot.storage.usage import Payer, PricedCall, record_calls
from catalogue import use_language
from channels.base import Receipt
from tests.support.current_config import OPEN_ACCESS
from tests.support.forked_services import python
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.schedule_rows import HOME, add_schedule, find

T = TypeVar("T")
NEW_YORK = "America/New_York"
NOON = datetime(2026, 11, 23, 12, tzinfo=ZoneInfo("UTC")).timestamp()  # a Monday
HOUR, DAY = 3600.0, 86400.0
OPEN = AccessPolicy({"telegram": AccessConfig(open=True)})
CLOSED = AccessPolicy({"telegram": AccessConfig(operators=("1",))})
JANE, EVE = Author("7", "Jane"), Author("66", "Eve")


def at(text: str, zone: str = NEW_YORK) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def fires(expression: str, begin: str, count: int, zone: str = NEW_YORK) -> list[str]:
    """Return the next times with their offset from UTC."""
    timing = Timing("cron", expression, zone)
    found = islice(times_after(timing, at(begin, zone)), count)
    return [f"{datetime.fromtimestamp(each, ZoneInfo(zone)):%a %m-%d %H:%M %z}" for each in found]


# ------------------------------------------------------------ the times


def test_monday_is_one_as_in_crontab() -> None:
    assert fires("0 9 * * 1-5", "2026-11-20T10:00", 2) == ["Mon 11-23 09:00 -0500", "Tue 11-24 09:00 -0500"]


def test_a_time_that_spring_skips_comes_once_and_one_that_autumn_repeats_comes_once() -> None:
    assert fires("30 2 * * *", "2026-03-07T12:00", 2) == ["Sun 03-08 03:00 -0400", "Mon 03-09 02:30 -0400"]
    assert fires("30 1 * * *", "2026-10-31T12:00", 2) == ["Sun 11-01 01:30 -0400", "Mon 11-02 01:30 -0500"]


def test_a_daily_time_keeps_its_local_hour_through_a_change_of_the_clocks() -> None:
    assert fires("0 9 * * *", "2026-10-31T08:00", 2) == ["Sat 10-31 09:00 -0400", "Sun 11-01 09:00 -0500"]


def test_the_times_before_are_those_after_in_reverse() -> None:
    for timing in (Timing("cron", "*/20 9-17 * * 1-5", NEW_YORK), Timing("every", "5400", "UTC", NOON)):
        later = list(islice(times_after(timing, NOON), 30))
        assert list(islice(times_until(timing, later[-1]), 30)) == later[::-1]


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (ScheduleRequest(cron="0 9 30 2 *"), "not a crontab expression"),
        (ScheduleRequest(cron="61 * * * *"), "not a crontab expression"),
        (ScheduleRequest(cron="* * * * * *"), "five fields"),
        (ScheduleRequest(cron="@daily"), "five fields"),
        (ScheduleRequest(at="2026-11-23T11:59"), "has passed"),
        (ScheduleRequest(at="tomorrow"), "not a time such as"),
        (ScheduleRequest(at="2026-11-24T09:00", every_minutes=5), "exactly one"),
        (ScheduleRequest(), "exactly one"),
    ],
)
def test_times_that_cannot_be_are_refused_with_what_to_write(request_: ScheduleRequest, wrong: str) -> None:
    with pytest.raises(TimingError, match=wrong):
        parse_timing(request_, "UTC", NOON)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "CET+1", "../etc/passwd", "EST"])
def test_a_zone_that_is_no_place_is_refused(zone: str) -> None:
    with pytest.raises(TimingError, match="IANA"):
        parse_timing(ScheduleRequest(cron="0 9 * * *"), zone, NOON)


def test_a_local_time_is_in_the_zone_of_the_person_and_an_offset_counts() -> None:
    in_new_york = parse_timing(ScheduleRequest(at="2026-11-24T09:00"), NEW_YORK, NOON)
    assert next_time(in_new_york, NOON) == at("2026-11-24T09:00")
    exact = parse_timing(ScheduleRequest(at="2026-11-24T09:00+01:00"), NEW_YORK, NOON)
    assert next_time(exact, NOON) == at("2026-11-24T03:00")


def test_times_are_said_in_words_in_both_languages() -> None:
    timing = Timing("cron", "0 9 * * 1-5", "Europe/Berlin")
    with use_language("en"):
        assert describe_timing(timing) == "At 09:00, Monday through Friday (Europe/Berlin)"
        assert describe_next(timing, NOON) == (
            "Next: Tuesday 2026-11-24 09:00, Wednesday 2026-11-25 09:00, Thursday 2026-11-26 09:00."
        )
    with use_language("zh"):
        assert "星期一" in describe_timing(timing)
        assert "Monday" not in describe_timing(timing)
        assert "星期二" in describe_next(timing, NOON)


# ------------------------------------------------------------ fires


class Bench:
    """A database, and a clock that the test sets."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self.access = OPEN

    async def run(self, work: Callable[[Execute], T]) -> T:
        return await self.store.run(work)

    async def add(self, **values: Any) -> ScheduleRow:
        return await self.run(lambda execute: add_schedule(execute, NOON, **values))

    async def look(self, now: float) -> float | None:
        return await self.run(lambda execute: fire_due(execute, self.access, now, HOUR))

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.run(lambda execute: execute(sql, {}))]

    async def count_said(self) -> int:
        return len(await self.rows("SELECT id FROM outbox"))

    async def fires(self) -> list[tuple[float, str]]:
        """Return the fires: hours after NOON, and their result."""
        found = await self.rows("SELECT due, result FROM schedule_fires ORDER BY due")
        return [((due - NOON) / HOUR, result) for due, result in found]

    async def again(self, row: ScheduleRow) -> ScheduleRow:
        return await self.run(lambda execute: find(execute, row.id))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        yield Bench(store)


async def test_a_reminder_is_posted_once_at_its_time_and_mentions_its_owner(bench: Bench) -> None:
    row = await bench.add()
    assert await bench.look(NOON + HOUR - 1) == NOON + HOUR
    assert await bench.look(NOON + HOUR) == NOON + 2 * HOUR
    await bench.look(NOON + HOUR)
    assert await bench.fires() == [(1.0, "sent")]
    [(thread, payload)] = await bench.rows("SELECT thread, payload FROM outbox")
    assert thread == row.thread
    assert b"stretch" in payload
    assert b'"mention":"7"' in payload


async def test_work_is_a_message_of_the_owner_in_a_conversation_of_its_own_and_the_next_fire_waits_for_it(
    bench: Bench,
) -> None:
    row = await bench.add(kind="work", what="Summarise the tickets")
    await bench.run(lambda execute: conversations.current_conversation(execute, HOME, NOON))
    await bench.look(NOON + HOUR)
    [job] = await bench.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "p", NOON + HOUR, 10.0, 5))
    assert (job.conversation, job.thread, job.requester) == (row.conversation, HOME, "7")
    assert job.messages[0].origin is Origin.SCHEDULE
    next_at = await bench.look(NOON + 2 * HOUR)
    assert await bench.fires() == [(1.0, "run")]
    assert next_at is None, "a busy schedule must not wake the clock"
    end = RunEnding(RunState.DONE)
    await bench.run(lambda execute: claims.finish_run(execute, job, end, NOON + 2.5 * HOUR))
    await bench.look(NOON + 2.5 * HOUR)
    assert await bench.fires() == [(1.0, "run"), (2.0, "run")]


async def test_a_fire_closes_what_the_last_one_still_asks(bench: Bench) -> None:
    await bench.add(kind="work", what="Summarise the tickets")
    await bench.look(NOON + HOUR)
    [job] = await bench.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "p", NOON + HOUR, 10.0, 5))
    waiting = RunEnding(RunState.WAITING, (Ask("q", "Which?", ("red", "blue")),))
    await bench.run(lambda execute: claims.finish_run(execute, job, waiting, NOON + 1.5 * HOUR))
    assert await bench.rows("SELECT state FROM questions") == [("open",)]
    await bench.look(NOON + 2 * HOUR)
    assert await bench.rows("SELECT state FROM questions WHERE state='open'") == []
    later = NOON + 2 * HOUR
    [job] = await bench.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "p", later, 10.0, 5))
    assert (len(job.messages), job.answers) == (1, ())
    assert await bench.rows("SELECT state FROM runs ORDER BY id") == [("stopped",), ("running",)]


async def test_times_that_a_person_confirmed_are_not_cut_within_a_day(bench: Bench) -> None:
    row = await bench.add(kind="work", expression="*/15 * * * *")
    now = NOON
    while now < NOON + 24 * HOUR:
        now += HOUR / 4
        await bench.look(now)
        claim = partial(claims.claim_conversations, access=OPEN_ACCESS, owner="p", now=now, longest=10.0, free=5)
        [job] = await bench.run(claim)
        end = RunEnding(RunState.DONE)
        await bench.run(partial(claims.finish_run, job=job, ending=end, now=now))
    results = await bench.rows("SELECT result, count(*) FROM schedule_fires GROUP BY result")
    assert results == [("run", 96)]
    assert await bench.rows("SELECT * FROM follow_ups") == []
    assert allowance.Lineage.of_run(job.messages).root == audit.digest(f"sched:{row.id}:{now:.3f}"), "each is a root"


@pytest.mark.parametrize(
    ("missed", "down_hours", "expected"),
    [
        ("once", 3.5, [(3.0, "run")]),
        ("skip", 3.5, [(3.0, "missed")]),
        ("skip", 3.0, [(3.0, "run")]),  # the latest is on time
        ("all", 3.5, [(1.0, "run")]),  # the others follow, each after the run of the one before
    ],
)
async def test_missed_times_follow_the_rule(
    bench: Bench, missed: str, down_hours: float, expected: list[tuple[float, str]]
) -> None:
    await bench.add(kind="work", missed=missed)
    await bench.look(NOON + down_hours * HOUR)
    assert await bench.fires() == expected


@pytest.mark.parametrize(("zone", "known"), [("UTC", ""), (NEW_YORK, NEW_YORK)])
async def test_a_time_that_needs_no_zone_does_not_set_that_of_its_owner(bench: Bench, zone: str, known: str) -> None:
    row = await bench.add(form="at", expression=f"{NOON + HOUR:.3f}", zone=zone)
    await bench.store.run(lambda execute: proposals.confirm(execute, row, NOON))
    assert await bench.store.run(lambda execute: people.zone_of(execute, row.channel, row.owner)) == known


async def test_all_missed_times_are_made_up_for_up_to_a_limit(bench: Bench) -> None:
    await bench.add(missed="all")
    for _ in range(40):
        await bench.look(NOON + 30.5 * HOUR)
    found = [due for due, _ in await bench.fires()]
    assert found == [float(hour) for hour in range(31 - MAX_MADE_UP, 31)]


async def test_a_time_older_than_the_grace_is_skipped_and_said(bench: Bench) -> None:
    row = await bench.add(form="at", expression=f"{NOON + HOUR:.3f}", zone="UTC")
    await bench.look(NOON + 2.5 * HOUR)
    assert await bench.fires() == [(1.0, "missed")]
    [(payload,)] = await bench.rows("SELECT payload FROM outbox")
    assert "I missed schedule 1 (“stretch”), which was due Monday 2026-11-23 13:00".encode() in payload
    assert (await bench.again(row)).state == "ended"


async def test_after_a_restart_nothing_fires_again_or_early(bench: Bench) -> None:
    await bench.add()
    await bench.look(NOON + HOUR)
    for later in (1.0, 1.01, 1.5, 1.99):
        await bench.look(NOON + later * HOUR)
    assert len(await bench.fires()) == await bench.count_said() == 1


@pytest.mark.sqlite
async def test_a_clock_that_is_set_back_fires_nothing_twice(bench: Bench) -> None:
    await bench.add()
    await bench.look(NOON + HOUR)
    await bench.look(NOON - 5 * HOUR)
    await bench.look(NOON + HOUR)
    assert await bench.fires() == [(1.0, "sent")]
    assert await bench.count_said() == 1
    assert len(await bench.rows("SELECT 1 FROM audit WHERE CAST(body AS TEXT) LIKE '%\"schedule.fired\"%'")) == 1


async def test_a_clock_that_is_set_back_far_does_not_silence_a_schedule(bench: Bench) -> None:
    row = await bench.add()
    await bench.look(NOON + HOUR)
    await bench.look(NOON + 365 * DAY)
    assert ((await bench.again(row)).next_at or 0) > NOON + 365 * DAY
    assert await bench.look(NOON + 1.5 * HOUR) == NOON + 2 * HOUR
    await bench.look(NOON + 2 * HOUR)
    assert (2.0, "sent") in await bench.fires()


@pytest.mark.parametrize("form", ["cron", "every"])
async def test_a_schedule_confirmed_while_the_clock_was_ahead_recovers(bench: Bench, form: str) -> None:
    expression = {"cron": "0 * * * *", "every": "3600"}[form]
    row = await bench.add(form=form, expression=expression)
    await bench.run(lambda execute: proposals.confirm(execute, row, NOON + 365 * DAY))
    assert ((await bench.again(row)).next_at or 0) > NOON + 365 * DAY
    assert NOON + 60 < (await bench.look(NOON + 60) or 0) <= NOON + HOUR + 60


async def test_a_schedule_resumed_while_the_clock_was_ahead_recovers_at_the_next_start(bench: Bench) -> None:
    row = await bench.add(form="cron", expression="0 * * * *")
    await bench.run(lambda execute: move_next(execute, row, NOON + 10 * DAY))
    assert await bench.run(lambda execute: fire_due(execute, OPEN, NOON, HOUR, at_start=True)) == NOON + HOUR


async def test_a_time_that_its_own_run_skipped_is_not_called_missed(bench: Bench) -> None:
    await bench.add(kind="work", missed="skip")
    await bench.look(NOON + HOUR)
    [job] = await bench.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "p", NOON + HOUR, 10.0, 5))
    end = RunEnding(RunState.DONE)
    await bench.run(lambda execute: claims.finish_run(execute, job, end, NOON + 2.5 * HOUR))
    await bench.look(NOON + 2.5 * HOUR)
    assert await bench.count_said() == 0
    assert await bench.fires() == [(1.0, "run"), (2.0, "busy")]


async def test_a_schedule_over_budget_says_so_once_in_a_period(bench: Bench) -> None:
    budgets = StandingBudgets.of([BudgetConfig("everything", period="day", tokens=TokenCount(10))], "UTC")
    bench.access = AccessPolicy({"telegram": AccessConfig(open=True)}, budgets=budgets)
    call = PricedCall(ModelCall("lead", "m", "turn", 10, 0, 0, 0, 0.1, NOON), None, "")
    await bench.run(lambda execute: record_calls(execute, Payer(0, "", HOME, "somebody"), [call]))
    await bench.add(kind="work")
    await bench.add(kind="reminder")
    for hour in range(1, 15):
        await bench.look(NOON + hour * HOUR)
    work = await bench.rows("SELECT due, result FROM schedule_fires WHERE schedule=1 ORDER BY due")
    assert {result for _, result in work[:11]} == {"no budget"}
    assert [((due - NOON) / HOUR, result) for due, result in work[11:]] == [(12.0, "run")], "the next day"
    said = [payload.decode() for _, payload in await bench.rows("SELECT thread, payload FROM outbox")]
    [refusal] = [text for text in said if "budget" in text]
    assert (
        "The budget of everybody together, 10 tokens a day, is used up. It is renewed at 2026-11-24 00:00." in refusal
    )
    assert len([text for text in said if "stretch" in text and "budget" not in text]) == 14, "reminders cost nothing"


async def test_a_pause_withdraws_work_that_was_queued(bench: Bench) -> None:
    row = await bench.add(kind="work")
    await bench.look(NOON + HOUR)
    await bench.run(lambda execute: pause_and_say(execute, OPEN, row, "paused", NOON + HOUR))
    assert not await bench.run(
        lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "p", NOON + HOUR, 10.0, 5)
    )


async def test_an_owner_without_access_fires_nothing_and_the_schedule_is_paused_and_said(bench: Bench) -> None:
    row = await bench.add(kind="work")
    bench.access = CLOSED
    await bench.run(lambda execute: people.store_address(execute, message("x", Author("1", "Op"), "900")))
    await bench.look(NOON + HOUR)
    assert (await bench.again(row)).state == "paused"
    said = await bench.rows("SELECT thread, payload FROM outbox ORDER BY id")
    assert [thread for thread, _ in said] == [row.thread, "telegram/bot/900/"]
    assert all(b"may no longer write to me here" in payload for _, payload in said)
    assert not await bench.rows("SELECT 1 FROM inbox")
    assert not await bench.fires()


async def test_a_broken_schedule_is_paused_and_does_not_block_the_others(bench: Bench) -> None:
    broken = await bench.add(next_at=NOON, zone="Gone/Nowhere")
    await bench.add()
    await bench.look(NOON + HOUR)
    assert (await bench.again(broken)).state == "paused"
    assert (1.0, "sent") in await bench.fires()


@pytest.mark.slow
@pytest.mark.sqlite
async def test_two_processes_fire_each_time_once(bench: Bench, tmp_path: Path) -> None:
    steps = 240
    for _ in range(5):
        await bench.add(expression="* * * * *", missed="all")
    pipe = asyncio.subprocess.PIPE
    command = [*python(), "-m", "tests.support.schedule_process", str(tmp_path), str(NOON), str(steps)]
    both = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(2)]
    for process in both:
        assert process.stdout
        await process.stdout.readline()
    await asyncio.gather(*(process.communicate(b"go\n") for process in both))
    assert [process.returncode for process in both] == [0, 0]
    assert len(await bench.rows("SELECT 1 FROM outbox")) == 5 * steps
    assert len(await bench.fires()) == 5 * steps
    assert await bench.rows("SELECT DISTINCT next_at FROM schedules") == [(NOON + 60.0 * (steps + 1),)]


def test_a_schedule_that_runs_at_once_counts_as_a_message() -> None:
    """Otherwise, `/schedule run` evades the rate limits."""
    assert {words: begins_work(words) for words in ("run 1", "RUN 1", "every day at 9", "pause 1", "list", "")} == {
        "run 1": True,
        "RUN 1": True,
        "every day at 9": True,
        "pause 1": False,
        "list": False,
        "": False,
    }
    [command] = [each for each in FEATURE.commands if each.name == "schedule"]
    assert command.begins_work is begins_work


# ------------------------------------------------------------ proposals and decisions


def message(text: str, author: Author = JANE, chat: str = "7", **more: Any) -> Message:
    return Message(
        Thread("telegram", "bot", chat),
        f"k:{text}",
        "1",
        author,
        text,
        NOON,
        private=True,
        **more,
        origin=Origin.PERSON,
    )


def current(role: str = "member", **values: Any) -> Current:
    access = AccessConfig(open=True, roles=(RoleAssignment(role, ("7",)),))
    return Current(Config(schedules=ScheduleConfig(**values), channels=(ChannelConfig("telegram", None, access),)))


async def propose(bench: Bench, request: ScheduleRequest, config: Current | None = None) -> ScheduleRow:
    who = Requester(JANE, HOME, private=True)
    return await bench.run(lambda execute: propose_schedule(execute, config or current(), who, request, NOON))


DAILY = ScheduleRequest(what="Read the news", cron="0 9 * * *", time_zone="Europe/Berlin")


async def test_a_proposal_fires_only_after_its_owner_confirmed_it(bench: Bench) -> None:
    row = await propose(bench, DAILY)
    assert await bench.look(NOON + 5 * DAY) is None
    press = message("Yes", kind=Kind.CLICK, target=f"schedule:{row.id}")
    foreign = replace(press, author=EVE)
    presses = gather_presses(current())
    assert await bench.run(lambda execute: presses.receive(execute, foreign, NOON)) is Receipt.IGNORED
    kept = await bench.run(lambda execute: presses.receive(execute, press, NOON))
    assert isinstance(kept, Message)
    assert (kept.kind, kept.text, kept.target) == (Kind.PRESS, "0", press.target)
    confirmed = await bench.run(lambda execute: proposals.confirm(execute, row, NOON))
    assert confirmed
    assert confirmed.next_at == at("2026-11-24T09:00", "Europe/Berlin")
    assert await bench.run(lambda execute: people.zone_of(execute, "telegram", "7")) == "Europe/Berlin"
    assert await bench.run(lambda execute: presses.receive(execute, press, NOON)) is Receipt.DUPLICATE


async def test_a_change_counts_from_now_and_only_when_it_is_confirmed(bench: Bench) -> None:
    row = await bench.add(kind="work", what="Old")
    change = await propose(bench, ScheduleRequest(number=row.id, every_minutes=90, what="New"))
    assert (await bench.again(row)).what == "Old"
    confirmed = await bench.run(lambda execute: proposals.confirm(execute, change, NOON + 10))
    assert confirmed
    assert (confirmed.id, confirmed.what, confirmed.next_at) == (row.id, "New", NOON + 10 + 90 * 60)
    assert await bench.run(lambda execute: schedules.find_schedule(execute, change.id)) is None


async def test_the_zone_is_the_persons_and_never_the_machines(bench: Bench) -> None:
    with pytest.raises(ProposalRefused, match="Ask for it"):
        await propose(bench, replace(DAILY, time_zone=""))
    await bench.run(lambda execute: people.set_zone(execute, "telegram", "7", "Jane", "Asia/Shanghai"))
    assert (await propose(bench, replace(DAILY, time_zone=""))).zone == "Asia/Shanghai"


@pytest.mark.parametrize(
    ("request_", "limits", "wrong"),
    [
        (DAILY, {"per_person": 1}, "the limit"),
        (replace(DAILY, cron="* * * * *"), {}, "shortest interval"),
        (replace(DAILY, cron="", every_minutes=1), {}, "shortest interval"),
        (replace(DAILY, what=""), {}, "`what` must"),
        (replace(DAILY, what="x" * 1501), {}, "`what` must"),
        (replace(DAILY, kind="watch"), {}, "needs the `url`"),
        (replace(DAILY, number=99), {}, "has no schedule 99"),
        (DAILY, {"role": "viewer"}, "role does not allow"),
        (replace(DAILY, time_zone="Mars/Olympus"), {}, "IANA"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_stored(
    bench: Bench, request_: ScheduleRequest, limits: dict[str, Any], wrong: str
) -> None:
    await bench.add()
    with pytest.raises(ProposalRefused, match=wrong):
        await propose(bench, request_, current(**limits))
    assert len(await bench.rows("SELECT 1 FROM schedules")) == 1
    assert not await bench.rows("SELECT 1 FROM outbox")


async def test_nobody_changes_the_schedule_of_another_person(bench: Bench) -> None:
    row = await bench.add(owner="66", name="Eve")
    with pytest.raises(ProposalRefused, match="Jane has no schedule"):
        await propose(bench, replace(DAILY, number=row.id))


def test_the_changes_of_a_page_are_cut() -> None:
    assert describe_changes("a\nb", "a\nc").splitlines()[-2:] == ["-b", "+c"]
    assert len(describe_changes("", "x\n" * 9000)) < 6100
