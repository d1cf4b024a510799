"""Define a feature: a value that says what it adds to the service. The core asks features; they know no other one.

Each feature has a folder, whose `feature.py` is its only door; `bot/main/features.py` is the only list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.messages import Message
from bot.base.background import JobKind
from bot.base.findings import Check
from bot.commands.call import Command
from bot.commands.table import Commands, NamedCommands, Press
from bot.commands.waits import Waiting, Waits
from bot.config.schema import Config
from bot.database.database import Database, Execute
from bot.fleet.runs_in_sight import RunsInSight
from bot.http.route import Route, still_starting
from bot.journey.turn_part import MakeTurnPart
from bot.rights.access import AccessPolicy
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.status.status import ServiceStatus
from bot.storage.inbox import InboxRow
from bot.storage.personal import Tables
from channels.base import Channel, Receipt, Receive
from sandbox.base import SandboxProvider
from sandbox.disk.folders import ConversationFolders

ReceiveOne = Callable[[Message], Awaitable[tuple[Receipt, InboxRow | None]]]


@dataclass(frozen=True, slots=True)
class Service:
    """The running service, as features use it."""

    store: Database
    current: Current
    budgets: Budgets
    commands: Commands
    provider: SandboxProvider
    folders: ConversationFolders
    channel: Callable[[str], Channel | None]
    stop_run: Callable[[int, str], None]  # cancels the work of a run for a person
    personal: Tables  # of the core and of all features
    waits: Callable[[Execute, Message, float], Sequence[tuple[int, Waiting]]]  # for the author, with its numbers

    def begins_work(self, command: Message) -> bool:
        """Return whether a command has the agent work."""
        return self.commands.begins_work(command)

    async def forget_checkpoint(self, conversation: str) -> None:
        """Delete what the agent remembers of a conversation."""
        await self.current.agent.forget(conversation)


Operations = dict[str, Callable[..., Awaitable[dict[str, Any]]]]


@dataclass(slots=True)
class Door:
    """The service as routes of HTTP use it, from the moment that it listens (`bot/http/route.py`)."""

    store: Database
    current: Current
    receive: Receive  # the inbox
    receive_one: ReceiveOne  # the same, which also returns the row of the event
    channel: Callable[[str], Channel | None]
    commands: Commands
    status: ServiceStatus
    runs: RunsInSight  # in progress, also at other processes, with what they show
    folders: ConversationFolders
    command: Callable[[Message], Awaitable[str]]  # runs a command now, and returns its answer instead of posting it
    operations: Operations = field(default_factory=dict)  # for users of this machine, also those of `Parts`
    service: Service | None = None  # once turns can run

    def running(self) -> Service:
        """Return the running service. Raises HttpProblem until turns can run."""
        if self.service is None:
            raise still_starting()
        return self.service


@dataclass(frozen=True, slots=True)
class Parts:
    """What a feature does while the service runs: jobs by kind, loops by name, and its part in each turn.

    Of several processes, one runs what is in `single`. `operations` are for users of this machine.
    """

    jobs: Mapping[str, JobKind] = field(default_factory=dict)
    loops: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    turn: MakeTurnPart | None = None
    single: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    operations: Operations = field(default_factory=dict)


def _no_parts(_service: Service) -> Parts:
    return Parts()


def _no_checks(_config: Config) -> Iterable[Check]:
    return ()


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature.

    `presses` are by the begin of a question's id. `waits` returns what the feature waits for a person to decide.
    `named` are commands that exist only at times. `meet` answers who may not enter; its last argument is whether
    somebody reads the console. `recover` runs in the first transaction of a start, and `release` wherever what dead
    processes held is released. `personal` are its tables, with what
    they have of people and when that ends. `checks` are those of a configuration, for `fawn check`, a start and a
    reload. `routes` makes what it answers over HTTP, where the service listens (`bot/http/route.py`). `greet` returns
    what it tells who started the service at a terminal; "" for nothing. `start` makes the
    parts of the running service.
    """

    name: str
    commands: Sequence[Command] = ()
    named: NamedCommands | None = None
    presses: Mapping[str, Press] = field(default_factory=dict)
    waits: Waits | None = None
    meet: Callable[[Execute, AccessPolicy, Message, float, bool], None] | None = None
    recover: Callable[[Execute, Config, float], None] | None = None
    release: Callable[[Execute, Config, float], None] | None = None
    personal: Tables = ()
    checks: Callable[[Config], Iterable[Check]] = _no_checks
    routes: Callable[[Door], Sequence[Route]] | None = None
    greet: Callable[[Door], Coroutine[Any, Any, str]] | None = None
    start: Callable[[Service], Parts] = _no_parts
