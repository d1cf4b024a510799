"""A failing or damaged command does not block the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final, spell_commands
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.base.plain_text import plain_line
from bot.commands.call import CommandService
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database.database import Database, Execute
from bot.database.states import EntryKind, RunState
from bot.journey import claims
from bot.storage import conversations, runs, transcripts
from bot.storage.inbox import pending_commands
from bot.storage.jobs import enqueue_job
from bot.storage.transcripts import TranscriptEntry
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import command_runner, command_service, open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

HELP = Message(
    Thread("telegram", "1", "42"),
    "k1",
    "1",
    Author("42", "Jane"),
    "help",
    0.0,
    Kind.COMMAND,
    private=True,
    origin=Origin.PERSON,
)


CURRENT = current_of(ServiceLimits(notify_seconds=0.0), telegram=AccessConfig(open=True, operators=("boss",)))
IDLE_SERVICE = command_service(CURRENT, "Fawn 1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


@asynccontextmanager
async def answering(store: Database, service: CommandService = IDLE_SERVICE) -> AsyncIterator[None]:
    """Serve commands from the end of the block on, until all are answered."""
    yield
    serving = asyncio.create_task(command_runner(store, service).serve())
    async with asyncio.timeout(60):
        while await store.run(lambda execute: pending_commands(execute, 1)):
            await asyncio.sleep(0.01)
    serving.cancel()
    await asyncio.wait([serving])


async def receive(store: Database, *messages: Message) -> None:
    await open_inbox(store, CURRENT, IDLE_TURNS).receive(messages)


async def said(store: Database) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
    return [spell_commands(Final.load(row["payload"]).text, "/{}".format) for row in rows]


async def test_a_damaged_command_does_not_block_others(store: Database) -> None:
    async with answering(store):
        await receive(store, HELP, replace(HELP, key="k2"))
        await store.run(lambda execute: execute("UPDATE inbox SET payload='' WHERE id=1", {}))
    damaged, answered = await said(store)
    assert damaged == claims.DAMAGED
    assert "/stop" in answered


@pytest.mark.parametrize("name", ["stop", "new"])
async def test_a_command_beside_the_threads_names_those_that_run(store: Database, name: str) -> None:
    channel = Thread("telegram", "1", "42")
    command = replace(HELP, key="k9", text=name, private=False, thread=channel)
    for number, title in enumerate(("Deploy", "Fix the build", "Idle")):
        topic = replace(channel, topic=f"t{number}")

        def begin(execute: Execute, topic: Thread = topic, number: int = number, title: str = title) -> None:
            key = conversations.begin_conversation(execute, topic, float(number))
            execute("UPDATE conversations SET title=:title WHERE key=:key", {"title": title, "key": key})
            state = RunState.DONE if title == "Idle" else RunState.RUNNING
            runs.create_run(execute, number + 100, key, command, state, now=0.0)

        await store.run(begin)
    async with answering(store):
        await receive(store, command)
    [words] = await said(store)
    assert "Running threads: “Deploy”, “Fix the build”. Send" in words
    assert words.startswith("Nothing is running here." if name == "stop" else "Each thread here is a conversation")
    async with answering(store):
        await receive(store, replace(command, key="k10", private=True, thread=Thread("telegram", "1", "43")))
    assert (await said(store))[1] in (
        "Nothing is running here.",
        "A fresh start: I no longer see what was said before.",
    )


async def test_a_search_names_ten_entries_at_most_without_their_formatting(store: Database) -> None:
    texts = [f"{'x' * 300} **Budget** `{number}` {'y' * 300}" for number in range(11)]
    async with answering(store):
        await receive(store, replace(HELP, text="search budget"), replace(HELP, key="k2", text="search"))
        key = await store.run(lambda execute: conversations.current_conversation(execute, HELP.thread, 0.0))
        entries = [TranscriptEntry(f"{n}", EntryKind.MESSAGE, text, 0.0, "42", "Jane") for n, text in enumerate(texts)]
        await store.run(lambda execute: transcripts.add_entries(execute, key, 1, entries))
        await receive(store, replace(HELP, key="k3", text="search budget nowhere"))
    found, usage, nothing = await said(store)
    head, *lines, blank, more = found.splitlines()
    assert head == "Found in this thread, newest first:"  # its channel is not connected: it may have closed threads
    assert [line.partition("Budget ")[2].split()[0] for line in lines] == [str(n) for n in range(10, 0, -1)]
    assert all(line.startswith("- 1970-01-01") and "· Jane: …xx" in line and line.endswith("y…") for line in lines)
    assert (blank, more) == ("", "These are the newest 10; add words to find less.")
    assert usage.startswith("`/search WORDS`")
    assert nothing == "I found nothing in this thread with “budget”, “nowhere”."


async def test_a_command_that_fails_in_the_database_is_rolled_back_alone(store: Database) -> None:
    refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF model ON conversations BEGIN SELECT RAISE(ABORT, '!'); END"
    async with answering(store):
        await receive(store, replace(HELP, text="model demo"), replace(HELP, key="k2"), replace(HELP, key="k3"))
        await store.run(lambda execute: execute(refuse, {}))
    failed, *answered = await said(store)
    assert failed.startswith("`/model` failed on my side")
    assert all("/stop" in words for words in answered)


async def test_operators_see_the_background_jobs_in_the_status(store: Database) -> None:
    status = replace(HELP, text="status")
    async with answering(store):
        await receive(store, status, replace(status, key="k2", author=Author("boss", "Ann")))
        await store.run(lambda execute: enqueue_job(execute, key="k", kind="title", payload={}))
    mine, bosses = await said(store)
    assert mine == "All is well. I'm ready for your next message."
    assert bosses == f"{mine}\n\nFawn 1\nBackground jobs: 1 waiting, 0 running, 0 given up."


async def choose(store: Database, words: str, message: Message = HELP) -> str:
    number = f"language {len(await said(store))}"
    async with answering(store):
        await receive(store, replace(message, key=number, text=f"language {words}"))
    return (await said(store))[-1]


async def test_a_person_chooses_the_language_of_all_their_chats(store: Database) -> None:
    assert await choose(store, "zh") == "从现在起，我跟你说简体中文。"
    other = replace(HELP, thread=Thread("telegram", "1", "-7"), private=False)
    assert (await choose(store, "", other)).startswith("我现在说简体中文。")
    stranger = replace(other, author=Author("43", "Bob"))
    assert (await choose(store, "", stranger)).startswith("I'm speaking English.")
    assert await choose(store, "auto") == "From now on I speak English with you."
    hinted = replace(HELP, author=replace(HELP.author, language="zh-hans"))
    assert (await choose(store, "", hinted)).startswith("我现在说简体中文。")
    assert await choose(store, "English", hinted) == "From now on I speak English with you."


@pytest.mark.parametrize("words", ["", "xx", "zh everywhere", "here"])
async def test_an_unknown_language_changes_nothing(store: Database, words: str) -> None:
    assert (await choose(store, words)).startswith("I'm speaking English.")
    assert (await choose(store, "")).startswith("I'm speaking English.")


async def test_an_operator_chooses_the_language_of_a_group(store: Database) -> None:
    group = replace(HELP, thread=Thread("telegram", "1", "-7", "5"), private=False)
    assert await choose(store, "zh here", group) == "Only an operator can choose the language of a group."
    boss = replace(group, author=Author("boss", "Ann"))
    assert (await choose(store, "zh here", boss)).startswith("从现在起，我在这个聊天里说简体中文")
    assert (await choose(store, "", group)).startswith("我现在说简体中文。")
    assert await choose(store, "en", group) == "From now on I speak English with you."
    assert (await choose(store, "", boss)).startswith("我现在说简体中文。")
    assert (await choose(store, "")).startswith("I'm speaking English.")


@pytest.mark.parametrize("mode", ["plan", "goal"])
async def test_a_mode_begins_with_the_words_of_its_command(store: Database, mode: str) -> None:
    command = replace(HELP, text=f"{mode} write the report", key="k2", id="2")
    await receive(store, command)
    async with answering(store):
        pass
    [job] = await store.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "w", time.time(), 10.0, 1))
    [message] = job.messages
    assert (message.kind, message.text, message.mode) == (Kind.CHAT, "write the report", mode)
    assert job.reply_to == "2"
    assert await said(store) == []


@pytest.mark.parametrize("mode", ["plan", "goal"])
async def test_a_mode_needs_words_and_does_not_begin_while_work_goes_on(store: Database, mode: str) -> None:
    await receive(store, replace(HELP, text=mode, key="k2"), replace(HELP, kind=Kind.CHAT, text="hello", key="k3"))
    async with answering(store):
        pass
    await store.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "w", time.time(), 10.0, 1))
    await receive(store, replace(HELP, text=f"{mode} more", key="k4"), replace(HELP, text=mode, key="k5", native=True))
    async with answering(store):
        pass
    usage, busy, again = await said(store)
    assert f"`/{mode} WORDS`" in usage
    assert busy.startswith("I'm still working on it. I have not taken your words: send")
    assert again == usage
    rows = await store.run(lambda execute: execute("SELECT count(*) AS n FROM inbox WHERE kind='chat'", {}))
    assert rows[0]["n"] == 1


async def test_a_command_of_a_person_who_lost_their_access_meanwhile_has_no_effect(store: Database) -> None:
    closed = replace(IDLE_SERVICE, current=current_of(telegram=AccessConfig(operators=("boss",))))
    async with answering(store, closed):
        await receive(store, HELP, replace(HELP, key="k2", text="whoami", author=Author("boss", "Boss")))
    [words] = await said(store)
    assert words.startswith("You are Boss")
    rows = await store.run(lambda execute: execute("SELECT state, error FROM inbox ORDER BY id", {}))
    assert [tuple(row) for row in rows] == [(1, "stranger"), (1, "")]


async def test_a_number_that_no_row_can_have_is_unknown(store: Database) -> None:
    huge = "9" * 30
    words = (f"schedule pause {huge}", f"task {huge}", f"memory forget {huge}")
    async with answering(store):
        await receive(store, *(replace(HELP, key=text, text=text) for text in words))
    assert [f"{huge} here" in text for text in await said(store)] == [True, True, False]
    assert not [text for text in await said(store) if "failed on my side" in text]


async def test_help_lists_what_this_person_may_use(store: Database) -> None:
    async with answering(store):
        await receive(store, HELP, replace(HELP, key="k2", author=Author("boss", "Boss")))
    member, operator = await said(store)
    for_operators = ["/reload", "/audit", "/access"]
    assert [each in member for each in for_operators] == [False] * 3
    assert [each in operator for each in for_operators] == [True] * 3
    assert "/new" in member


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("Berlin", ["/zone Europe/Berlin"]),
        ("new york", ["/zone America/New_York"]),
        ("Berlni", ["/zone Europe/Berlin"]),
        ("Europe/berlin", ["/zone Europe/Berlin"]),
        ("x" * 5000, ["/zone Europe/Berlin"]),
        ("Atlantis" * 3, ["/zone Europe/Berlin"]),
    ],
)
async def test_a_place_that_is_no_time_zone_gets_a_suggestion(
    store: Database, words: str, suggested: list[str]
) -> None:
    async with answering(store):
        await receive(store, replace(HELP, text=f"zone {words}"))
    [text] = await said(store)
    assert all(f"`{each}`" in text for each in suggested)
    assert "I don't know the time zone" in text


def test_a_title_on_one_line_keeps_the_signs_that_format_nothing() -> None:
    assert plain_line("> deploy #s=deploy\n> a | <@U1> **b**") == "deploy #s=deploy > a | @U1 b"
