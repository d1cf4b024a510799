"""The inbox and the commands as the service builds them, with all features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.parsing.child import ParserProcess
from bot.commands.call import CommandService
from bot.commands.feature import Feature, Parts, Service
from bot.commands.runner import CommandRunner
from bot.commands.table import FeatureReception
from bot.database.database import Database
from bot.journey.inbox import Inbox, Turns
from bot.journey.turn_runner import TurnRunner
from bot.main.features import FEATURES, gather_commands, gather_meetings, gather_personal, gather_presses, gather_waits
from bot.rights.current import Current
from bot.rights.rates import ToolAndMessageRates
from bot.rights.reservations import Budgets
from channels.base import Health


def open_inbox(
    store: Database,
    current: Current,
    turns: Turns,
    *,
    console: bool = False,
    features: Sequence[Feature] = FEATURES,
) -> Inbox:
    """Return an inbox."""
    meet = gather_meetings(current, lambda: console)
    presses, waits = gather_presses(current, features), gather_waits(current, features)
    reception = FeatureReception(gather_commands(current, features), presses, meet, waits)
    return Inbox(store, current, turns, reception)


def command_service(
    current: Current, status: str = "", features: Sequence[Feature] = FEATURES, **values: Any
) -> CommandService:
    """Return a service of which nothing runs."""
    commands, waits = gather_commands(current, features), gather_waits(current, features)
    values = {"waits": waits.listed, **values}
    return CommandService(
        current,
        lambda _execute: status,
        lambda: Health.READY,
        lambda _run, _by: None,
        lambda _name: None,
        commands,
        **values,
    )


def command_runner(store: Database, service: CommandService, features: Sequence[Feature] = FEATURES) -> CommandRunner:
    """Return what answers the commands."""
    return CommandRunner(store, service, gather_presses(service.current, features))


def open_turns(store: Database, current: Current, *parts: Any) -> tuple[TurnRunner, list[Parts]]:
    """Return a turn runner over a provider, folders, an outbox, channels and a folder; also what the features run."""
    provider, folders, outbox, channel, data_dir = parts
    budgets = Budgets(store, current)
    service = Service(
        *(store, current, budgets, gather_commands(current)),
        *(provider, folders, channel),
        *(lambda _run, _by: None, gather_personal(), gather_waits(current).listed),
    )
    begun = [feature.start(service) for feature in FEATURES]
    turns = TurnRunner(
        *(store, current, provider, folders, outbox, channel, data_dir, budgets),
        *(ToolAndMessageRates(current), ParserProcess(), [each.turn for each in begun if each.turn]),
    )
    return turns, begun
