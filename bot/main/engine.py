"""Start what may come after the channels listen: sandboxes, agent, turns, jobs, and the loops of the features."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agent.skills.library import SkillLibrary
from bot.base.agent_loading import collection_paused, freeze_heap, import_agent, import_channels
from bot.base.background import run_forever
from bot.base.jobs import JobWorker
from bot.base.leases import Leases
from bot.base.systemd import SystemdNotifier
from bot.commands.feature import Door, Service
from bot.commands.table import Commands
from bot.config.schema import Config
from bot.database.database import Database
from bot.fleet.reload import ConfigReloader
from bot.fleet.turn_news import TurnNews
from bot.journey.outbox import Outbox
from bot.journey.scheduler import Scheduler
from bot.journey.titles import SHOW_TITLE_JOB, TITLE_JOB, make_title, show_title
from bot.journey.turn_runner import TurnRunner
from bot.main.features import FEATURES, gather_personal, gather_waits
from bot.rights.current import Current
from bot.rights.rates import ToolAndMessageRates
from bot.rights.reservations import Budgets
from bot.service.agent_builder import AgentBuilder
from bot.service.channel_supervisor import ChannelSupervisor
from bot.service.egress_records import EgressRecords
from bot.service.sandbox_setup import reap_sandboxes, sandbox_settings
from bot.status.status import ServiceStatus
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.quota import QuotaProvider
from sandbox.engines.select import select_provider
from sandbox.network.preview import PreviewServer

if TYPE_CHECKING:
    from agent.core.context import MakePreviewLink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs turns and jobs over the parts that listen."""

    config: Config
    store: Database
    current: Current
    skills: SkillLibrary
    commands: Commands
    rates: ToolAndMessageRates
    folders: ConversationFolders
    outbox: Outbox
    scheduler: Scheduler
    supervisor: ChannelSupervisor
    status: ServiceStatus
    reloader: ConfigReloader
    systemd: SystemdNotifier
    door: Door
    leases: Leases

    async def run(self) -> None:
        """Build the agent (its import takes 1.5 s, while the channels already listen), then run turns."""
        config = self.config
        egress = EgressRecords(self.store)
        await asyncio.to_thread(import_channels, self.supervisor.names)  # Docker's client takes long to load, too
        async with AsyncExitStack() as stack:
            with collection_paused():
                (engine, self.status.sandbox, why), _ = await asyncio.gather(
                    select_provider(config.sandbox.provider, sandbox_settings(config, egress.note), self.folders),
                    asyncio.to_thread(import_agent),
                )
                log.info("sandbox.chosen description=%s why=%s", self.status.sandbox, why)
                provider = QuotaProvider(engine, self.folders)
                self.status.sandbox_use = provider.use
                stack.push_async_callback(provider.close)
                preview, runs_commands = await self._start_preview(stack), provider.runs_commands
                builder = AgentBuilder(self.store, self.skills, preview, runs_commands=runs_commands)
                await self.reloader.begin(builder)
                stack.push_async_callback(self.current.close)
            freeze_heap()
            log.info("app.ready models=%s", ",".join(self.current.models))
            store, jobs, channel = self.store, JobWorker(self.store), self.supervisor.channels.get
            folders, outbox, current = self.folders, self.outbox, self.current
            budgets = Budgets(store, current)
            service = Service(
                *(store, current, budgets, self.commands),
                *(provider, folders, channel),
                *(self.scheduler.stop_run, gather_personal(), gather_waits(current).listed),
            )
            parts = [feature.start(service) for feature in FEATURES]
            turns = TurnRunner(
                *(store, current, provider, folders, outbox, channel, config.data_dir, budgets),
                *(self.rates, builder.parser, [part.turn for part in parts if part.turn]),
            )
            jobs.register(TITLE_JOB, partial(make_title, budgets))
            jobs.register(SHOW_TITLE_JOB, partial(show_title, store, channel))
            for part in parts:
                jobs.register_kinds(part.jobs)
                self.door.operations.update(part.operations)
            self.status.is_ready, self.door.service = True, service
            self.systemd.send("READY=1")
            async with asyncio.TaskGroup() as group:
                group.create_task(self.scheduler.serve(turns), name="scheduler")
                group.create_task(jobs.serve(), name="jobs")
                group.create_task(TurnNews(store, self.scheduler).serve(), name="turn news")
                for name, loop in ((name, loop) for part in parts for name, loop in part.loops.items()):
                    group.create_task(loop(), name=name)
                for name, loop in ((name, loop) for part in parts for name, loop in part.single.items()):
                    group.create_task(self.leases.run(name, loop), name=name)
                group.create_task(run_forever("disk", provider.watch), name="disk")
                group.create_task(egress.serve(), name="egress records")
                reap = partial(reap_sandboxes, provider, self.current)
                group.create_task(run_forever("reaper", reap), name="reaper")

    async def _start_preview(self, stack: AsyncExitStack) -> MakePreviewLink | None:
        """Serve links to servers in sandboxes, if previews are enabled."""
        if not self.config.sandbox.preview.enabled:
            return None
        return (await stack.enter_async_context(PreviewServer(self.config.sandbox.preview))).make_link
