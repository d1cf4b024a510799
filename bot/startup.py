"""Open the database and the listener at a start, and end what the last process left open."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from bot.admin.status import ServiceStatus
from bot.config.schema import Config
from bot.current import Current
from bot.features import FEATURES
from bot.journey import claims
from bot.journey.inbox import extend_bundle_wait
from bot.service import web_channel
from bot.service.audit_upkeep import record_config
from bot.service.channel_supervisor import Connect, connector_of
from bot.service.loop_watch import LoopWatch
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Database, Execute, StorageError
from bot.storage.disk_reserve import set_aside
from bot.storage.languages import read_chosen
from bot.storage.migrate import DatabaseFault, prepare_databases
from bot.storage.plan_holds import restore_holds
from bot.storage.watermarks import StoredCatchUp
from bot.storage.web_people import WEB
from channels.shared.texts import use_chosen_languages

if TYPE_CHECKING:
    from bot.http.route import Route

log = logging.getLogger(__name__)


async def open_database(config: Config, stack: AsyncExitStack) -> Database:
    """Open the database, upgraded to this version's schema. Raises DatabaseFault."""
    data_dir = config.data_dir
    if backup := await asyncio.to_thread(prepare_databases, data_dir):
        log.info("store.migrated backup=%s", backup.name)
    try:
        store = await stack.enter_async_context(Database(data_dir / "fawn.db"))
        await store.run(partial(_release_previous_process, config=config))
    except (sqlite3.Error, StorageError) as error:
        raise DatabaseFault.from_error(error) from error
    return store


def open_catch_up(config: Config, store: Database) -> StoredCatchUp:
    """Return what channels read to learn which messages they missed."""
    return StoredCatchUp(store, config.catch_up.hours, config.catch_up.messages)


def _release_previous_process(execute: Execute, config: Config) -> None:
    record_config(execute, config, AuditEvent(AuditKind.SERVICE_STARTED))
    claims.release_stale_claims(execute)
    restore_holds(execute)
    for feature in FEATURES:
        if feature.recover:
            feature.recover(execute, config, time.time())
    extend_bundle_wait(execute, time.time())


async def use_languages(store: Database, current: Current) -> None:
    """Speak the languages that people and chats have chosen."""
    current.languages.replace(await store.run(read_chosen))
    use_chosen_languages(current.languages.find)


async def keep_reserve(config: Config, store: Database) -> None:
    """Keep room on the disk for the database."""
    await set_aside({config.data_dir / "fawn.db": store})


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


def web_connector(config: Config, store: Callable[[], Database]) -> Mapping[str, Connect]:
    """Return channel name → connect function of the HTTP API, where an address is configured."""
    return {WEB: lambda: web_channel.connect(store(), config.data_dir)} if config.http.listen else {}
