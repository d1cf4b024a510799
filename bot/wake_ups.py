"""Wake the parts that have new work after a commit."""

from __future__ import annotations

from dataclasses import dataclass

from agent.messages import Kind
from bot.command_runner import CommandRunner
from bot.inbox import TURN_KINDS, Arrived
from bot.jobs import JobWorker
from bot.outbox import Outbox
from bot.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class WakeUps:
    """Also `bot.inbox.Next`."""

    commands: CommandRunner
    outbox: Outbox
    scheduler: Scheduler
    jobs: JobWorker

    def wake_all(self) -> None:
        """An operator has changed the database."""
        for part in (self.commands, self.outbox, self.scheduler, self.jobs):
            part.wake()

    def woken(self, arrived: Arrived) -> None:
        """See `bot.inbox.Next`."""
        kinds = {message.kind for _, message in arrived.accepted}
        if Kind.COMMAND in kinds:
            self.commands.wake()
        if arrived.said:
            self.outbox.wake()
        if kinds & set(TURN_KINDS):
            self.scheduler.arrived(arrived.accepted)
