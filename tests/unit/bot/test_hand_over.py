"""Hand-overs: who may answer in place of whom, until when, and what both are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.blocks import ALLOW_HERE, ALWAYS_ALLOW, Approve, Ask, Final
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.config.schema import AccessConfig
from bot.config.team import RoleAssignment
from bot.database.audit import AuditKind
from bot.database.database import Database, Execute
from bot.database.states import QuestionState
from bot.journey import questions as answers
from bot.main.features import gather_personal, gather_waits
from bot.notifications.digests import DigestJobs
from bot.rights.access import AccessPolicy
from bot.rights.approvals import may_answer
from bot.rights.work_rights import drop_unpermitted
from bot.storage import hand_overs, held_pings, inbox, offboarding, own_data, people, questions
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.hand_overs import HandOverRow
from bot.storage.held_pings import HeldPing
from bot.storage.jobs import BackgroundJob
from bot.waiting.until import describe_until, parse_until
from tests.support.current_config import current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import command_runner, command_service, open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.unit.bot.test_waiting import BOB, EVE, FREE, GROUP, JANE, OWN, PERSONAL, ROUTED, SHOW, ask_jane

BOSS = Author("11", "Boss")
ACCESS = AccessConfig(open=True, roles=(RoleAssignment("operator", (BOSS.id,)), RoleAssignment("viewer", (EVE.id,))))
GRANTING = replace(OWN, option_count=4)
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC).timestamp()  # a Wednesday


class Office:
    """People who talk to the bot, and what it says."""

    def __init__(self, store: Database) -> None:
        self.store, self.number, self.access = store, 0, ACCESS

    @property
    def policy(self) -> AccessPolicy:
        return current_of(telegram=self.access).access

    async def read(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.store.run(lambda execute: execute(sql, values))]

    async def send(
        self, author: Author, text: str, kind: Kind = Kind.COMMAND, target: str = "", *, group: bool = False
    ) -> list[tuple[str, str, tuple[str, ...]]]:
        """Offer an event; return chat, text and options of what the bot then says."""
        self.number += 1
        key, [(before,)] = f"h{self.number}", await self.read("SELECT coalesce(max(id), 0) FROM outbox")
        thread = GROUP if group else Thread("telegram", "1", author.id)
        event = Message(
            thread, key, key, author, text, time.time(), kind, target=target, private=not group, origin=Origin.PERSON
        )
        current = current_of(telegram=self.access)
        await open_inbox(self.store, current, IDLE_TURNS).receive([event])
        serving = asyncio.create_task(command_runner(self.store, command_service(current)).serve())
        async with asyncio.timeout(60):
            while await self.store.run(lambda execute: inbox.pending_commands(execute, 1)):
                await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])
        sql = "SELECT thread, payload FROM outbox WHERE kind<>'settled' AND id>:before ORDER BY id"
        rows = await self.read(sql, before=before)
        finals = [(Thread.parse(thread).chat, Final.load(payload)) for thread, payload in rows]
        return [(chat, final.text, tuple(o for ask in final.asks for o in ask.options)) for chat, final in finals]

    async def waits_for(self, who: Author) -> dict[int, tuple[str, ...]]:
        """Return number → options of what waits for a person."""
        table = gather_waits(current_of(telegram=self.access))
        viewer = replace(SHOW, author=who, thread=Thread("telegram", "1", who.id))
        found = await self.store.run(lambda execute: table.listed(execute, viewer, time.time()))
        return {number: each.options for number, each in found}

    async def state(self) -> tuple[str, str, str]:
        [row] = await self.read("SELECT state, answer, answered_by FROM questions")
        return row[0], row[1], row[2]


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    """An office in which everybody has a direct chat with the bot."""
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:

        def meet(execute: Execute) -> None:
            for who in (JANE, BOB, BOSS, EVE):
                people.store_address(execute, replace(SHOW, author=who, thread=Thread("telegram", "1", who.id)))

        await store.run(meet)
        yield Office(store)


def give(execute: Execute, *, deputy: Author = BOB, subject: str = "", since: float = 0.0, until: float = 9e9) -> int:
    row = HandOverRow(0, "telegram", JANE.id, "Jane", deputy.id, deputy.name, subject, 0, since, until, None)
    return hand_overs.add_hand_over(execute, row).id


# ------------------------------------------------------------ until when


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("Friday", "Friday 2026-11-27 23:59 (Europe/Berlin)"),
        ("fri", "Friday 2026-11-27 23:59 (Europe/Berlin)"),
        ("星期五", "Friday 2026-11-27 23:59 (Europe/Berlin)"),
        ("friday 18:00", "Friday 2026-11-27 17:59 (Europe/Berlin)"),
        ("Wednesday", "Wednesday 2026-12-02 23:59 (Europe/Berlin)"),  # today is one
        ("today", "Wednesday 2026-11-25 23:59 (Europe/Berlin)"),
        ("明天", "Thursday 2026-11-26 23:59 (Europe/Berlin)"),
        ("2026-12-04", "Friday 2026-12-04 23:59 (Europe/Berlin)"),
        ("2026-12-04 08:30", "Friday 2026-12-04 08:29 (Europe/Berlin)"),
        ("2026-12-04T08:30", "Friday 2026-12-04 08:29 (Europe/Berlin)"),
        ("18:00", "Wednesday 2026-11-25 17:59 (Europe/Berlin)"),
        ("9:00", "Thursday 2026-11-26 08:59 (Europe/Berlin)"),
        ("3 days", "Saturday 2026-11-28 12:59 (Europe/Berlin)"),
        ("in an hour", "Wednesday 2026-11-25 13:59 (Europe/Berlin)"),
        ("1 周", "Wednesday 2026-12-02 12:59 (Europe/Berlin)"),
        ("yesterday", None),
        ("2026-11-24", None),
        ("today 8:00", None),
        ("2027-12-24", None),  # more than a year
        ("99 weeks", None),
        ("25:00", None),
        ("2026-02-31", None),
        ("9" * 50, None),
        ("", None),
        ("x" * 5000, None),
    ],
)
def test_a_time_is_read_as_people_mean_it(words: str, last: str | None) -> None:
    until = parse_until(words, "Europe/Berlin", NOON)
    assert (describe_until(until, "Europe/Berlin") if until else None) == last


# ------------------------------------------------------------ who may answer


@pytest.mark.parametrize("ask", [OWN, PERSONAL, FREE], ids=lambda ask: ask.id)
async def test_a_deputy_answers_until_its_time_and_sees_it_in_their_list(office: Office, ask: Ask | Approve) -> None:
    key = await office.store.run(lambda execute: ask_jane(execute, ask))
    assert not await office.waits_for(BOB)
    await office.store.run(lambda execute: give(execute, since=5.0, until=time.time() + 100))
    assert len(await office.waits_for(BOB)) == 1
    assert not await office.waits_for(BOSS), "nobody else"
    assert len(await office.waits_for(JANE)) == 1, "who hands over can still answer"

    def allowed(execute: Execute) -> list[bool]:
        [row] = questions.unresolved_questions(execute, key)
        times = (4.9, 5.0, time.time(), time.time() + 101)
        return [may_answer(execute, office.policy, row, GROUP, BOB.id, at=at) for at in times]

    free = ask is FREE  # everybody there may answer that
    assert await office.store.run(allowed) == [free, True, True, free]


async def test_a_deputy_allows_nothing_for_the_future(office: Office) -> None:
    """Not by a press there, by a button of an old list, by words, by a number, or in another language."""
    await office.store.run(lambda execute: ask_jane(execute, GRANTING))
    await office.store.run(give)
    [(number, options)] = (await office.waits_for(BOB)).items()
    assert options == ("Approve", "Deny")
    assert [len(options) for options in (await office.waits_for(JANE)).values()] == [4]
    for word in (ALLOW_HERE, ALWAYS_ALLOW, "始终允许", "总是允许", "3", "4"):
        await office.send(BOB, word, Kind.CLICK, OWN.id, group=True)
        await office.send(BOB, f"waiting {number} {word}")
        await office.send(BOB, word, Kind.CLICK, f"waiting:{number}")
        for text in (word, f"1: {word}", f"0: {word}"):
            found = await office.store.run(partial(_bind_text, access=office.policy, text=text))
            assert not isinstance(found, answers.Answered), text
    assert await office.state() == (QuestionState.OPEN, "", "")
    assert await office.read("SELECT * FROM permission_grants") == []
    await office.send(BOB, f"waiting {number} approve")
    assert await office.state() == (QuestionState.ANSWERED, "Approve", BOB.id)


def _bind_text(execute: Execute, access: AccessPolicy, text: str) -> answers.Binding:
    """Bind what Bob writes as a reply to the question itself."""
    [row] = execute("SELECT conversation FROM questions", {})
    said = replace(SHOW, key=f"t{text}", thread=GROUP, author=BOB, kind=Kind.CHAT, text=text, private=False)
    rows = questions.unresolved_questions(execute, row["conversation"])
    rights = answers._rights(execute, access, time.time())
    return answers.bind(rows, [said], {said.key: OWN.id}, rights)[said.key]


async def test_what_others_decide_is_not_given_by_the_one_who_may_not(office: Office) -> None:
    """A call that others approve: Jane cannot hand over what she may not do, and a barred deputy stays barred."""
    await office.store.run(lambda execute: ask_jane(execute, replace(ROUTED, barred=BOB.id)))
    await office.store.run(give)
    assert not await office.waits_for(BOB)


async def test_a_hand_over_is_not_handed_on(office: Office) -> None:
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    await office.store.run(give)
    on = HandOverRow(0, "telegram", BOB.id, "Bob", BOSS.id, "Boss", "", 0, 0.0, 9e9, None)
    await office.store.run(lambda execute: hand_overs.add_hand_over(execute, on))
    assert not await office.waits_for(BOSS)


@pytest.mark.parametrize("who", [JANE, BOB], ids=["giver", "deputy"])
async def test_who_loses_the_right_answers_nothing_not_even_with_an_answer_on_its_way(
    office: Office, who: Author
) -> None:
    """The answer was given and recorded; the process died before a turn took it, and the role changed."""
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    await office.store.run(give)
    await office.send(BOB, "Approve", Kind.CLICK, OWN.id, group=True)
    assert await office.state() == (QuestionState.ANSWERED, "Approve", BOB.id)
    office.access = replace(ACCESS, roles=(*ACCESS.roles, RoleAssignment("viewer", (who.id,))))
    assert not await office.waits_for(BOB)
    assert await office.store.run(lambda execute: _taken(execute, office.policy)) == []
    assert await office.state() == (QuestionState.OPEN, "", "")


@pytest.mark.parametrize("ends", ["by time", "taken back"])
async def test_an_answer_given_in_time_counts_after_a_kill_unless_it_was_taken_back(office: Office, ends: str) -> None:
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    id = await office.store.run(lambda execute: give(execute, until=time.time() + 5))
    await office.send(BOB, "Approve", Kind.CLICK, OWN.id, group=True)
    sql = "UPDATE hand_overs SET until=:at" if ends == "by time" else "UPDATE hand_overs SET ended=:at"
    at = time.time() + 1  # it is later by then
    await office.store.run(lambda execute: execute(f"{sql} WHERE id=:id", {"at": at, "id": id}))
    taken = await office.store.run(lambda execute: _taken(execute, office.policy, time.time() + 60))
    assert len(taken) == (ends == "by time")


def _taken(execute: Execute, access: AccessPolicy, now: float = 0.0) -> list[inbox.InboxRow]:
    """Return the presses that a turn would take now."""
    [row] = execute("SELECT conversation FROM questions", {})
    pending = [each for each in inbox.pending_rows(execute, row["conversation"], 10) if each.kind == Kind.CLICK]
    return drop_unpermitted(execute, access, row["conversation"], pending, now or time.time())


async def test_what_jane_asks_in_her_direct_chat_is_handed_over_only_by_its_number(office: Office) -> None:
    def ask_directly(execute: Execute) -> None:
        key = ask_jane(execute, OWN)
        direct = Thread("telegram", "1", JANE.id)
        execute("UPDATE conversations SET thread=:thread WHERE key=:key", {"thread": str(direct), "key": key})
        said = replace(SHOW, key="direct", thread=direct, kind=Kind.CHAT)
        inbox.store_message(execute, said, key, ready=1.0, received=1.0)

    await office.store.run(ask_directly)
    await office.store.run(give)
    assert not await office.waits_for(BOB)
    [number] = await office.waits_for(JANE)
    await office.send(JANE, f"waiting hand over {number} to @{BOB.id} until tomorrow")
    assert [*(await office.waits_for(BOB)).values()] == [("Approve", "Deny")]
    await office.store.run(lambda execute: _ask_again(execute, "rm -r /"))
    assert not await office.waits_for(BOB), "another call is another question"


def _ask_again(execute: Execute, call: str) -> None:
    execute("UPDATE questions SET call=:call", {"call": call})


# ------------------------------------------------------------ by words and by buttons


async def test_both_are_told_and_either_ends_it_by_words(office: Office) -> None:
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    told, given = await office.send(JANE, f"waiting hand over to @{BOB.id} until Friday")
    assert (told[0], told[2]) == (BOB.id, ("Give back",))
    assert told[1].startswith("You stand in for Jane until Friday ")
    assert (given[0], given[2]) == (JANE.id, ("Take back",))
    assert f"Bob (`{BOB.id}`) may answer in your place" in given[1]
    for who, line in ((JANE, "may answer in your place"), (BOB, "You stand in for Jane")):
        shown = await office.send(who, "waiting")
        assert [line in text for _chat, text, _options in shown].count(True) == 1
    [(chat, text, _)] = await office.send(EVE, "waiting take back 1")
    assert (chat, text) == (EVE.id, "You have handed over nothing, and stand in for nobody.")
    told, ended = await office.send(BOB, "waiting give back")
    assert (told[0], "given back" in told[1]) == (JANE.id, True)
    assert ended[1] == "You do not stand in for Jane any more."
    assert not await office.waits_for(BOB)
    rows = [row[0] for row in await office.read("SELECT CAST(body AS TEXT) FROM audit ORDER BY seq")]
    assert ['"given"' in body for body in rows if f'"kind":"{AuditKind.HAND_OVER}"' in body] == [True, False]


async def test_it_is_handed_over_by_buttons_and_taken_back(office: Office) -> None:
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    await office.store.run(lambda execute: give(execute, until=1.0))  # it names Bob, whom she meets
    first, *_items = await office.send(JANE, "waiting")
    assert first[2] == ("Hand over…",)
    [whom] = await office.send(JANE, "Hand over…", Kind.CLICK, "handover:ask")
    assert "@Bob" in whom[2]
    [until] = await office.send(JANE, "@Bob", Kind.CLICK, "handover:to")
    assert until[2] == ("today", "tomorrow", "Friday", "1 week")
    asked = f"handover:until-{BOB.id}-0"
    told, given = await office.send(JANE, "Friday", Kind.CLICK, asked)
    assert (told[0], given[0]) == (BOB.id, JANE.id)
    assert len(await office.waits_for(BOB)) == 1
    [(id,)] = await office.read("SELECT id FROM hand_overs WHERE until>1")
    for stranger in (EVE, BOSS):
        assert not await office.send(stranger, "Take back", Kind.CLICK, f"handover:end-{id}")
    assert len(await office.waits_for(BOB)) == 1, "nobody else ends it"
    told, ended = await office.send(JANE, "Take back", Kind.CLICK, f"handover:end-{id}")
    assert (told[0], ended[1]) == (BOB.id, "Bob does not stand in for you any more.")
    assert not await office.waits_for(BOB)
    assert not await office.send(JANE, "Take back", Kind.CLICK, f"handover:end-{id}"), "it has ended"


async def test_one_of_several_is_taken_back_by_its_number(office: Office) -> None:
    ids = [await office.store.run(partial(give, deputy=deputy)) for deputy in (BOB, BOSS)]
    [asked] = await office.send(JANE, "waiting take back")
    assert all(f"- **{id}**: Until " in asked[1] for id in ids)
    await office.send(JANE, f"waiting take back {ids[1]}")
    assert await office.read("SELECT deputy FROM hand_overs WHERE ended IS NULL") == [(BOB.id,)]


async def test_a_press_of_others_in_a_group_hands_over_nothing(office: Office) -> None:
    for label, target in (("Hand over…", "handover:ask"), ("@Bob", "handover:to"), ("Friday", "handover:until-77-0")):
        assert not await office.send(EVE, label, Kind.CLICK, target, group=True)
    assert await office.read("SELECT * FROM hand_overs") == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("to @nobody until Friday", "I don't know anybody called “@nobody”."),
        ("to @77 until yesterday", "“yesterday” is no time to come within a year."),
        ("to @42 until Friday", "You answer for yourself already."),
        (f"to @{EVE.id} until Friday", "may not answer in your place: their role there is **viewer**."),
        ("99 to @77 until Friday", "Nothing with the number 99 waits for you any more."),
        ("@77 until Friday", "Use `"),
        ("to", "Use `"),
        ("to twin until Friday", "More than one person is called that: "),
    ],
)
async def test_what_cannot_be_handed_over_is_said(office: Office, words: str, answer: str) -> None:
    def name_twins(execute: Execute) -> None:
        for id in ("501", "502"):
            twin = replace(SHOW, author=Author(id, "Twin"), thread=Thread("telegram", "1", id))
            people.store_address(execute, twin)

    await office.store.run(name_twins)
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    [said] = await office.send(JANE, f"waiting hand over {words}")
    assert answer in said[1]
    assert await office.read("SELECT * FROM hand_overs") == []


async def test_without_a_time_the_bot_asks_until_when_in_the_direct_chat_only(office: Office) -> None:
    [said] = await office.send(JANE, "waiting hand over to Bob")
    assert "I don't know" not in said[1]
    assert said[2] == ("today", "tomorrow", "Friday", "1 week")
    [said] = await office.send(JANE, "waiting hand over to Bob", group=True)
    assert (said[1].startswith("Use `"), said[2]) == (True, ())


async def test_the_numbers_of_others_hand_over_nothing(office: Office) -> None:
    await office.store.run(lambda execute: ask_jane(execute, OWN))
    [number] = await office.waits_for(JANE)
    [said] = await office.send(BOB, f"waiting hand over {number} to @{BOSS.id} until Friday")
    assert "Nothing with the number" in said[1]


async def test_a_digest_leads_to_the_list_where_nobody_else_reads_it(office: Office) -> None:
    await office.store.run(lambda execute: ask_jane(execute, OWN))

    def hold(execute: Execute) -> None:
        people.set_preference(execute, SHOW, "digest", "09:00")
        held_pings.hold_ping(execute, HeldPing("p", "telegram", JANE.id, str(GROUP), "Done after 2 min.", 1.0))

    await office.store.run(hold)
    current = current_of(telegram=office.access)
    jobs = DigestJobs(office.store, current, gather_waits(current).listed)
    payload = orjson.dumps({"channel": "telegram", "person": JANE.id})
    deliver = await jobs.run(BackgroundJob("d", "digest", 0.0, payload, 1, "me", ""))
    await office.store.run(deliver)
    rows = await office.read("SELECT thread, payload FROM outbox ORDER BY id")
    finals = [(Thread.parse(thread).chat, Final.load(payload)) for thread, payload in rows]
    assert [(chat, final.text) for chat, final in finals] == [
        (GROUP.chat, "Done after 2 min."),
        (JANE.id, "1 question waits for you."),
    ]
    [ask] = finals[1][1].asks
    heading, item = await office.send(JANE, ask.options[0], Kind.CLICK, ask.id)
    assert (heading[1], "Run it?" in item[1]) == ("1 question waits for you.", True)
    assert not await office.send(JANE, ask.options[0], Kind.CLICK, ask.id, group=True)


# ------------------------------------------------------------ what is kept of people


async def test_it_is_exported_forgotten_and_ends_when_somebody_leaves(office: Office) -> None:
    await office.store.run(give)

    def exported(execute: Execute, who: Author) -> list[tuple[int, str]]:
        rows = own_data.describe_account(execute, PersonKey("telegram", who.id), Traces(), gather_personal())
        return [(row["given"], row["name"]) for row in rows if row["kind"] == "hand_over"]

    assert await office.store.run(partial(exported, who=JANE)) == [(1, "Bob")]
    assert await office.store.run(partial(exported, who=BOB)) == [(0, "Jane")]
    assert await office.store.run(partial(exported, who=EVE)) == []
    gone = PersonKey("telegram", BOB.id)
    await office.store.run(lambda execute: offboarding.end_account(execute, gone, time.time()))
    assert not await office.store.run(lambda execute: hand_overs.of_giver(execute, "telegram", JANE.id, time.time()))
    [table] = [table for table in gather_personal() if table.table == "hand_overs"]
    values = {"channel": "telegram", "person": JANE.id}
    await office.store.run(lambda execute: [execute(sql, values) for sql in table.forget])
    assert await office.read("SELECT * FROM hand_overs") == []
