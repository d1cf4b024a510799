"""Pairing: a stranger waits, operators decide once, and the first message is answered after that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.cli.people import PAIR_ACTIONS
from bot.cli.service_call import run_action
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.config.team import RoleAssignment
from bot.database.database import Database, Execute
from bot.rights.access import AccessPolicy
from bot.storage import people
from bot.team import pairing
from channels.base import Receipt
from tests.support.current_config import current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

BOB = Author("42", "Bob")
HELLO = Message(Thread("telegram", "1", "42"), "k1", "1", BOB, "What is 2+2?", 1.0, private=True, origin=Origin.PERSON)
BOSS = Message(
    Thread("telegram", "1", "99", "7"), "b1", "1", Author("99", "Ann"), "hi", 1.0, private=True, origin=Origin.PERSON
)
CURRENT = current_of(telegram=AccessConfig(operators=("99",)), slack=AccessConfig())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def receive(store: Database, *messages: Message) -> list[Receipt]:
    return await open_inbox(store, CURRENT, IDLE_TURNS).receive(messages)


async def notices(store: Database, chat: str = "42") -> list[Final]:
    """Return the notices to a chat."""
    rows = await store.run(lambda execute: execute("SELECT thread, payload FROM outbox ORDER BY id", {}))
    return [Final.load(row["payload"]) for row in rows if Thread.parse(row["thread"]).chat == chat]


async def code_of(store: Database, person: str = "42") -> str:
    row = await store.run(lambda execute: people.find_person(execute, "telegram", person))
    assert row
    return row.code


async def open_texts(store: Database) -> list[str]:
    """Return what turns have to answer."""
    rows = await store.run(
        lambda execute: execute(
            "SELECT i.payload FROM inbox i JOIN conversations c ON c.key=i.conversation"
            " WHERE i.state=0 AND i.kind='chat' AND c.pending>0 ORDER BY i.id",
            {},
        )
    )
    return [Message.load(row["payload"]).text for row in rows]


def press(code: str, option: str = pairing.LET_IN, by: Author = BOSS.author, key: str = "c1") -> Message:
    return replace(BOSS, key=key, author=by, kind=Kind.CLICK, text=option, target=f"pair:{code}")


async def test_each_try_is_answered_but_never_more_often_than_every_ten_seconds(store: Database) -> None:
    await receive(store, HELLO)
    await receive(store, *(replace(HELLO, key=f"again{number}") for number in range(30)))
    code = await code_of(store)
    assert [code in final.text for final in await notices(store)] == [True]
    for number in range(30):  # an hour of patience
        await store.run(lambda execute: execute("UPDATE outbox SET created=created-20", {}))
        await receive(store, replace(HELLO, key=f"later{number}"))
    words = [final.text for final in await notices(store)]
    assert words == [words[0]] + [pairing.STILL_WAITING.format(code=code)] * pairing.MAX_REMINDERS
    assert await open_texts(store) == []


async def test_the_first_message_is_answered_after_the_acceptance(store: Database) -> None:
    start = replace(HELLO, key="k0", kind=Kind.COMMAND, text="start")
    await receive(store, start, HELLO, replace(HELLO, key="k2", text="Hello??"))
    code = await code_of(store)
    paired = await store.run(lambda execute: pairing.accept(execute, code.lower(), time.time()))
    assert paired
    assert await open_texts(store) == ["What is 2+2?"]
    assert [final.text for final in await notices(store)][1:] == [pairing.WELCOME_ANSWER]
    assert await receive(store, HELLO) == [Receipt.DUPLICATE]  # a catch-up reads it once more


@pytest.mark.parametrize("first", [replace(HELLO, kind=Kind.COMMAND, text="start"), replace(HELLO, text="x" * 70_000)])
async def test_a_command_or_a_huge_message_is_not_kept(store: Database, first: Message) -> None:
    await receive(store, first)
    code = await code_of(store)
    assert await store.run(lambda execute: pairing.accept(execute, code, time.time()))
    assert await open_texts(store) == []
    assert [final.text for final in await notices(store)][1:] == [pairing.WELCOME]


async def test_operators_are_asked_in_their_chat_and_the_log(store: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    evil = replace(BOB, name="`Bob`\n**ADMIN** \u202e" + "x" * 100)
    await receive(store, BOSS, replace(HELLO, author=evil))
    code = await code_of(store)
    [asked] = await notices(store, "99")
    [ask] = asked.asks
    assert (ask.id, ask.options, ask.free_text) == (f"pair:{code}", ("Let in", "Decline"), False)
    shown = "Bob **ADMIN** " + "x" * 45 + "…"
    assert asked.text.startswith(f"`{shown}` (`42` on telegram) wants to talk to me. Their code is **{code}**")
    assert HELLO.text not in asked.text
    rows = await store.run(lambda execute: execute("SELECT thread FROM outbox WHERE key LIKE 'asked:%'", {}))
    assert [Thread.parse(row["thread"]).topic for row in rows] == [""]
    assert f"pairing.asked channel=telegram person=42 name={shown!r} code={code}" in caplog.messages


async def test_operators_of_other_channels_are_asked_only_where_the_channel_has_none(store: Database) -> None:
    await receive(store, BOSS)
    elsewhere = replace(HELLO, thread=Thread("slack", "T1", "D7"), author=Author("U7", "Eve"))
    await receive(store, elsewhere)
    assert ["U7" in final.text for final in await notices(store, "99")] == [True]


@pytest.mark.parametrize("option", [pairing.LET_IN, pairing.DECLINE])
async def test_only_operators_decide_and_only_once(store: Database, option: str) -> None:
    await receive(store, BOSS, HELLO)
    code = await code_of(store)
    assert await receive(store, press(code, option, BOB)) == [Receipt.IGNORED]
    assert await receive(store, press(code, "Maybe")) == [Receipt.DUPLICATE]
    assert await receive(store, press(code, option)) == [Receipt.ACCEPTED]
    assert await receive(store, press(code, option), press(code, pairing.LET_IN, key="c2")) == [Receipt.DUPLICATE] * 2
    accepted = option == pairing.LET_IN
    assert await open_texts(store) == ["hi"] + ["What is 2+2?"] * accepted
    assert [final.text for final in await notices(store)][1:] == [
        pairing.WELCOME_ANSWER if accepted else pairing.DECLINED
    ]


async def test_a_button_and_the_command_line_at_once_accept_once(store: Database) -> None:
    await receive(store, BOSS, HELLO)
    code = await code_of(store)

    def command(execute: Execute) -> bool:
        return pairing.accept(execute, code, time.time()) is not None

    receipts, accepted = await asyncio.gather(receive(store, press(code)), store.run(command))
    assert (receipts == [Receipt.ACCEPTED]) is not accepted
    assert await open_texts(store) == ["hi", "What is 2+2?"]
    assert len(await notices(store)) == 2


async def test_an_expired_code_is_of_no_use_and_the_next_try_gets_a_new_one(store: Database) -> None:
    await receive(store, BOSS, HELLO)
    code = await code_of(store)
    await store.run(lambda execute: execute("UPDATE people SET until=until-7200 WHERE person='42'", {}))
    assert await receive(store, press(code)) == [Receipt.DUPLICATE]
    assert len(await notices(store)) == 1
    await receive(store, replace(HELLO, key="k2", text="And now?"))
    assert (new := await code_of(store)) != code
    assert await store.run(lambda execute: pairing.accept(execute, new, time.time()))
    assert await open_texts(store) == ["hi", "And now?"]


async def test_a_declined_person_is_told_once_until_the_refusal_is_revoked(store: Database) -> None:
    await receive(store, HELLO)
    code = await code_of(store)
    assert await store.run(lambda execute: pairing.decline(execute, code, time.time()))
    assert await receive(store, replace(HELLO, key="k2")) == [Receipt.IGNORED]
    assert [final.text for final in await notices(store)][1:] == [pairing.DECLINED]
    assert await store.run(lambda execute: people.revoke_pairing(execute, "telegram", "42"))
    await receive(store, replace(HELLO, key="k3"))
    assert await code_of(store)


async def test_a_crowd_of_strangers_does_not_close_the_door_nor_get_the_operators_attention(store: Database) -> None:
    await receive(store, BOSS)
    for number in range(pairing.MAX_WAITING + 5):
        place, author = Thread("telegram", "1", f"c{number}"), Author(f"s{number}", "Sam")
        await receive(store, replace(HELLO, key=f"s{number}", thread=place, author=author))
    assert len(await notices(store, "99")) == pairing.MAX_ANNOUNCED
    assert await store.run(lambda execute: people.count_waiting(execute, time.time())) == pairing.MAX_WAITING
    waiting = await store.run(lambda execute: people.list_paired(execute, time.time()))
    assert {row.person for row in waiting} == {f"s{number}" for number in range(5, pairing.MAX_WAITING + 5)}
    [told] = await notices(store, f"c{pairing.MAX_WAITING}")
    assert await code_of(store, f"s{pairing.MAX_WAITING}") in told.text
    first = Thread("telegram", "1", "c0")
    await receive(store, replace(HELLO, key="again", thread=first, author=Author("s0", "Sam")))
    assert await code_of(store, "s0"), "who made room gets a new code for the next message"


async def test_revoking_ends_the_roles_and_says_what_the_configuration_still_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:

        def give(execute: Execute) -> None:
            for workspace in ("1", "2"):
                subject = people.person_subject(workspace, BOB.id)
                people.store_role(execute, HELLO.thread, subject, "operator", name="", by=BOSS.author, now=1.0)
            other = people.person_subject("1", "43")
            people.store_role(execute, HELLO.thread, other, "viewer", name="", by=BOSS.author, now=1.0)

        await store.run(give)
    named = ChannelConfig("telegram", None, AccessConfig(allow=("42",), roles=(RoleAssignment("viewer", ("-5/42",)),)))
    config = Config(data_dir=tmp_path, channels=(named,))
    assert await run_action(config, PAIR_ACTIONS["revoke"], ["telegram", "42"]) == 0
    said = capsys.readouterr().out
    assert "The roles that people gave in chats have ended, too: operator." in said
    assert "STILL LET IN by the configuration: `channels.telegram.access.allow`." in said
    assert "STILL LET IN by the configuration: `channels.telegram.access.roles`." in said
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        assert [row.person for row in await store.run(people.list_roles)] == ["43"]
        policy = AccessPolicy({"telegram": AccessConfig()})
        assert await store.run(lambda execute: policy.may_enter(execute, HELLO)) is False
    assert await run_action(config, PAIR_ACTIONS["revoke"], ["telegram", "42"]) == 1
