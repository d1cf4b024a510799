"""Register this process among those that work on the database, and release what dead ones held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial

from agent.fair_slots import share_model_calls
from bot.base.data_dir import host_name
from bot.base.version import VERSION
from bot.config.schema import Config
from bot.config.shared_digest import shared_digest
from bot.database.audit import AuditEvent, AuditKind
from bot.database.data_lock import name_lock
from bot.database.database import Database, Execute
from bot.database.replicas import ALONE, ReplicaRow, register
from bot.database.states import ReplicaState
from bot.fleet.membership import Replicas, exit_timer
from bot.journey import claims
from bot.journey.inbox import extend_bundle_wait
from bot.main.features import FEATURES
from bot.service.audit_upkeep import record_config
from bot.storage.jobs import release_stale_jobs
from bot.storage.plan_holds import release_dead as release_dead_holds
from channels.shared.rate_limit import share_accounts

LEASE_LOST = 1  # the exit code: a supervisor starts it again


def begin_process(execute: Execute, config: Config, store: Database) -> None:
    """Register this process, and release what dead ones held. Raises OtherVersions."""
    now = time.time()
    host = host_name(config.data_dir) if store.is_shared else ""
    state = ReplicaState.STARTING if store.is_shared else ReplicaState.SERVING
    lock = name_lock(config.data_dir) if store.is_shared else ""
    replica = ReplicaRow(store.me, host, ALONE, now, VERSION, shared_digest(config), state, lock)
    register(execute, replica, alone=not store.is_shared)
    record_config(execute, config, AuditEvent(AuditKind.SERVICE_STARTED))
    release_dead(execute, config, now)
    for feature in FEATURES:
        if feature.recover:
            feature.recover(execute, config, now)
    extend_bundle_wait(execute, now)


def release_dead(execute: Execute, config: Config, now: float) -> None:
    """Release what processes held that are dead."""
    claims.release_stale_claims(execute)
    release_stale_jobs(execute)
    release_dead_holds(execute)
    for feature in FEATURES:
        if feature.release:
            feature.release(execute, config, now)


async def keep_lease(store: Database, config: Config, stack: AsyncExitStack, lost: Callable[[int], None]) -> None:
    """Keep the lease of this process until the stack is closed, where others share the database.

    When it is over, `lost` is called with the exit code, and the process ends soon, whatever still waits for something.
    """
    if not store.is_shared:
        return

    loop = asyncio.get_running_loop()

    def end() -> None:
        exit_timer(LEASE_LOST).start()  # also where the loop is held
        with suppress(RuntimeError):  # it was closed
            loop.call_soon_threadsafe(lost, LEASE_LOST)

    await stack.enter_async_context(Replicas(store, partial(_release_now, config=config), end, share_limits).kept())


def share_limits(processes: int) -> None:
    """Divide the limits of accounts and of models between so many processes."""
    share_accounts(processes)
    share_model_calls(processes)


def _release_now(execute: Execute, config: Config) -> None:
    release_dead(execute, config, time.time())
