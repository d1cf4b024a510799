"""A person who is gone loses schedules, tasks, grants, roles and pairing at once; schedules can go to others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.blocks import Final
from agent.messages import Author, Message, Origin, Thread
from agent.permissions.invisible import show_literally
from agent.permissions.rules import Grant
from bot.cli.people import OFFBOARD
from bot.cli.service_call import run_action
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database import audit
from bot.database.database import Execute
from bot.database.states import ScheduleState
from bot.storage import calls, conversations, inbox, jobs, outbox, people, schedules, tasks
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.schedule_rows import add_schedule, find

GROUP = Thread("telegram", "bot", "-100")
CHAT_OF_EVE = Thread("telegram", "bot", "8")


def leave_behind(execute: Execute) -> None:
    """Let Jane (7) have one of each; what Bob (9) has stays."""
    now = time.time()
    add_schedule(execute, now)  # 1, in her direct chat
    add_schedule(execute, now, thread=str(GROUP), private=0, kind="work")  # 2
    add_schedule(execute, now, state=ScheduleState.PROPOSED, next_at=None)  # 3
    add_schedule(execute, now, owner="9", thread=str(GROUP), private=0)  # 4, Bob's
    for person in ("7", "9"):
        author = Author(person, f"Name {person}")
        calls.store_grant(execute, calls.EVERYWHERE, Grant("bash", f"ls {person}"), GROUP, author, now)
        subject = people.person_subject("bot", person)
        people.store_role(execute, GROUP, subject, "operator", name="", by=Author("1", ""), now=now)
        asked = Message(GROUP, f"telegram:{person}", "1", author, "hello", now, private=True, origin=Origin.PERSON)
        people.store_code(execute, asked, f"CODE{person}", now + 60)
        people.accept_code(execute, f"CODE{person}", now)
        values = {
            "kind": "command",
            "state": "queued",
            "channel": "telegram",
            "person": person,
            "name": "",
            "what": "x",
        }
        more = {"language": "", "guest": 0, "private": 0, "thread": str(GROUP), "conversation": "c", "title": "x"}
        tasks.add_task(execute, {"key": person, "follow_up": "", "created": now, **values, **more})
        conversation = conversations.current_conversation(execute, GROUP, now)
        inbox.store_message(execute, asked, conversation, ready=now, received=now)


async def offboard(tmp_path: Path, *words: str) -> tuple[int, Config]:
    named = ChannelConfig("telegram", None, AccessConfig(allow=("7",)))
    config = Config(data_dir=tmp_path, channels=(named,))
    return await run_action(config, OFFBOARD, words), config


async def test_a_person_who_is_gone_has_nothing_left_and_others_keep_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        await store.run(leave_behind)
    assert (await offboard(tmp_path, "telegram", "7", ""))[0] == 0
    said = capsys.readouterr().out
    for line in (
        "Offboarded 7 on telegram.",
        "Schedules that were ended: 1, 2, 3.",
        "Background tasks that were cancelled: 1.",
        "1 grant was taken back.",
        "What pairing allowed has ended.",
        "The roles that people gave in chats have ended, too: operator.",
        "STILL LET IN by the configuration: `channels.telegram.access.allow`.",
    ):
        assert line in said
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        await store.run(_check_left)
    assert (await offboard(tmp_path, "telegram", "7", ""))[0] == 1
    assert "7 has nothing on telegram" in capsys.readouterr().err


def _check_left(execute: Execute) -> None:
    assert find(execute, 1).state == find(execute, 2).state == ScheduleState.ENDED
    assert schedules.find_schedule(execute, 3) is None
    assert find(execute, 4).state == ScheduleState.ACTIVE
    assert [row.person for row in calls.list_grants(execute, "")] == ["9"]
    assert [row.person for row in people.list_roles(execute)] == ["9"]
    assert [row.person for row in people.list_people(execute, "telegram") if row.allowed] == ["9"]
    states = {row.person: row.state for row in tasks.list_of_channel(execute, "telegram")}
    assert states == {"7": "cancelled", "9": "queued"}
    [row] = [row for row in audit.read_newest(execute, 9) if row.event["kind"] == "person.offboarded"]
    what = row.event["what"]
    assert what == {
        "via": "command line",
        "schedules": 3,
        "tasks": 1,
        "grants": 1,
        "roles": 1,
        "pairing": 1,
        "handed": 0,
    }
    open_people = {row["author"] for row in execute("SELECT author FROM inbox WHERE state=0", {})}
    assert open_people == {"telegram:9"}
    assert jobs.has_job(execute, "stop_work:telegram:7")


async def test_schedules_go_to_another_person_and_never_post_in_the_old_direct_chat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        await store.run(leave_behind)
    assert (await offboard(tmp_path, "telegram", "7", "8"))[0] == 0
    said = capsys.readouterr().out
    assert "Schedules that wait until 8 accepts them: 2." in said
    assert "Schedules that were ended: 1, 3." in said
    assert "Not handed over, because they post in a direct chat and 8 has none with me: 1." in said
    assert "Not handed over, because nobody had confirmed them: 3." in said
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        moved = await store.run(lambda execute: find(execute, 2))
        assert (moved.owner, moved.state, moved.thread) == ("8", ScheduleState.PROPOSED, str(GROUP))
        rows = await store.run(lambda execute: execute("SELECT thread, payload FROM outbox", {}))
        assert [row["thread"] for row in rows] == [str(GROUP)]
        assert moved.next_at is None
        asked = Final.load(rows[0]["payload"])
        assert show_literally(moved.what) in asked.text, "the whole text"
        assert [ask.id for ask in asked.asks] == ["schedule:2"]


async def test_a_private_schedule_moves_to_the_direct_chat_of_its_new_owner(tmp_path: Path) -> None:
    def prepare(execute: Execute) -> None:
        leave_behind(execute)
        hello = Message(CHAT_OF_EVE, "k", "1", Author("8", "Eve"), "hello", 0.0, private=True, origin=Origin.PERSON)
        people.store_address(execute, hello)

    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        await store.run(prepare)
    assert (await offboard(tmp_path, "telegram", "7", "8"))[0] == 0
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        moved = await store.run(lambda execute: find(execute, 1))
        assert (moved.owner, moved.name, moved.thread) == ("8", "Eve", str(CHAT_OF_EVE))
        assert moved.conversation == "schedule:1.1", "the past of Jane's direct chat stays hers"
        assert await store.run(lambda execute: outbox.count_notices(execute, "sched:1:owner:")) == 1


@pytest.mark.parametrize("other", ["7", "nobody"])
async def test_schedules_go_to_nobody_who_cannot_be(
    tmp_path: Path, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        await store.run(leave_behind)
    assert (await offboard(tmp_path, "telegram", "7", other))[0] == 1
    assert "to whom schedules can go" in capsys.readouterr().err
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        assert (await store.run(lambda execute: find(execute, 1))).state == ScheduleState.ACTIVE
