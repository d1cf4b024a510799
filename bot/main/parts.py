"""Build the parts that carry messages, over an open database. All of them exist, complete, before anything runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from bot.admin.operations import Operation, Operations
from bot.base.leases import Leases
from bot.base.process import SystemdNotifier
from bot.base.skill_library import open_library
from bot.commands.call import CommandService
from bot.commands.reload import answer_reload
from bot.commands.runner import CommandRunner
from bot.commands.table import FeatureReception
from bot.config.schema import Config
from bot.config.source import ConfigSource
from bot.database.database import Database
from bot.fleet.reload import ConfigReloader
from bot.journey.inbox import Inbox
from bot.journey.outbox import Outbox
from bot.journey.scheduler import Scheduler
from bot.main.console_host import ServiceConsoleHost
from bot.main.features import gather_checks, gather_commands, gather_meetings, gather_presses, gather_waits
from bot.main.startup import web_connector
from bot.rights.current import Current
from bot.rights.rates import ToolAndMessageRates
from bot.service.channel_state import StoredChannelState
from bot.service.channel_supervisor import ChannelSupervisor, Connect
from bot.service.sandbox_setup import folders
from bot.status.status import ServiceStatus
from channels import console
from channels.base import Channel


class Parts:
    """What carries messages. `stop` ends the service."""

    def __init__(
        self,
        config: Config,
        connects: Mapping[str, Connect],
        source: ConfigSource,
        store: Database,
        stop: asyncio.Event,
    ) -> None:
        self.config, self.store, self.stop = config, store, stop  # the configuration as it was at start
        self.skills = open_library(config)
        self.current = current = Current(config, self.skills)
        self.rates = ToolAndMessageRates(current, is_shared=store.is_shared)
        self.commands = gather_commands(current)
        self.systemd = SystemdNotifier(config.systemd)
        self.folders = folders(config)
        self.leases = Leases(store)
        self.supervisor = supervisor = ChannelSupervisor(
            {**connects, **web_connector(config, store), "console": partial(self._connect_console, connects)},
            self._drain_console,
            self.commands.listed,
            partial(StoredChannelState, store, current),
            leases=self.leases,
        )
        self.channel = supervisor.channels.get
        waits = gather_waits(current)
        self.outbox = Outbox(store, self.channel, current, supervisor.without, waits.asked_in_private)
        self.scheduler = Scheduler(store, current)
        self.status = ServiceStatus(
            store,
            self.scheduler,
            supervisor.channels,
            tuple(connects),
            current,
            stands_by=supervisor.stands_by,
            waiting=self.outbox.waiting_for_people,
        )
        self.platforms = [name for name in connects if name != "console"]
        self.host = ServiceConsoleHost(store, self.scheduler, self.status, self.platforms)
        answer = partial(answer_reload, store)
        self.reloader = ConfigReloader(store, current, source, answer, gather_checks, self._reconnect)
        presses = gather_presses(current)
        self.runner = CommandRunner(
            store,
            CommandService(
                current=current,
                status=self.status.describe,
                health=self.status.health,
                stop_run=self.scheduler.stop_run,
                channel=self.channel,
                commands=self.commands,
                channel_states=lambda: [line for line, _ in self.status.describe_channels().values()],
                take_tool=self.rates.take_once,
                waits=waits.listed,
                reload=self.reloader.request,
            ),
            presses,
        )
        meet = gather_meetings(current, lambda: "console" in supervisor.channels)
        reception = FeatureReception(self.commands, presses, meet, waits)
        self.inbox = Inbox(store, current, self.scheduler, reception)

    @property
    def console(self) -> console.ConsoleChannel | None:
        """The console, while it is connected."""
        channel = self.supervisor.channels.get("console")
        return channel if isinstance(channel, console.ConsoleChannel) else None

    def operations(self) -> dict[str, Operation]:
        """Return what users of this machine can have the service do."""
        table = Operations(
            self.store,
            self.config.data_dir,
            self.folders,
            lambda: self.skills.folders.custom,
            lambda: self.status.http_address,
            sealer=lambda: self.current.config.encryption.sealer(),
            ignored=lambda: tuple(self.inbox.ignored),
        ).table()
        return {**table, **self.status.operations(), "reload": self.reloader.reload_for_command_line}

    async def stop_when_idle(self) -> None:
        """Answer everything that arrived, then stop."""
        try:
            await self.scheduler.wait_until_idle()
            await self.outbox.wait_until_idle()
        finally:
            self.stop.set()

    def _reconnect(self, channel: str, connect: Connect) -> None:
        self.supervisor.reconnect(channel, connect)
        self.outbox.try_again(channel)

    def _connect_console(self, connects: Mapping[str, Connect]) -> AbstractAsyncContextManager[Channel]:
        """Open the given console, or one for attached consoles only."""
        place = console.ConsolePlace(self.config.data_dir / "console")
        no_view = partial(console.connect, console.ConsoleSettings(), place, has_view=False)
        open_console: Any = connects.get("console") or no_view  # `channels.console.connect`, which also takes the host
        context: AbstractAsyncContextManager[Channel] = open_console(host=self.host)
        return context

    async def _drain_console(self) -> None:
        """Stop. If the input was piped, answer all of it before."""
        if not sys.stdin.isatty():
            await self.stop_when_idle()
        self.stop.set()
