"""A turn whose conversation another process has claimed meanwhile: it writes nothing any more, and shows nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from agent.settings.models import ModelSettings
from agent.spending import Meter
from agent.turn.checkpointer import LatestCheckpointer
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database.database import Database, Execute
from bot.journey import claims
from bot.journey.claimed_store import ClaimedStore, ClaimLost
from bot.journey.outbox import Outbox
from bot.journey.running_turn import Account, StoredLedger
from bot.rights.claimed_run import ClaimedRun
from bot.rights.reservations import Budgets
from bot.storage import conversations, inbox
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.folders import ConversationFolders
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.support.agent_tools import TOOLS
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.reception import open_turns
from tests.unit.agent.test_resume import call, script
from tests.unit.bot.test_outbox import RecordingChannel
from tests.unit.bot.test_turn_runner import HELLO
from tests.unit.bot.test_turn_runner_model import ModelHarness


def store_hello(execute: Execute) -> str:
    key = conversations.current_conversation(execute, HELLO.thread, 1.0)
    inbox.store_message(execute, HELLO, key, ready=1.0, received=1.0)
    conversations.refresh_pending(execute, key)
    return key


async def claim(store: Database) -> ClaimedRun:
    [job] = await store.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, store.me, 2.0, 9.0, 1))
    return job


def steal(execute: Execute, owner: str) -> None:
    """Claim a conversation as one does whose owner counts as dead."""
    execute("UPDATE conversations SET owner=NULL", {})
    [row] = execute("SELECT key FROM conversations", {})
    assert conversations.claim_conversation(execute, row["key"], owner)


async def test_nothing_is_recorded_under_a_claim_that_was_lost(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await one.run(store_hello)
    job = await claim(one)
    lost: list[str] = []
    claimed = ClaimedStore(one, job, lambda: lost.append("lost"))
    account = Account(one, claimed, job, Meter(), Budgets(one, current_of(wall=AccessConfig(open=True))))
    ledger = StoredLedger(account, job.conversation)
    assert await ledger.begin("first") is None
    await two.run(partial(steal, owner=two.me))
    with pytest.raises(ClaimLost):
        await ledger.begin("second")
    with pytest.raises(ClaimLost):
        await ledger.end("first", "done")
    assert lost == ["lost", "lost"]
    rows = await two.run(lambda execute: execute("SELECT call, result FROM ledger", {}))
    assert [(row["call"], row["result"]) for row in rows] == [("first", None)]


async def test_a_claim_stays_until_the_transaction_ends_that_looked_at_it(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await one.run(store_hello)
    job = await claim(one)
    order: list[str] = []
    holds = threading.Event()

    def slow(execute: Execute) -> None:
        assert conversations.hold_claim(execute, job.conversation, job.fence, one.me)
        holds.set()
        execute("SELECT pg_sleep(0.3)", {})
        order.append("kept")

    def take(execute: Execute) -> None:
        steal(execute, two.me)
        order.append("taken")

    first = asyncio.create_task(one.run(slow))
    await until(holds.is_set, what="the claim that is held")
    await asyncio.gather(first, two.run(take))
    assert order == ["kept", "taken"]


async def test_what_a_lost_turn_left_unsaved_does_not_replace_later_turns(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await one.run(store_hello)
    job = await claim(one)
    config = {"configurable": {"thread_id": job.conversation, "checkpoint_ns": ""}}
    mine, theirs = LatestCheckpointer(one), LatestCheckpointer(two)
    first, second = ({**empty_checkpoint(), "channel_values": {"turn": turn}} for turn in ("stale", "later"))
    mine.hold(job.conversation, database=ClaimedStore(one, job, lambda: None))
    await mine.aput(config, first, {"source": "input"}, {})  # type: ignore[arg-type]  # of this turn's input: in memory
    await two.run(partial(steal, owner=two.me))
    with pytest.raises(ClaimLost):
        await mine.flush(job.conversation)
    await theirs.aput(config, second, {"source": "loop"}, {})  # type: ignore[arg-type]  # the keys that it reads
    await one.run(partial(steal, owner=one.me))
    mine.hold(job.conversation, database=one)
    found = await mine.aget_tuple(config)  # type: ignore[arg-type]  # the keys that it reads
    assert found
    assert found.checkpoint["channel_values"] == {"turn": "later"}


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


async def test_a_turn_that_lost_its_claim_ends_without_a_trace(
    pair: tuple[Database, Database], model: FakeModel, tmp_path: Path
) -> None:
    one, two = pair
    harness, wall = ModelHarness(one, TOOLS), RecordingChannel()
    models = [ModelSettings("main", model="main", base_url=f"{model.base_url}/v1")]
    await harness.configure(models, ServiceLimits())
    outbox = Outbox(one, {"wall": wall}.get, harness.current)
    folders = ConversationFolders(tmp_path / "threads", 16)
    provider = FilesOnlyProvider(tmp_path / "skills")
    turns, _begun = open_turns(one, harness.current, provider, folders, outbox, {"wall": wall}.get, tmp_path)
    serving = [asyncio.create_task(work) for work in (outbox.serve(), harness.threads.serve(turns))]
    try:
        await harness.say(script([call("slow", seconds=1)], tokens=3), "k1", wait=False)
        async with asyncio.timeout(60):
            while not await two.run(lambda execute: execute("SELECT 1 FROM ledger WHERE result IS NULL", {})):
                await asyncio.sleep(0.02)
        await two.run(partial(steal, owner=two.me))
        await until(lambda: not harness.threads.running_turns, what="its end")
    finally:
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)
        await harness.current.close()
    states = "SELECT (SELECT state FROM runs) AS run, (SELECT count(*) FROM outbox) AS posts, owner FROM conversations"
    [row] = await two.run(lambda execute: execute(states, {}))
    assert dict(row) == {"run": "running", "posts": 0, "owner": two.me}
    assert wall.shown == []
