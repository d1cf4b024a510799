"""Stored transcripts: who finds what, in every script, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from agent.messages import Thread
from bot.database.database import Database, Execute
from bot.database.states import EntryKind
from bot.main.features import table_of
from bot.storage import conversations, retention, transcripts
from bot.storage.forgetting import PersonKey
from bot.storage.moved_chats import move_chat
from bot.storage.own_data import read_conversation
from bot.storage.transcripts import TranscriptEntry
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

PLACES = {
    "this thread": Thread("slack", "T", "C1", "1.1"),
    "its chat, another thread": Thread("slack", "T", "C1", "2.2"),
    "its chat, no thread": Thread("slack", "T", "C1"),
    "a direct message": Thread("slack", "T", "D1"),
    "a thread of that direct message": Thread("slack", "T", "D1", "3.3"),
    "another direct message": Thread("slack", "T", "D2"),
    "a chat whose id begins like that": Thread("slack", "T", "C1/", "1.1"),
    "a chat with a longer id": Thread("slack", "T", "C11"),
    "another workspace": Thread("slack", "T2", "C1", "1.1"),
    "another platform": Thread("telegram", "T", "C1", "1.1"),
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as opened:
        yield opened


async def add(store: Database, thread: Thread, *texts: str, kind: EntryKind = EntryKind.TEXT, at: float = 1.0) -> None:
    def work(execute: Execute) -> None:
        key = conversations.current_conversation(execute, thread, 0.0)
        known = len(execute("SELECT 1 FROM transcript", {}))
        entries = [TranscriptEntry(f"{known + number}", kind, text, at) for number, text in enumerate(texts)]
        transcripts.add_entries(execute, key, 1, entries)

    await store.run(work)


async def find(store: Database, thread: Thread, words: str, *, topics: bool = True, limit: int = 10) -> list[str]:
    def work(execute: Execute) -> list[str]:
        found = transcripts.search_chat(execute, thread, words.split(), limit, topics=topics)
        return [entry.text for entry in found]

    return await store.run(work)


async def test_a_search_finds_its_own_chat_and_nothing_else(store: Database) -> None:
    for name, thread in PLACES.items():
        await add(store, thread, f"secret of {name}")
    for (here, asked), (there, thread) in product(PLACES.items(), repeat=2):
        same_chat = (asked.channel, asked.workspace, asked.chat) == (thread.channel, thread.workspace, thread.chat)
        found = await find(store, asked, "secret")
        assert (f"secret of {there}" in found) == same_chat, (here, there)
        alone = await find(store, asked, "secret", topics=False)
        assert (f"secret of {there}" in alone) == (asked == thread), (here, there)


async def test_a_chat_is_read_with_all_its_threads_in_order(store: Database) -> None:
    for name, thread in PLACES.items():
        await add(store, thread, f"in {name}")
    for here in PLACES.values():
        same = [
            f"in {name}"
            for name, each in PLACES.items()
            if (each.channel, each.workspace, each.chat) == (here.channel, here.workspace, here.chat)
        ]
        read = await store.run(partial(transcripts.read_chat, chat=here, after=0, limit=10))
        assert [entry.text for entry in read] == same


async def test_words_of_every_script_and_length_are_found(store: Database) -> None:
    texts = [
        "明日の会議は三時から始まります",
        "预算会议改到星期五",
        "회의록을 보내 주세요",
        'The 50% Budget (a_b) "x"',
        "aXb",
        "Москва, Überblick",
    ]
    await add(store, PLACES["this thread"], *texts)
    cases = {
        "会議": [texts[0]],
        "星期五": [texts[1]],
        "会": [texts[1], texts[0]],
        "预算会议 星期五 会议": [texts[1]],
        "회의록을": [texts[2]],
        "budget": [texts[3]],
        "udge the": [texts[3]],
        "0%": [texts[3]],
        "%": [texts[3]],
        "a_b": [texts[3]],
        "_b": [texts[3]],
        '"x"': [texts[3]],
        "москва ÜBERBLICK": [texts[5]],
        "a x b y u n": [],
        "OR NOT": [],
        "budget nothing": [],
    }
    assert {words: await find(store, PLACES["this thread"], words) for words in cases} == cases


async def test_steps_and_notices_are_not_found_and_the_newest_come_first(store: Database) -> None:
    here = PLACES["this thread"]
    await add(store, here, *(f"word {number}" for number in range(5)))
    await add(store, here, "word in a step", kind=EntryKind.STEP)
    await add(store, here, "word in a notice", kind=EntryKind.NOTICE)
    assert await find(store, here, "word", limit=3) == ["word 4", "word 3", "word 2"]


async def test_a_conversation_is_found_after_new_and_after_its_chat_moved(store: Database) -> None:
    old, new = Thread("telegram", "1", "-5"), Thread("telegram", "1", "-1005")
    await add(store, old, "before")
    await store.run(lambda execute: conversations.begin_conversation(execute, old, 1.0))
    assert await find(store, old, "before") == ["before"]
    await store.run(lambda execute: move_chat(execute, old, new))
    assert await find(store, old, "before") == []
    assert await find(store, new, "before") == ["before"]


async def test_retention_deletes_entries_by_their_age(store: Database) -> None:
    here = PLACES["this thread"]
    await add(store, here, "an old word", at=1.0)
    await add(store, here, "a new word", at=5.0)
    assert await store.run(lambda execute: retention.delete_finished(execute, table_of("transcript"), 3.0, 10)) == 1
    assert await find(store, here, "word") == ["a new word"]


async def test_an_entry_of_an_earlier_run_gets_its_new_state_only(store: Database) -> None:
    here = PLACES["this thread"]
    key = await store.run(lambda execute: conversations.current_conversation(execute, here, 0.0))
    for run, state in ((1, "running"), (2, "done")):
        step = TranscriptEntry("step:a", EntryKind.STEP, "bash: make", 1.0, state=state)
        await store.run(lambda execute, run=run, step=step: transcripts.add_entries(execute, key, run, [step]))  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
    [entry] = await store.run(lambda execute: transcripts.read_thread(execute, str(here), 0, 10))
    assert (entry.run, entry.state) == (1, "done")


@pytest.mark.parametrize("item", ["message:task:1", "message:sched:1:2.000", "message:expired:ask-1"])
async def test_what_was_once_stored_under_a_persons_name_is_shown_as_the_agents(store: Database, item: str) -> None:
    thread = PLACES["a direct message"]
    person = PersonKey("slack", "7")

    def work(execute: Execute) -> tuple[list[tuple[str, str]], list[str]]:
        key = conversations.current_conversation(execute, thread, 0.0)
        made_up = TranscriptEntry(item, EntryKind.MESSAGE, "wrote it", 1.0, "7", "Jane")
        said = TranscriptEntry("message:slack:9", EntryKind.MESSAGE, "wrote that", 2.0, "7", "Jane")
        transcripts.add_entries(execute, key, 1, [made_up, said])
        found = transcripts.search_chat(execute, thread, ["wrote"], 5, topics=True)
        read = transcripts.read_thread(execute, str(thread), 0, 5)
        assert [(entry.author, entry.name) for entry in read] == [("", ""), ("7", "Jane")]
        exported = read_conversation(execute, key, person, whole=True)
        by_person = [entry.text for entry in transcripts.said_by(execute, key, "7", 5)]
        assert by_person == ["wrote that"]
        return [(entry.author, entry.name) for entry in found], [line["author"] for line in exported]

    assert await store.run(work) == ([("7", "Jane"), ("", "")], ["", "7"])
