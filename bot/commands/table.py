"""The table of all commands: those of the core, those of the features, and those that exist only at times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agent.messages import Message
from bot.commands.call import Command
from bot.rights.current import Current
from catalogue import _
from channels.base import CommandInfo

ALIASES = {"start": "help"}


class NamedCommands(Protocol):
    """Commands whose names are known only when they are used, such as those of skills."""

    def find(self, current: Current, name: str) -> Command | None:
        """Return the command of this name."""

    def listed(self, current: Current) -> Sequence[CommandInfo]:
        """Return those that platforms show."""


class Commands:
    """The commands of the service; `bot.commands.call.CommandTable`."""

    def __init__(self, commands: Sequence[Command], named: Sequence[NamedCommands], current: Current) -> None:
        self._ranked = tuple(sorted(commands, key=lambda command: command.rank))
        by_name = {command.name: command for command in self._ranked}
        self.known: Mapping[str, Command] = by_name | {alias: by_name[name] for alias, name in ALIASES.items()}
        self._named = named
        self._current = current

    def ranked(self) -> Sequence[Command]:
        """Return the commands that always exist, in the order of `/help`."""
        return self._ranked

    def find(self, name: str) -> Command | None:
        """Return the command of this name."""
        found = (each.find(self._current, name) for each in self._named)
        return self.known.get(name) or next(filter(None, found), None)

    def begins_work(self, command: Message) -> bool:
        """Return whether a command has the agent work."""
        name, _space, words = command.text.partition(" ")
        known = self.find(name)
        return known is not None and known.begins_work(words.strip())

    def listed(self) -> list[CommandInfo]:
        """Return all commands for platforms that show them natively."""
        listed = [CommandInfo(command.name, _(command.help), command.words) for command in self._ranked]
        more = (info for each in self._named for info in each.listed(self._current))
        first = {info.name: info for info in reversed([info for info in more if info.name not in self.known])}
        return [*listed, *reversed(first.values())]
