"""Build every part, give each its neighbours, own their lifetimes: one root task group, one orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.messages import Kind
from bot import commands, inbox
from bot.access import AccessPolicy
from bot.admin import operations
from bot.admin.status import ServiceStatus
from bot.background import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, STEADY_SECONDS, run_forever
from bot.commands import CommandRunner
from bot.config.schema import AccessConfig, Config
from bot.inbox import Arrived, Inbox
from bot.outbox import Outbox
from bot.retention import Retention
from bot.scheduler import Scheduler
from bot.storage import runs
from bot.storage.database import Database, Execute, StorageError
from bot.storage.disk_reserve import set_aside
from bot.storage.migrate import DatabaseFault, prepare
from bot.storage.watermarks import StoredCatchUp
from bot.turn_runner import TurnRunner
from channels.base import Channel, ChannelError
from sandbox.base import SandboxProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.loop_images import conversation_folders
from sandbox.disk.quota import QuotaProvider
from sandbox.docker.spec import DockerSettings
from sandbox.network.preview import PreviewServer
from sandbox.select import select_provider
from sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from agent.context import MakePreviewLink
    from agent.turn import Agent

log = logging.getLogger(__name__)

REAP_EVERY = 30.0
DELIVER = 5.0  # seconds that a stop gives the outbox

Connect = Callable[[], AbstractAsyncContextManager[Channel]]


class App:
    """The service. `run` returns when it was asked to stop and everything is recorded."""

    def __init__(self, config: Config, connects: Mapping[str, Connect]) -> None:
        self._config = config
        self._connects = connects
        self._channels: dict[str, Channel] = {}
        self._stop = asyncio.Event()  # somebody asked to stop
        self._deaf = asyncio.Event()  # channels take nothing new
        self._released = asyncio.Event()  # channels may disconnect
        self._working = asyncio.Event()  # the agent is there, turns are taken
        self._threads: Scheduler | None = None
        self._commands: CommandRunner
        self._outbox: Outbox
        self._status: ServiceStatus
        self._past: StoredCatchUp
        self._folders = folders(config)
        self.models = model_labels(config)

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or the end of the console. Returns the exit code.

        The caller holds the lock on data_dir. Raises DatabaseFault, AgentFault and SandboxUnavailable for what only
        shows now.
        """
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._stop.set)
        data_dir = self._config.data_dir
        async with AsyncExitStack() as stack:
            store, checkpoints = await _open(data_dir, stack)
            doors = AccessPolicy(
                {"console": AccessConfig(open=True)} | {entry.name: entry.access for entry in self._config.channels}
            )
            self._outbox = Outbox(store, self._channels.get, self._config.limits)
            self._status = ServiceStatus(store, self._channels, tuple(self._connects), self.models)
            self._commands = CommandRunner(store, doors, self, self._outbox.wake)
            self._past = StoredCatchUp(store, self._config.catch_up)
            entrance = Inbox(store, doors, self._config.limits, self)
            table = {
                **operations.Operations(store, data_dir, self._folders, self.wake).table(),
                "status": self._status.report,
            }
            await stack.enter_async_context(operations.serve_control_socket(data_dir, table))
            try:
                await self._run_tasks(store, checkpoints, entrance)
            except ExceptionGroup as group:  # one fault of the configuration is told as itself
                raise _single_error(group) from None
        return 0

    async def _run_tasks(self, store: Database, checkpoints: Database, entrance: Inbox) -> None:
        data_dir = self._config.data_dir
        databases = {data_dir / "fawn.db": store, data_dir / "checkpoints.db": checkpoints}
        async with asyncio.TaskGroup() as group:
            for name, connect in self._connects.items():
                group.create_task(self._supervise(name, connect, entrance), name=f"channel {name}")
            side = [
                group.create_task(self._outbox.serve(), name="outbox"),
                group.create_task(self._commands.serve(), name="commands"),
                group.create_task(self._run_turns(store, checkpoints), name="work"),
                group.create_task(set_aside(databases), name="reserve"),
            ]
            await self._stop.wait()
            log.info("app.stopping")
            self._deaf.set()
            if self._threads:
                await self._threads.close(self._config.limits.grace_seconds)
            try:
                async with asyncio.timeout(DELIVER):
                    await self._outbox.wait_until_idle()
            except TimeoutError:
                log.warning("app.undelivered — a restart delivers the rest")
            self._released.set()
            for task in side:
                task.cancel()
        log.info("app.stopped")

    async def _run_turns(self, store: Database, checkpoints: Database) -> None:
        """Build the agent (its import takes a second and a half, while channels listen already), then take turns."""
        config = self._config
        (engine, self._status.sandbox), _ = await asyncio.gather(
            select_provider(config.sandbox.provider, sandbox_settings(config), self._folders),
            asyncio.to_thread(_import_agent),
        )
        log.info(self._status.sandbox)
        provider = QuotaProvider(engine, self._folders)
        await self._folders.adopt_leftovers()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(provider.close)
            show = await self._start_preview(stack)
            agent = await self._build_agent(checkpoints, commands=provider.runs_commands, show=show)
            _settle_memory()
            log.info("app.ready models=%s", ",".join(self.models))
            turns = TurnRunner(
                store, agent, provider, self._folders, self._outbox, self._channels.get, config.data_dir, config.limits
            )
            self._threads = self._status.threads = Scheduler(store, turns, config.limits)
            self._working.set()
            stack.push_async_callback(agent.close)
            stack.push_async_callback(turns.titles.close)
            retention = Retention(store, config.data_dir, self._folders, config.keep_days, agent.forget)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._threads.serve(), name="threads")
                group.create_task(retention.serve(), name="retention")
                group.create_task(run_forever("disk", provider.watch), name="disk")
                reap = partial(_reap_sandboxes, provider, config.sandbox.idle_minutes * 60)
                group.create_task(run_forever("reaper", reap), name="reaper")

    async def _start_preview(self, stack: AsyncExitStack) -> MakePreviewLink | None:
        """Serve links to what runs in sandboxes, if the operator wants that."""
        if not self._config.sandbox.preview.enabled:
            return None
        return (await stack.enter_async_context(PreviewServer(self._config.sandbox.preview))).make_link

    async def _build_agent(self, checkpoints: Database, *, commands: bool, show: MakePreviewLink | None) -> Agent:
        from agent.factory import AgentSettings, build_agent

        config = self._config
        plan = AgentSettings(
            lead_model=config.roles.lead,
            title_model=config.roles.title,
            summary_model=config.roles.summary,
            prompt_file=config.prompt.file,
            prompt_extend=config.prompt.extend,
            time_zone=config.time_zone,
            trigger_tokens=config.context.trigger_tokens,
            trigger_messages=config.context.trigger_messages,
            keep_messages=config.context.keep_messages,
            output_chars=config.context.output_chars,
        )
        return await build_agent(config.models, plan, checkpoints, commands=commands, show=show)

    # ------------------------------------------------------------ channels

    async def _supervise(self, name: str, connect: Connect, entrance: Inbox) -> None:
        """Keep one channel going, whatever happens to it; its trouble is nobody else's."""
        wait = MIN_BACKOFF_SECONDS
        while not self._deaf.is_set():
            began = time.monotonic()
            try:
                async with connect() as channel:
                    self._channels[name] = channel
                    if await self._listen_until_stop(channel, entrance):
                        return
            except Exception as error:  # the boundary of one channel
                level = logging.WARNING if isinstance(error, (ChannelError, OSError)) else logging.ERROR
                log.log(level, "channel.down name=%s", name, exc_info=error)
            finally:
                self._channels.pop(name, None)
            wait = (
                MIN_BACKOFF_SECONDS if time.monotonic() - began > STEADY_SECONDS else min(MAX_BACKOFF_SECONDS, wait * 2)
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait * random.uniform(0.8, 1.2)):  # noqa: S311 — jitter
                    await self._deaf.wait()

    async def _listen_until_stop(self, channel: Channel, entrance: Inbox) -> bool:
        """Listen until the stop, then stay connected until the last reply is out. False: start the channel again."""
        listening = asyncio.create_task(channel.listen(entrance.receive, self._past), name=f"listen {channel.name}")
        announcing = asyncio.create_task(self._announce(channel), name=f"announce {channel.name}")
        deaf = asyncio.create_task(self._deaf.wait(), name=f"deaf {channel.name}")
        try:
            await asyncio.wait({listening, deaf}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and not self._deaf.is_set():
                listening.result()  # raises what ended it
                if channel.name != "console":
                    return False
                await self._console_ended()
            listening.cancel()
            await asyncio.wait({listening})
            await self._released.wait()
            return True
        finally:
            for task in (listening, announcing, deaf):
                task.cancel()

    async def _announce(self, channel: Channel) -> None:
        try:
            await channel.announce(commands.listed_commands())
        except ChannelError as error:  # a list of commands is a comfort; the channel works without
            log.warning("channel.announce name=%s reason=%s", channel.name, error)

    async def _console_ended(self) -> None:
        """The person left, or the piped text is all read: then its answers are waited for."""
        if not sys.stdin.isatty():
            await self._working.wait()
            if self._threads:
                await self._threads.wait_until_idle()
            await self._outbox.wait_until_idle()
        self._stop.set()

    # ------------------------------------------------------------ what commands may ask (`bot.commands.Service`)

    @property
    def notify_seconds(self) -> float:
        """See `bot.commands.Service`."""
        return self._config.limits.notify_seconds

    def status(self) -> str:
        """A few lines about the service."""
        return self._status.describe()

    def stop(self, run: int, by: str) -> None:
        """Cancel a run's work."""
        if self._threads:
            self._threads.stop_run(run, by)

    def wake(self) -> None:
        """The store was changed from outside a channel."""
        self._commands.wake()
        self._outbox.wake()
        if self._threads:
            self._threads.wake()

    # ------------------------------------------------------------ who wakes whom

    def woken(self, arrived: Arrived) -> None:
        """See `bot.inbox.Next`."""
        kinds = {message.kind for _, message in arrived.accepted}
        if Kind.COMMAND in kinds:
            self._commands.wake()
        if arrived.said:
            self._outbox.wake()
        if self._threads and kinds & set(inbox.TURN_KINDS):
            self._threads.arrived(arrived.accepted)


async def _open(data_dir: Path, stack: AsyncExitStack) -> tuple[Database, Database]:
    """Both databases, at this version's schema. Raises DatabaseFault."""
    if backup := await asyncio.to_thread(prepare, data_dir):
        log.info("store.migrated backup=%s", backup.name)
    try:
        store = await stack.enter_async_context(Database(data_dir / "fawn.db"))
        checkpoints = await stack.enter_async_context(Database(data_dir / "checkpoints.db"))
        await store.run(_release_previous_process)
    except (sqlite3.Error, StorageError) as error:
        raise DatabaseFault.of(error) from error
    return store, checkpoints


def _release_previous_process(execute: Execute) -> None:
    runs.release_all(execute)
    inbox.extend_bundle_wait(execute, time.time())


def _import_agent() -> None:
    """Load the agent stack: a second and a half, in a thread, so that channels listen meanwhile."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.001)  # the loop stays responsive while this thread imports
    importlib.import_module("agent.factory")
    sys.setswitchinterval(before)


def _settle_memory() -> None:
    """What was loaded stays: the collector need not walk over it again (a full round took 100 to 300 ms), and young
    objects, most of them gone when a turn ends, are looked through less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _reap_sandboxes(provider: SandboxProvider, idle: float) -> None:
    await asyncio.sleep(REAP_EVERY)
    if keys := await provider.reap(idle):
        log.info("sandbox.reaped count=%d", len(keys))


def model_labels(config: Config) -> dict[str, str]:
    """Name → label of every model that can be chosen, the lead first; the demo when none is configured."""
    named = {settings.name: settings.label for settings in config.models} or {"demo": "Built-in demo"}
    lead = config.roles.lead
    return {lead: named[lead], **named} if lead in named else named


def folders(config: Config) -> ConversationFolders:
    """What holds the conversations' folders."""
    sandbox = config.sandbox
    return conversation_folders(config.data_dir / "threads", sandbox.disk_mb, images=sandbox.disk == "images")


def sandbox_settings(config: Config) -> DockerSettings:
    """What the sandbox providers need of the configuration."""
    sandbox = config.sandbox
    same: dict[str, Any] = {each.name: getattr(sandbox, each.name) for each in fields(SandboxSettings)}
    return DockerSettings(
        **{**same, "skills": Path(sandbox.skills)},
        state=config.data_dir / "sandbox",
        image=sandbox.image,
        host=sandbox.docker_host,
        runtime=sandbox.runtime,
    )


def _single_error(group: ExceptionGroup[Exception]) -> Exception:
    only = group.exceptions[0] if len(group.exceptions) == 1 else group
    return _single_error(only) if isinstance(only, ExceptionGroup) and only is not group else only
