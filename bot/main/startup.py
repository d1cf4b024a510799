"""Open the database and the listener at a start, and end what the last process left open.

Register this process among those that work on the database, and release what dead ones held.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from agent.fair_slots import share_model_calls
from bot.base.data_dir import host_name
from bot.base.process import LoopWatch
from bot.base.version import VERSION
from bot.config.schema import Config
from bot.config.source import shared_digest
from bot.database.audit import AuditEvent, AuditKind
from bot.database.data_lock import name_lock
from bot.database.database import Database, DatabaseAway, Execute, StorageError
from bot.database.disk_reserve import set_aside
from bot.database.migrate import COPYING, RESTORING
from bot.database.replicas import ALONE, ReplicaRow, enter, register
from bot.database.states import ReplicaState
from bot.database.web_people import WEB
from bot.fleet.membership import Replicas, exit_timer
from bot.journey import claims
from bot.journey.inbox import extend_bundle_wait
from bot.main import web_channel
from bot.main.features import FEATURES
from bot.rights.current import Current
from bot.service.audit_upkeep import record_config
from bot.service.channel_supervisor import Connect, connector_of
from bot.service.shared_files import follow_tokens
from bot.service.store import ENDED_SECONDS, open_store, prepare_store, store_fault
from bot.status.status import ServiceStatus
from bot.status.trouble import Trouble
from bot.storage.budgets import release_dead as release_dead_holds
from bot.storage.channels import StoredCatchUp
from bot.storage.jobs import release_stale_jobs
from bot.storage.languages import read_chosen
from catalogue import localized
from channels.shared.rate_limit import share_accounts
from channels.shared.texts import use_chosen_languages
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import remove_tree

if TYPE_CHECKING:
    from bot.http.route import Route


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


log = logging.getLogger(__name__)

FOLLOW_SECONDS = 5.0  # between two looks for languages that were chosen at other processes
AWAY_SECONDS = 0.5  # between two tries to reach a database


async def open_database(
    config: Config, stack: AsyncExitStack, stop: asyncio.Event, lost: Callable[[int], None]
) -> Database | None:
    """Open the database, upgraded to this version's schema. None: it was not there before `stop`.

    Where services share it, `lost` is called with the exit code when the lease of this one is over.

    Raises DatabaseFault and DatabaseInUse.
    """
    if backup := await asyncio.to_thread(prepare_store, config):
        log.info("store.migrated backup=%s", backup.name)
    is_told = False
    async with AsyncExitStack() as waiting:
        while not stop.is_set():
            try:
                async with AsyncExitStack() as attempt:  # ends what it opened, which holds the lock on the database
                    store = await attempt.enter_async_context(open_store(config, patience=ENDED_SECONDS, shared=True))
                    await store.run(partial(begin_process, config=config, store=store))
                    stack.push_async_exit(attempt.pop_all())
                    await keep_lease(store, config, stack, lost)
                    for name in (RESTORING, COPYING):  # of one that ended before it had removed it
                        await run_file_work(remove_tree, config.data_dir / name)
                    return store
            except DatabaseAway as error:
                fault = store_fault(config, error)
                log.warning("store.away reason=%s", fault)
                if config.http.listen and not is_told:
                    await waiting.enter_async_context(_answer_probes(config, localized(fault)))
                    is_told = True
                with suppress(TimeoutError):
                    async with asyncio.timeout(AWAY_SECONDS):
                        await stop.wait()
            except (sqlite3.Error, StorageError) as error:
                raise store_fault(config, error) from error
    return None


async def hand_over(store: Database) -> None:
    """Leave to other processes what waits for this one, which ends: they claim its conversations from now on."""
    if store.is_shared:
        with suppress(StorageError):  # then they do when it has ended
            await store.run(partial(enter, id=store.me, state=ReplicaState.STOPPING), first=True)


def _answer_probes(config: Config, why: str) -> AbstractAsyncContextManager[str]:
    """Answer probes while nothing else can be answered: alive, and not ready, because of the database."""
    from bot.http.health import HealthProbes
    from bot.http.listener import listening

    begun = time.time()

    async def look() -> list[Trouble]:
        return [Trouble("database", begun, why)]

    return listening(config.http, HealthProbes(look).routes())


def open_catch_up(config: Config, store: Database) -> StoredCatchUp:
    """Return what channels read to learn which messages they missed."""
    return StoredCatchUp(store, config.catch_up.hours, config.catch_up.messages)


def watch_loop(stack: AsyncExitStack) -> LoopWatch:
    """Watch how long the event loop is held up, until the stack is closed."""
    return stack.enter_context(LoopWatch())


async def use_languages(store: Database, current: Current) -> None:
    """Speak the languages that people and chats have chosen."""
    current.languages.replace(await store.run(read_chosen))
    use_chosen_languages(current.languages.find)


async def follow_languages(store: Database, current: Current, seconds: float = FOLLOW_SECONDS) -> None:
    """Take over what people choose at other processes, until cancelled. A process that works alone need not."""
    while store.is_shared:
        await asyncio.sleep(seconds)
        with suppress(StorageError):  # the next look has them
            current.languages.replace(await store.run(read_chosen, durable=False))


async def follow_others(store: Database, current: Current) -> None:
    """Take over what other processes on the database change, until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(follow_languages(store, current), name="languages of others")
        group.create_task(follow_tokens(store, current), name="tokens of others")


async def keep_reserve(store: Database) -> None:
    """Keep room on the disk for the database, where it is a file."""
    if store.path:
        await set_aside({store.path: store})


async def open_telemetry(
    store: Database, current: Current, status: ServiceStatus, watch: LoopWatch, stack: AsyncExitStack
) -> Sequence[Route]:
    """Count and trace what the service does, where the configuration asks for it; return the routes that tell it."""
    if not (current.config.metrics.enabled or current.config.traces.endpoint):
        return ()
    from bot.telemetry.opening import read_service

    return await read_service(store, current, status, watch, stack)


def platform_connectors(config: Config) -> dict[str, Connect]:
    """Return channel name → connect function of the configured platforms."""
    return {each.name: connector_of(each) for each in config.channels if each.name != "console"}


def web_connector(config: Config, store: Database) -> Mapping[str, Connect]:
    """Return channel name → connect function of the HTTP API, where an address is configured."""
    return {WEB: lambda: web_channel.connect(store, config.data_dir)} if config.http.listen else {}
