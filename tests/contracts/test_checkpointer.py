"""LangGraph's conformance suite for checkpointers, run on its InMemorySaver and on ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from langgraph.checkpoint.memory import InMemorySaver

from agent.turn.checkpointer import LatestCheckpointer
from tests.support.agent_database import SqliteDatabase

LATEST_ONLY = "Only the latest checkpoint of a namespace is stored, so an older one is not found."
NO_PARENT = "The parent was deleted when its child was stored, so a tuple does not name it."
NOT_OFFERED = {
    "list": "There is no history to list.",
    "prune": "`aput` prunes.",
    "copy_thread": "No conversation is forked.",
    "delete_for_runs": "A turn is repaired, not deleted.",
}
DEVIATIONS = {
    "test_put_multiple_checkpoints_same_thread": LATEST_ONLY,
    "test_put_incremental_channel_update": LATEST_ONLY,
    "test_get_tuple_specific_checkpoint_id": LATEST_ONLY,
    "test_put_parent_config": NO_PARENT,
    "test_get_tuple_parent_config": NO_PARENT,
    "test_delete_thread_removes_checkpoints": "After its check of `aget_tuple` it calls `alist`, which is not offered.",
}


async def run_suite(factory: Any) -> tuple[int, set[str], set[str]]:
    """Return the number of passed cases, the failed cases, and the capabilities that were not found."""
    cases: dict[str, bool] = {}
    progress = ProgressCallbacks(on_test_result=lambda capability, case, passed, error: cases.update({case: passed}))
    report = await validate(factory, progress=progress)
    missing = {capability for capability, result in report.results.items() if not result.detected}
    return sum(cases.values()), {case for case, passed in cases.items() if not passed}, missing


async def test_our_checkpointer_deviates_only_where_declared(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "agent.db") as database:

        @checkpointer_test(name="LatestCheckpointer")
        async def factory() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
            saver = LatestCheckpointer(database)
            await saver.create_tables()
            yield saver

        assert await run_suite(factory) == (36, set(DEVIATIONS), set(NOT_OFFERED))


async def test_the_suite_accepts_the_savers_of_langgraph() -> None:
    @checkpointer_test(name="InMemorySaver")
    async def factory() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        yield InMemorySaver()

    assert await run_suite(factory) == (58, set(), set(NOT_OFFERED) - {"list"})
