"""A running turn and its store-backed services: steering and tool ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent.blocks import NOTED_STEP, Failed, Step, command_hint
from agent.core.context import CallNote, JudgedCall, LedgerEntry, T, Turn
from agent.exposure import Exposure
from agent.messages import Kind, Message, UserInput
from agent.spending import Meter
from bot.base.plain_text import plain_line
from bot.config.schema import ServiceLimits
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.journey import claims
from bot.journey.attachments import Attachments
from bot.journey.claimed_store import ClaimedStore
from bot.journey.exposure import make_row
from bot.journey.feed import RunFeed
from bot.journey.inbox import longest_wait
from bot.journey.talk_above import talk_above
from bot.rights.budgets import charge_sandbox
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.storage import calls as judged_calls
from bot.storage import usage
from bot.storage.calls import begin_call, record_result
from bot.storage.exposures import store_exposure
from bot.storage.usage import Payer
from catalogue import _, join_sentences, list_items, ngettext, use_language
from channels.base import Channel, Reply

if TYPE_CHECKING:  # it imports the whole agent stack, which the bot loads in a thread after it listens
    from agent.turn.checkpointer import HeldState

ATTEMPTS_BESIDE_OTHERS = 10  # times `limits.attempts`: a run that is never in progress alone when the process dies
MAX_NAMED = 5  # messages


@dataclass(slots=True)
class RunningTurn:
    """A turn in progress. `stopped_by`, `suspending` and `lost` say why its work was cancelled."""

    job: ClaimedRun
    reply: Reply
    feed: RunFeed
    started: float = field(default_factory=time.monotonic)
    meter: Meter = field(default_factory=Meter)
    work: asyncio.Task[None] | None = None
    working: bool = False  # the work may be cancelled: not before its first step, not while its end is recorded
    has_unread: bool = False  # there may be messages that it has not read
    stopped_by: str = ""
    suspending: bool = False
    lost: bool = False  # its conversation belongs to another process now: it writes and posts nothing any more
    begun_steps: tuple[Step, ...] = ()  # of sub-agents, that an earlier attempt did not end
    _news: asyncio.Future[None] | None = None  # done when the next message arrives

    def message_arrived(self, message: Message) -> None:
        """Note a new message or click, and show at once that a message was received."""
        if message.kind is Kind.CHAT:
            self.has_unread = True
            with use_language(self.job.language):
                self.feed.publish(_noted_step(message, taken=False))
        if self._news and not self._news.done():
            self._news.set_result(None)

    def next_message(self) -> asyncio.Future[None]:
        """Return a future that is done when the next message or click arrives."""
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    def stop(self, by: str) -> None:
        """Cancel the work for a person; its text so far stays."""
        if not self.stopped_by and not self.suspending:
            self.stopped_by = by
            self._cancel()

    def suspend(self) -> None:
        """Cancel the work for a shutdown; a later process resumes it."""
        if not self.stopped_by and not self.suspending:
            self.suspending = True
            self._cancel()

    def lose(self) -> None:
        """Cancel the work without a trace: the claim is lost, or the lease of this process ends."""
        if not self.lost:
            self.lost = True
            self._cancel()

    def _cancel(self) -> None:
        if self.working and self.work is not None:
            self.work.cancel()


def make_turn(
    job: ClaimedRun, inputs: tuple[UserInput, ...], merge_window_seconds: float, begun: tuple[Step, ...] = ()
) -> Turn:
    """Return what the agent must do for a run. `begun` are steps of sub-agents that an earlier attempt began."""
    return Turn(
        conversation=job.conversation,
        inputs=inputs,
        model=job.model,
        may_use_model=job.may_use_model,
        effort=job.effort,
        agent=job.agent,
        worker=next((each.worker for each in job.messages if each.worker), ""),
        answers=job.answers,
        fresh=job.fresh,
        begun=begun,
        merge_window_seconds=merge_window_seconds,
    )


class Account:
    """The database as a running turn uses it: each commit also saves the checkpoint of the turn, and records usage,
    tool calls and what the turn has met since the last one. It raises ClaimLost where the claim is lost."""

    def __init__(self, store: Database, claimed: ClaimedStore, job: ClaimedRun, meter: Meter, budgets: Budgets) -> None:
        self._store = store
        self.claimed = claimed
        self._budgets = budgets
        self.payer = Payer(job.run, job.conversation, job.thread, job.payer)
        self.meter = meter
        self.notes: list[CallNote] = []  # for the audit
        self.judged: list[JudgedCall] = []
        self.sandbox_seconds = 0.0  # that are not recorded yet
        self.has_ledger = False  # a call was recorded before it began
        self.exposure = Exposure()  # of the conversation, once the agent begins
        self.state: HeldState | None = None  # of the conversation, which each commit saves
        meter.gate = budgets.gate(self.payer)

    async def commit(self, work: Callable[[Execute], T], *, durable: bool = True) -> T:
        """Run `work` and record what is new since the last commit, in one transaction, as `Database.run`."""
        await self._budgets.load_prices(self.meter.unrecorded)
        calls, notes, judged = self.meter.take_unrecorded(), [*self.notes], [*self.judged]
        seconds, self.sandbox_seconds = self.sandbox_seconds, 0.0
        self.notes.clear()
        self.judged.clear()
        met = make_row(self.payer.conversation, self.exposure) if self.exposure.unsaved else None
        state = self.state.take() if self.state else None

        def both(execute: Execute) -> T:
            if state:
                state.save(execute)
            if met:
                store_exposure(execute, met)
            usage.record_calls(execute, self.payer, map(self._budgets.price, calls))
            if seconds:
                charge_sandbox(execute, self._budgets.current.config, self.payer, seconds, time.time())
            for note in notes:
                audit.record(execute, self._event_of(note))
            for call in judged:
                judged_calls.add_call(execute, self.payer, call)
            return work(execute)

        try:
            done = await self.claimed.run(both, durable=durable)
        except Exception:  # whatever the error: the next commit records them
            self.meter.put_back(calls)
            self.sandbox_seconds += seconds
            self.notes[:0] = notes
            self.judged[:0] = judged
            self.exposure.unsaved = self.exposure.unsaved or bool(met)
            raise
        if self.state and state:
            self.state.saved(state)
        return done

    async def read(self, work: Callable[[Execute], T]) -> T:
        """Run `work`, which only reads."""
        return await self._store.run(work, durable=False)

    def drop_unrecorded(self) -> None:
        """Forget what the end of a run could not record; the log has it."""
        self.meter.take_unrecorded()
        self.notes.clear()
        self.judged.clear()
        self.drop_state()

    def drop_state(self) -> None:
        """Forget the checkpoint that is not saved."""
        if self.state:
            self.state.drop()

    def _event_of(self, note: CallNote) -> AuditEvent:
        kind = AuditKind.TOOL_CALL if note.kind == "call" else AuditKind.TOOL_RESULT
        what = {"tool": note.tool, "arguments": note.arguments, "approval": note.approval, "by": note.by}
        what = {name: value for name, value in what.items() if value}
        payer = self.payer
        return AuditEvent(kind, payer.thread, payer.requester, run=payer.run, what=what, result=note.outcome)


def open_account(store: Database, live: RunningTurn, budgets: Budgets) -> Account:
    """Return the account of a turn, which writes only under its claim."""
    return Account(store, ClaimedStore(store, live.job, live.lose), live.job, live.meter, budgets)


class StoredSteering:
    """`agent.core.context.SteeringQueue` of one turn."""

    def __init__(
        self, account: Account, live: RunningTurn, uploads: Attachments, channel: Channel | None, current: Current
    ) -> None:
        self._account = account
        self._current = current
        self._live = live
        self._uploads = uploads
        self._channel = channel
        self._longest_wait = longest_wait(current.limits)
        self._inputs: dict[str, UserInput] = {}
        self.has_taken = False  # messages have joined the run in this attempt

    async def take_unread(self) -> tuple[UserInput, ...]:
        """Take new messages of the conversation into this run. Without any, the database is not read."""
        if not self._live.has_unread:
            return ()
        self._live.has_unread = False
        messages, waiting = await self._account.commit(
            lambda execute: claims.take_steering(
                execute, self._current.access, self._live.job, time.time(), self._longest_wait
            )
        )
        self._live.has_unread = self._live.has_unread or waiting
        self.has_taken = self.has_taken or bool(messages)
        for message in messages:
            self._live.feed.publish(_noted_step(message, taken=True))
        return tuple([await self._input(message) for message in messages])

    async def note_taken(self, message: Message) -> UserInput:
        """Show that a message was read, and return it with its files."""
        self._live.feed.publish(_noted_step(message, taken=True))
        return await self._input(message)

    async def taken(self) -> tuple[UserInput, ...]:
        """Return all that was taken into this run, also by an earlier attempt."""
        messages = await self._account.commit(lambda execute: claims.steered_messages(execute, self._live.job))
        return tuple([await self._input(message) for message in messages])

    async def _input(self, message: Message) -> UserInput:
        if message.key not in self._inputs:
            look = partial(
                talk_above, conversation=self._live.job.conversation, messages=[message], limits=self._current.limits
            )
            above = await self._account.read(look)
            self._inputs[message.key] = await self._uploads.make_input(self._channel, message, above)
        return self._inputs[message.key]


class StoredLedger:
    """`agent.core.context.ToolLedger` of one conversation."""

    def __init__(self, account: Account, conversation: str) -> None:
        self._account = account
        self._conversation = conversation

    async def begin(self, call: str) -> LedgerEntry | None:
        """Record that the call starts, unless it has started before."""
        self._account.has_ledger = True
        return await self._account.commit(partial(begin_call, conversation=self._conversation, call=call))

    async def end(self, call: str, result: str) -> None:
        """Record its result. It reaches the disk with the next call's begin, or with the end of the turn."""
        record = partial(record_result, conversation=self._conversation, call=call, result=result)
        await self._account.commit(record, durable=False)


def _noted_step(message: Message, *, taken: bool) -> Step:
    words = " ".join(message.text.split()) or _("a file")
    short = words if len(words) <= 60 else f"{words[:57]}…"
    return Step(f"{NOTED_STEP}{message.key}", _("got it: {text}", text=short), "done" if taken else "running")


def is_given_up(job: ClaimedRun, limits: ServiceLimits) -> bool:
    """Return whether a run was interrupted too often: alone, or very often beside others."""
    return job.deaths_alone >= limits.attempts or job.attempt > limits.attempts * ATTEMPTS_BESIDE_OTHERS


def interrupted_failure(attempts: int, texts: Sequence[str]) -> Failed:
    """Return the failure of a run of messages with these texts that interruptions ended so many times."""
    what = ngettext(
        "I was interrupted {n} time while I worked on this and gave up.",
        "I was interrupted {n} times while I worked on this and gave up.",
        attempts,
    )
    retry = _("Send {retry} to try once more.", retry=command_hint("retry"))
    named = list_items(_named(text) for text in texts[:MAX_NAMED])
    if len(texts) > MAX_NAMED:
        lost = ngettext(
            "{n} message has no answer: {first}, and others.",
            "{n} messages have no answer: {first}, and others.",
            len(texts),
            first=named,
        )
    else:
        lost = _("Without an answer: {messages}.", messages=named)
    return Failed(what, join_sentences(lost, retry) if texts else retry)


def _named(text: str) -> str:
    return _("“{text}”", text=plain_line(text)) if text.strip() else _("a file")
