"""Claims: one worker per conversation, ordered messages, and no writes after a lost claim."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.blocks import Approve, Ask, Final
from agent.core.context import NO_ANSWER
from agent.messages import Author, Kind, Message, Origin, Quote, Thread
from agent.spending import Meter, ModelCall
from bot.config.schema import AccessConfig, ServiceLimits
from bot.config.team import Right, RoleConfig, TeamConfig
from bot.database.database import Database, Execute, StorageError
from bot.database.states import RunState
from bot.database.wake_ups import Written
from bot.journey import claims, questions
from bot.journey.addressing import own_conversation
from bot.journey.claimed_store import ClaimedStore, ClaimLost
from bot.journey.inbox import Inbox, longest_wait
from bot.journey.running_turn import Account
from bot.rights.access import AccessPolicy
from bot.rights.approvals import RoutedApproval, question_columns
from bot.rights.claimed_run import ClaimedRun, RunEnding
from bot.rights.reservations import Budgets
from bot.storage import agents, conversations, runs
from bot.storage import inbox as stored
from bot.storage import questions as stored_questions
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.forgotten_accounts import forget_account
from channels.base import Receipt
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

THREAD = Thread("telegram", "1", "42")
OTHER = Thread("telegram", "1", "43")
JANE = Author("42", "Jane")
DONE = RunEnding(RunState.DONE)
LONGEST = longest_wait(ServiceLimits())


def message(text: str, number: int = 1, thread: Thread = THREAD, **more: object) -> Message:
    made = Message(
        thread, f"{thread}:{number}", str(number), JANE, text, time.time(), private=True, origin=Origin.PERSON
    )
    return replace(made, **more)  # type: ignore[arg-type]  # fields by name


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


@pytest.fixture
def inbox(store: Database) -> Inbox:
    return open_inbox(store, current_of(telegram=AccessConfig(open=True)), IDLE_TURNS)


async def claim(store: Database, owner: str = "me", free: int = 10, later: float = 0.0) -> list[ClaimedRun]:
    now = time.time() + later
    return await store.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, owner, now, LONGEST, free))


async def test_a_conversation_has_one_worker(store: Database, inbox: Inbox) -> None:
    assert await inbox.receive([message("one")]) == [Receipt.ACCEPTED]
    first = await claim(store)
    await inbox.receive([message("two", 2)])
    assert [job.messages[0].text for job in first] == ["one"]
    assert await claim(store, "other") == []


GROUP, JANE_ON_SLACK = Thread("telegram", "1", "-100"), Thread("slack", "T1", "D42")
SMALL = TeamConfig("trainee", (RoleConfig("trainee", (Right.TALK,), models=("small", "other")),))
LIMITED = AccessPolicy({"telegram": AccessConfig(open=True)}, SMALL)


def choose_for_jane(execute: Execute) -> None:
    agents.choose_default_model(execute, GROUP, JANE.id, "large", "high")


def choose_in_group(execute: Execute) -> None:
    key = conversations.current_conversation(execute, GROUP, 1.0)
    conversations.choose_model(execute, key, "here", "")


def forget_jane(execute: Execute) -> None:
    forget_account(execute, PersonKey("telegram", JANE.id), Traces(), (), by="")


@pytest.mark.parametrize(
    ("before", "thread", "who", "access", "expected"),
    [
        ((choose_for_jane,), GROUP, JANE, OPEN_ACCESS, ("large", "high")),
        ((choose_for_jane,), THREAD, JANE, OPEN_ACCESS, ("large", "high")),
        ((choose_for_jane,), GROUP, Author("43", "Bob"), OPEN_ACCESS, ("", "")),
        ((choose_for_jane,), JANE_ON_SLACK, JANE, OPEN_ACCESS, ("", "")),
        ((choose_for_jane, choose_in_group), GROUP, JANE, OPEN_ACCESS, ("here", "")),
        ((choose_for_jane, choose_in_group), THREAD, JANE, OPEN_ACCESS, ("large", "high")),
        ((choose_for_jane,), GROUP, JANE, LIMITED, ("small", "")),
        ((choose_for_jane, forget_jane), GROUP, JANE, OPEN_ACCESS, ("", "")),
    ],
)
async def test_the_model_of_a_person_answers_them_where_none_was_chosen_and_their_role_may_use_it(
    store: Database,
    inbox: Inbox,
    before: Sequence[Callable[[Execute], None]],
    thread: Thread,
    who: Author,
    access: AccessPolicy,
    expected: tuple[str, str],
) -> None:
    for step in before:
        await store.run(step)
    if thread == JANE_ON_SLACK:
        inbox = open_inbox(store, current_of(slack=AccessConfig(open=True)), IDLE_TURNS)
        access = AccessPolicy({"slack": AccessConfig(open=True)})
    await inbox.receive([message("one", 1, thread, author=who)])
    now = time.time()
    [job] = await store.run(lambda execute: claims.claim_conversations(execute, access, "me", now, LONGEST, 1))
    assert (job.model, job.effort) == expected


async def test_a_person_whose_turn_others_wait_for_keeps_their_model_beside_it(store: Database) -> None:
    def work(execute: Execute) -> tuple[str, str]:
        choose_for_jane(execute)
        waiting = conversations.current_conversation(execute, GROUP, 1.0)
        own = own_conversation(execute, waiting, JANE, 1.0)
        row = conversations.find_conversation(execute, own)
        assert row is not None
        chosen = agents.choices_of(execute, row, GROUP, JANE.id).model
        return chosen.model, chosen.effort

    assert await store.run(work) == ("large", "high")


async def test_the_oldest_conversation_is_claimed_first_within_the_limit(store: Database, inbox: Inbox) -> None:
    for number in range(5):
        await inbox.receive([message(f"m{number}", number, Thread("telegram", "1", str(number)))])
    jobs = await claim(store, free=3)
    assert [job.messages[0].text for job in jobs] == ["m0", "m1", "m2"]
    assert [job.messages[0].text for job in await claim(store)] == ["m3", "m4"]


async def test_places_go_round_by_person(store: Database, inbox: Inbox) -> None:
    """Who has the fewest conversations running is next; the oldest of each person comes first."""
    for number in range(50):
        await inbox.receive([message(f"jane {number}", number, Thread("telegram", "1", str(number)))])
    assert [job.messages[0].text for job in await claim(store, free=3)] == ["jane 0", "jane 1", "jane 2"]
    for number, name in enumerate(("bob", "eve", "bob"), 100):
        author = Author(name, name)
        await inbox.receive([message(f"{name} {number}", number, Thread("telegram", "1", str(number)), author=author)])
    jobs = await claim(store, free=5)
    assert [job.messages[0].text for job in jobs] == ["bob 100", "eve 101", "bob 102", "jane 3", "jane 4"]


async def test_a_lost_claim_records_nothing(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    (mine,) = await claim(store)
    await store.run(claims.release_stale_claims)
    (theirs,) = await claim(store, "other")
    assert theirs.run == mine.run
    assert theirs.attempt == 2
    with pytest.raises(ClaimLost):
        await store.run(lambda execute: claims.finish_run(execute, mine, DONE, time.time()))
    await store.run(lambda execute: claims.finish_run(execute, theirs, DONE, time.time()))
    assert await claim(store) == []


async def test_after_a_start_the_checkpoint_of_a_pending_message_is_checked(store: Database, inbox: Inbox) -> None:
    """A power failure may have undone its claim, which does not wait for the disk, but not the checkpoint."""
    await inbox.receive([message("one")])
    await store.run(claims.release_stale_claims)
    (job,) = await claim(store)
    assert job.attempt == 1
    assert not job.fresh


def claim_at_once(execute: Execute, thread: Thread = THREAD) -> ClaimedRun | None:
    key = conversations.find_current(execute, thread)
    return claims.claim_at_once(execute, OPEN_ACCESS, key, "me", time.time(), LONGEST)


async def test_a_claim_at_once_takes_what_a_look_would_take(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one"), message("two", 2)])
    job = await store.run(claim_at_once)
    assert job
    assert [each.text for each in job.messages] == ["one", "two"]
    assert await store.run(claim_at_once) is None  # it is claimed
    assert await claim(store) == []
    await inbox.receive([message("a piece", 3, OTHER, group="g")])
    assert await store.run(partial(claim_at_once, thread=OTHER)) is None  # the other pieces may be on their way
    (job,) = await claim(store, later=3.0)
    assert [each.text for each in job.messages] == ["a piece"]


@pytest.mark.sqlite
async def test_a_fault_in_a_claim_at_once_leaves_the_message(store: Database, inbox: Inbox) -> None:
    refuse = "CREATE TRIGGER refuse BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'a fault'); END"
    await store.run(lambda execute: execute(refuse, {}))
    woken = store.listen(Written.MESSAGE)

    def receive_and_claim(execute: Execute) -> ClaimedRun | None:
        key = conversations.current_conversation(execute, THREAD, time.time())
        row = stored.store_message(execute, message("one"), key, ready=0.0, received=0.0)
        assert row
        return claim_at_once(execute)

    assert await store.run(receive_and_claim) is None
    assert woken.is_set()  # for the look that meets the fault again
    await store.run(lambda execute: execute("DROP TRIGGER refuse", {}))
    (job,) = await claim(store)
    assert [each.text for each in job.messages] == ["one"]
    assert (job.attempt, job.fence) == (1, 1)


@pytest.mark.parametrize("step", [40.0, 1e6, -600.0])
async def test_a_clock_step_does_not_release_a_running_conversation(store: Database, inbox: Inbox, step: float) -> None:
    """The machine was suspended or its clock was set; the turn still runs."""
    await inbox.receive([message("one")])
    await claim(store)
    await inbox.receive([message("two", 2)])
    assert await claim(store, later=step) == []
    assert await claim(store, "other", later=step) == []


async def test_a_clock_set_back_does_not_delay_messages(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one"), message("two", 2)])
    (job,) = await claim(store, later=-600.0)
    assert [made.text for made in job.messages] == ["one", "two"]
    await inbox.receive([message("three", 3, long=True)])
    steered, _ = await store.run(
        lambda execute: claims.take_steering(execute, OPEN_ACCESS, job, time.time() - 600.0, LONGEST)
    )
    assert [made.text for made in steered] == ["three"]


async def test_a_graceful_shutdown_does_not_count_as_an_attempt(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    for _ in range(3):
        (job,) = await claim(store)
        assert job.attempt == 1
        await store.run(lambda execute, job=job: claims.suspend_run(execute, job))  # type: ignore[misc]  # bound now
    (job,) = await claim(store)
    assert job.resumed
    assert not job.fresh


async def test_messages_of_a_bundle_wait_for_each_other(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("caption", 1, group="g")])
    await inbox.receive([message("", 2, group="g", addressed=False)])
    await inbox.receive([message("after it", 3)])
    assert await claim(store) == []
    (job,) = await claim(store, later=1.5)
    assert [made.text for made in job.messages] == ["caption", "after it"]


async def test_no_message_overtakes_an_album_that_still_waits(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("first", 1)])
    await inbox.receive([message("caption", 2, group="g")])
    await inbox.receive([message("after it", 3)])
    (job,) = await claim(store)
    assert [made.text for made in job.messages] == ["first"]


# Case 80 of docs/cases.md
async def test_edits_and_deletions_count_until_the_turn_starts(store: Database, inbox: Inbox) -> None:
    first, second = message("old", 1), message("unwanted", 2)
    await inbox.receive([first, second])
    await inbox.receive([message("new", 3, kind=Kind.EDIT, target=first.key)])
    await inbox.receive([message("", 4, kind=Kind.DELETE, target=second.key)])
    (job,) = await claim(store)
    assert [made.text for made in job.messages] == ["new"]
    await inbox.receive([message("too late", 5, kind=Kind.EDIT, target=first.key)])
    rows = await store.run(lambda execute: execute("SELECT payload FROM inbox WHERE id=1", {}))
    assert Message.load(rows[0]["payload"]).text == "new"


# Case 80 of docs/cases.md
async def test_edits_and_deletions_count_while_queued(store: Database, inbox: Inbox) -> None:
    """The user was told their position in the queue; the turn has not started."""
    first, second = message("old", 1), message("unwanted", 2, Thread("telegram", "1", "43"))
    await inbox.receive([first, second])

    def wait_in_line(execute: Execute) -> None:
        for row in conversations.queueable_conversations(execute, time.time(), time.time() + LONGEST, 10):
            taken = stored.open_rows(execute, row.key)
            claims.start_run(execute, OPEN_ACCESS, row, taken, RunState.QUEUED, time.time())

    await store.run(wait_in_line)
    await inbox.receive([message("new", 3, kind=Kind.EDIT, target=first.key)])
    await inbox.receive([message("", 4, second.thread, kind=Kind.DELETE, target=second.key, author=Author("", ""))])
    amended, withdrawn = await claim(store)
    assert [made.text for made in amended.messages] == ["new"]
    assert not amended.stop_by
    assert withdrawn.stop_by


# Case 7 of docs/cases.md
async def test_equal_ids_in_two_workspaces_are_two_conversations(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("a", 1, Thread("telegram", "1", "5")), message("b", 1, Thread("telegram", "2", "5"))])
    assert len(await claim(store)) == 2


async def test_a_question_is_answered_by_one_click(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("paint it", 1)])
    (job,) = await claim(store)
    ending = RunEnding(RunState.WAITING, (Ask("ask-1", "Which colour?", ("red", "blue")),))
    await store.run(lambda execute: claims.finish_run(execute, job, ending, time.time()))
    clicks = [message(text, id, kind=Kind.CLICK, target="ask-1") for text, id in (("red", 2), ("blue", 3), ("red", 2))]
    elsewhere = message("red", 4, kind=Kind.CLICK, target="ask-2")
    receipts = [(await inbox.receive([click]))[0] for click in [elsewhere, *clicks]]
    assert receipts == [Receipt.DUPLICATE, Receipt.ACCEPTED, Receipt.DUPLICATE, Receipt.DUPLICATE]
    (answered,) = await claim(store)
    assert [(each.id, each.text) for each in answered.answers] == [("ask-1", "red")]
    await store.run(lambda execute: claims.finish_run(execute, answered, DONE, time.time()))
    assert await inbox.receive([message("blue", 5, kind=Kind.CLICK, target="ask-1")]) == [Receipt.DUPLICATE]


async def test_a_press_on_an_old_button_says_once_who_answered_what(store: Database, inbox: Inbox) -> None:
    """Not to the person who answered, whose press may also come twice."""
    await inbox.receive([message("paint it", 1)])
    (job,) = await claim(store)
    ending = RunEnding(RunState.WAITING, (Ask("ask-1", "Which colour?", ("red", "blue")),))
    await store.run(lambda execute: claims.finish_run(execute, job, ending, time.time()))
    for id, text, person in ((2, "red", "42"), (2, "red", "42"), (3, "blue", "42"), (4, "blue", "7"), (5, "red", "7")):
        author = Author(person, "")
        await inbox.receive([message(text, id, kind=Kind.CLICK, target="ask-1", author=author)])
    assert await notices(store) == ["a colleague chose **red**: Which colour?"]


async def damage(store: Database, sql: str) -> None:
    await store.run(lambda execute: [execute(each, {}) for each in sql.split(";")])


ASKED_DAMAGED = (
    "UPDATE conversations SET state='waiting' WHERE thread LIKE '%/42/';"
    "INSERT INTO questions(conversation, id, run, kind, text, options, asked, until)"
    " SELECT key, 'q', 1, 'ask', '?', '{}', 0, {} FROM conversations WHERE thread LIKE '%/42/'"
)


async def notices(store: Database) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT payload FROM outbox WHERE kind='say' ORDER BY id", {}))
    return [Final.load(row["payload"]).text for row in rows]


@pytest.mark.sqlite
async def test_a_message_stored_by_a_newer_version_is_read(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    sql = "UPDATE inbox SET payload=json_set(payload, '$.mood', 'good', '$.author.age', 7, '$.thread.planet', 'x')"
    await damage(store, sql)
    (job,) = await claim(store)
    assert [made.text for made in job.messages] == ["one"]


@pytest.mark.parametrize("payload", ["", "no JSON", "[]", "{}", '{"thread": null}'])
@pytest.mark.sqlite
async def test_a_damaged_message_becomes_a_dead_letter_and_does_not_block_others(
    store: Database, inbox: Inbox, payload: str
) -> None:
    elsewhere = message("elsewhere", 1, Thread("telegram", "1", "43"))
    await inbox.receive([message("one"), message("two", 2), message("three", 3), elsewhere])
    await damage(store, f"UPDATE inbox SET payload='{payload}' WHERE id IN (1, 2)")  # noqa: S608 — constants
    jobs = await claim(store)
    assert [made.text for job in jobs for made in job.messages] == ["three", "elsewhere"]
    assert await notices(store) == [claims.DAMAGED] * 2
    rows = await store.run(lambda execute: execute("SELECT state FROM inbox ORDER BY id", {}))
    assert [row["state"] for row in rows] == [3, 3, 0, 0]


@pytest.mark.sqlite
async def test_a_conversation_with_only_a_damaged_message_is_released(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    await damage(store, "UPDATE inbox SET payload='' WHERE id=1")
    assert await claim(store) == []
    await inbox.receive([message("two", 2)])
    (job,) = await claim(store)
    assert [made.text for made in job.messages] == ["two"]


@pytest.mark.parametrize(
    "sql",
    [
        ASKED_DAMAGED.format("no JSON", "NULL"),
        ASKED_DAMAGED.format("7", "NULL"),
        ASKED_DAMAGED.format("no JSON", "1"),
        "UPDATE conversations SET thread='nowhere' WHERE thread LIKE '%/42/'",
        "UPDATE conversations SET ready='soon' WHERE thread LIKE '%/42/'",
        "UPDATE inbox SET ready='soon' WHERE id=1",
        "UPDATE inbox SET payload=json_set(payload, '$.author.id', NULL) WHERE id=1",
    ],
)
@pytest.mark.sqlite
async def test_an_unreadable_conversation_does_not_block_others(store: Database, inbox: Inbox, sql: str) -> None:
    await inbox.receive([message("one", kind=Kind.CHAT), message("elsewhere", 2, Thread("telegram", "1", "43"))])
    await damage(store, sql)
    jobs = await claim(store)
    assert "elsewhere" in [made.text for job in jobs for made in job.messages]
    assert await claim(store) == []


async def test_a_fault_of_the_database_buries_no_message_of_a_run_and_is_raised(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    await claim(store)
    await store.run(claims.release_stale_claims)
    await store.run(lambda execute: execute("ALTER TABLE posts RENAME TO away", {}))
    with pytest.raises(StorageError):
        await claim(store)
    await store.run(lambda execute: execute("ALTER TABLE away RENAME TO posts", {}))
    (job,) = await claim(store)
    assert [made.text for made in job.messages] == ["one"]


async def test_a_damaged_question_is_dropped(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("yes")])
    await damage(store, "UPDATE inbox SET kind='click'")
    await damage(store, ASKED_DAMAGED.format("7", "NULL"))
    assert await claim(store) == []
    assert await notices(store) == [claims.DAMAGED]
    await inbox.receive([message("on we go", 2)])
    (job,) = await claim(store)
    assert [made.text for made in job.messages] == ["on we go"]


@pytest.mark.sqlite
async def test_a_damaged_run_does_not_block_others(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one"), message("elsewhere", 2, Thread("telegram", "1", "43"))])
    await claim(store)
    await store.run(claims.release_stale_claims)
    await store.run(lambda execute: execute("DELETE FROM runs WHERE id=2", {}))
    await store.run(lambda execute: execute("UPDATE inbox SET run=NULL WHERE id=2", {}))
    await damage(store, "UPDATE runs SET attempt='x' WHERE id=1")
    assert "elsewhere" in [made.text for job in await claim(store) for made in job.messages]


@pytest.mark.sqlite
async def test_a_run_whose_message_is_damaged_later_still_ends(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    await claim(store)
    await store.run(claims.release_stale_claims)
    await damage(store, "UPDATE inbox SET payload='' WHERE id=1")
    (job,) = await claim(store)
    assert job.messages == ()
    await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.FAILED), time.time()))
    assert await claim(store) == []


@pytest.mark.sqlite
async def test_a_damaged_steering_message_is_skipped(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one")])
    (job,) = await claim(store)
    await inbox.receive([message("two", 2), message("three", 3)])
    await damage(store, "UPDATE inbox SET payload='' WHERE id=2")
    steered, _ = await store.run(lambda execute: claims.take_steering(execute, OPEN_ACCESS, job, time.time(), LONGEST))
    assert [made.text for made in steered] == ["three"]


async def line_up(store: Database, later: float) -> list[ClaimedRun]:
    return await store.run(
        lambda execute: claims.queue_conversations(execute, OPEN_ACCESS, time.time() + later, LONGEST, 1.5)
    )


async def test_cases_85_and_87_a_queued_paste_and_album_are_one_run_each(store: Database, inbox: Inbox) -> None:
    there = Thread("telegram", "1", "43")
    await inbox.receive([message("part 1", 1, long=True), message("part 2", 2, long=True), message("part 3", 3)])
    await inbox.receive([message("caption", n, there, group="g", addressed=n == 4) for n in (4, 5, 6)])
    assert await line_up(store, 1.0) == []
    paste, album = await line_up(store, 3.0)
    assert [made.text for made in paste.messages] == ["part 1\npart 2\npart 3"]
    assert len(album.messages) == 1
    await inbox.receive([message("and more", 7)])
    assert await line_up(store, 6.0) == []
    jobs = await claim(store, later=6.0)
    assert [len(job.messages) for job in jobs] == [1, 1]
    assert jobs[0].resumed


async def test_an_unreadable_queued_conversation_does_not_block_others(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("one"), message("elsewhere", 2, Thread("telegram", "1", "43"))])
    await damage(store, "UPDATE conversations SET thread='nowhere' WHERE thread LIKE '%/42/'")
    (job,) = await line_up(store, 3.0)
    assert [made.text for made in job.messages] == ["elsewhere"]


COLOUR, SIZE = Ask("ask-1", "Which colour?", ("red", "blue")), Ask("ask-2", "Which size?", ("S", "L"))
RUN = Ask("ask-3", "Run it?", ("Approve", "Deny"), free_text=False)


async def asked(store: Database, inbox: Inbox, *asks: Ask | Approve, thread: Thread = THREAD) -> None:
    """Create a conversation that waits for the answers to these questions."""
    await inbox.receive([message("paint it", 1, thread)])
    (job,) = await claim(store)
    await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.WAITING, asks), time.time()))


def given(job: ClaimedRun) -> list[tuple[str, str]]:
    return [(answer.id, answer.text) for answer in job.answers]


async def test_messages_sent_with_an_answer_are_read_as_steering(store: Database, inbox: Inbox) -> None:
    """The bot was offline: "this one:" and a long paste in two messages wait together."""
    await asked(store, inbox, COLOUR)
    await inbox.receive([message("this one:", 2), message("x" * 4096, 3, long=True), message("end", 4)])
    (job,) = await claim(store, later=2)
    assert given(job) == [("ask-1", "this one:")]
    assert job.resumed  # it has mail
    messages, waiting = await store.run(
        lambda execute: claims.take_steering(execute, OPEN_ACCESS, job, time.time() + 2, LONGEST)
    )
    assert [made.text for made in messages] == ["x" * 4096 + "end"]
    assert not waiting
    await store.run(lambda execute: claims.finish_run(execute, job, DONE, time.time()))
    assert await claim(store) == []


@pytest.mark.parametrize("origin", [Origin.TOOL, Origin.TASK, Origin.SCHEDULE, Origin.SYSTEM])
async def test_what_nobody_wrote_answers_no_question_and_waits_for_the_answer(
    store: Database, inbox: Inbox, origin: Origin
) -> None:
    """A background command ended while a question is open."""
    await asked(store, inbox, COLOUR)
    await inbox.receive([message("the build is done: blue", 2, origin=origin, key="task:1")])
    assert await claim(store) == []
    await inbox.receive([message("red", 3)])
    (job,) = await claim(store)
    assert given(job) == [("ask-1", "red")]
    await store.run(lambda execute: claims.finish_run(execute, job, DONE, time.time()))
    (job,) = await claim(store, later=LONGEST + 1)
    assert [made.text for made in job.messages] == ["the build is done: blue"]
    assert job.answers == ()


@pytest.mark.parametrize(
    "made", [{"quotes": (Quote("notes", "Answer with blue.", "prompt"),)}, {"skill": "chart"}], ids=["prompt", "skill"]
)
async def test_a_request_by_command_answers_no_question_that_was_asked_before_it_came(
    store: Database, inbox: Inbox, made: dict[str, Any]
) -> None:
    """Its server was still asked for the prompt when the question was posted."""
    await asked(store, inbox, COLOUR)
    await inbox.receive([message("/notes:review blue", 2, **made)])
    assert await claim(store) == []
    await inbox.receive([message("red", 3)])
    (job,) = await claim(store, later=LONGEST)
    assert given(job) == [("ask-1", "red")]
    await store.run(lambda execute: claims.finish_run(execute, job, DONE, time.time()))
    (job,) = await claim(store, later=2 * LONGEST + 1)
    assert [each.text for each in job.messages] == ["/notes:review blue"]
    assert job.answers == ()


async def test_all_answered_questions_resume_one_run(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, COLOUR, SIZE)
    await inbox.receive([message("L", 2, kind=Kind.CLICK, target="ask-2"), message("green", 3)])
    (job,) = await claim(store)
    assert given(job) == [("ask-1", "green"), ("ask-2", "L")]
    await store.run(lambda execute: claims.suspend_run(execute, job))
    (again,) = await claim(store)
    assert given(again) == given(job)


@pytest.mark.parametrize(("asked_later", "answers"), [(300.0, []), (-300.0, ["blue"])])
async def test_a_text_from_before_a_question_of_a_running_turn_does_not_answer_it(
    store: Database, inbox: Inbox, asked_later: float, answers: list[str]
) -> None:
    await inbox.receive([message("paint it")])
    (job,) = await claim(store)
    await inbox.receive([message("blue", 2, author=Author("78", "Eve"))])

    def ask_and_look(execute: Execute) -> list[str]:
        columns, asked = question_columns(COLOUR, job.requester), time.time() + asked_later
        stored_questions.store_question(
            execute, COLOUR, job.conversation, run=job.run, number=0, answerers=columns, now=asked
        )
        taken, _ = claims.take_answers(execute, OPEN_ACCESS, job, [COLOUR.id], time.time(), LONGEST)
        return [answer.text for answer, _ in taken]

    assert await store.run(ask_and_look) == answers
    (row,) = await store.run(lambda execute: execute("SELECT people FROM runs", {}))
    assert row["people"] == ("42 78" if answers else "42"), "who answers bounds the rights of the turn"


async def test_a_click_is_kept_while_another_answer_is_processed(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, COLOUR, SIZE)
    await inbox.receive([message("red", 2, kind=Kind.CLICK, target="ask-1")])
    (job,) = await claim(store)
    clicks = [message("L", 3, kind=Kind.CLICK, target="ask-2"), message("blue", 4, kind=Kind.CLICK, target="ask-1")]
    again = message("S", 5, kind=Kind.CLICK, target="ask-2")
    assert await inbox.receive([*clicks, again]) == [Receipt.ACCEPTED, Receipt.DUPLICATE, Receipt.DUPLICATE]
    ending = RunEnding(RunState.WAITING, (SIZE,))
    await store.run(lambda execute: claims.finish_run(execute, job, ending, time.time()))
    (next_job,) = await claim(store)
    assert given(next_job) == [("ask-2", "L")]


async def test_a_question_without_free_text_explains_that_and_stays_open(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, RUN)
    await inbox.receive([message("what would it do?", 2)])
    assert await claim(store) == []
    [said] = await store.run(lambda execute: execute("SELECT payload, reply_to FROM outbox", {}))
    assert "Approve" in Final.load(said["payload"]).text
    assert said["reply_to"] == "2"
    assert await inbox.receive([message("Deny", 3, kind=Kind.CLICK, target="ask-3")]) == [Receipt.ACCEPTED]
    (job,) = await claim(store)
    assert given(job) == [("ask-3", "Deny")]


async def expire(store: Database) -> None:
    await store.run(lambda execute: execute("UPDATE questions SET until=1 WHERE until IS NOT NULL", {}))


async def test_a_press_on_a_post_that_is_not_confirmed_yet_finds_the_question_of_its_chat(
    store: Database, inbox: Inbox
) -> None:
    """A schedule fires in a topic of its own, and its card may be seen in the chat before its id is known."""
    fired, elsewhere = replace(THREAD, topic="digest"), replace(THREAD, chat="other")
    await asked(store, inbox, COLOUR, thread=fired)
    press = message("red", 2, kind=Kind.CLICK, target=COLOUR.id)
    assert await inbox.receive([replace(press, thread=elsewhere)]) == [Receipt.DUPLICATE]
    assert await inbox.receive([replace(press, key="another press")]) == [Receipt.ACCEPTED]
    (job,) = await claim(store)
    assert given(job) == [(COLOUR.id, "red")]


async def test_an_expired_question_is_answered_once_with_a_visible_note(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, COLOUR, replace(SIZE, hours=1.0))
    assert await claim(store) == []
    await expire(store)
    (job,) = await claim(store)
    assert given(job) == [("ask-2", NO_ANSWER)]
    assert await notices(store) == [questions.EXPIRED.format(text="Which size?")]
    assert await inbox.receive([message("L", 5, kind=Kind.CLICK, target="ask-2")]) == [Receipt.DUPLICATE]
    await store.run(claims.release_stale_claims)  # killed
    (again,) = await claim(store)
    assert given(again) == given(job)
    ending = RunEnding(RunState.WAITING, (COLOUR,))
    await store.run(lambda execute: claims.finish_run(execute, again, ending, time.time()))
    assert await claim(store) == []
    assert len(await notices(store)) == 1


async def test_all_clicks_are_kept_across_a_kill(store: Database, inbox: Inbox) -> None:
    """Killed between the first answer and the end of its turn, with a second answer in the inbox."""
    await asked(store, inbox, COLOUR, SIZE)
    await inbox.receive([message("red", 2, kind=Kind.CLICK, target="ask-1")])
    await claim(store)
    await inbox.receive([message("L", 3, kind=Kind.CLICK, target="ask-2")])
    await store.run(claims.release_stale_claims)
    (job,) = await claim(store)
    assert given(job) == [("ask-1", "red"), ("ask-2", "L")]
    await store.run(lambda execute: claims.finish_run(execute, job, DONE, time.time()))
    assert await claim(store) == []
    rows = await store.run(lambda execute: execute("SELECT state, answered_by FROM questions", {}))
    assert [tuple(row) for row in rows] == [("closed", JANE.id)] * 2


async def test_an_answer_that_the_turn_did_not_take_opens_the_question_again(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, COLOUR)
    await inbox.receive([message("red", 2)])
    (job,) = await claim(store)
    again = RunEnding(RunState.WAITING, (COLOUR,))
    await store.run(lambda execute: claims.finish_run(execute, job, again, time.time()))
    await inbox.receive([message("blue", 3)])
    (job,) = await claim(store)
    assert given(job) == [("ask-1", "blue")]


DEPLOY = Approve("ap-1", "May I run `deploy`?", call="deploy\n{}")
BOB = Author("7", "Bob")


async def test_an_approval_in_words_is_not_announced_where_everybody_reads_them(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, DEPLOY)
    await inbox.receive([message("approve", 2)])
    (job,) = await claim(store)
    assert given(job) == [("ap-1", "Approve")]
    assert await notices(store) == []
    settled = await store.run(lambda execute: execute("SELECT count(*) AS n FROM outbox WHERE kind='settled'", {}))
    assert settled[0]["n"] == 1, "the question itself shows who decided"


async def test_an_approval_is_given_by_its_requester_only(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, DEPLOY)
    press = message("Approve", 2, kind=Kind.CLICK, target="ap-1")
    foreign = replace(press, key="foreign", author=BOB)
    assert await inbox.receive([foreign, message("approve", 3, author=BOB)]) == [Receipt.IGNORED, Receipt.ACCEPTED]
    (job,) = await claim(store)
    assert (job.conversation, given(job)) == (f"telegram/1/42/#1~{BOB.id}", []), "it is worked on beside"
    assert await inbox.receive([message("yes please", 4), press]) == [Receipt.ACCEPTED] * 2
    (job,) = await claim(store)
    assert given(job) == [("ap-1", "Approve")]
    assert await notices(store) == [], "the message with the buttons shows who pressed"
    rows = await store.run(lambda execute: execute("SELECT kind, call, call_hash, who FROM questions", {}))
    assert [tuple(row) for row in rows] == [("approve", DEPLOY.call, DEPLOY.call_hash, JANE.id)]


async def test_a_personal_question_is_answered_by_its_requester_only(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, replace(COLOUR, personal=True))
    press = message("red", 2, kind=Kind.CLICK, target="ask-1")
    assert await inbox.receive([replace(press, key="foreign", author=BOB)]) == [Receipt.IGNORED]
    assert await inbox.receive([press]) == [Receipt.ACCEPTED]
    (job,) = await claim(store)
    assert given(job) == [("ask-1", "red")]


async def test_who_joined_a_request_does_not_approve_its_call_for_others(store: Database, inbox: Inbox) -> None:
    role = await store.run(lambda execute: OPEN_ACCESS.role_of(execute, THREAD, BOB.id))
    call = RoutedApproval(DEPLOY.id, DEPLOY.question, call=DEPLOY.call, approvers=(role.name,), barred=JANE.id)
    await asked(store, inbox, call)
    await store.run(lambda execute: runs.add_people(execute, 1, [BOB.id]))
    press = message("Approve", 2, kind=Kind.CLICK, target=DEPLOY.id)
    for number, (person, receipt) in enumerate(
        ((JANE, Receipt.IGNORED), (BOB, Receipt.IGNORED), (Author("8", "Carol"), Receipt.ACCEPTED))
    ):
        assert await inbox.receive([replace(press, key=f"press{number}", author=person)]) == [receipt], person
    (job,) = await claim(store)
    assert given(job) == [(DEPLOY.id, "Approve")]


async def test_closing_questions_lets_the_next_message_begin_afresh(store: Database, inbox: Inbox) -> None:
    await asked(store, inbox, COLOUR)
    key = "telegram/1/42/#1"
    assert await store.run(lambda execute: questions.close_open_questions(execute, key, time.time()))
    assert not await store.run(lambda execute: questions.close_open_questions(execute, key, time.time()))
    assert await inbox.receive([message("red", 2, kind=Kind.CLICK, target="ask-1")]) == [Receipt.DUPLICATE]
    await inbox.receive([message("something else", 3)])
    (job,) = await claim(store)
    assert (given(job), job.fresh) == ([], False)


async def test_what_a_failed_commit_did_not_record_comes_with_the_next_one(store: Database, inbox: Inbox) -> None:
    await inbox.receive([message("hello", 1)])
    (job,) = await claim(store)
    meter = Meter()
    claimed, budgets = ClaimedStore(store, job, lambda: None), Budgets(store, current_of())
    account = Account(store, claimed, job, meter, budgets)
    meter.add(ModelCall("lead", "main", "turn", 10, 1, 0, 0, 2.0, time.time()))

    def fail(_execute: Execute) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await account.commit(fail)
    for _once in range(2):
        await account.commit(lambda _execute: None)
        rows = await store.run(lambda execute: execute("SELECT input FROM usage", {}))
        assert [row["input"] for row in rows] == [10]
