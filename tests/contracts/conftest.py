"""The channel under test: every channel with a rig, unless a test requires an ability."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.rigs.base import Rig
from tests.support.rigs.registry import RIGS, ready

CONTENT = {  # where the content itself is encrypted or not: messages, edits, threads and files, in both directions
    "test_a_message_arrives_with_thread_author_and_text",
    "test_a_question_and_its_options_can_be_read_everywhere",
    "test_a_long_reply_shows_each_word_once_and_in_order",
    "test_a_mention_in_a_thread_addresses_the_bot_and_other_messages_do_not",
    "test_earlier_messages_of_a_thread_arrive_as_quotes",
    "test_events_during_downtime_are_delivered_once",
    "test_a_reply_pings_nobody",
    "test_a_file_over_the_limit_is_refused_with_a_reason",
    "test_several_files_are_sent_once_each",
    "test_an_upload_is_read_in_chunks",
    "test_an_upload_is_streamed_while_it_arrives",
    "test_a_file_arrives_with_its_caption",
    "test_an_upload_over_the_limit_is_refused",
    "test_the_final_is_visible_once_and_steps_are_folded_away",
    "test_a_stream_longer_than_the_final_reply_leaves_no_message",
    "test_a_restarted_process_continues_a_long_reply",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out plain Matrix where it only repeats encrypted Matrix: each row costs a second of its homeserver."""
    encrypted = {_function_of(item) for item in items if _rig_of(item) == "matrix-encrypted"}
    repeated = [
        item
        for item in items
        if _rig_of(item) == "matrix" and _name_of(item) not in CONTENT and _function_of(item) in encrypted
    ]
    config.hook.pytest_deselected(items=repeated)
    items[:] = [item for item in items if item not in {*repeated}]


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _name_of(item: pytest.Item) -> str:
    return _function_of(item).rpartition("::")[2]


def _rig_of(item: pytest.Item) -> object:
    called = getattr(item, "callspec", None)
    return called.params.get("rig") if called else None


@pytest.fixture(params=sorted(RIGS))
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with RIGS[request.param].start(tmp_path) as made:
        await ready(made)
        yield made
