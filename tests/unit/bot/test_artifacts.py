"""Which files of outputs/ are sent with a reply, and how the rest is reported."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Approve, Ask, File
from bot.journey.artifacts import Artifacts, add_long_calls, collect_artifacts
from sandbox.base import OUTPUTS

LIMIT = 50 << 20


class Conversation:
    """The folder of one conversation, and its presented files."""

    def __init__(self, folder: Path, spool: Path) -> None:
        self.outputs, self._folder, self._spool = folder / "outputs", folder, spool
        self.outputs.mkdir(parents=True)
        self.seen: Mapping[str, str] = {}

    async def turn(self, *presented: str, limit: int = LIMIT) -> Artifacts:
        files = [File(f"{OUTPUTS}/{name}") for name in presented]
        collected = await collect_artifacts(self._folder, self._spool, self.seen, files, limit)
        self.seen = collected.stamps
        return collected


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    return Conversation(tmp_path / "c", tmp_path / "spool")


def names(collected: Artifacts) -> Sequence[str]:
    return [file.name for file in collected.files]


async def test_thousands_of_irregular_entries_are_reported_once_in_three_lines(conversation: Conversation) -> None:
    for number in range(2_000):
        (conversation.outputs / f"{number:04}").symlink_to("/etc/passwd")
    (conversation.outputs / "fine").touch()
    first = await conversation.turn()
    assert first.notes == (
        *(f"Not sent: `{number:04}` (is a link, not a regular file)." for number in range(3)),
        "… and 1,997 more.",
    )
    assert names(first) == ["fine"]
    assert (await conversation.turn()).notes == ()
    (conversation.outputs / "one more").symlink_to("/etc/passwd")
    assert (await conversation.turn()).notes == ("Not sent: `one more` (is a link, not a regular file).",)


async def test_a_too_long_path_is_reported_and_not_stored(conversation: Conversation) -> None:
    here = conversation.outputs
    for _ in range(5):
        here = here / ("d" * 240)
        here.mkdir()
        (here / "file").touch()
    first = await conversation.turn()
    assert len(first.files) == 4
    (note,) = first.notes
    assert note.endswith("(its path is longer than 1,000 bytes).")
    assert len(note) < 400
    assert max(map(len, first.stamps)) < 1_000
    second = await conversation.turn()
    assert (second.files, second.notes) == ((), ())


async def test_a_turn_sends_100_mb_and_the_rest_on_request(conversation: Conversation) -> None:
    for number in range(5):
        with open(conversation.outputs / f"{number}", "wb") as file:
            file.truncate(40 << 20)
    first = await conversation.turn()
    assert names(first) == ["0", "1"]
    (note,) = first.notes
    assert note.startswith("3 more files are in outputs/ (at most 20 files and 100 MB go out with one answer)")
    assert names(await conversation.turn()) == []
    assert names(await conversation.turn("4")) == ["4"]
    assert names(await conversation.turn("4")) == []


async def test_more_than_twenty_files_wait_for_a_request(conversation: Conversation) -> None:
    for number in range(30):
        (conversation.outputs / f"{number:02}").write_text("x")
    assert len((await conversation.turn()).files) == 20
    assert names(await conversation.turn()) == []
    assert names(await conversation.turn("25", "03")) == ["25"]


async def test_one_file_may_be_as_large_as_the_chat_allows(conversation: Conversation) -> None:
    with open(conversation.outputs / "big", "wb") as file:
        file.truncate(120 << 20)
    assert names(await conversation.turn(limit=200 << 20)) == ["big"]


async def test_files_that_the_walk_did_not_reach_are_not_sent_again(conversation: Conversation) -> None:
    for number in range(5):
        (conversation.outputs / f"z{number}").write_text("x")
    assert len((await conversation.turn()).files) == 5
    (conversation.outputs / "a").mkdir()
    for number in range(10_100):
        os.mkdir(conversation.outputs / "a" / f"{number}")
    (conversation.outputs / "b").mkdir()
    for number in range(5):
        os.rename(conversation.outputs / f"z{number}", conversation.outputs / "b" / f"z{number}")
    cut = await conversation.turn()
    assert cut.files == ()
    assert "more than 10,000 files and folders" in str(cut.notes)
    assert {f"z{number}" for number in range(5)} < cut.stamps.keys()
    assert (await conversation.turn()).notes == ()


async def test_collection_does_not_wait_for_the_shared_threads(conversation: Conversation) -> None:
    """It has separate threads, so a long collection does not delay other work either."""
    (conversation.outputs / "file").write_text("x")
    ended, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waiting = loop.run_in_executor(None, ended.wait)
    try:
        async with asyncio.timeout(60):
            assert names(await conversation.turn()) == ["file"]
        assert not waiting.done()
    finally:
        ended.set()
        await waiting


async def test_only_a_long_call_that_needs_approval_is_added_as_a_file(tmp_path: Path) -> None:
    long, short = Approve("1", "May I?", call="bash\n完" + "x" * 9000), Approve("2", "May I?", call="short")
    collected = await add_long_calls(Artifacts({}), [long, short, replace(long, id="3"), Ask("4", "?")], tmp_path / "1")
    assert [file.name for file in collected.files] == ["call.txt", "call.txt"]
    assert {file.path.read_text("utf-8") for file in collected.files} == {long.call}
    assert collected.files[0].path != collected.files[1].path
    assert collected.files[0].size == collected.files[0].path.stat().st_size
