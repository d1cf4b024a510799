"""The tables of commands and presses, and the reception that answers the inbox from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agent.messages import Kind, Message
from bot.commands.call import Command, CommandCall
from bot.commands.waits import WaitTable, open_home
from bot.database.database import Execute
from bot.journey.addressing import AnswerElsewhere
from bot.rights.current import Current
from bot.rights.deeds import Deed
from bot.rights.work_rights import record_refusal
from catalogue import _, every_translation
from channels.base import CommandInfo, Receipt

UNKNOWN = -1  # the option of a label that is none of them


@dataclass(frozen=True, slots=True)
class Pressed:
    """A press on the button with the number `option` below the question about `subject`."""

    click: Message
    subject: str  # what follows the prefix in the question's id
    option: int
    label: str  # of the button, where it is a name and none of the options
    now: float


def _no_answer(_call: CommandCall, _pressed: Pressed) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Press:
    """What a press on one of the `options` does.

    `decide` runs when the press arrives: it returns the receipt of a press that is done then, or has no effect; None
    where `run` follows, like a command, which returns the answer (Markdown). The audit names it `name`. Who may not do
    the `deed` is not heard.
    """

    name: str
    options: tuple[str, ...]  # untranslated
    decide: Callable[[Execute, Pressed], Receipt | None]
    run: Callable[[CommandCall, Pressed], str] = _no_answer
    deed: Deed | None = None
    has_names: bool = False  # there are also buttons with names that only `decide` knows


class PressTable:
    """The presses of all features. `presses` are prefix → press."""

    def __init__(self, presses: Mapping[str, Press], current: Current) -> None:
        self._presses = presses
        self._current = current

    def find(self, question: str) -> tuple[str, Press] | None:
        """Return the prefix of a question's id, and its press."""
        return next((each for each in self._presses.items() if question.startswith(each[0])), None)

    def receive(self, execute: Execute, click: Message, now: float) -> Message | Receipt | None:
        """Return what remains of a press to be answered, its receipt if nothing does; None for one of the agent's."""
        if click.kind is not Kind.CLICK or not (found := self.find(click.target)):
            return None
        prefix, press = found
        access = self._current.access
        if press.deed and not access.may_do(execute, click.thread, click.author.id, press.deed):
            record_refusal(execute, click)
            return Receipt.IGNORED
        option = _option_of(press, click.text)
        receipt = press.decide(execute, Pressed(click, click.target.removeprefix(prefix), option, click.text, now))
        if receipt is Receipt.IGNORED:  # it is another person's question
            record_refusal(execute, click)
        if receipt is None and option == UNKNOWN and not press.has_names:  # a button of an older version
            receipt = Receipt.DUPLICATE
        text = click.text if option == UNKNOWN else f"{option}"
        return replace(click, kind=Kind.PRESS, text=text) if receipt is None else receipt

    def answer(self, call: CommandCall) -> str:
        """Run a press that `receive` has kept; return the answer."""
        found = self.find(call.message.target)
        if found is None:
            raise LookupError(f"no feature handles presses on {call.message.target}")
        prefix, press = found
        subject, text = call.message.target.removeprefix(prefix), call.message.text
        option = int(text) if text.isdecimal() and int(text) < len(press.options) else UNKNOWN
        return press.run(call, Pressed(call.message, subject, option, text, call.now))


def _option_of(press: Press, label: str) -> int:
    """Return the number of the option with this label, which is all that every platform tells about a press."""
    numbers = (number for number, option in enumerate(press.options) if label in every_translation(option))
    return next(numbers, UNKNOWN)


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


@dataclass(frozen=True, slots=True)
class FeatureReception:
    """`bot.journey.inbox.Reception` over the tables of commands and presses."""

    commands: Commands
    presses: PressTable
    meet: Callable[[Execute, Message, float], None]  # a stranger
    waits: WaitTable

    def knows_command(self, name: str) -> bool:
        """Return whether there is a command of this name."""
        return self.commands.find(name) is not None

    def begins_work(self, command: Message) -> bool:
        """Return whether a command has the agent work."""
        return self.commands.begins_work(command)

    def redirect(self, execute: Execute, event: Message, now: float) -> AnswerElsewhere | None:
        """Return what an answer that was given elsewhere is at the question's own place; None for another event."""
        return self.waits.redirect(execute, event, now)

    def take_press(self, execute: Execute, event: Message, now: float) -> Message | Receipt | None:
        """Return what is left of a press to be answered, or its receipt; None for another event."""
        return self.presses.receive(execute, event, now)

    def open_home(self, execute: Execute, event: Message) -> None:
        """Have the bot's own page shown to who opened it."""
        open_home(execute, event)

    def meet_stranger(self, execute: Execute, message: Message, now: float) -> None:
        """Answer somebody who may not enter."""
        self.meet(execute, message, now)
