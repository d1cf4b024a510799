"""A running turn and its store-backed services: steering and tool ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.blocks import Step
from agent.context import LedgerEntry, Meter, T, UserInput
from agent.messages import Message
from bot import inbox
from bot.attachments import Attachments
from bot.config.schema import ServiceLimits
from bot.storage import runs
from bot.storage.database import Database, Execute
from bot.storage.runs import ClaimedRun
from channels.base import Channel, Reply


@dataclass(slots=True)
class RunningTurn:
    """A turn that is going on. `stopped_by` and `parking` say why its work was cancelled."""

    job: ClaimedRun
    reply: Reply
    started: float = field(default_factory=time.monotonic)
    work: asyncio.Task[None] | None = None
    working: bool = False  # the work may be cancelled: not before its first step, not while its end is recorded
    has_unread: bool = False  # something was written into it that it has not read
    more: bool = True  # the conversation may have further messages when this turn is over
    stopped_by: str = ""
    parking: bool = False

    def message_arrived(self, message: Message) -> None:
        """Somebody wrote while it works: they see at once that it was heard."""
        self.has_unread = True
        self.reply.show(_noted_step(message, taken=False))

    def stop(self, by: str) -> None:
        """Somebody stopped it: cancel its work; what it has so far stays."""
        if not self.stopped_by and not self.parking:
            self.stopped_by = by
            self._cancel()

    def suspend(self) -> None:
        """The service stops: cancel its work, a later process goes on with it."""
        if not self.stopped_by and not self.parking:
            self.parking = True
            self._cancel()

    def _cancel(self) -> None:
        if self.working and self.work is not None:
            self.work.cancel()


class Account:
    """The store as a running turn uses it: what its model calls cost is recorded with whatever it commits next."""

    def __init__(self, store: Database, run: int) -> None:
        self._store = store
        self._run = run
        self.meter = Meter()

    async def commit(self, work: Callable[[Execute], T]) -> T:
        """`Database.run`, and the usage since the last commit in the same transaction."""
        usage = self.meter.take_unrecorded()

        def both(execute: Execute) -> T:
            runs.add_usage(execute, self._run, usage, self.meter.model)
            return work(execute)

        try:
            return await self._store.run(both)
        except Exception:  # whatever undid it: the next commit takes it along
            self.meter.put_back(usage)
            raise


class StoredSteering:
    """`agent.context.Steering` of one turn."""

    def __init__(
        self, account: Account, live: RunningTurn, uploads: Attachments, channel: Channel | None, limits: ServiceLimits
    ) -> None:
        self._account = account
        self._live = live
        self._uploads = uploads
        self._channel = channel
        self._longest_wait = inbox.longest_wait(limits)
        self._inputs: dict[str, UserInput] = {}

    async def take_unread(self) -> tuple[UserInput, ...]:
        """New messages of the conversation, taken into this run. No look at the store when nobody wrote."""
        if not self._live.has_unread:
            return ()
        self._live.has_unread = False
        messages, waiting = await self._account.commit(
            lambda execute: runs.take_steering(execute, self._live.job, time.time(), self._longest_wait)
        )
        self._live.has_unread = self._live.has_unread or waiting
        for message in messages:
            self._live.reply.show(_noted_step(message, taken=True))
        return tuple([await self._input(message) for message in messages])

    async def taken(self) -> tuple[UserInput, ...]:
        """All that was taken into this run, also by an attempt that died."""
        messages = await self._account.commit(lambda execute: runs.steered(execute, self._live.job))
        return tuple([await self._input(message) for message in messages])

    async def _input(self, message: Message) -> UserInput:
        if message.key not in self._inputs:
            self._inputs[message.key] = await self._uploads.make_input(self._channel, message)
        return self._inputs[message.key]


class StoredLedger:
    """`agent.context.ToolLedger` of one conversation."""

    def __init__(self, account: Account, conversation: str) -> None:
        self._account = account
        self._conversation = conversation

    async def begin(self, call: str) -> LedgerEntry | None:
        """Record that the call starts, unless it did before."""
        values = {"conversation": self._conversation, "call": call}

        def work(execute: Execute) -> LedgerEntry | None:
            if execute(
                "INSERT INTO ledger(conversation, call) VALUES (:conversation, :call)"
                " ON CONFLICT(conversation, call) DO NOTHING RETURNING call",
                values,
            ):
                return None
            rows = execute("SELECT result FROM ledger WHERE conversation=:conversation AND call=:call", values)
            return LedgerEntry(rows[0]["result"])

        return await self._account.commit(work)

    async def end(self, call: str, result: str) -> None:
        """Record what it gave."""
        values = {"conversation": self._conversation, "call": call, "result": result}
        sql = "UPDATE ledger SET result=:result WHERE conversation=:conversation AND call=:call"
        await self._account.commit(lambda execute: execute(sql, values))


def _noted_step(message: Message, *, taken: bool) -> Step:
    words = " ".join(message.text.split()) or "a file"
    short = words if len(words) <= 60 else f"{words[:57]}…"
    return Step(f"heard:{message.key}", f"noted: {short}", "done" if taken else "running")
