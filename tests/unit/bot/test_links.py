"""Linked accounts: the proof from both sides, what it gives, what it never gives, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.blocks import Ask, Final
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.accounts.command import CODE_SECONDS, MINE, NOT_MINE, PREFIX
from bot.base.background import JobWorker
from bot.base.display_names import display_name
from bot.config.schema import AccessConfig, ServiceLimits
from bot.config.team import RoleAssignment
from bot.database.audit import AuditKind
from bot.database.database import Database, Execute
from bot.database.states import QuestionState, RunState
from bot.main.features import gather_personal, gather_waits
from bot.notifications.digests import DigestJobs
from bot.rights.approvals import question_columns
from bot.rights.current import Current
from bot.storage import conversations, held_pings, inbox, offboarding, own_data, people, questions, runs
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.held_pings import HeldPing
from bot.storage.jobs import BackgroundJob
from bot.waiting.feature import HandOverEnds
from bot.waiting.hand_over import ENDS_JOB
from tests.support.current_config import current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import command_runner, command_service, open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.unit.bot.test_waiting import FREE, OWN


@dataclass(frozen=True)
class Account:
    """An account of a person: their id and name on a channel."""

    channel: str
    id: str
    name: str
    guest: bool = False

    @property
    def author(self) -> Author:
        return Author(self.id, self.name, guest=self.guest)

    @property
    def direct(self) -> Thread:
        return Thread(self.channel, "1", f"D{self.id}")

    @property
    def group(self) -> Thread:
        return Thread(self.channel, "1", "G", "7")


JANE, JANE_S, JANE_D = Account("telegram", "42", "Jane"), Account("slack", "U42", "Jane"), Account("discord", "4", "jj")
BOB, BOB_S = Account("telegram", "77", "Bob"), Account("slack", "U77", "Bob")
EVE = Account("slack", "U66", "Eve")
CHANNELS = ("telegram", "slack", "discord")


@dataclass
class Said:
    """What the bot wrote into a chat."""

    chat: str
    text: str
    options: tuple[str, ...]
    asks: tuple[str, ...]


class World:
    """People with accounts on three platforms. `minutes` have passed."""

    def __init__(self, store: Database) -> None:
        self.store, self.number = store, 0
        self.access = {name: AccessConfig(open=True) for name in CHANNELS}

    @property
    def current(self) -> Current:
        return current_of(ServiceLimits(), **self.access)

    async def read(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.store.run(lambda execute: execute(sql, values))]

    async def send(
        self, who: Account, text: str, kind: Kind = Kind.COMMAND, target: str = "", *, group: bool = False, **more: Any
    ) -> list[Said]:
        """Offer an event; return what the bot then says."""
        self.number += 1
        key, [(before,)] = f"h{self.number}", await self.read("SELECT coalesce(max(id), 0) FROM outbox")
        thread = who.group if group else who.direct
        event = Message(
            *(thread, key, key, who.author, text, time.time(), kind),
            **{"target": target, "private": not group, "origin": Origin.PERSON, **more},
        )
        current = self.current
        await open_inbox(self.store, current, IDLE_TURNS).receive([event])
        serving = asyncio.create_task(command_runner(self.store, command_service(current)).serve())
        async with asyncio.timeout(60):
            while await self.store.run(lambda execute: inbox.pending_commands(execute, 1)):
                await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])
        sql = "SELECT thread, payload FROM outbox WHERE kind<>'settled' AND id>:before ORDER BY id"
        finals = [
            (Thread.parse(thread).chat, Final.load(payload)) for thread, payload in await self.read(sql, before=before)
        ]
        return [
            Said(chat, final.text, tuple(o for ask in final.asks for o in ask.options), tuple(a.id for a in final.asks))
            for chat, final in finals
        ]

    async def code_of(self, who: Account) -> str:
        [said] = await self.send(who, "link")
        [(code,)] = await self.read(
            "SELECT code FROM link_codes WHERE channel=:channel AND person=:id", channel=who.channel, id=who.id
        )
        assert f"link {code}" in said.text
        return str(code)

    async def begin(self, first: Account, second: Account) -> str:
        """Send the code of the first from the second; return the id of the question."""
        [asked] = await self.send(second, f"link {await self.code_of(first)}")
        assert asked.options == (MINE, NOT_MINE)
        assert first.name in asked.text
        assert first.id in asked.text
        return asked.asks[0]

    async def link(self, first: Account, second: Account) -> None:
        question = await self.begin(first, second)
        asked, there = await self.send(second, MINE, Kind.CLICK, question)
        assert (asked.chat, there.chat) in (
            (first.direct.chat, second.direct.chat),
            (second.direct.chat, first.direct.chat),
        )
        said = await self.send(first, MINE, Kind.CLICK, question)
        assert {each.chat for each in said} == {first.direct.chat, second.direct.chat}
        assert all("is linked with this account" in each.text for each in said)

    async def linked(self) -> set[tuple[str, str]]:
        return {(channel, person) for channel, person in await self.read("SELECT channel, person FROM account_links")}

    async def ask(self, who: Account, *asks: Ask | Any, private: bool = False) -> str:
        """Have a request of this account ask, in its group or its direct chat; return the conversation."""
        thread, run = who.direct if private else who.group, 1000 + self.number
        self.number += 1

        def work(execute: Execute) -> str:
            key = conversations.begin_conversation(execute, thread, 1.0)
            said = Message(thread, f"ask{key}", "1", who.author, "go", 1.0, private=private, origin=Origin.PERSON)
            inbox.store_message(execute, said, key, ready=1.0, received=1.0)
            runs.create_run(execute, run, key, said, RunState.WAITING, 1.0, [who.id])
            for ask in asks:
                columns = question_columns(ask, who.id)
                questions.store_question(execute, ask, key, run=run, number=0, answerers=columns, now=2.0)
            return key

        return await self.store.run(work)

    async def waits_for(self, who: Account) -> dict[int, tuple[str, str]]:
        """Return number → channel and id of the question."""
        table = gather_waits(self.current)
        viewer = Message(who.direct, "v", "", who.author, "", 0.0, Kind.COMMAND, private=True, origin=Origin.PERSON)
        found = await self.store.run(lambda execute: table.listed(execute, viewer, time.time()))
        return {number: (each.place.channel, each.target) for number, each in found}

    async def audited(self, result: str) -> int:
        like = f'%"kind":"{AuditKind.ACCOUNT_LINK}"%"result":"{result}"%'
        [(count,)] = await self.read("SELECT count(*) FROM audit WHERE CAST(body AS TEXT) LIKE :like", like=like)
        return int(count)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        yield World(store)


# ------------------------------------------------------------ the proof


async def test_two_accounts_are_linked_when_both_have_agreed_and_whoami_shows_it(world: World) -> None:
    await world.link(JANE, JANE_S)
    assert await world.linked() == {("telegram", "42"), ("slack", "U42")}
    assert await world.audited("linked") == 1
    for one, other in ((JANE, JANE_S), (JANE_S, JANE)):
        [said] = await world.send(one, "whoami")
        assert f"linked with {other.name} (`{other.id}`) on {display_name(other.channel)}" in said.text
        [public] = await world.send(one, "whoami", group=True)
        assert "linked" not in public.text
    await world.link(JANE_D, JANE_S)
    assert len(await world.linked()) == 3


async def test_a_link_is_confirmed_in_words(world: World) -> None:
    await world.begin(JANE, JANE_S)
    [said] = await world.send(JANE, "link yes")
    assert "nothing to confirm" in said.text, "it is the other account's turn"
    await world.send(JANE_S, "link YES")
    await world.send(JANE, "link yes")
    assert len(await world.linked()) == 2
    [said] = await world.send(JANE, "link yes")
    assert "nothing to confirm" in said.text


@pytest.mark.parametrize("who", [JANE, JANE_S])
async def test_one_no_ends_the_request_and_both_are_told(world: World, who: Account) -> None:
    question = await world.begin(JANE, JANE_S)
    if who is JANE:
        await world.send(JANE_S, MINE, Kind.CLICK, question)
    said = await world.send(who, NOT_MINE, Kind.CLICK, question)
    assert {each.chat for each in said} == {JANE.direct.chat, JANE_S.direct.chat}
    for each in (JANE, JANE_S):
        assert not await world.send(each, MINE, Kind.CLICK, question)
    assert not await world.linked()
    assert await world.audited("declined") == 1


async def test_a_code_works_once_on_another_platform_and_for_ten_minutes(world: World) -> None:
    code = await world.code_of(JANE)
    [said] = await world.send(BOB, f"link {code}")
    assert "from this platform" in said.text
    [said] = await world.send(JANE_S, f"link {code.lower()}")
    assert said.options, "the case of its letters is no matter"
    for who in (EVE, JANE_S, JANE_D):
        [said] = await world.send(who, f"link {code}")
        assert "don't know this code" in said.text
    old = await world.code_of(JANE_D)
    new = await world.code_of(JANE_D)
    [said] = await world.send(JANE_S, f"link {old}")
    assert "don't know this code" in said.text, "a new code ends the one before"
    await world.read("UPDATE link_codes SET until=until-:seconds", seconds=CODE_SECONDS)
    [said] = await world.send(JANE_S, f"link {new}")
    assert "older than 10 minutes" in said.text
    for words in ("link", "link x" * 1000, "link " + "A" * 8, "link ' OR 1=1 --", "link 12"):
        await world.send(JANE_S, words)
    assert not await world.linked()


async def test_a_confirmation_counts_in_time_only(world: World) -> None:
    question = await world.begin(JANE, JANE_S)
    await world.send(JANE_S, MINE, Kind.CLICK, question)
    await world.read("UPDATE link_codes SET until=until-:seconds", seconds=CODE_SECONDS)
    assert not await world.send(JANE, MINE, Kind.CLICK, question)
    [said] = await world.send(JANE, "link yes")
    assert "nothing to confirm" in said.text
    assert not await world.linked()


async def test_nobody_else_and_no_group_and_no_program_confirms_or_gets_a_code(world: World) -> None:
    question = await world.begin(JANE, JANE_S)
    for who in (EVE, BOB, JANE_D, JANE):  # Jane's first account before the second has agreed
        assert not await world.send(who, MINE, Kind.CLICK, question)
    assert not await world.send(JANE_S, MINE, Kind.CLICK, question, group=True)
    for forged in (f"{PREFIX}999", f"{PREFIX}-1", f"{PREFIX}1 OR 1", PREFIX, f"{PREFIX}{'9' * 50}"):
        assert not await world.send(JANE_S, MINE, Kind.CLICK, forged)
    assert not await world.send(JANE_S, "Both", Kind.CLICK, question)
    [(agreed,)] = await world.read("SELECT agreed FROM link_codes")
    assert not agreed
    [said] = await world.send(JANE, "link", group=True)
    assert "in our direct chat" in said.text
    [said] = await world.send(EVE, "link", origin=Origin.BOT)
    assert "from the chats themselves" in said.text


async def test_what_cannot_be_one_person_is_not_linked(world: World) -> None:
    """A person has one account a platform; two requests at once do not make it two."""
    await world.link(JANE, JANE_S)
    [said] = await world.send(BOB_S, f"link {await world.code_of(JANE)}")
    assert "Both cannot be yours" in said.text
    first, second = await world.begin(JANE_D, BOB), await world.begin(JANE_D, BOB_S)
    for question in (first, second):
        for who in (BOB, BOB_S):
            await world.send(who, MINE, Kind.CLICK, question)
    await world.send(JANE_D, MINE, Kind.CLICK, first)
    await world.send(JANE_D, MINE, Kind.CLICK, second)
    assert await world.linked() == {("telegram", "42"), ("slack", "U42"), ("discord", "4"), ("slack", "U77")}


async def test_two_presses_at_once_link_once(world: World) -> None:
    question = await world.begin(JANE, JANE_S)
    await world.send(JANE_S, MINE, Kind.CLICK, question)
    press = Message(
        JANE.direct, "p", "p", JANE.author, MINE, 1.0, Kind.CLICK, target=question, private=True, origin=Origin.PERSON
    )
    current = world.current
    box = open_inbox(world.store, current, IDLE_TURNS)
    await asyncio.gather(*(box.receive([replace(press, key=f"p{n}")]) for n in range(5)))
    await world.send(JANE, "whoami")
    assert await world.audited("linked") == 1
    assert len(await world.linked()) == 2


# ------------------------------------------------------------ what it gives


async def test_each_account_lists_and_answers_what_waits_for_the_others(world: World) -> None:
    await world.link(JANE, JANE_S)
    key = await world.ask(JANE, OWN)
    await world.ask(JANE_S, FREE)
    await world.ask(JANE, replace(FREE, id="direct"), private=True)
    numbers = await world.waits_for(JANE_S)
    assert sorted(numbers.values()) == [("slack", "free"), ("telegram", "direct"), ("telegram", "own")]
    assert numbers == await world.waits_for(JANE), "one list, with the same numbers"
    said = await world.send(JANE_S, "waiting")
    text = "\n".join(each.text for each in said)
    assert "telegram/1/G" in text
    assert "our direct chat on Telegram" in text
    for other in (EVE, BOB, JANE_D):
        assert not await world.waits_for(other)
    [number] = [number for number, found in numbers.items() if found[1] == "own"]
    for stranger in (EVE, BOB, JANE_D):
        await world.send(stranger, "Approve", Kind.CLICK, f"waiting:{number}")
        await world.send(stranger, f"waiting {number} Approve")
    [(state,)] = await world.read("SELECT state FROM questions WHERE id='own'")
    assert state == QuestionState.OPEN
    await world.send(JANE_S, "Approve", Kind.CLICK, f"waiting:{number}")
    [row] = await world.read("SELECT state, answer, answered_by, conversation FROM questions WHERE id='own'")
    assert row == (QuestionState.ANSWERED, "Approve", "42", key), "by the account that was asked"
    assert await world.audited("answered") == 1
    await world.send(JANE_S, "Approve", Kind.CLICK, f"waiting:{number}")
    assert await world.audited("answered") == 1, "it counts once"


async def test_a_hundred_open_questions_of_two_accounts_are_counted_and_the_oldest_are_shown(world: World) -> None:
    """Each number still hits its own question, and words that look like an option hit none of them."""
    await world.link(JANE, JANE_S)
    for number in range(50):
        await world.ask(JANE, replace(OWN, id=f"own{number}", question=f"Run {number}?"))
        await world.ask(JANE_S, replace(FREE, id=f"free{number}", question=f"Which {number}?"))
    numbers = await world.waits_for(JANE_S)
    assert len(numbers) == 100
    said = await world.send(JANE_S, "waiting")
    assert said[0].text == "100 questions wait for you. These are the oldest 10."
    assert len(said) == 11
    last = next(number for number, found in numbers.items() if found[1] == "own49")
    for words in ("Approve", "1", f"{last}", f"{last} 1", f"{last} Approve it", f"{last} own49", "own49 Approve"):
        await world.send(JANE_S, f"waiting {words}")
    assert await world.read("SELECT count(*) FROM questions WHERE state<>'open'") == [(0,)]
    await world.send(JANE_S, f"waiting #{last} approve")
    assert await world.read("SELECT id, answer FROM questions WHERE state<>'open'") == [("own49", "Approve")]


async def test_the_rights_of_the_account_that_was_asked_decide(world: World) -> None:
    """An owner on one platform is nobody more on the other; who lost their access there sees nothing of it."""
    await world.link(JANE, JANE_S)
    await world.ask(JANE, OWN)
    world.access["slack"] = AccessConfig(open=True, roles=(RoleAssignment("owner", ("U42",)),))
    world.access["telegram"] = AccessConfig(open=True, roles=(RoleAssignment("viewer", ("42",)),))
    assert not await world.waits_for(JANE_S), "a viewer approves nothing"
    world.access["telegram"] = AccessConfig(roles=(RoleAssignment("member", ("77",)),))
    assert not await world.waits_for(JANE_S), "who may not enter is asked nothing"
    del world.access["telegram"]
    assert not await world.waits_for(JANE_S), "the channel is gone"
    world.access["telegram"] = AccessConfig(open=True)
    assert await world.waits_for(JANE_S)


async def test_a_guest_stays_one(world: World) -> None:
    world.access["telegram"] = AccessConfig(open=True, allow=("D42",))
    await world.link(replace(JANE, guest=True), JANE_S)
    await world.ask(JANE, FREE)
    assert await world.waits_for(JANE_S)
    world.access["telegram"] = AccessConfig(open=True)
    assert not await world.waits_for(JANE_S)


async def test_the_digest_leads_to_what_waits_for_all_accounts(world: World) -> None:
    await world.link(JANE, JANE_S)
    await world.ask(JANE, OWN)
    await world.ask(JANE_S, FREE)

    def hold(execute: Execute) -> None:
        message = Message(JANE_S.direct, "a", "", JANE_S.author, "", 0.0, private=True, origin=Origin.PERSON)
        people.set_preference(execute, message, "digest", "09:00")
        ping = HeldPing("p", "slack", JANE_S.id, str(JANE_S.group), "Done after 2 min.", 1.0)
        held_pings.hold_ping(execute, ping)

    await world.store.run(hold)
    [(before,)] = await world.read("SELECT max(id) FROM outbox")
    jobs = DigestJobs(world.store, world.current, gather_waits(world.current).listed)
    payload = orjson.dumps({"channel": "slack", "person": JANE_S.id})
    await world.store.run(await jobs.run(BackgroundJob("d", "digest", 0.0, payload, 1, "me", "")))
    sql = "SELECT payload FROM outbox WHERE id>:before AND thread=:home"
    [(final,)] = await world.read(sql, before=before, home=str(JANE_S.direct))
    shown = Final.load(final)
    assert shown.text == "2 questions wait for you."
    said = await world.send(JANE_S, shown.asks[0].options[0], Kind.CLICK, shown.asks[0].id)
    assert "Run it?" in "".join(each.text for each in said)


# ------------------------------------------------------------ deputies


async def test_a_hand_over_counts_on_all_platforms_on_which_both_have_linked_accounts(world: World) -> None:
    await world.link(JANE, JANE_S)
    await world.link(BOB, BOB_S)
    for who in (JANE, BOB, JANE_S, BOB_S):
        await world.send(who, "whoami")
    await world.ask(JANE, OWN)
    await world.send(JANE_S, "waiting hand over to U77 until 3 days")
    assert [*(await world.waits_for(BOB)).values()] == [("telegram", "own")]
    [number] = await world.waits_for(BOB_S)
    await world.send(BOB_S, f"waiting {number} Approve")
    [row] = await world.read("SELECT state, answered_by FROM questions WHERE id='own'")
    assert row == (QuestionState.ANSWERED, "77")
    await world.ask(JANE, replace(OWN, id="second"))
    assert await world.waits_for(BOB)
    said = await world.send(JANE, "waiting take back")
    assert any("does not stand in for you" in each.text for each in said), "from the other account, too"
    assert not await world.waits_for(BOB)


async def test_a_single_question_is_handed_over_on_its_own_platform(world: World) -> None:
    await world.link(JANE, JANE_S)
    await world.ask(JANE, OWN)
    await world.ask(JANE, replace(OWN, id="second"))
    number = min(await world.waits_for(JANE_S))
    [said] = await world.send(JANE_S, f"waiting hand over {number} to U77 until Friday")
    assert "I know no account of" in said.text
    await world.link(BOB, BOB_S)
    await world.send(JANE_S, f"waiting hand over {number} to U77 until Friday")
    assert len(await world.waits_for(BOB)) == len(await world.waits_for(BOB_S)) == 1
    [row] = await world.read("SELECT channel, giver, deputy FROM hand_overs")
    assert row == ("telegram", "42", "77")


async def test_both_are_told_when_the_time_is_over(world: World) -> None:
    await world.ask(JANE, OWN)

    def meet(execute: Execute) -> None:
        for who in (JANE, BOB):
            message = Message(who.direct, "a", "", who.author, "", 0.0, private=True, origin=Origin.PERSON)
            people.store_address(execute, message)

    await world.store.run(meet)
    await world.send(JANE, "waiting hand over to 77 until 3 days")
    await world.send(JANE, "waiting hand over to 77 until 2 days")  # in place of the first
    soon = time.time() + 2.5 * 86400
    [(before,)] = await world.read("SELECT max(id) FROM outbox")
    worker = JobWorker(world.store, lambda: soon)
    worker.register(ENDS_JOB, HandOverEnds(lambda: soon).end)
    serving = asyncio.create_task(worker.serve())
    async with asyncio.timeout(60):
        while len(await world.read("SELECT 1 FROM jobs WHERE kind=:kind", kind=ENDS_JOB)) > 1:
            await asyncio.sleep(0.01)
    serving.cancel()
    await asyncio.wait([serving])
    told = await world.read("SELECT thread, payload FROM outbox WHERE id>:before ORDER BY id", before=before)
    texts = {Thread.parse(thread).chat: Final.load(payload).text for thread, payload in told}
    assert texts.keys() == {JANE.direct.chat, BOB.direct.chat}
    assert "time in place of Jane is over" in texts[BOB.direct.chat]
    assert "The time is over in which Bob" in texts[JANE.direct.chat]
    like = f'%"kind":"{AuditKind.HAND_OVER}"%"result":"expired"%'
    assert await world.read("SELECT count(*) FROM audit WHERE CAST(body AS TEXT) LIKE :like", like=like) == [(1,)]


# ------------------------------------------------------------ its end


async def test_unlink_ends_all_of_an_account_and_tells_the_others(world: World) -> None:
    await world.link(JANE, JANE_S)
    await world.link(JANE_D, JANE_S)
    await world.ask(JANE, FREE)
    [said] = await world.send(JANE, "unlink", group=True)
    assert "direct chat" in said.text
    told = await world.send(JANE, "unlink")
    assert {each.chat for each in told} == {each.direct.chat for each in (JANE, JANE_S, JANE_D)}
    assert await world.linked() == {("slack", "U42"), ("discord", "4")}
    assert not await world.waits_for(JANE_S)
    assert await world.waits_for(JANE)
    assert await world.audited("ended") == 2
    await world.send(JANE_S, "unlink")
    assert not await world.linked()
    [said] = await world.send(JANE_S, "unlink")
    assert "linked with no other" in said.text


async def test_who_leaves_a_platform_or_is_forgotten_is_linked_no_more(world: World) -> None:
    await world.link(JANE, JANE_S)
    gone = PersonKey("slack", "U42")
    assert gone in await world.store.run(offboarding.people_with_rights), "the platform is asked about linked accounts"
    left = await world.store.run(lambda execute: offboarding.end_account(execute, gone, time.time()))
    assert left.links == 1
    assert not await world.linked()
    await world.link(JANE, JANE_S)
    await world.begin(JANE_D, JANE)
    exported = await world.store.run(lambda execute: exported_of(execute, PersonKey("telegram", "42")))
    assert {("linked_account", "slack"), ("linked_account", "telegram"), ("link_request", "discord")} == exported

    def forget(execute: Execute) -> None:
        for table in gather_personal():
            if table.table in ("account_links", "link_codes"):
                for statement in table.forget:
                    execute(statement, {"channel": "telegram", "person": "42"})

    await world.store.run(forget)
    assert not await world.linked()
    assert await world.read("SELECT count(*) FROM link_codes") == [(0,)]


def exported_of(execute: Execute, person: PersonKey) -> set[tuple[str, str]]:
    """Return kind and channel of what `/export me` has of links."""
    found = own_data.describe_account(execute, person, Traces(), gather_personal())
    return {(each["kind"], each["channel"]) for each in found if each["kind"].startswith("link")}
