"""Who sees what waits, and what an answer from elsewhere becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Approve, Ask
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.commands.waits import Waiting
from bot.config.schema import AccessConfig
from bot.config.team import RoleAssignment
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.database.states import RunState
from bot.main.features import gather_waits, table_of
from bot.rights.approvals import RoutedApproval, question_columns
from bot.rights.known_people import call_person
from bot.storage import conversations, inbox, questions, runs
from bot.storage.retention import delete_finished
from tests.support.current_config import current_of
from tests.support.rehearsed_database import rehearsed_database

GROUP, DIRECT = Thread("telegram", "1", "-100", "7"), Thread("telegram", "1", "42")
JANE, BOB, BOSS, EVE = Author("42", "Jane"), Author("77", "Bob"), Author("11", "Boss"), Author("66", "Eve")
SHOW = Message(DIRECT, "show", "1", JANE, "waiting", 9.0, Kind.COMMAND, private=True, origin=Origin.PERSON)
OWN = Approve("own", "Run it?", call="echo 1", option_count=4)
ROUTED = RoutedApproval("routed", "Run it?", call="echo 1", approvers=("*",), barred=JANE.id)
FREE, PERSONAL = Ask("free", "Which?"), Ask("personal", "Which?", ("A", "B"), personal=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    migrate_database(tmp_path / "fawn.db")
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
