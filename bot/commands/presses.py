"""Presses of buttons that the bot itself handles: a table from the begin of a question's id to what a press does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.messages import Kind, Message
from bot.commands.call import CommandCall
from bot.database.database import Execute
from bot.rights.current import Current
from bot.rights.deeds import Deed
from bot.rights.work_rights import record_refusal
from catalogue import every_translation
from channels.base import Receipt

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
