"""Open what listens for HTTP: the socket of this machine, and the address of `http.listen`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from agent.messages import Message
from bot.admin.operations import Operation
from bot.commands.feature import Door
from bot.commands.table import Commands
from bot.database.database import Database
from bot.fleet.runs_in_sight import RunsInSight
from bot.http.local_socket import serving_machine
from bot.journey.inbox import Inbox
from bot.journey.scheduler import Scheduler
from bot.main.features import FEATURES
from bot.rights.current import Current
from bot.status.status import ServiceStatus
from channels.base import Channel
from channels.console import AttachedView
from sandbox.disk.folders import ConversationFolders

if TYPE_CHECKING:
    from bot.http.route import Route

Machine = tuple[dict[str, Operation], Callable[[dict[str, Any], AttachedView], Awaitable[None]]]


async def open_http(
    stack: AsyncExitStack,
    store: Database,
    current: Current,
    inbox: Inbox,
    channel: Callable[[str], Channel | None],
    commands: Commands,
    status: ServiceStatus,
    scheduler: Scheduler,
    folders: ConversationFolders,
    command: Callable[[Message], Awaitable[str]],
    more: Sequence[Route],
    machine: Machine,
) -> Door:
    """Listen for HTTP: on the socket of this machine, and where an address is configured.

    `machine` has the operations of its users, and attaches their consoles. Raises AgentConfigError where it cannot.
    """
    runs = RunsInSight(store, scheduler, current)
    await stack.enter_async_context(runs.shared())
    ways_in = (inbox.receive, inbox.receive_one, channel, commands)
    door = Door(store, current, *ways_in, status, runs, folders, command, machine[0])
    served: list[Route] = []

    def routes_of_machine() -> Sequence[Route]:
        from bot.admin.machine_endpoints import MachineEndpoints
        from bot.http.health import HealthProbes

        return [*MachineEndpoints(*machine).routes(), *(served or HealthProbes(status.troubles).routes())]

    if current.config.http.listen:
        from bot.http.health import HealthProbes
        from bot.http.listener import listening

        served += [*HealthProbes(status.troubles).routes(), *more]
        for feature in FEATURES:
            served += feature.routes(door) if feature.routes else ()
        status.http_address = await stack.enter_async_context(listening(current.config.http, served))
    await stack.enter_async_context(serving_machine(current.config.data_dir, routes_of_machine))
    return door
