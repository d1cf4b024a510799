"""Run the service: open the database, build the parts over it, and own their lifetimes up to one shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from bot.base.background import run_forever
from bot.commands.feature import Door
from bot.config.schema import Config
from bot.config.source import ConfigSource
from bot.database.database import Database
from bot.main.engine import open_http, run_turns
from bot.main.features import gather_greetings
from bot.main.parts import Parts
from bot.main.startup import (
    follow_others,
    hand_over,
    keep_reserve,
    open_catch_up,
    open_database,
    open_telemetry,
    use_languages,
    watch_loop,
)
from bot.service.channel_supervisor import Connect
from catalogue import configure_language
from channels import console

log = logging.getLogger(__name__)

START_POLL_SECONDS = 0.02  # between two looks whether the console is there
ANNOUNCE_SECONDS, STEADY_SECONDS = 0.5, 5.0  # between two looks at the channels: at the start, and when all are well
DELIVERY_SECONDS = 5.0  # how long a shutdown waits for the outbox


class App:
    """The service. `run` returns after a shutdown in which everything was recorded."""

    def __init__(self, config: Config, connects: Mapping[str, Connect], source: ConfigSource) -> None:
        self.config = config
        self._connects = connects
        self._source = source
        self._stop = asyncio.Event()
        self._lease_ended = 0  # the exit code, once others take over what this process holds
        self._parts: Parts | None = None  # once the database is open

    @property
    def store(self) -> Database:
        """The database. Raises RuntimeError before it is open."""
        if self._parts is None:
            raise RuntimeError("the service does not run yet")
        return self._parts.store

    @property
    def http_address(self) -> str:
        """Where it listens for HTTP, once turns can run; "" before."""
        return self._parts.status.http_address if self._parts and self._parts.status.is_ready else ""

    def stop(self) -> None:
        """End it, as SIGTERM does."""
        self._stop.set()

    async def stop_when_idle(self) -> None:
        """Answer everything that arrived, then stop."""
        if self._parts:
            await self._parts.stop_when_idle()
        self._stop.set()

    async def run(self, *, take_signals: bool = True) -> int:
        """Serve until `stop`, SIGTERM, SIGINT or the end of the console. Returns the exit code.

        The caller holds the lock on data_dir. Raises DatabaseFault, DatabaseInUse, AgentFault and SandboxUnavailable
        for faults that only show now.
        """
        if take_signals:
            self._take_signals()
        config = self.config
        configure_language("" if config.language == "auto" else config.language)  # every task inherits it
        async with AsyncExitStack() as stack:
            watch = watch_loop(stack)
            store = await open_database(config, stack, self._stop, self._lose_lease)
            if store is None:
                return 0
            self._parts = parts = Parts(config, self._connects, self._source, store, self._stop)
            await use_languages(store, parts.current)
            await parts.skills.refresh()
            routes = await open_telemetry(store, parts.current, parts.status, watch, stack)
            door = await open_http(stack, parts, routes, self._attach_console)
            try:
                await self._run_tasks(parts, door)
            except ExceptionGroup as group:  # report a single configuration fault as itself
                raise _single_error(group) from None
        return self._lease_ended

    def _lose_lease(self, code: int) -> None:
        """Stop at once, and write and post nothing more: others take over what this process holds."""
        self._lease_ended = code
        if self._parts:
            self._parts.scheduler.abandon()
        self._stop.set()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up, bool(sys.stdin and sys.stdin.isatty()))

    def _hang_up(self, had_terminal: bool) -> None:
        """Handle SIGHUP: read the configuration again, or stop where it means that the terminal was closed."""
        if self._parts and self._parts.platforms and not had_terminal:
            self._parts.reloader.request()
        else:
            self._stop.set()

    async def _run_tasks(self, parts: Parts, door: Door) -> None:
        past = open_catch_up(self.config, parts.store)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(parts.supervisor.serve(parts.inbox.receive, past), name="channels"),
                group.create_task(parts.leases.serve(), name="leases"),
                group.create_task(parts.outbox.serve(), name="outbox"),
                group.create_task(parts.runner.serve(), name="commands"),
                group.create_task(run_turns(parts, door), name="turns"),
                group.create_task(parts.reloader.serve(), name="reload"),
                group.create_task(keep_reserve(parts.store), name="reserve"),
                group.create_task(follow_others(parts.store, parts.current), name="others"),
                group.create_task(
                    run_forever("announcements", partial(_announce_channels, parts, door)), name="announcements"
                ),
            ]
            if self.config.systemd.watchdog_seconds:
                feed = run_forever("watchdog", parts.systemd.feed_watchdog)
                tasks.append(group.create_task(feed, name="watchdog"))
            await self._stop.wait()
            log.info("app.stopping")
            await self._shut_down(parts)
            for task in tasks:
                task.cancel()
        log.info("app.stopped")

    async def _shut_down(self, parts: Parts) -> None:
        """Stop listening, and let turns end and answers go out, unless others take them over."""
        parts.status.is_stopping = True
        parts.systemd.send("STOPPING=1")
        grace = parts.current.limits.grace_seconds
        if channel := parts.console:
            channel.stop_listening()
            await channel.tell(parts.host.describe_stop(grace), console.Look.HINT)
        parts.supervisor.stop_listening()
        if self._lease_ended:
            return
        await hand_over(parts.store)
        await parts.scheduler.close(grace)
        try:
            async with asyncio.timeout(DELIVERY_SECONDS):
                await parts.outbox.wait_until_idle()
        except TimeoutError:
            log.warning("app.undelivered — a restart delivers the rest")

    async def _attach_console(self, hello: dict[str, Any], view: console.AttachedView) -> None:
        """Serve a console of another process. One that comes too late is disconnected."""
        while not (self._console or self._stop.is_set()):  # noqa: ASYNC110 — a moment of the start
            await asyncio.sleep(START_POLL_SECONDS)
        if self._console and not self._stop.is_set():
            await self._console.attach(hello, view)

    @property
    def _console(self) -> console.ConsoleChannel | None:
        return self._parts.console if self._parts else None


async def _announce_channels(parts: Parts, door: Door) -> None:
    """Say on the consoles where the page is, which channels are connected, and each change."""
    said: dict[str, tuple[str, bool]] = {}
    greets = sys.stdout.isatty()
    while True:
        if greets and parts.console:
            greets = False
            for line in await gather_greetings(door):
                await parts.console.tell(line)
        for name, state in parts.status.describe_channels().items():
            if said.get(name) != state and parts.console:
                said[name] = state
                await parts.console.tell(state[0], console.Look.HINT if state[1] else console.Look.FAULT)
        steady = len(said) >= len(parts.platforms) and all(is_ready for _, is_ready in said.values())
        await asyncio.sleep(STEADY_SECONDS if steady else ANNOUNCE_SECONDS)


def _single_error(group: ExceptionGroup[Exception]) -> Exception:
    only = group.exceptions[0] if len(group.exceptions) == 1 else group
    return _single_error(only) if isinstance(only, ExceptionGroup) and only is not group else only
