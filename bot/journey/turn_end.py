"""The end of a turn: its state repaired, its files collected, and one transaction that records all of it.

Hold what a turn has done so far, and what its end writes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.blocks import Done, Failed, Final, Notice, Step, Usage, View, command_hint, internal_fault
from agent.core.context import WorkClock
from bot.base.background import until_stored
from bot.base.data_dir import conversation_folder
from bot.base.side_work import record_posted
from bot.base.stored_files import run_folder
from bot.config.schema import ServiceLimits
from bot.database.database import Database, Execute, StorageError
from bot.database.states import OutboxKind, RunState
from bot.journey import artifacts, changed_messages, claims, questions
from bot.journey.addressing import is_own
from bot.journey.artifacts import Artifacts, is_silent
from bot.journey.attachments import Attachments
from bot.journey.claimed_store import ClaimLost
from bot.journey.feed import SUSPENDED, Feed
from bot.journey.live_questions import StoredLiveQuestions
from bot.journey.outbox import Outbox, files_payload
from bot.journey.running_turn import Account, RunningTurn, StoredSteering
from bot.journey.step_journal import StepJournal
from bot.journey.task_sandboxes import TaskSandboxes
from bot.journey.titles import enqueue_title
from bot.journey.transcript import TranscriptRecorder, with_thoughts
from bot.journey.turn_part import EndedTurn, TurnPart
from bot.rights.claimed_run import ClaimedRun, RunEnding
from bot.rights.reservations import Budgets
from bot.storage import inbox, outbox, runs
from bot.storage.outbox import OutboxItem
from bot.storage.usage import usage_of_run
from catalogue import _
from channels.base import Channel
from sandbox.base import SandboxError
from sandbox.engines.select import LazySandbox

if TYPE_CHECKING:
    from agent.turn.turn import Agent


@dataclass(slots=True)
class TurnState:
    """What a turn has done so far, kept outside its task, so that a stop finds it."""

    agent: Agent
    limits: ServiceLimits
    account: Account
    uploads: Attachments
    steering: StoredSteering
    view: View
    journal: StepJournal
    questions: StoredLiveQuestions
    task_sandboxes: TaskSandboxes
    sandbox: LazySandbox
    parts: Sequence[TurnPart] = ()  # of the features
    title: str = ""  # for a conversation without one, where no model makes it
    title_text: str = ""  # from which a model makes it
    clock: WorkClock = field(init=False)
    begun: bool = False  # the agent was called: its checkpoint may need repair
    clean: bool = False  # the agent ended by itself

    def __post_init__(self) -> None:
        self.clock = WorkClock(self.limits.turn_seconds)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What the transaction that ends a run writes. `before` are the stored stamps of outputs/."""

    ending: RunEnding
    final: Final
    collected: Artifacts = field(default_factory=lambda: Artifacts(stamps={}))
    before: Mapping[str, str] = field(default_factory=dict)
    title_text: str = ""
    transcript: TranscriptRecorder | None = None


log = logging.getLogger(__name__)


class TurnEnd:
    """Records how turns ended, or that a later process continues them."""

    def __init__(
        self,
        store: Database,
        budgets: Budgets,
        feed: Feed,
        outbox: Outbox,
        channel: Callable[[str], Channel | None],
        data_dir: Path,
    ) -> None:
        self._store = store
        self._budgets = budgets
        self._feed = feed
        self._outbox = outbox
        self._channel = channel
        self._data_dir = data_dir

    async def record(self, live: RunningTurn, work: TurnState) -> None:
        """Record the end of a turn, and end what it used."""
        work.account.sandbox_seconds += work.sandbox.seconds + work.task_sandboxes.seconds
        await work.journal.close()
        try:
            if live.lost:
                await self._abandon(live, work)
            elif live.suspending:
                await self._suspend(live.job, work)
                await live.reply.close()
            else:
                await self._repair_state(live, work)
                await self._record_end(live, work)
        finally:
            self._feed.end_run(live.job.run, SUSPENDED)  # unless its end was recorded
            if work.account.state:
                await work.account.state.release()
            await work.sandbox.aclose()
            if not (live.suspending or live.lost) and _run_state(work.view) is not RunState.WAITING:
                await work.task_sandboxes.remove(leftovers=live.job.resumed)

    async def _abandon(self, live: RunningTurn, work: TurnState) -> None:
        """Leave a run to whoever has its conversation now: write nothing, and stop what still works for it here."""
        log.warning("turn.lost_claim")
        work.account.drop_unrecorded()
        await live.reply.close()
        await work.sandbox.aclose()
        await work.task_sandboxes.destroy()

    async def _suspend(self, job: ClaimedRun, work: TurnState) -> None:
        def suspend(execute: Execute) -> None:
            claims.suspend_run(execute, job)
            work.journal.save(execute)
            for part in work.parts:
                part.suspend(execute)

        try:
            await work.account.commit(suspend)
        except (StorageError, ClaimLost) as error:  # a restart then counts this attempt; nothing else is lost
            log.warning("turn.not_suspended reason=%s", error)
        log.info("turn.suspended")

    async def _repair_state(self, live: RunningTurn, work: TurnState) -> None:
        """After a stop or a fault, keep the text so far and leave the checkpoint valid."""
        if live.stopped_by:
            if why := changed_messages.REASONS.get(live.stopped_by):
                live.feed.record(Notice("changed", _(why), kept=True))
            live.feed.record(Done("stopped", work.account.meter.total))
        if work.clean or not (work.begun or live.job.stop_by or live.job.attempt > 1):
            return
        try:
            await work.agent.repair(live.job.conversation, work.view.text, await work.steering.taken())
        except Exception:  # the next turn repairs it (state "dirty"); this one must still end
            log.exception("turn.repair")
        else:
            work.clean = True

    async def _record_end(self, live: RunningTurn, work: TurnState) -> None:
        """Record the end of the run: in whole, or else as a failure without files, or else as little as possible."""
        for prepare in (self._whole, self._without_files, self._least):
            try:
                await self._commit(live, work, await prepare(live, work))
                break
            except Exception:  # the boundary of an end: one that cannot be recorded must not block its conversation
                log.exception("turn.not_recorded ending=%s", prepare.__name__.strip("_"))

    async def _whole(self, live: RunningTurn, work: TurnState) -> RunResult:
        job = live.job
        collected, before = await self._collect_artifacts(job, work)
        await self._recall_attempts(live, work)
        state = _run_state(work.view)
        asks = work.view.asks if state is RunState.WAITING else []  # a turn that stopped or failed waits for nothing
        answered: set[str] = set()
        if asks:  # what was answered meanwhile is not shown as open; the next turn resumes with it
            answers = await self._store.run(partial(questions.given_answers, conversation=job.conversation))
            answered = {answer.id for answer in {*answers} - {*job.answers}}
        view = replace(work.view, asks=[ask for ask in asks if ask.id not in answered])
        view = work.questions.hide_shown(view)
        collected = await artifacts.add_long_calls(collected, view.asks, run_folder(self._data_dir, job.run))
        final = artifacts.make_final(view, collected)
        clean, asked = work.clean or not work.begun, bool(work.questions.asked)
        kept = {"has_ledger": work.account.has_ledger, "has_steps": work.journal.has_steps}
        ending = RunEnding(state, tuple(asks), work.title, clean, asked, **kept)
        return RunResult(ending, final, collected, before, work.title_text, work.journal.transcript)

    async def _recall_attempts(self, live: RunningTurn, work: TurnState) -> None:
        """Add to the transcript, and to the steps of the final, what earlier attempts of the run did."""
        job = live.job
        try:
            if job.resumed:
                keys = {each.key for each in job.messages}
                blocks = with_thoughts(await work.agent.recall(job.conversation, keys), live.feed.thoughts)
                work.journal.transcript.recall(blocks)
                if not job.answers:  # else an earlier run did them
                    work.view.steps = {b.id: b for b in blocks if isinstance(b, Step)} | work.view.steps
        except Exception:  # then the transcript has this attempt only
            log.exception("turn.not_recalled")

    async def _without_files(self, live: RunningTurn, work: TurnState) -> RunResult:
        what = _("Something broke on my side when I stored this answer. It's logged.")
        what_to_do = _(
            "No files were sent. Ask me for them, or send {retry} to try again.", retry=command_hint("retry")
        )
        view = replace(work.view, asks=[], failed=Failed(what, what_to_do))
        return RunResult(RunEnding(RunState.FAILED, clean=False), view.final())

    async def _least(self, live: RunningTurn, work: TurnState) -> RunResult:
        work.account.drop_unrecorded()  # not even its usage, which the log has
        return RunResult(RunEnding(RunState.FAILED, clean=False), View(failed=internal_fault()).final())

    async def _commit(self, live: RunningTurn, work: TurnState, end: RunResult) -> None:
        """Commit the transaction that ends the run. Retries until the database accepts it: the work is done."""
        job, ending, collected, now = live.job, end.ending, end.collected, time.time()
        has_steered = job.resumed or work.steering.has_taken or bool(work.questions.asked)

        def record(execute: Execute) -> tuple[list[OutboxItem], Usage]:
            parts = claims.finish_run(execute, job, ending, now)
            used = usage_of_run(parts)
            if end.transcript:
                steered = claims.steered_messages(execute, job) if has_steered else []
                end.transcript.store(execute, work.view, steered, collected, now)
            runs.replace_stamps(execute, job.conversation, collected.stamps, end.before)
            final = replace(end.final, seconds=now - job.started, tokens=used.input + used.output)
            if final.state == "failed":
                final = replace(final, retry=bool(inbox.rows_of_request(execute, job.run, job.conversation)))
            answers = not is_silent(job.is_unattended, work.view, collected)
            channel = self._channel(job.thread.channel)
            ended = EndedTurn(job, ending.state, end.final.text, collected, channel, answers, now, parts)
            for part in work.parts if answers else ():
                final = part.present(execute, ended, final)
            rows = [(OutboxKind.REPLY, f"run:{job.run}", final.dump())] if answers else []
            if rows:
                asked = job.messages[0].text if is_own(job.conversation) and job.messages else ""
                sent = [f"[File: {each.name}]" for each in collected.files]
                said = "\n\n".join(filter(None, (asked, end.final.text, *sent)))
                record_posted(execute, job.conversation, job.requester, said, key=f"run:{job.run}", now=now)
            if collected.files:
                rows.append((OutboxKind.FILE, f"run:{job.run}:files", files_payload(collected.files)))
            rows += [row for part in work.parts for row in part.end(execute, ended)]
            if end.title_text:
                enqueue_title(execute, job.run, job.conversation, end.title_text)
            items = [
                item
                for row in rows
                for item in outbox.enqueue_claimed(execute, self._outbox.holder, job.run, *row, now)
            ]
            return items, used

        if not job.is_unattended:
            self._outbox.adopt_reply(job.run, live.reply)
        try:
            items, used = await until_stored("turn", partial(work.account.commit, record))
        except ClaimLost:
            self._outbox.give_up_reply(job.run)
            await self._abandon(live, work)
            return
        self._outbox.offer(items)
        self._budgets.wake()
        self._feed.end_run(job.run, ending.state)
        log.info(
            "turn.%s seconds=%.2f input=%d output=%d calls=%d files=%d",
            ending.state,
            time.monotonic() - live.started,
            used.input,
            used.output,
            used.calls,
            len(collected.files),
        )

    async def _known_stamps(self, job: ClaimedRun) -> dict[str, str]:
        try:
            return await self._store.run(lambda each: runs.known_stamps(each, job.conversation), durable=False)
        except StorageError:  # then files may be sent twice rather than never; recording the end retries anyway
            log.exception("turn.outputs_unknown")
            return {}

    async def _collect_artifacts(self, job: ClaimedRun, work: TurnState) -> tuple[Artifacts, dict[str, str]]:
        """Return what is new in outputs/, and the stamps stored before."""
        if not (work.view.files or job.resumed or work.sandbox.used):
            return Artifacts(stamps={}), {}
        before = await self._known_stamps(job)
        channel, folder = self._channel(job.thread.channel), conversation_folder(self._data_dir, job.conversation)
        limit = artifacts.upload_limit(channel)
        spool = run_folder(self._data_dir, job.run)
        try:
            collected = await artifacts.collect_artifacts(folder, spool, before, work.view.files, limit)
        except (OSError, SandboxError) as error:
            log.exception("turn.outputs")
            reason = error.strerror if isinstance(error, OSError) else error
            note = _("The files in outputs/ could not be collected: {reason}.", reason=reason)
            collected = Artifacts(before, notes=(note,))
        return collected, before


def _run_state(view: View) -> RunState:
    return RunState(view.done.state) if view.done and not view.failed else RunState.FAILED
