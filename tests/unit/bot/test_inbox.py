"""The inbox alone: which events are stored or ignored, and which notices are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.blocks import Final
from agent.messages import ANYWHERE, Author, Kind, Message, Origin, Thread, Unreadable
from bot.config.loader import load_config
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database import audit
from bot.database.database import Database, Execute, Row
from bot.database.rows import insert_row
from bot.database.states import InboxState, PairingState
from bot.journey.ignored import NO_ACCESS_HERE
from bot.journey.inbox import Inbox
from bot.rights.claimed_run import ClaimedRun
from bot.storage import conversations
from bot.storage import inbox as stored_inbox
from bot.storage import people as stored_people
from bot.storage.channels import OVERLAP_SECONDS, StoredCatchUp
from bot.storage.outcomes import FeedbackCounts, count_feedback
from bot.storage.sent_messages import StoredSentMessages
from channels.base import Gap, NotStored, Receipt
from tests.fakes.server import until
from tests.support.current_config import current_of
from tests.support.idle_turns import IDLE_TURNS, IdleTurns
from tests.support.reception import open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

THREAD = Thread("telegram", "1", "42")
HELLO = Message(THREAD, "k1", "1", Author("42", "Jane"), "hello", 0.0, private=True, origin=Origin.PERSON)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


def inbox(store: Database, access: AccessConfig | None = None) -> Inbox:
    return open_inbox(store, current_of(telegram=access or AccessConfig(open=True)), IDLE_TURNS)


async def said(store: Database) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
    return [Final.load(row["payload"]).text for row in rows]


async def test_an_event_that_cannot_be_stored_does_not_block_others(store: Database) -> None:
    broken = replace(HELLO, key="k2", text="half a pair \ud83d")
    receipts = await inbox(store).receive([HELLO, broken, replace(HELLO, key="k3")])
    assert receipts == [Receipt.ACCEPTED, Receipt.IGNORED, Receipt.ACCEPTED]
    rows = await store.run(lambda execute: execute("SELECT key, state FROM inbox ORDER BY id", {}))
    assert [tuple(row) for row in rows] == [("k1", 0), ("k2", 3), ("k3", 0)]
    assert await inbox(store).receive([broken]) == [Receipt.DUPLICATE]


async def test_a_fault_of_the_database_makes_no_dead_letter_but_is_told_to_the_channel(store: Database) -> None:
    await store.run(lambda execute: execute("ALTER TABLE addresses RENAME TO away", {}))
    with pytest.raises(NotStored):
        await inbox(store).receive([HELLO])
    await store.run(lambda execute: execute("ALTER TABLE away RENAME TO addresses", {}))
    assert await store.run(lambda execute: execute("SELECT key FROM inbox", {})) == []
    assert await inbox(store).receive([HELLO]) == [Receipt.ACCEPTED], "the channel offers it again"


async def test_an_unreadable_event_becomes_one_dead_letter(store: Database) -> None:
    event = Unreadable("telegram", "u1", b"{}", "no date")
    assert await inbox(store).receive([event, event]) == [Receipt.IGNORED, Receipt.DUPLICATE]
    rows = await store.run(lambda execute: audit.read_newest(execute, 9))
    assert [b'"kind":"dead.letter"' in row.body for row in rows] == [True]


async def test_unknown_people_get_one_code_and_groups_none(store: Database) -> None:
    closed = inbox(store, AccessConfig(operators=("1",)))
    assert await closed.receive([HELLO, replace(HELLO, key="k2")]) == [Receipt.IGNORED] * 2
    assert await closed.receive([replace(HELLO, key="k3", private=False)]) == [Receipt.IGNORED]
    code, refusal = await said(store)
    assert "Send this code to whoever runs me" in code
    assert "in a direct chat" in refusal


GROUP = replace(HELLO, thread=Thread("telegram", "1", "-7"), private=False)


@pytest.mark.parametrize(
    ("allow", "author", "accepted"),
    [
        ("42", Author("42", "Jane"), True),
        ("42", Author("5", "Bob"), False),
        ("-7", Author("5", "Bob"), True),
        ("1", Author("5", "Bob"), True),
        ("-8", Author("5", "Bob"), False),
        ("5", Author("5", "Bob", guest=True), True),
        ("-7", Author("5", "Bob", guest=True), True),
        ("1", Author("5", "Bob", guest=True), False),
        ("9", Author("9", "Robot", bot=True), True),
        ("-7", Author("9", "Robot", bot=True), False),
    ],
)
async def test_access_lists_people_chats_and_workspaces(
    store: Database, allow: str, author: Author, accepted: bool
) -> None:
    some = inbox(store, AccessConfig(allow=(allow,), pairing=False))
    receipt = Receipt.ACCEPTED if accepted else Receipt.IGNORED
    assert await some.receive([replace(GROUP, author=author)]) == [receipt]


# Case 3 of docs/cases.md
async def test_ids_may_be_written_as_numbers(store: Database, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "config_version: 1\nchannels:\n"
        "  slack: {bot_token: xoxb-b, app_token: xapp-a, access: {allow: [123], pairing: false}}\n"
    )
    [entry] = load_config(file, {}).channels
    entrance = open_inbox(store, current_of(slack=entry.access), IDLE_TURNS)
    slack = replace(GROUP, thread=Thread("slack", "T1", "C1", "1.2"), author=Author("123", "Jane"))
    assert await entrance.receive([slack]) == [Receipt.ACCEPTED]
    assert await entrance.receive([replace(slack, key="k2", author=Author("124", "Bob"))]) == [Receipt.IGNORED]
    assert await said(store) == [NO_ACCESS_HERE]


@pytest.mark.parametrize("author", [Author("9", "Robot", bot=True), Author("5", "Bob", guest=True)])
async def test_open_access_is_limited_to_the_team(store: Database, author: Author) -> None:
    assert await inbox(store).receive([replace(GROUP, author=author)]) == [Receipt.IGNORED]


async def test_a_message_in_a_thread_counts_where_the_bot_takes_part(store: Database) -> None:
    entrance = inbox(store)
    thread = Thread("telegram", "1", "C1", "17.5")
    asked = replace(HELLO, thread=thread, private=False)
    aside = replace(asked, key="k2", addressed=False, follow_up=True)
    assert await entrance.receive([aside]) == [Receipt.IGNORED]
    assert await entrance.receive([asked, replace(aside, key="k4")]) == [Receipt.ACCEPTED, Receipt.ACCEPTED]
    elsewhere = replace(aside, key="k3", thread=replace(thread, topic="18.0"))
    assert await entrance.receive([elsewhere]) == [Receipt.IGNORED]


async def test_an_event_that_names_only_a_message_of_the_bot_finds_its_thread(store: Database) -> None:
    thread = Thread("telegram", "1", "C1", "17.5")
    posts = StoredSentMessages(store, "r1", thread, "c")
    await posts.sent(0, "18.1")
    stop = replace(
        HELLO,
        thread=replace(thread, topic=ANYWHERE),
        kind=Kind.COMMAND,
        text="stop",
        reply_to="18.1",
        to_bot=True,
        addressed=False,
    )
    nowhere = replace(stop, key="k4", thread=Thread("telegram", "1", ANYWHERE, ANYWHERE))
    other = replace(stop, key="k5", thread=Thread("telegram", "2", "C1", ANYWHERE))
    unknown = replace(stop, key="k6", reply_to="18.2")
    assert await inbox(store).receive([stop, nowhere, other, unknown]) == [Receipt.ACCEPTED] * 2 + [Receipt.IGNORED] * 2
    rows = await store.run(lambda execute: execute("SELECT payload FROM inbox", {}))
    assert [Message.load(row["payload"]).thread for row in rows] == [thread, thread]


async def test_ignored_messages_stay_ignored_when_a_history_is_read_again(store: Database) -> None:
    """People talk, then one of them mentions the bot: the earlier messages are not requests, however often they are
    read."""
    entrance = inbox(store)
    asked = replace(HELLO, thread=Thread("telegram", "1", "C1", "17.5"), private=False)
    aside = replace(asked, key="k0", addressed=False, follow_up=True)
    assert await entrance.receive([aside, asked, aside]) == [Receipt.IGNORED, Receipt.ACCEPTED, Receipt.IGNORED]
    assert await entrance.receive([replace(aside, addressed=True)]) == [Receipt.ACCEPTED]  # a mention came into it


async def test_messages_before_pairing_are_not_answered_later(store: Database) -> None:
    closed = inbox(store, AccessConfig())
    assert await closed.receive([HELLO]) == [Receipt.IGNORED]
    assert await inbox(store).receive([HELLO, replace(HELLO, key="k2")]) == [Receipt.IGNORED, Receipt.ACCEPTED]


async def test_watermarks_survive_a_restart(store: Database) -> None:
    past, now = StoredCatchUp(store, 24.0, 200), time.time()
    assert await past.open_gap("telegram", "1") == Gap()
    for _start in range(2):  # nothing was heard yet
        gap = await past.open_gap("telegram", "1")
        assert now - OVERLAP_SECONDS <= gap.since <= time.time() - OVERLAP_SECONDS
        await past.close_gap(gap)
    chat, thread = Thread("telegram", "1", "C1"), Thread("telegram", "1", "C1", "17.5")
    stranger = inbox(store, AccessConfig(pairing=False))
    await stranger.receive(
        [replace(HELLO, thread=chat, time=now - 100), replace(HELLO, key="k2", thread=thread, time=now)]
    )
    await stranger.receive([replace(HELLO, key="k3", thread=chat, time=now - 50)])
    await stranger.receive([replace(HELLO, key="k4", thread=Thread("telegram", "2", "C1"), time=now)])
    heard = {(h.chat, h.topic): h.time for h in (await past.open_gap("telegram", "1")).heard}
    assert heard == {("C1", ""): now - OVERLAP_SECONDS, ("C1", "17.5"): now - OVERLAP_SECONDS}


async def test_a_gap_stays_open_until_it_is_closed(tmp_path: Path) -> None:
    """A process ends during a catch-up while live events were stored meanwhile."""
    make_empty_database(tmp_path / "fawn.db")
    now = time.time()
    chats = [Thread("telegram", "T1", name) for name in ("C1", "C2")]

    def at(when: float, thread: Thread) -> Message:
        return replace(HELLO, key=f"{thread} {when}", thread=thread, time=when)

    async def heard(store: Database) -> tuple[Gap, list[float]]:
        gap = await StoredCatchUp(store, 24.0, 200).open_gap("telegram", "T1")
        return gap, [place.time + OVERLAP_SECONDS for place in sorted(gap.heard, key=lambda place: place.chat)]

    async with rehearsed_database(tmp_path / "fawn.db") as store:
        await inbox(store).receive([at(now - 900, chats[0]), at(now - 800, chats[1])])
        assert (await heard(store))[1] == [now - 900, now - 800]
        await inbox(store).receive([at(now - 10, chat) for chat in chats])
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        older, times = await heard(store)
        assert times == [now - 800, now - 800]
        _, times = await heard(store)  # the connection broke again before it was read
        assert times == [now - 800, now - 800]
        await StoredCatchUp(store, 24.0, 200).close_gap(older)  # a late reader of what is part of the newer one now
        newest, times = await heard(store)
        assert times == [now - 800, now - 800]
        await StoredCatchUp(store, 24.0, 200).close_gap(newest)
        assert (await heard(store))[1] == [now - 10, now - 10]


# Case 84 of docs/cases.md
async def test_sent_messages_follow_a_group_to_its_new_id(store: Database) -> None:
    group, supergroup = Thread("telegram", "1", "-200"), Thread("telegram", "1", "-1000200")
    entrance = inbox(store)
    await entrance.receive([replace(HELLO, thread=group)])
    [row] = await store.run(lambda execute: execute("SELECT conversation FROM inbox", {}))
    await StoredSentMessages(store, "r1", group, row["conversation"]).sent(0, "17")
    await store.run(lambda execute: conversations.begin_conversation(execute, group, time.time()))  # as /new does
    await entrance.receive([replace(HELLO, key="m", thread=group, kind=Kind.MOVED, text="-1000200")])
    await entrance.receive([replace(HELLO, key="k2", thread=supergroup, reply_to="17", to_bot=True)])
    rows = await store.run(lambda execute: execute("SELECT conversation FROM inbox WHERE key='k2'", {}))
    assert rows[0]["conversation"] == row["conversation"]


# Case 88 of docs/cases.md
async def test_messages_over_the_limit_wait_with_one_notice(store: Database) -> None:
    current = current_of(ServiceLimits(flood_messages=3), telegram=AccessConfig(open=True))
    before = time.time()
    for number in range(6):
        flooded = open_inbox(store, current, IDLE_TURNS)  # a restart does not repeat the notice
        assert await flooded.receive([replace(HELLO, key=f"k{number}", time=before)]) == [Receipt.ACCEPTED]
    rows = await store.run(lambda execute: execute("SELECT ready FROM inbox ORDER BY id", {}))
    waits = [row["ready"] - before > 5 for row in rows]
    assert waits == [False] * 3 + [True] * 3
    assert len(await said(store)) == 1


async def test_a_foreign_command_does_not_make_the_bot_join_a_thread(store: Database) -> None:
    """ "!important" among people is not a request; one of Fawn's commands is, also without a mention."""
    entrance = inbox(store)
    thread = Thread("telegram", "1", "C1", "17.5")
    aside = replace(HELLO, thread=thread, private=False, addressed=False, follow_up=True)
    shout = replace(aside, key="k2", kind=Kind.COMMAND, text="important all of you")
    assert await entrance.receive([shout, aside]) == [Receipt.IGNORED, Receipt.IGNORED]
    ours = replace(shout, key="k3", text="status")
    assert await entrance.receive([ours]) == [Receipt.ACCEPTED]


async def test_a_cancelled_caller_leaves_no_partial_state(store: Database) -> None:
    """Work that is committed, and perhaps claimed, continues without its caller."""
    seen: list[str] = []

    class Noting(IdleTurns):
        def arrived(self, accepted: Sequence[tuple[str, Message]], claimed: Sequence[ClaimedRun]) -> None:
            seen.extend(message.key for _, message in accepted)

    entrance = open_inbox(store, current_of(telegram=AccessConfig(open=True)), Noting())
    caller = asyncio.create_task(entrance.receive([HELLO]))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    await store.run(lambda execute: execute("SELECT 1", {}))
    await until(lambda: seen == ["k1"])


async def test_only_paired_users_can_be_revoked(store: Database) -> None:
    await inbox(store, AccessConfig()).receive([HELLO])
    people = await store.run(lambda execute: stored_people.list_paired(execute, time.time()))
    assert await store.run(lambda execute: stored_people.accept_code(execute, people[0].code, time.time()))
    values = {"channel": "telegram", "person": "7"}
    chosen = "INSERT INTO people(channel, person, notify) VALUES (:channel, :person, 60)"  # their own `/notify`
    await store.run(lambda execute: execute(chosen, values))
    outcomes = [
        await store.run(lambda execute: stored_people.revoke_pairing(execute, "telegram", who))  # noqa: B023 — awaited here
        for who in ("42", "42", "7")
    ]
    assert outcomes == [True, False, False]


@pytest.mark.sqlite
async def test_what_waits_for_an_answer_is_found_by_its_index(store: Database) -> None:
    said: list[str] = []

    def read(execute: Execute) -> None:
        def explain(sql: str, values: Any) -> Any:
            said.extend(str(row["detail"]) for row in execute(f"EXPLAIN QUERY PLAN {sql}", values))
            return execute(sql, values)

        stored_inbox.pending_commands(explain, 5)

    await store.run(read)
    assert any("inbox_commands" in each for each in said), said


# Case 60 of docs/cases.md
async def test_messages_collected_during_downtime_are_not_a_flood(store: Database) -> None:
    """They were written over hours and arrive at once."""
    entrance = open_inbox(
        store, current_of(ServiceLimits(flood_messages=3), telegram=AccessConfig(open=True)), IDLE_TURNS
    )
    hour_ago = time.time() - 3600
    await entrance.receive([replace(HELLO, key=f"k{number}", time=hour_ago + number) for number in range(6)])
    assert await said(store) == []
    assert await entrance.receive([replace(HELLO, key="now", time=time.time())]) == [Receipt.ACCEPTED]
    assert await said(store) == []


async def test_messages_not_meant_for_the_bot_are_not_stored(store: Database) -> None:
    overheard = replace(HELLO, addressed=False, private=False)
    assert await inbox(store).receive([overheard]) == [Receipt.IGNORED]
    rows = await store.run(lambda execute: execute("SELECT 1 FROM inbox", {}))
    assert rows == []


# Case 86 of docs/cases.md
async def test_an_unsupported_message_is_answered_without_a_turn(store: Database) -> None:
    sticker = replace(HELLO, kind=Kind.UNSUPPORTED, text="stickers")
    assert await inbox(store).receive([sticker]) == [Receipt.ACCEPTED]
    assert "stickers" in (await said(store))[0]
    rows = await store.run(lambda execute: execute("SELECT pending FROM conversations", {}))
    assert [row["pending"] for row in rows] == [0]


REPLY = Thread("telegram", "1", "42", "7")


async def answered(store: Database, state: str) -> Message:
    """A run in this state whose answer is message 9; return the feedback 👎 of its requester."""
    await inbox(store).receive([replace(HELLO, thread=REPLY)])

    def work(execute: Execute) -> None:
        run = {"id": 1, "conversation": f"{REPLY}#1", "requester": "42", "state": state, "started": 0.0}
        insert_row(execute, "runs", "id", run)

    await store.run(work)
    await StoredSentMessages(store, "r1", REPLY).sent(0, "9")
    anywhere = replace(REPLY, topic=ANYWHERE)
    return replace(
        HELLO, thread=anywhere, key="f1", kind=Kind.FEEDBACK, text="down", reply_to="9", addressed=False, time=10.0
    )


async def stored_feedback(store: Database) -> list[tuple[int, str, int]]:
    rows = await store.run(lambda execute: execute("SELECT run, person, value FROM feedback ORDER BY person", {}))
    return [tuple(row) for row in rows]


async def test_the_latest_feedback_of_each_person_counts_until_they_take_it_back(store: Database) -> None:
    down, box = await answered(store, "done"), inbox(store)
    up, gone = replace(down, text="up", time=11.0), replace(down, kind=Kind.FEEDBACK_REMOVED, time=12.0)
    assert await box.receive([down]) == [Receipt.ACCEPTED]
    assert await stored_feedback(store) == [(1, "42", -1)]
    await box.receive([up, gone, down])  # 👎 is taken back after 👍 replaced it, and its first event comes again
    assert await stored_feedback(store) == [(1, "42", 1)]
    await box.receive([replace(gone, text="up", time=13.0), up, replace(down, author=Author("5", "Bob"))])
    assert await stored_feedback(store) == [(1, "42", 0), (1, "5", -1)]
    assert await store.run(lambda execute: count_feedback(execute, 0.0)) == FeedbackCounts(up=0, down=1)
    rows = await store.run(lambda execute: execute("SELECT count(*) AS n FROM inbox", {}))
    assert rows[0]["n"] == 1
    assert await said(store) == []


async def test_feedback_of_strangers_or_on_other_messages_does_not_count(store: Database) -> None:
    down = await answered(store, "done")
    closed = inbox(store, AccessConfig(operators=("1",)))
    assert await closed.receive([replace(down, private=True)]) == [Receipt.IGNORED]
    await StoredSentMessages(store, "o4", REPLY).sent(0, "10")
    assert (
        await inbox(store).receive([replace(down, reply_to="10"), replace(down, reply_to="11")])
        == [Receipt.IGNORED] * 2
    )
    assert await stored_feedback(store) == []
    assert await said(store) == []


async def test_a_thumb_down_on_an_answer_that_is_being_written_stops_it(store: Database) -> None:
    down = await answered(store, "running")
    assert await inbox(store).receive([down]) == [Receipt.ACCEPTED]
    rows = await store.run(lambda execute: execute("SELECT kind, payload FROM inbox WHERE key='f1'", {}))
    assert [row["kind"] for row in rows] == ["command"]
    assert Message.load(rows[0]["payload"]).text == "stop"
    assert await stored_feedback(store) == []


async def test_a_name_that_a_person_gave_a_thread_is_its_title(store: Database) -> None:
    title = replace(HELLO, thread=REPLY, key="t1", kind=Kind.TITLE, text="Mine")
    assert await inbox(store, AccessConfig()).receive([title]) == [Receipt.IGNORED]
    group = replace(title, private=False)
    await inbox(store).receive([group])  # a thread of others
    assert not await store.run(lambda execute: conversations.has_conversation(execute, REPLY))
    await inbox(store).receive([title])  # a topic of a private chat is named before its first message
    assert not await store.run(lambda execute: conversations.set_title(execute, f"{REPLY}#1", "Made"))
    await inbox(store).receive([replace(group, text="Ours")])
    row = await store.run(lambda execute: conversations.find_conversation(execute, f"{REPLY}#1"))
    assert row
    assert row.title == "Ours"


async def test_bots_get_three_turns_in_a_row_and_one_notice(store: Database) -> None:
    open_to = inbox(store, AccessConfig(open=True, allow=("9", "42")))
    robot = replace(GROUP, author=Author("9", "Robot", bot=True), origin=Origin.BOT)

    async def ask(message: Message, *keys: str) -> list[Receipt]:
        receipts = []
        for key in keys:
            receipts += await open_to.receive([replace(message, key=key, id=key)])
            await store.run(lambda execute: execute("UPDATE inbox SET run=id, state=1 WHERE kind='chat'", {}))
        return receipts

    assert await ask(robot, *"abcde") == [Receipt.ACCEPTED] * 3 + [Receipt.IGNORED] * 2
    [notice] = await said(store)
    assert "Only bots have written to me here for 3 turns" in notice
    assert await ask(replace(GROUP, author=Author("42", "Jane")), "f") == [Receipt.ACCEPTED]
    assert await ask(robot, *"ghij") == [Receipt.ACCEPTED] * 3 + [Receipt.IGNORED]
    assert len(await said(store)) == 2


@pytest.mark.sqlite
async def test_a_start_reads_no_stored_messages_to_delay_pieces(store: Database) -> None:
    plan: list[str] = []

    def explain(execute: Execute) -> None:
        def spy(sql: str, values: Mapping[str, Any]) -> Sequence[Row]:
            plan.extend(str(row["detail"]) for row in execute(f"EXPLAIN QUERY PLAN {sql}", values))
            return execute(sql, values)

        stored_inbox.delay_all_bundles(spy, 1.0)

    await store.run(explain)
    assert any("inbox_open" in line for line in plan), plan
    assert not any(line.startswith("SCAN inbox") or "inbox_run" in line for line in plan), plan


@pytest.mark.parametrize(
    ("access", "private", "entered"),
    [
        (AccessConfig(open=True), False, True),
        (AccessConfig(allow=("7",)), False, True),
        (AccessConfig(pairing=True), False, False),
        (AccessConfig(pairing=True), True, True),
        (AccessConfig(pairing=False), True, False),
    ],
)
async def test_an_invitation_is_accepted_of_who_may_talk_there(
    store: Database, access: AccessConfig, private: bool, entered: bool
) -> None:
    invite = replace(HELLO, kind=Kind.INVITE, text="", private=private, author=Author("7", "Jane"))
    entrance = open_inbox(store, current_of(telegram=access), IDLE_TURNS)
    for _ in range(2):  # a platform may deliver it again
        assert await entrance.receive([invite]) == [Receipt.ACCEPTED if entered else Receipt.IGNORED]
    assert await store.run(lambda execute: execute("SELECT 1 FROM inbox", {})) == []
    declined = "INSERT INTO people(channel, person, name, allowed) VALUES ('telegram', '7', 'Jane', :state)"
    await store.run(lambda execute: execute(declined, {"state": PairingState.DECLINED}))
    if private and entered:
        assert await entrance.receive([invite]) == [Receipt.IGNORED]


SPOKEN = replace(HELLO, thread=Thread("telegram", "1", "-100"), private=False)
EDIT = replace(SPOKEN, kind=Kind.EDIT, key="k1:edit:1", target="k1", text="what is the plan?", time=1.0)
UNHEARD = replace(SPOKEN, addressed=False, follow_up=True)


@pytest.mark.parametrize(
    ("before", "edits", "answered"),
    [
        ([], [EDIT], ["what is the plan?"]),
        ([UNHEARD], [EDIT], ["what is the plan?"]),
        ([], [EDIT, EDIT, replace(EDIT, key="k1:edit:2", text="and why?")], ["and why?"]),
        ([SPOKEN], [EDIT], ["what is the plan?"]),
        ([], [replace(EDIT, addressed=False)], []),
        ([], [replace(EDIT, private=True, thread=THREAD)], []),
        ([], [replace(EDIT, kind=Kind.DELETE)], []),
        ([], [replace(EDIT, author=Author("13", "Mallory"))], []),
        ([replace(SPOKEN, author=Author("13", "Mallory"))], [EDIT], []),
    ],
    ids=["unseen", "ignored", "more edits", "asked before", "unnamed", "direct", "deleted", "stranger", "refused"],
)
async def test_a_mention_that_an_edit_adds_is_a_message_once(
    store: Database, before: list[Message], edits: list[Message], answered: list[str]
) -> None:
    box = inbox(store, AccessConfig(allow=("42",)))
    for event in (*before, *edits):
        await box.receive([event])
    await box.receive([replace(SPOKEN, text="read again in the history")] if answered else [])
    rows = await store.run(lambda execute: execute("SELECT payload FROM inbox WHERE state=0 AND kind='chat'", {}))
    assert [Message.load(row["payload"]).text for row in rows] == answered


async def test_an_edit_with_a_mention_of_what_was_answered_begins_nothing(store: Database) -> None:
    box = inbox(store)
    await box.receive([SPOKEN])
    await store.run(lambda execute: stored_inbox.set_state(execute, 1, InboxState.DONE))
    assert await box.receive([EDIT]) == [Receipt.IGNORED]
