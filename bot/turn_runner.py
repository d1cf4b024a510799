"""One turn, from the claimed messages to the transaction that ends it.

Whatever happens inside (an answer, a question, a stop, a time-out, a fault), a turn that is not parked ends in one
transaction: its messages done, its run finished, its reply and files in the outbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.blocks import Done, Failed, Final, View
from agent.context import Turn, TurnContext, UserInput
from bot import access, artifacts
from bot.artifacts import Artifacts
from bot.attachments import Attachments
from bot.config.schema import ServiceLimits
from bot.log import run_var, thread_var
from bot.null_reply import NullReply
from bot.outbox import Outbox, OutboxItem, enqueue, file_payload
from bot.running_turn import Account, RunningTurn, StoredLedger, StoredSteering
from bot.storage import conversations, runs
from bot.storage.database import Database, Execute, StorageError
from bot.storage.runs import ClaimedRun, LeaseLost, RunEnding
from bot.storage.sent_messages import StoredSentMessages
from bot.titles import Titles
from channels.base import Channel, Reply
from sandbox.base import SandboxError, SandboxProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.select import LazySandbox

if TYPE_CHECKING:  # importing it takes the whole agent stack along; the bot builds it in a thread after it listens
    from agent.turn import Agent

log = logging.getLogger(__name__)

DEFAULT_UPLOAD_BYTES = 50 << 20  # bytes of a file out, while its channel is away and cannot say
EXHAUSTED = Failed("I was interrupted {n} times while I worked on this and gave up.", "Send /retry to try once more.")
FAULT = Failed("Something went wrong on my side; the operator can see what in the log.", "Send /retry to try again.")
UNREADABLE = Failed("I can't read what you wrote: it was damaged on my side.", "Please send it again.")
UNRECORDED = Failed(
    "Something went wrong on my side when I stored this answer; the operator can see what in the log.",
    "No files were sent. Ask me for them, or send /retry to try again.",
)

PING_TEXTS = {"done": "Done after", "waiting": "I need your answer to go on, after", "failed": "This failed after"}


@dataclass(slots=True)
class TurnState:
    """What a turn has done so far: kept outside the task that does it, so that a stop finds it."""

    account: Account
    uploads: Attachments
    mail: StoredSteering
    view: View = field(default_factory=View)
    machine: LazySandbox | None = None
    title: str = ""  # for a conversation that has none, where no model makes it
    begun: bool = False  # the agent was called: its checkpoint may need repair
    clean: bool = False  # the agent came to its end by itself


@dataclass(frozen=True, slots=True)
class RunResult:
    """What the transaction that ends a run writes; `before` are the stamps of outputs/ known until now."""

    ending: RunEnding
    final: Final
    collected: Artifacts = field(default_factory=lambda: Artifacts(stamps={}))
    before: Mapping[str, str] = field(default_factory=dict)


class TurnRunner:
    """Runs turns, with everything a turn needs put together."""

    def __init__(
        self,
        store: Database,
        agent: Agent,
        provider: SandboxProvider,
        folders: ConversationFolders,
        outbox: Outbox,
        channel: Callable[[str], Channel | None],
        data_dir: Path,
        limits: ServiceLimits,
    ) -> None:
        self.titles = Titles(store, agent)
        self._store = store
        self._agent = agent
        self._provider = provider
        self._folders = folders
        self._outbox = outbox
        self._channel = channel
        self._data_dir = data_dir
        self._limits = limits

    def folder(self, conversation: str) -> Path:
        """Where a conversation's workspace, uploads and outputs are."""
        return conversation_folder(self._data_dir, conversation)

    def make_reply(self, job: ClaimedRun) -> Reply:
        """The reply that shows this run, over what is visible of it already."""
        channel = self._channel(job.thread.channel)
        if channel is None:
            return NullReply()
        posts = StoredSentMessages(self._store, f"r{job.run}", job.thread, job.conversation, job.posted)
        try:
            return channel.reply(job.thread, posts, to=job.reply_to, asker=job.requester)
        except Exception:  # the run is claimed already: it has an end, which the outbox shows
            log.exception("turn.no_reply thread=%s", job.thread)
            return NullReply()

    async def run_turn(self, live: RunningTurn) -> None:
        """Work, then record. Never raises: this is the boundary of one turn."""
        thread_var.set(str(live.job.thread))
        run_var.set(str(live.job.run))
        log.info("turn.begin attempt=%d messages=%d", live.job.attempt, len(live.job.messages))
        work = self._begin(live)
        live.working = True
        try:
            await self._run_agent(live, work)
        except asyncio.CancelledError:
            if not live.stopped_by:
                live.parking = True  # the whole service is going down
            if task := asyncio.current_task():
                task.uncancel()
        except TimeoutError:
            limit = _format_duration(self._limits.turn_seconds)
            work.view.add(Failed(f"This took longer than the limit of {limit}.", "What is done so far is kept."))
        except Exception:  # the boundary: a fault in one turn is that turn's failure, told to its people
            log.exception("turn.fault")
            work.view.add(FAULT)
        live.working = False
        await asyncio.shield(self._end_turn(live, work))

    def _begin(self, live: RunningTurn) -> TurnState:
        job, account = live.job, Account(self._store, live.job.run)
        uploads = Attachments(self._store, self._folders, job.conversation, self.folder(job.conversation), self._limits)
        return TurnState(
            account, uploads, StoredSteering(account, live, uploads, self._channel(job.thread.channel), self._limits)
        )

    async def _run_agent(self, live: RunningTurn, work: TurnState) -> None:
        job = live.job
        live.stopped_by = live.stopped_by or job.stop_by
        if live.stopped_by or live.parking:  # before it began
            raise asyncio.CancelledError
        if job.attempt > self._limits.attempts:
            work.view.add(replace(EXHAUSTED, what=EXHAUSTED.what.format(n=job.attempt - 1)))
            return
        if not job.messages:
            work.view.add(UNREADABLE)
            return
        channel = self._channel(job.thread.channel)
        work.machine = LazySandbox(self._provider, job.conversation, self.folder(job.conversation))
        ledger = StoredLedger(work.account, job.conversation)
        context = TurnContext(work.machine, ledger, work.mail, meter=work.account.meter)
        turn = Turn(
            conversation=job.conversation,
            inputs=await self._make_inputs(job, channel, work.uploads),
            model=job.model,
            answers=job.answers,
            fresh=job.fresh,
            merge_window_seconds=channel.window if channel else 0.2,
        )
        work.title = self.titles.begin(job)
        work.begun = True
        async with asyncio.timeout(self._limits.turn_seconds):
            async for block in self._agent.run(turn, context):
                work.view.add(block)
                if not isinstance(block, Done):  # the end is shown by the outbox, from what was committed
                    live.reply.show(block)
        work.clean = True

    async def _make_inputs(
        self, job: ClaimedRun, channel: Channel | None, uploads: Attachments
    ) -> tuple[UserInput, ...]:
        """The messages; the first that calls the bot into a thread brings what stood there before."""
        earlier = (
            self._limits.earlier_messages if job.first and conversations.is_first_conversation(job.conversation) else 0
        )
        return tuple(
            [
                await uploads.make_input(channel, item, 0 if index else earlier)
                for index, item in enumerate(job.messages)
            ]
        )

    # ------------------------------------------------------------ the end of a turn

    async def _end_turn(self, live: RunningTurn, work: TurnState) -> None:
        try:
            if live.parking:
                await self._suspend(live.job, work)
                await live.reply.close()
            else:
                await self._repair_state(live, work)
                await self._record_end(live, work)
        finally:
            if work.machine:
                await work.machine.aclose()

    async def _suspend(self, job: ClaimedRun, work: TurnState) -> None:
        try:
            await work.account.commit(lambda execute: runs.suspend_run(execute, job))
        except StorageError as error:  # a restart then counts this try; nothing else is lost
            log.warning("turn.not_parked reason=%s", error)
        log.info("turn.parked")

    async def _repair_state(self, live: RunningTurn, work: TurnState) -> None:
        """After a stop or a fault: leave the conversation valid, keep what was said."""
        if live.stopped_by:
            work.view.add(Done("stopped", work.account.meter.total))
        if work.clean or not (work.begun or live.job.stop_by or live.job.attempt > 1):
            return
        try:
            await self._agent.repair(live.job.conversation, work.view.text, await work.mail.taken())
        except Exception:  # the next turn looks again (state "dirty"); this one must still end
            log.exception("turn.repair")
        else:
            work.clean = True

    async def _record_end(self, live: RunningTurn, work: TurnState) -> None:
        """Record the end of the run: whole, or without files and as a failure, or as little as possible."""
        for prepare in (self._whole, self._without_files, self._least):
            try:
                await self._record(live, work, await prepare(live.job, work))
                break
            except Exception:  # the boundary of an end: what cannot be recorded must not keep its conversation
                log.exception("turn.not_recorded ending=%s", prepare.__name__.strip("_"))

    async def _whole(self, job: ClaimedRun, work: TurnState) -> RunResult:
        collected, before = await self._collect_artifacts(job, work)
        view, final = work.view, _final_reply(work.view, collected)
        ending = RunEnding(
            state=_run_state(view),
            asks=final.asks,
            title=work.title,
            clean=work.clean or not work.begun,
        )
        return RunResult(ending, final, collected, before)

    async def _without_files(self, job: ClaimedRun, work: TurnState) -> RunResult:
        view = replace(work.view, asks=[], failed=UNRECORDED)
        return RunResult(RunEnding("failed", clean=False), view.final())

    async def _least(self, job: ClaimedRun, work: TurnState) -> RunResult:
        work.account.meter.take_unrecorded()  # not even what it used: the log has that
        return RunResult(RunEnding("failed", clean=False), View(failed=FAULT).final())

    async def _record(self, live: RunningTurn, work: TurnState, end: RunResult) -> None:
        """The transaction that ends the run; tried until the store takes it, because the work is done."""
        job, ending, collected, now = live.job, end.ending, end.collected, time.time()

        def record(execute: Execute) -> list[OutboxItem]:
            live.more = runs.finish_run(execute, job, ending, now)
            artifacts.record_stamps(execute, job.conversation, collected, end.before)
            rows = [("reply", f"run:{job.run}", end.final.dump())]
            rows += [("file", f"run:{job.run}:file:{n}", file_payload(file)) for n, file in enumerate(collected.files)]
            if ping := self._make_ping(execute, job, ending.state, collected, now):
                rows.append(("ping", f"run:{job.run}:ping", ping.dump()))
            return [item for row in rows for item in enqueue(execute, job, *row, now)]

        self._outbox.adopt_reply(job.run, live.reply)
        while True:
            try:
                items = await work.account.commit(record)
                break
            except LeaseLost:
                log.error("turn.lost_lease")  # noqa: TRY400 — nothing to trace: another worker ends this run
                await live.reply.close()
                return
            except StorageError as error:
                log.error("turn.not_recorded reason=%s", error)  # noqa: TRY400 — the reason is enough
                await asyncio.sleep(1.0)
        self._outbox.offer(items)
        usage = work.account.meter.total
        log.info(
            "turn.%s seconds=%.2f input=%d output=%d calls=%d files=%d",
            ending.state,
            time.monotonic() - live.started,
            usage.input,
            usage.output,
            usage.calls,
            len(collected.files),
        )

    def _make_ping(
        self, execute: Execute, job: ClaimedRun, state: str, collected: Artifacts, now: float
    ) -> Final | None:
        """Edits notify nobody: after long work a short new message tells the person who asked."""
        channel, seconds = self._channel(job.thread.channel), now - job.started
        after = access.notify_after(execute, job.thread.channel, job.requester, self._limits.notify_seconds)
        if state == "stopped" or after is None or seconds < after or (channel and channel.limits.edits_notify):
            return None
        files = f" ({', '.join(file.name for file in collected.files)})" if collected.files else ""
        return Final(f"{PING_TEXTS[state]} {_format_duration(seconds)}{files}.", mention=job.requester)

    async def _known_stamps(self, job: ClaimedRun) -> dict[str, str]:
        try:
            return await self._store.run(lambda execute: artifacts.known_stamps(execute, job.conversation))
        except StorageError:  # then files may come twice rather than not at all; recording retries until it can
            log.exception("turn.outputs_unknown")
            return {}

    async def _collect_artifacts(self, job: ClaimedRun, work: TurnState) -> tuple[Artifacts, dict[str, str]]:
        """What is new in outputs/, and the stamps known before."""
        if not (work.view.files or job.attempt > 1 or (work.machine and work.machine.used)):
            return Artifacts(stamps={}), {}
        before = await self._known_stamps(job)
        channel = self._channel(job.thread.channel)
        limit = channel.limits.upload if channel else DEFAULT_UPLOAD_BYTES
        spool = self._data_dir / "spool" / str(job.run)
        folder = self.folder(job.conversation)
        try:
            async with self._folders.open_folder(folder, writes=False):
                collected = await artifacts.collect_artifacts(folder, spool, before, work.view.files, limit)
        except (OSError, SandboxError) as error:
            log.exception("turn.outputs")
            reason = error.strerror if isinstance(error, OSError) else error
            collected = Artifacts(before, notes=(f"The files in outputs/ could not be collected: {reason}.",))
        return collected, before


def conversation_folder(data_dir: Path, conversation: str) -> Path:
    """A conversation's own folder; its name says nothing and needs no escaping."""
    return data_dir / "threads" / hashlib.sha256(conversation.encode()).hexdigest()[:24]


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _final_reply(view: View, collected: Artifacts) -> Final:
    final = view.final()
    text = final.text
    if collected.files and not (view.text.strip() or view.failed or view.asks):
        stopped = "\n\n_Stopped._" if view.done and view.done.state == "stopped" else ""
        text = "Created: " + ", ".join(file.name for file in collected.files) + stopped
    if collected.notes:
        text = f"{text}\n\n" + "\n".join(collected.notes)
    return replace(final, text=text.strip())


def _run_state(view: View) -> str:
    return "failed" if view.failed else view.done.state if view.done else "failed"
