"""Build every part of the service, connect them, and own their lifetimes: one root task group, one shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

from bot.admin import operations
from bot.base.background import run_forever
from bot.base.leases import Leases
from bot.base.skill_library import open_library
from bot.base.systemd import SystemdNotifier
from bot.commands.call import CommandService
from bot.commands.reception import FeatureReception
from bot.commands.reload import answer_reload
from bot.commands.runner import CommandRunner
from bot.config.schema import Config
from bot.config.source import ConfigSource
from bot.database.database import Database
from bot.fleet.reload import ConfigReloader
from bot.journey.inbox import Inbox
from bot.journey.outbox import Outbox
from bot.journey.scheduler import Scheduler
from bot.main.console_host import ServiceConsoleHost
from bot.main.engine import Engine
from bot.main.features import (
    gather_checks,
    gather_commands,
    gather_greetings,
    gather_meetings,
    gather_presses,
    gather_waits,
)
from bot.main.listeners import open_http
from bot.main.startup import (
    follow_others,
    hand_over,
    keep_reserve,
    open_catch_up,
    open_database,
    open_telemetry,
    use_languages,
    watch_loop,
    web_connector,
)
from bot.rights.current import Current
from bot.rights.rates import ToolAndMessageRates
from bot.service.channel_state import StoredChannelState
from bot.service.channel_supervisor import ChannelSupervisor, Connect
from bot.service.sandbox_setup import folders
from bot.status.status import ServiceStatus
from catalogue import configure_language
from channels import console
from channels.base import Channel

log = logging.getLogger(__name__)

START_POLL_SECONDS = 0.02  # between two looks whether the console is there
ANNOUNCE_SECONDS, STEADY_SECONDS = 0.5, 5.0  # between two looks at the channels: at the start, and when all are well
DELIVERY_SECONDS = 5.0  # how long a shutdown waits for the outbox


class App:
    """The service. `run` returns after a shutdown in which everything was recorded."""

    def __init__(self, config: Config, connects: Mapping[str, Connect], source: ConfigSource) -> None:
        self.config = config  # as it was at start, for parts that are built once
        self._skills = open_library(config)
        self._source = source
        self._current = Current(config, self._skills)
        self._rates = ToolAndMessageRates(self._current)
        self._commands = gather_commands(self._current)
        self._systemd = SystemdNotifier(config.systemd)
        self._stop = asyncio.Event()
        self._lease_ended = 0  # the exit code, once others take over what this process holds
        self._folders = folders(config)
        self._reported = tuple(connects)  # without a console that has no view of its own
        self._supervisor = ChannelSupervisor(
            {
                **connects,
                **web_connector(config, lambda: self._store),
                "console": lambda: self._connect_console(connects.get("console")),
            },
            self._drain_console,
            self._commands.listed,
            lambda name: StoredChannelState(self._store, self._current, name),
        )
        self._store: Database
        self._outbox: Outbox
        self._scheduler: Scheduler
        self._status: ServiceStatus
        self._leases: Leases
        self._host: ServiceConsoleHost
        self._reloader: ConfigReloader

    @property
    def store(self) -> Database:
        """The database, while it runs."""
        return self._store

    @property
    def http_address(self) -> str:
        """Where it listens for HTTP, once turns can run; "" before."""
        return self._status.http_address if hasattr(self, "_status") and self._status.is_ready else ""

    def stop(self) -> None:
        """End it, as SIGTERM does."""
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
            if not (opened := await open_database(config, stack, self._stop, self._lose_lease)):
                return 0
            self._store = opened
            self._rates.is_shared = opened.is_shared
            await use_languages(self._store, self._current)
            await self._skills.refresh()
            store, channels = self._store, self._supervisor.channels
            self._make_parts()
            routes = await open_telemetry(store, self._current, self._status, watch, stack)
            self._host = ServiceConsoleHost(store, self._scheduler, self._status, self._platforms)
            answer = partial(answer_reload, store)
            self._reloader = ConfigReloader(store, self._current, self._source, answer, gather_checks, self._reconnect)
            waits = gather_waits(self._current)
            service = CommandService(
                self._current,
                self._status.describe,
                self._status.health,
                self._scheduler.stop_run,
                channels.get,
                self._commands,
                lambda: [line for line, _ in self._status.describe_channels().values()],
                self._rates.take_once,
                waits.listed,
                self._reloader.request,
            )
            presses = gather_presses(self._current)
            runner = CommandRunner(store, service, presses)
            meet = gather_meetings(self._current, lambda: "console" in channels)
            reception = FeatureReception(self._commands, presses, meet, waits)
            table = operations.Operations(
                *(store, config.data_dir, self._folders, lambda: self._skills.folders.custom, self._http_address),
                sealer=lambda: self._current.config.encryption.sealer(),
            ).table()
            more = {**self._status.operations(), "reload": self._reloader.reload_for_command_line}
            inbox = Inbox(store, self._current, self._scheduler, reception)
            self._door = await open_http(
                *(stack, store, self._current, inbox, channels.get),
                *(self._commands, self._status, self._scheduler),
                *(self._folders, runner.answer_now, routes),
                machine=({**table, **more}, self._attach_console),
            )
            try:
                await self._run_tasks(inbox, runner)
            except ExceptionGroup as group:  # report a single configuration fault as itself
                raise _single_error(group) from None
        return self._lease_ended

    def _lose_lease(self, code: int) -> None:
        """Stop at once, and write and post nothing more: others take over what this process holds."""
        self._lease_ended = code
        if hasattr(self, "_scheduler"):
            self._scheduler.abandon()
        self._stop.set()

    def _make_parts(self) -> None:
        """Make what carries messages, over the database."""
        store, supervisor = self._store, self._supervisor
        self._leases = supervisor.leases = Leases(store)
        self._outbox = Outbox(store, supervisor.channels.get, self._current, supervisor.without)
        self._scheduler = Scheduler(store, self._current)
        shown = (store, self._scheduler, supervisor.channels, self._reported, self._current)
        self._status = ServiceStatus(*shown, supervisor.stands_by)

    def _reconnect(self, channel: str, connect: Connect) -> None:
        self._supervisor.reconnect(channel, connect)
        self._outbox.try_again(channel)

    def _http_address(self) -> str:
        return self._status.http_address

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up, bool(sys.stdin and sys.stdin.isatty()))

    def _engine(self) -> Engine:
        return Engine(
            *(self.config, self._store, self._current, self._skills, self._commands),
            *(self._rates, self._folders, self._outbox, self._scheduler, self._supervisor),
            *(self._status, self._reloader, self._systemd, self._door),
            self._leases,
        )

    async def _run_tasks(self, inbox: Inbox, runner: CommandRunner) -> None:
        past = open_catch_up(self.config, self._store)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._supervisor.serve(inbox.receive, past), name="channels"),
                group.create_task(self._leases.serve(), name="leases"),
                group.create_task(self._outbox.serve(), name="outbox"),
                group.create_task(runner.serve(), name="commands"),
                group.create_task(self._engine().run(), name="turns"),
                group.create_task(self._reloader.serve(), name="reload"),
                group.create_task(keep_reserve(self._store), name="reserve"),
                group.create_task(follow_others(self._store, self._current), name="others"),
                group.create_task(run_forever("announcements", self._announce_channels), name="announcements"),
            ]
            if self.config.systemd.watchdog_seconds:
                feed = run_forever("watchdog", self._systemd.feed_watchdog)
                tasks.append(group.create_task(feed, name="watchdog"))
            await self._stop.wait()
            log.info("app.stopping")
            self._status.is_stopping = True
            self._systemd.send("STOPPING=1")
            if channel := self._console:
                channel.stop_listening()
                await channel.tell(self._host.describe_stop(self._current.limits.grace_seconds), console.Look.HINT)
            self._supervisor.stop_listening()
            if self._lease_ended:
                for task in tasks:
                    task.cancel()
                return
            await hand_over(self._store)
            await self._scheduler.close(self._current.limits.grace_seconds)
            try:
                async with asyncio.timeout(DELIVERY_SECONDS):
                    await self._outbox.wait_until_idle()
            except TimeoutError:
                log.warning("app.undelivered — a restart delivers the rest")
            for task in tasks:
                task.cancel()
        log.info("app.stopped")

    def _connect_console(self, connect: Connect | None) -> AbstractAsyncContextManager[Channel]:
        """Open the given console, or one for attached consoles only."""
        place = console.ConsolePlace(self.config.data_dir / "console")
        no_view = partial(console.connect, console.ConsoleSettings(), place, has_view=False)
        open_console: Any = connect or no_view  # `channels.console.connect`, which also takes the host
        context: AbstractAsyncContextManager[Channel] = open_console(host=self._host)
        return context

    @property
    def _platforms(self) -> list[str]:
        """The channels except the console."""
        return [name for name in self._reported if name != "console"]

    def _hang_up(self, had_terminal: bool) -> None:
        """Handle SIGHUP: read the configuration again, or stop where it means that the terminal was closed."""
        if self._platforms and not had_terminal:
            self._reloader.request()
        else:
            self._stop.set()

    @property
    def _console(self) -> console.ConsoleChannel | None:
        channel = self._supervisor.channels.get("console")
        return channel if isinstance(channel, console.ConsoleChannel) else None

    async def _attach_console(self, hello: dict[str, Any], view: console.AttachedView) -> None:
        """Serve a console of another process. One that comes too late is disconnected."""
        while not self._console and not self._stop.is_set():  # noqa: ASYNC110 — a moment of the start
            await asyncio.sleep(START_POLL_SECONDS)
        if self._console and not self._stop.is_set():
            await self._console.attach(hello, view)

    async def _announce_channels(self) -> None:
        """Say on the consoles where the page is, which channels are connected, and each change."""
        said: dict[str, tuple[str, bool]] = {}
        greets = sys.stdout.isatty()
        while True:
            if greets and self._console:
                greets = False
                for line in await gather_greetings(self._door):
                    await self._console.tell(line)
            for name, state in self._status.describe_channels().items():
                if said.get(name) != state and self._console:
                    said[name] = state
                    await self._console.tell(state[0], console.Look.HINT if state[1] else console.Look.FAULT)
            steady = len(said) >= len(self._platforms) and all(is_ready for _, is_ready in said.values())
            await asyncio.sleep(STEADY_SECONDS if steady else ANNOUNCE_SECONDS)

    async def _drain_console(self) -> None:
        """Stop. If the input was piped, answer all of it before."""
        if not sys.stdin.isatty():
            await self.stop_when_idle()
        self._stop.set()

    async def stop_when_idle(self) -> None:
        """Answer everything that arrived, then stop."""
        try:
            await self._scheduler.wait_until_idle()
            await self._outbox.wait_until_idle()
        finally:
            self._stop.set()


def _single_error(group: ExceptionGroup[Exception]) -> Exception:
    only = group.exceptions[0] if len(group.exceptions) == 1 else group
    return _single_error(only) if isinstance(only, ExceptionGroup) and only is not group else only
