"""Start what may come after the channels listen: sandboxes, agent, turns, jobs, and the loops of the features.

Open what listens for HTTP: the socket of this machine, and the address of `http.listen`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.base.agent_loading import collection_paused, freeze_heap, import_agent, import_channels
from bot.base.background import JobWorker, run_forever
from bot.commands.feature import Door, Service
from bot.config.schema import Config
from bot.fleet.runs_in_sight import RunsInSight
from bot.fleet.turn_news import TurnNews
from bot.http.local_socket import serving_machine
from bot.journey.titles import SHOW_TITLE_JOB, TITLE_JOB, make_title, show_title
from bot.journey.turn_runner import TurnRunner
from bot.main.features import FEATURES, gather_personal, gather_waits
from bot.main.parts import Parts
from bot.rights.reservations import Budgets
from bot.service.agent_builder import AgentBuilder
from bot.service.audit_upkeep import EgressRecords
from bot.service.sandbox_setup import reap_sandboxes, sandbox_settings
from channels.console import AttachedView
from sandbox.disk.quota import QuotaProvider
from sandbox.engines.select import select_provider
from sandbox.network.preview import PreviewServer

if TYPE_CHECKING:
    from agent.core.context import MakePreviewLink
    from bot.http.route import Route


AttachConsole = Callable[[dict[str, Any], AttachedView], Awaitable[None]]


async def open_http(stack: AsyncExitStack, parts: Parts, more: Sequence[Route], attach: AttachConsole) -> Door:
    """Listen for HTTP: on the socket of this machine, and where an address is configured.

    `attach` serves a console of another process. Raises AgentConfigError where it cannot listen.
    """
    store, current, status = parts.store, parts.current, parts.status
    runs = RunsInSight(store, parts.scheduler, current)
    await stack.enter_async_context(runs.shared())
    door = Door(
        store=store,
        current=current,
        receive=parts.inbox.receive,
        receive_one=parts.inbox.receive_one,
        channel=parts.channel,
        commands=parts.commands,
        status=status,
        runs=runs,
        folders=parts.folders,
        command=parts.runner.answer_now,
        operations=parts.operations(),
    )
    served: list[Route] = []

    def routes_of_machine() -> Sequence[Route]:
        from bot.admin.machine_endpoints import MachineEndpoints
        from bot.http.health import HealthProbes

        return [
            *MachineEndpoints(door.operations, attach).routes(),
            *(served or HealthProbes(status.troubles).routes()),
        ]

    if current.config.http.listen:
        from bot.http.health import HealthProbes
        from bot.http.listener import listening

        served += [*HealthProbes(status.troubles).routes(), *more]
        for feature in FEATURES:
            served += feature.routes(door) if feature.routes else ()
        status.http_address = await stack.enter_async_context(listening(current.config.http, served))
    await stack.enter_async_context(serving_machine(current.config.data_dir, routes_of_machine))
    return door


log = logging.getLogger(__name__)


async def run_turns(parts: Parts, door: Door) -> None:
    """Build the agent (its import takes 1.5 s, while the channels already listen), then run turns and jobs."""
    config, store, current, status = parts.config, parts.store, parts.current, parts.status
    egress = EgressRecords(store)
    await asyncio.to_thread(import_channels, parts.supervisor.names)  # Docker's client takes long to load, too
    async with AsyncExitStack() as stack:
        with collection_paused():
            (engine, status.sandbox, why), _ = await asyncio.gather(
                select_provider(config.sandbox.provider, sandbox_settings(config, egress.note), parts.folders),
                asyncio.to_thread(import_agent),
            )
            log.info("sandbox.chosen description=%s why=%s", status.sandbox, why)
            provider = QuotaProvider(engine, parts.folders)
            status.sandbox_use = provider.use
            stack.push_async_callback(provider.close)
            preview = await _start_preview(config, stack)
            builder = AgentBuilder(store, parts.skills, preview, runs_commands=provider.runs_commands)
            await parts.reloader.begin(builder)
            stack.push_async_callback(current.close)
        freeze_heap()
        log.info("app.ready models=%s", ",".join(current.models))
        budgets, jobs = Budgets(store, current), JobWorker(store)
        service = Service(
            store=store,
            current=current,
            budgets=budgets,
            commands=parts.commands,
            provider=provider,
            folders=parts.folders,
            channel=parts.channel,
            stop_run=parts.scheduler.stop_run,
            personal=gather_personal(),
            waits=gather_waits(current).listed,
        )
        begun = [feature.start(service) for feature in FEATURES]
        turns = TurnRunner(
            store=store,
            current=current,
            provider=provider,
            folders=parts.folders,
            outbox=parts.outbox,
            channel=parts.channel,
            data_dir=config.data_dir,
            budgets=budgets,
            rates=parts.rates,
            parser=builder.parser,
            parts=[each.turn for each in begun if each.turn],
        )
        jobs.register(TITLE_JOB, partial(make_title, budgets))
        jobs.register(SHOW_TITLE_JOB, partial(show_title, store, parts.channel))
        for each in begun:
            jobs.register_kinds(each.jobs)
            door.operations.update(each.operations)
        status.is_ready, door.service = True, service
        parts.systemd.send("READY=1")
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.scheduler.serve(turns), name="scheduler")
            group.create_task(jobs.serve(), name="jobs")
            group.create_task(TurnNews(store, parts.scheduler).serve(), name="turn news")
            for each in begun:
                for name, loop in each.loops.items():
                    group.create_task(loop(), name=name)
                for name, loop in each.single.items():
                    group.create_task(parts.leases.run(name, loop), name=name)
            group.create_task(run_forever("disk", provider.watch), name="disk")
            group.create_task(egress.serve(), name="egress records")
            group.create_task(run_forever("reaper", partial(reap_sandboxes, provider, current)), name="reaper")


async def _start_preview(config: Config, stack: AsyncExitStack) -> MakePreviewLink | None:
    """Serve links to servers in sandboxes, if previews are enabled."""
    if not config.sandbox.preview.enabled:
        return None
    return (await stack.enter_async_context(PreviewServer(config.sandbox.preview))).make_link
