"""A lease is renewed whatever holds up the process, unless it does nothing any more; a successor ends it at once."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bot.database import replicas
from bot.database.data_lock import ServiceLock, is_held, name_lock
from bot.database.database import Database, Execute
from bot.database.replicas import LEASE_SECONDS
from bot.database.states import ReplicaState
from bot.fleet.membership import Replicas
from tests.support.postgres_sessions import opened, replica

HELD_SECONDS = LEASE_SECONDS + 8.0


def release(_execute: Execute) -> None:
    """Nothing was held."""


def wait_for_renewals(url: str, of: str, count: int) -> bool:
    """Block until a lease was renewed so many times; return whether it was."""
    from bot.database.postgres_session import connect, execute_on

    seen: set[float] = set()
    sql = "SELECT until FROM replicas WHERE id=:id"
    with closing(connect(url)) as other:
        limit = time.monotonic() + HELD_SECONDS
        while len(seen) <= count and time.monotonic() < limit:
            seen.update(row["until"] for row in execute_on(other, sql, {"id": of}))
            threading.Event().wait(0.05)
    return len(seen) > count


async def test_a_lease_is_renewed_while_the_event_loop_is_held(pair: tuple[Database, Database], url: str) -> None:
    """As by imports on a busy machine."""
    one, _two = pair
    lease = Replicas(one, release, lambda: None)
    async with lease.kept():
        assert wait_for_renewals(url, one.me, 2)
        assert lease.is_sure


async def test_a_lease_is_renewed_while_the_thread_of_the_database_is_held(
    pair: tuple[Database, Database], url: str
) -> None:
    one, _two = pair
    done = threading.Event()
    async with Replicas(one, release, lambda: None).kept():
        holding = asyncio.create_task(one.run(lambda _execute: done.wait(2 * HELD_SECONDS), durable=False))
        try:
            assert await asyncio.to_thread(wait_for_renewals, url, one.me, 2)
        finally:
            done.set()
            await holding


@pytest.mark.slow
async def test_a_process_that_does_nothing_any_more_loses_its_lease(pair: tuple[Database, Database]) -> None:
    """It is told on a thread: its loop may never go on."""
    one, _two = pair
    lost = threading.Event()
    async with Replicas(one, release, lost.set, stuck_seconds=0.5).kept():
        assert lost.wait(2 * HELD_SECONDS)


async def seat(store: Database, lock: str, state: ReplicaState = ReplicaState.SERVING) -> None:
    """Register a process that has the lock of this name on its data_dir."""
    row = replace(replica(store), data_lock=lock, state=state)
    await store.run(lambda execute: replicas.register(execute, row, alone=False))


async def test_what_a_process_held_is_free_when_the_next_one_with_its_data_dir_serves(url: str) -> None:
    """Its lease has not ended, and its sessions have."""
    async with opened(url) as after, opened(url) as other:
        async with opened(url) as before:
            await seat(before, "a")
        await seat(other, "b")
        await seat(after, "a", ReplicaState.STARTING)
        forget = partial(replicas.forget_predecessors, id=after.me)
        assert await after.run(forget) == ([], True)
        await after.run(partial(replicas.enter, id=after.me, state=ReplicaState.SERVING))
        released: list[str] = []
        async with Replicas(after, lambda _execute: released.append(""), lambda: None).kept(), asyncio.timeout(60):
            while {each.id for each in await other.run(replicas.living)} != {after.me, other.me}:
                await asyncio.sleep(0.05)
        assert released
        assert await other.run(partial(replicas.forget_predecessors, id=other.me)) == ([], False)


async def test_a_process_whose_last_transaction_has_not_ended_keeps_its_lease(url: str) -> None:
    """What it commits may still name it as the owner."""
    async with opened(url) as after:
        async with opened(url) as before:
            await seat(before, "a")
            await seat(after, "a")
            assert await after.run(partial(replicas.forget_predecessors, id=after.me)) == ([], True)
        found: tuple[list[str], bool] = [], True  # until the server has ended the session of the one that was closed
        async with asyncio.timeout(60):
            while found == ([], True):
                found = await after.run(partial(replicas.forget_predecessors, id=after.me))
        assert found == ([before.me], False)


async def test_without_a_known_lock_a_lease_ends_by_itself(url: str) -> None:
    async with opened(url) as after, opened(url) as before:
        await seat(before, "")
        await seat(after, "")
        assert await after.run(partial(replicas.forget_predecessors, id=after.me)) == ([], False)


def test_a_lock_has_one_name_and_to_ask_does_not_release_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert name_lock(tmp_path / "one") == ""
    with ServiceLock(tmp_path / "one"), ServiceLock(tmp_path / "two"):
        first, second = name_lock(tmp_path / "one"), name_lock(tmp_path / "two")
        assert len({first, second, ""}) == 3
        assert _held_for_others(tmp_path / "one")
    with ServiceLock(tmp_path / "one"):
        assert name_lock(tmp_path / "one") == first


def _held_for_others(data_dir: Path) -> bool:
    """Ask in another process: this one would release the lock by asking."""
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(is_held, (data_dir,))
