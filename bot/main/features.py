"""The features of the service. This is the only list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.messages import Message
from bot.accounts.feature import FEATURE as ACCOUNTS
from bot.api.feature import FEATURE as API
from bot.backups.feature import FEATURE as BACKUPS
from bot.base.findings import Check
from bot.budgets.feature import FEATURE as BUDGETS
from bot.commands.core import CORE_COMMANDS
from bot.commands.feature import Door, Feature
from bot.commands.table import Commands, PressTable
from bot.commands.waits import WaitTable
from bot.config.schema import Config
from bot.database.database import Execute
from bot.drill.feature import FEATURE as DRILL
from bot.hooks.feature import FEATURE as HOOKS
from bot.memory.feature import FEATURE as MEMORY
from bot.notifications.feature import FEATURE as NOTIFICATIONS
from bot.outcomes.feature import FEATURE as OUTCOMES
from bot.privacy.feature import FEATURE as PRIVACY
from bot.prompts.feature import FEATURE as PROMPTS
from bot.rights.current import Current
from bot.schedules.feature import FEATURE as SCHEDULES
from bot.skills.feature import FEATURE as SKILLS
from bot.storage.personal import CORE, PersonalTable, Tables
from bot.tasks.feature import FEATURE as TASKS
from bot.team.feature import FEATURE as TEAM
from bot.threads.feature import FEATURE as THREADS
from bot.waiting.feature import FEATURE as WAITING

FEATURES: tuple[Feature, ...] = (
    *(MEMORY, BUDGETS, SCHEDULES, HOOKS, TASKS, THREADS, WAITING, ACCOUNTS, SKILLS),
    *(PROMPTS, TEAM, NOTIFICATIONS, OUTCOMES, PRIVACY, BACKUPS, DRILL, API),
)


def gather_commands(current: Current, features: Sequence[Feature] = FEATURES) -> Commands:
    """Return the commands of the core and of the features."""
    commands = [*CORE_COMMANDS, *(command for feature in features for command in feature.commands)]
    return Commands(commands, [feature.named for feature in features if feature.named], current)


def gather_personal(features: Sequence[Feature] = FEATURES) -> Tables:
    """Return the tables of the core and of the features that have something of people, or that end."""
    return [*CORE, *(table for feature in features for table in feature.personal)]


def table_of(name: str) -> PersonalTable:
    """Return what is declared of a table."""
    return next(table for table in gather_personal() if table.table == name)


def gather_checks(config: Config, features: Sequence[Feature] = FEATURES) -> list[Check]:
    """Return what the features check of a configuration."""
    return [check for feature in features for check in feature.checks(config)]


def gather_presses(current: Current, features: Sequence[Feature] = FEATURES) -> PressTable:
    """Return the presses of the features."""
    return PressTable({prefix: press for feature in features for prefix, press in feature.presses.items()}, current)


def gather_waits(current: Current, features: Sequence[Feature] = FEATURES) -> WaitTable:
    """Return what lists what waits for people."""
    return WaitTable([feature.waits for feature in features if feature.waits], current)


async def gather_greetings(door: Door, features: Sequence[Feature] = FEATURES) -> list[str]:
    """Return what the features tell who started the service at a terminal."""
    greetings = [await feature.greet(door) for feature in features if feature.greet]
    return [text for text in greetings if text]


def gather_meetings(current: Current, console_open: Callable[[], bool]) -> Callable[[Execute, Message, float], None]:
    """Return what answers strangers."""

    def meet(execute: Execute, message: Message, now: float) -> None:
        for feature in FEATURES:
            if feature.meet:
                feature.meet(execute, current.access, message, now, console_open())

    return meet
