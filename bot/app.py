"""Build every part of the service, connect them, and own their lifetimes: one root task group, one shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.messages import Message
from bot.admin import operations
from bot.admin.status import ServiceStatus
from bot.commands.call import CommandService
from bot.commands.reception import FeatureReception
from bot.commands.reload import enqueue_outcome
from bot.commands.runner import CommandRunner
from bot.config.schema import Config
from bot.config.source import ConfigSource
from bot.console.host import ServiceConsoleHost
from bot.current import Current
from bot.feature import Service
from bot.features import FEATURES, gather_commands, gather_meetings, gather_presses
from bot.journey import claims
from bot.journey.inbox import Inbox, extend_bundle_wait
from bot.journey.outbox import Outbox
from bot.journey.scheduler import Scheduler
from bot.journey.titles import SHOW_TITLE_JOB, TITLE_JOB, make_title, show_title
from bot.journey.turn_runner import TurnRunner
from bot.reload import ConfigReloader, ReloadOutcome
from bot.rights.rates import ToolAndMessageRates
from bot.rights.reservations import Budgets
from bot.service.agent_builder import AgentBuilder
from bot.service.agent_loading import freeze_heap, import_agent
from bot.service.audit_upkeep import record_config
from bot.service.background import run_forever
from bot.service.channel_supervisor import ChannelSupervisor, Connect
from bot.service.jobs import JobWorker
from bot.service.loop_watch import LoopWatch
from bot.service.sandbox_setup import folders, sandbox_settings
from bot.service.skill_library import open_library
from bot.service.systemd import SystemdNotifier
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Database, Execute, StorageError
from bot.storage.disk_reserve import set_aside
from bot.storage.languages import read_chosen
from bot.storage.migrate import DatabaseFault, prepare_databases
from bot.storage.plan_holds import restore_holds
from bot.storage.watermarks import StoredCatchUp
from catalogue import configure_language
from channels import console
from channels.base import Channel
from channels.console.view import Look
from channels.shared.texts import use_chosen_languages
from sandbox.base import SandboxProvider
from sandbox.disk.quota import QuotaProvider
from sandbox.network.preview import PreviewServer
from sandbox.select import select_provider

if TYPE_CHECKING:
    from agent.context import MakePreviewLink

log = logging.getLogger(__name__)

REAP_INTERVAL_SECONDS = 30.0
START_POLL_SECONDS = 0.02  # between two looks whether the console is there
ANNOUNCE_SECONDS = 0.5  # between two looks at the health of the channels
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
        self._folders = folders(config)
        self._reported = tuple(connects)  # without a console that has no view of its own
        self._supervisor = ChannelSupervisor(
            {**connects, "console": lambda: self._connect_console(connects.get("console"))},
            self._drain_console,
            self._commands.listed,
        )
        self._store: Database
        self._outbox: Outbox
        self._scheduler: Scheduler
        self._jobs: JobWorker
        self._status: ServiceStatus
        self._host: ServiceConsoleHost
        self._reloader: ConfigReloader

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or the end of the console. Returns the exit code.

        The caller holds the lock on data_dir. Raises DatabaseFault, AgentFault and SandboxUnavailable for faults that
        only show now.
        """
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._stop.set)
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, self._hang_up, bool(sys.stdin and sys.stdin.isatty())
        )
        config = self.config
        configure_language("" if config.language == "auto" else config.language)  # every task inherits it
        async with AsyncExitStack() as stack:
            stack.enter_context(LoopWatch())
            self._store = await _open_database(config, stack)
            self._current.languages.replace(await self._store.run(read_chosen))
            use_chosen_languages(self._current.languages.find)
            await self._skills.refresh()
            store, channels = self._store, self._supervisor.channels
            self._jobs = JobWorker(store)
            self._outbox = Outbox(store, channels.get, self._current)
            self._scheduler = Scheduler(store, self._current)
            self._status = ServiceStatus(store, self._scheduler, channels, self._reported, self._current)
            self._host = ServiceConsoleHost(store, self._scheduler, self._status, self._platforms)
            self._reloader = ConfigReloader(store, self._current, self._source, self._answer_reload)
            service = CommandService(
                self._current,
                self._status.describe,
                self._status.health,
                self._scheduler.stop_run,
                channels.get,
                self._commands,
                lambda: [line for line, _ in self._status.describe_channels().values()],
                self._rates.take_once,
                self._reloader.request,
            )
            presses = gather_presses(self._current)
            runner = CommandRunner(store, service, presses)
            meet = gather_meetings(self._current, lambda: "console" in channels)
            reception = FeatureReception(self._commands, presses, meet)
            table = operations.Operations(
                store, config.data_dir, self._folders, lambda: self._skills.folders.custom
            ).table()
            more = {"status": self._status.report, "reload": self._reloader.reload_for_command_line}
            await stack.enter_async_context(
                operations.serve_control_socket(config.data_dir, {**table, **more}, self._attach_console)
            )
            try:
                inbox = Inbox(store, self._current, self._scheduler, reception)
                await self._run_tasks(inbox, runner)
            except ExceptionGroup as group:  # report a single configuration fault as itself
                raise _single_error(group) from None
        return 0

    async def _run_tasks(self, inbox: Inbox, runner: CommandRunner) -> None:
        data_dir = self.config.data_dir
        past = StoredCatchUp(self._store, self.config.catch_up.hours, self.config.catch_up.messages)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._supervisor.serve(inbox.receive, past), name="channels"),
                group.create_task(self._outbox.serve(), name="outbox"),
                group.create_task(runner.serve(), name="commands"),
                group.create_task(self._run_turns(), name="turns"),
                group.create_task(self._reloader.serve(), name="reload"),
                group.create_task(set_aside({data_dir / "fawn.db": self._store}), name="reserve"),
                group.create_task(run_forever("announcements", self._announce_channels), name="announcements"),
            ]
            if self.config.systemd.watchdog_seconds:
                feed = run_forever("watchdog", self._systemd.feed_watchdog)
                tasks.append(group.create_task(feed, name="watchdog"))
            await self._stop.wait()
            log.info("app.stopping")
            self._systemd.send("STOPPING=1")
            if channel := self._console:
                channel.stop_listening()
                await channel.tell(self._host.describe_stop(self._current.limits.grace_seconds), Look.HINT)
            self._supervisor.stop_listening()
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

    async def _answer_reload(self, message: Message, outcome: ReloadOutcome | None) -> None:
        await self._store.run(partial(enqueue_outcome, message=message, outcome=outcome))

    @property
    def _console(self) -> console.ConsoleChannel | None:
        channel = self._supervisor.channels.get("console")
        return channel if isinstance(channel, console.ConsoleChannel) else None

    async def _attach_console(
        self, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve a console of another process. One that comes too late is disconnected."""
        while not self._console and not self._stop.is_set():  # noqa: ASYNC110 — a moment of the start
            await asyncio.sleep(START_POLL_SECONDS)
        if self._console and not self._stop.is_set():
            await self._console.attach(hello, reader, writer)

    async def _announce_channels(self) -> None:
        """Say on the consoles which channels are connected, and each change."""
        said: dict[str, tuple[str, bool]] = {}
        while True:
            for name, state in self._status.describe_channels().items():
                if said.get(name) != state and self._console:
                    said[name] = state
                    await self._console.tell(state[0], Look.HINT if state[1] else Look.FAULT)
            await asyncio.sleep(ANNOUNCE_SECONDS)

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

    async def _run_turns(self) -> None:
        """Build the agent (its import takes 1.5 s, while the channels already listen), then run turns."""
        config = self.config
        (engine, self._status.sandbox, why), _ = await asyncio.gather(
            select_provider(config.sandbox.provider, sandbox_settings(config), self._folders),
            asyncio.to_thread(import_agent, self._supervisor.names),
        )
        log.info("sandbox.chosen description=%s why=%s", self._status.sandbox, why)
        provider = QuotaProvider(engine, self._folders)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(provider.close)
            preview, runs_commands = await self._start_preview(stack), provider.runs_commands
            builder = AgentBuilder(self._store, self._skills, preview, runs_commands=runs_commands)
            await self._reloader.begin(builder)
            stack.push_async_callback(self._current.close)
            freeze_heap()
            log.info("app.ready models=%s", ",".join(self._current.models))
            store, jobs, channel = self._store, self._jobs, self._supervisor.channels.get
            folders, outbox, current, budgets = (
                self._folders,
                self._outbox,
                self._current,
                Budgets(store, self._current),
            )
            service = Service(
                *(store, current, budgets, self._commands),
                *(provider, folders, channel, self._scheduler.stop_run),
            )
            parts = [feature.start(service) for feature in FEATURES]
            turns = TurnRunner(
                *(store, current, provider, folders, outbox, channel, config.data_dir, budgets),
                *(self._rates, builder.parser, [part.turn for part in parts if part.turn]),
            )
            jobs.register(TITLE_JOB, partial(make_title, budgets))
            jobs.register(SHOW_TITLE_JOB, partial(show_title, store, channel))
            for part in parts:
                jobs.register_kinds(part.jobs)
            self._status.is_ready = True
            self._systemd.send("READY=1")
            async with asyncio.TaskGroup() as group:
                group.create_task(self._scheduler.serve(turns), name="scheduler")
                group.create_task(jobs.serve(), name="jobs")
                for name, loop in ((name, loop) for part in parts for name, loop in part.loops.items()):
                    group.create_task(loop(), name=name)
                group.create_task(run_forever("disk", provider.watch), name="disk")
                reap = partial(_reap_sandboxes, provider, self._current)
                group.create_task(run_forever("reaper", reap), name="reaper")

    async def _start_preview(self, stack: AsyncExitStack) -> MakePreviewLink | None:
        """Serve links to servers in sandboxes, if previews are enabled."""
        if not self.config.sandbox.preview.enabled:
            return None
        return (await stack.enter_async_context(PreviewServer(self.config.sandbox.preview))).make_link


async def _open_database(config: Config, stack: AsyncExitStack) -> Database:
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


def _release_previous_process(execute: Execute, config: Config) -> None:
    record_config(execute, config, AuditEvent(AuditKind.SERVICE_STARTED))
    claims.release_stale_claims(execute)
    restore_holds(execute)
    for feature in FEATURES:
        if feature.recover:
            feature.recover(execute, config, time.time())
    extend_bundle_wait(execute, time.time())


async def _reap_sandboxes(provider: SandboxProvider, current: Current) -> None:
    await asyncio.sleep(REAP_INTERVAL_SECONDS)
    if keys := await provider.reap(current.config.sandbox.idle_minutes * 60):
        log.info("sandbox.reaped count=%d", len(keys))


def _single_error(group: ExceptionGroup[Exception]) -> Exception:
    only = group.exceptions[0] if len(group.exceptions) == 1 else group
    return _single_error(only) if isinstance(only, ExceptionGroup) and only is not group else only
