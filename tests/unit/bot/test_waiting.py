"""Who sees what waits, and what an answer from elsewhere becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Approve, Ask, Final, View
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.commands.waits import Waiting, describe_place
from bot.config.schema import AccessConfig
from bot.config.team import RoleAssignment
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.journey.outbox_posts import Redirect, reader_of, redirect_answer
from bot.main.features import gather_waits, table_of
from bot.rights.approvals import RoutedApproval, question_columns
from bot.rights.known_people import call_person, find_people
from bot.storage import conversations, inbox, outbox, questions, runs
from bot.storage.outbox import Holder
from bot.storage.retention import delete_finished
from tests.support.current_config import current_of
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

GROUP, DIRECT = Thread("telegram", "1", "-100", "7"), Thread("telegram", "1", "42")
JANE, BOB, BOSS, EVE = Author("42", "Jane"), Author("77", "Bob"), Author("11", "Boss"), Author("66", "Eve")
SHOW = Message(DIRECT, "show", "1", JANE, "waiting", 9.0, Kind.COMMAND, private=True, origin=Origin.PERSON)
OWN = Approve("own", "Run it?", call="echo 1", option_count=4)
ROUTED = RoutedApproval("routed", "Run it?", call="echo 1", approvers=("*",), barred=JANE.id)
FREE, PERSONAL = Ask("free", "Which?"), Ask("personal", "Which?", ("A", "B"), personal=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


ACCESS = AccessConfig(open=True, roles=(RoleAssignment("operator", (BOSS.id,)),))


def ask_jane(execute: Execute, *asks: Ask | Approve) -> str:
    """Have Jane's request in the group ask; return the conversation. Bob has written there, Eve and the boss not."""
    key = conversations.begin_conversation(execute, GROUP, 1.0)
    for author in (JANE, BOB):
        said = replace(SHOW, thread=GROUP, key=f"{key}{author.id}", author=author, kind=Kind.CHAT, private=False)
        inbox.store_message(execute, said, key, ready=1.0, received=1.0)
    run = len(key) + int(key.rpartition("#")[2])
    runs.create_run(execute, run, key, replace(SHOW, thread=GROUP), RunState.WAITING, 1.0, [JANE.id])
    for ask in asks:
        columns = question_columns(ask, JANE.id)
        questions.store_question(execute, ask, key, run=run, number=0, answerers=columns, now=2.0)
    return key


async def listed(store: Database, who: Author, **values: object) -> dict[int, Waiting]:
    table = gather_waits(current_of(telegram=ACCESS))
    viewer = replace(SHOW, author=who, thread=replace(DIRECT, chat=who.id), **values)  # type: ignore[arg-type]  # fields
    return dict(await store.run(lambda execute: table.listed(execute, viewer, 9.0)))


@pytest.mark.parametrize(
    ("ask", "seen_by"),
    [(OWN, [JANE]), (ROUTED, [BOSS]), (FREE, [JANE]), (PERSONAL, [JANE])],
    ids=lambda value: value.id if isinstance(value, Ask | Approve) else "",
)
async def test_a_question_is_listed_for_those_who_may_answer_it_only(
    store: Database, ask: Ask | Approve, seen_by: list[Author]
) -> None:
    await store.run(lambda execute: ask_jane(execute, ask))
    for who in (JANE, BOB, BOSS, EVE):
        assert bool(await listed(store, who)) == (who in seen_by), who
        assert not await listed(store, who, private=False), "a group shows nothing"
        assert not await listed(store, who, origin=Origin.TASK), "nobody but a person asks for it"


async def test_the_list_names_the_chat_and_the_request_that_asks(store: Database) -> None:
    key = await store.run(lambda execute: ask_jane(execute, FREE))
    said = replace(SHOW, thread=GROUP, kind=Kind.CHAT, private=False, chat_name="Ops *team*")

    def talk(execute: Execute) -> None:
        conversations.set_title(execute, key, "The first request")
        run = "INSERT INTO runs(id, conversation, requester, state, started) VALUES (1, :key, '42', 'waiting', 1)"
        execute(run, {"key": key})
        for number, text in enumerate(("Deploy the shop", "And the docs"), 1):
            asked = replace(said, key=f"asked{number}", text=text)
            row = inbox.store_message(execute, asked, key, ready=1.0, received=1.0)
            execute("UPDATE inbox SET run=:run WHERE id=:row", {"run": 1 if number == 1 else 99, "row": row})

    await store.run(talk)
    [item] = (await listed(store, JANE)).values()
    assert item.title == "Deploy the shop"
    assert describe_place(item) == "“Ops team” on Telegram"
    await store.run(lambda execute: execute("UPDATE inbox SET payload='{' WHERE key LIKE 'asked%'", {}))
    [item] = (await listed(store, JANE)).values()
    assert (item.title, describe_place(item)) == ("The first request", "`telegram/1/-100`")


async def test_what_others_approve_is_hidden_from_who_does_not_belong_there(store: Database) -> None:
    """The default role may approve for others, so everybody may answer; who never wrote there sees nothing."""
    await store.run(lambda execute: ask_jane(execute, replace(ROUTED, approvers=("member",))))
    assert [who.name for who in (JANE, BOB, BOSS, EVE) if await listed(store, who)] == ["Bob"]


@pytest.mark.parametrize(
    ("ask", "words", "answer"),
    [
        (OWN, "approve", "Approve"),
        (OWN, "批准", "Approve"),
        (OWN, "1", None),
        (OWN, "yes", None),
        (OWN, "", None),
        (FREE, "the red one", "the red one"),
        (PERSONAL, "b", "B"),
    ],
)
async def test_an_answer_becomes_a_press_on_the_question_itself(
    store: Database, ask: Ask | Approve, words: str, answer: str | None
) -> None:
    key = await store.run(lambda execute: ask_jane(execute, ask))
    [number] = await listed(store, JANE)
    table = gather_waits(current_of(telegram=ACCESS))
    typed = replace(SHOW, key="typed", text=f"waiting {number} {words}")
    pressed = replace(SHOW, key="pressed", kind=Kind.CLICK, target=f"waiting:{number}", text=words)
    for event in (typed, pressed):
        found = await store.run(lambda execute, event=event: table.redirect(execute, event, 9.0))  # type: ignore[misc]  # lambda
        if answer is None:
            assert found is None
            continue
        assert found is not None
        assert (found.conversation, found.press.thread, found.press.key) == (key, GROUP, event.key)
        press = found.press
        assert (press.kind, press.target, press.text, press.private) == (Kind.CLICK, ask.id, answer, False)
        for other in (replace(event, author=BOB), replace(event, private=False), replace(event, origin=Origin.TASK)):
            assert await store.run(lambda execute, other=other: table.redirect(execute, other, 9.0)) is None  # type: ignore[misc]  # lambda


@pytest.mark.parametrize(("ask", "decider"), [(OWN, JANE), (ROUTED, BOSS)])
async def test_a_word_decides_the_only_call_of_the_chat_for_who_may_press_its_button(
    store: Database, ask: Approve, decider: Author
) -> None:
    key = await store.run(lambda execute: ask_jane(execute, ask))
    table = gather_waits(current_of(telegram=ACCESS))
    here = replace(SHOW, thread=GROUP, private=False)

    async def given(author: Author, words: str, **values: object) -> tuple[str, str, str] | None:
        event = replace(here, author=author, text=words, **values)  # type: ignore[arg-type]  # fields
        found = await store.run(lambda execute: table.redirect(execute, event, 9.0))
        return (found.conversation, found.press.target, found.press.text) if found else None

    assert await given(decider, "approve") == (key, ask.id, "Approve")
    assert await given(decider, "deny") == (key, ask.id, "Deny")
    others = [await given(who, "approve") for who in (JANE, BOB, BOSS, EVE) if who != decider]
    assert others == [None] * 3, "nobody else decides"
    assert [await given(decider, words) for words in ("approve it", "approve 1 now", "approved")] == [None] * 3
    assert [await given(decider, "approve", origin=each) for each in (Origin.BOT, Origin.TASK)] == [None] * 2
    there = replace(DIRECT, chat=decider.id)
    assert await given(decider, "approve", thread=there, private=True) == (key, ask.id, "Approve")
    await store.run(lambda execute: ask_jane(execute, replace(ask, id="second")))
    assert await given(decider, "approve") is None, "of two, neither"
    assert await given(decider, "approve", thread=there, private=True) is None


PAUSE = Ask("sched:pause-9", "Pause it?", ("Yes", "No"))  # asked by the bot itself, which no list shows


@pytest.mark.parametrize(
    ("asks", "is_of_agent", "targets", "texts"),
    [
        ((OWN,), True, ["waiting:1"], ["so here is my answer:\n\nDone so far."]),
        ((PERSONAL,), True, ["waiting:1"], ["so here is my answer:\n\nDone so far."]),
        ((FREE,), True, [], ["Done so far.", "`\ufdd0waiting 1 ANSWER\ufdd0`"]),
        ((ROUTED,), True, [], ["Done so far.\n\nRun it?\n\n```\necho 1\n```\n\nOnly others may answer this"]),
        ((OWN, PERSONAL), True, ["waiting:1", "waiting:2"], ["my answer:\n\nDone so far."]),
        ((OWN, ROUTED), True, ["waiting:1"], ["Run it?\n\n```\necho 1\n```\n\nOnly others may answer this"]),
        ((PAUSE,), False, ["sched:pause-9"], ["Done so far."]),
    ],
    ids=["approval", "question", "free text", "of others", "two", "one of two", "of the bot"],
)
async def test_a_refused_answer_is_asked_in_private_of_those_who_may_answer(
    store: Database, asks: tuple[Ask | Approve, ...], is_of_agent: bool, targets: list[str], texts: list[str]
) -> None:
    def redirect(execute: Execute) -> list[Final]:
        key = ask_jane(execute, *asks) if is_of_agent else ""
        final = View({"a": "Done so far."}, asks=[*asks]).final()
        asked = gather_waits(current_of(telegram=ACCESS)).asked_in_private
        redirect_answer(execute, JANE.id, Redirect(DIRECT, "locked", final, key), GROUP, "gone:1", 9.0, asked)
        items = outbox.claim_rows(execute, Holder("me"), 10)
        assert {item.thread for item in items} == {DIRECT}
        return [Final.load(item.payload) for item in items]

    finals = await store.run(redirect)
    assert [ask.id for final in finals for ask in final.asks] == targets
    assert all(ask.options for final in finals for ask in final.asks)
    shown = "\n\n".join(final.text for final in finals)
    assert [text for text in texts if text not in shown] == []
    assert "I have 2 questions" not in shown


@pytest.mark.parametrize("ask", [OWN, PERSONAL], ids=["approval", "question"])
async def test_a_question_of_a_turn_that_still_works_is_for_its_requester(store: Database, ask: Ask | Approve) -> None:
    def read(execute: Execute) -> str:
        key, shown = ask_jane(execute, ask), ask.to_question()
        outbox.enqueue_notice(execute, GROUP, shown.question, key="ask", now=2.0, asks=(shown,), conversation=key)
        [item] = outbox.claim_rows(execute, Holder("me"), 10)
        return reader_of(execute, item)

    assert await store.run(read) == JANE.id


async def test_another_call_has_another_number_and_an_old_one_hits_nothing(store: Database) -> None:
    """Also where its id is the same, as after a call that the model repeats."""
    key = await store.run(lambda execute: ask_jane(execute, OWN))
    [first] = await listed(store, JANE)
    assert [*await listed(store, JANE)] == [first]

    def ask_again(execute: Execute) -> None:
        changed, columns = replace(OWN, call="rm -r /"), question_columns(OWN, JANE.id)
        questions.store_question(execute, changed, key, run=1, number=0, answerers=columns, now=3.0)

    await store.run(ask_again)
    await store.run(lambda execute: delete_finished(execute, table_of("waiting_numbers"), 9e9, 100))
    [second] = await listed(store, JANE)
    assert second > first, "a number is never given again"


@pytest.mark.parametrize(
    ("channel", "id", "name"),
    [
        ("telegram", "42", "Jane"),
        ("web", "telegram:42", "Jane"),  # on the page
        ("web", "console:jane", "jane"),
        ("console", "jane", "jane"),
        ("telegram", "43", "a colleague"),
        ("web", "telegram:43", "a colleague"),
    ],
)
async def test_a_person_is_called_by_their_name_wherever_they_ask(
    store: Database, channel: str, id: str, name: str
) -> None:
    def work(execute: Execute) -> str:
        ask_jane(execute, OWN)
        return call_person(execute, channel, id)

    assert await store.run(work) == name


async def test_an_id_that_begins_with_the_mark_of_a_mention_names_its_person(store: Database) -> None:
    found = await store.run(lambda execute: find_people(execute, "matrix", "@jane:example.org"))
    assert [each.id for each in found] == ["@jane:example.org"]
