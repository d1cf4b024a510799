"""Receive for the inbox what needs no turn: commands, presses on the bot's own questions, and strangers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.messages import Message
from bot.commands.presses import PressTable
from bot.commands.table import Commands
from bot.commands.waits import WaitTable, open_home
from bot.database.database import Execute
from bot.journey.addressing import AnswerElsewhere
from channels.base import Receipt


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
