"""One turn, from the claimed messages to the transaction that ends it.

A turn that is not suspended ends in one transaction: messages done, run finished, reply and files in the outbox.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.blocks import Approve, Ask, Done, Failed, Step, Usage, View, command_hint, internal_fault
from agent.context import TurnContext, UserInput
from agent.parsing.child import ParserProcess
from bot.current import Current
from bot.journey import artifacts, claims, questions
from bot.journey.artifacts import DEFAULT_UPLOAD_BYTES, Artifacts, is_silent
from bot.journey.attachments import Attachments
from bot.journey.claimed_run import ClaimedRun, RunEnding
from bot.journey.claims import ClaimLost
from bot.journey.exposure import open_exposure
from bot.journey.feed import Feed
from bot.journey.live_questions import StoredLiveQuestions
from bot.journey.null_reply import NullReply
from bot.journey.outbox import Outbox, files_payload
from bot.journey.running_turn import Account, RunningTurn, StoredLedger, StoredSteering, interrupted_failure, make_turn
from bot.journey.spelled_reply import open_reply
from bot.journey.talk_above import NO_TALK, talk_above
from bot.journey.task_sandboxes import TaskSandboxes
from bot.journey.titles import enqueue_title
from bot.journey.transcript import TranscriptRecorder
from bot.journey.turn_part import EndedTurn, MakeTurnPart
from bot.journey.turn_state import RunResult, TurnState
from bot.journey.upload_details import UploadInspector
from bot.outcomes.recording import record_part, record_run
from bot.rights.permissions import TurnPermissions
from bot.rights.rates import ToolAndMessageRates
from bot.rights.reservations import Budgets
from bot.service.background import until_stored
from bot.service.data_dir import conversation_folder
from bot.service.log import run_var, thread_var
from bot.service.spool import run_folder
from bot.storage import outbox, outputs
from bot.storage.database import Database, Execute, StorageError
from bot.storage.outbox import OutboxItem
from bot.storage.request_costs import usage_of_run
from bot.storage.sent_messages import StoredSentMessages
from bot.storage.states import OutboxKind, RunState
from catalogue import _, format_duration, set_language, use_language
from channels.base import Channel, Reply
from sandbox.base import SandboxError, SandboxProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.select import LazySandbox

if TYPE_CHECKING:  # it imports the whole agent stack, which the bot loads in a thread after it listens
    from agent.turn import Agent

log = logging.getLogger(__name__)

SIGN_ROUNDS = 3  # of the event loop, in which the channel shows that the bot works, before a turn takes its time


class TurnRunner:
    """Runs turns: provides what a turn needs, and records its end."""

    def __init__(
        self,
        store: Database,
        current: Current,
        provider: SandboxProvider,
        folders: ConversationFolders,
        outbox: Outbox,
        channel: Callable[[str], Channel | None],
        data_dir: Path,
        budgets: Budgets,
        rates: ToolAndMessageRates,
        parser: ParserProcess,
        parts: Sequence[MakeTurnPart],
    ) -> None:
        self.feed = Feed()
        self._store = store
        self._current = current
        self._budgets = budgets
        self._rates = rates
        self._provider = provider
        self._folders = folders
        self._outbox = outbox
        self._channel = channel
        self._data_dir = data_dir
        self._parser = parser
        self._parts = parts

    def folder(self, conversation: str) -> Path:
        """Return the folder of a conversation's workspace, uploads and outputs."""
        return conversation_folder(self._data_dir, conversation)

    def make_reply(self, job: ClaimedRun) -> Reply:
        """Return the reply that shows this run and continues what is visible of it already."""
        channel = self._channel(job.thread.channel)
        if channel is None or job.is_unattended:  # nobody waits: the result is one new message
            return NullReply()
        posts = StoredSentMessages(self._store, f"r{job.run}", job.thread, job.conversation, job.posted)
        try:
            with use_language(job.language):  # the reply's tasks inherit it
                return open_reply(channel, job.thread, posts, to=job.reply_to, asker=job.requester)
        except Exception:  # the run is claimed: the outbox delivers its end
            log.exception("turn.no_reply thread=%s", job.thread)
            return NullReply()

    async def run_turn(self, live: RunningTurn) -> None:
        """Run the agent, then record the end. Never raises: this is the boundary of a turn's task."""
        set_language(live.job.language)
        thread_var.set(str(live.job.thread))
        run_var.set(str(live.job.run))
        log.info("turn.begin attempt=%d messages=%d", live.job.attempt, len(live.job.messages))
        async with self._current.use_agent() as agent:
            await self._run_and_end(live, self._begin(live, agent))

    async def _run_and_end(self, live: RunningTurn, work: TurnState) -> None:
        live.working = True
        try:
            await self._run_agent(live, work)
        except asyncio.CancelledError:
            if not live.stopped_by:
                live.suspending = True  # the service shuts down
            if task := asyncio.current_task():
                task.uncancel()
        except TimeoutError:
            limit = format_duration(work.clock.seconds)
            what = _("This took longer than the limit of {time}.", time=limit)
            live.feed.record(Failed(what, _("What is done so far is kept.")))
        except Exception:  # the boundary: a fault fails this turn only, and its reply says so
            log.exception("turn.fault")
            live.feed.record(internal_fault())
        live.working = False
        await asyncio.shield(self._end_turn(live, work))

    def _begin(self, live: RunningTurn, agent: Agent) -> TurnState:
        job, account, limits = live.job, Account(self._store, live.job, live.meter, self._budgets), self._current.limits
        account.state = agent.hold_state(job.conversation, job.state)
        folder = self.folder(job.conversation)
        sandbox = LazySandbox(self._provider, job.conversation, folder)
        voice = self._current.config.voice
        inspector = UploadInspector(sandbox, agent.sees_pictures, voice, account.meter, self._parser)
        uploads = Attachments(self._store, job.conversation, folder, limits, inspector=inspector)
        transcript = TranscriptRecorder(job)
        live.feed.add_reader(transcript.add)
        steering = StoredSteering(account, live, uploads, self._channel(job.thread.channel), self._current)
        permissions = TurnPermissions(self._store, self._current, job)
        ask = StoredLiveQuestions(account, live, steering, limits, permissions)
        own = TaskSandboxes(self._provider, self._folders, job.conversation, folder)
        parts = [make(job, account) for make in self._parts]
        return TurnState(
            agent, limits, account, uploads, steering, live.feed.view, transcript, ask, own, sandbox, parts
        )

    async def _run_agent(self, live: RunningTurn, work: TurnState) -> None:
        job = live.job
        live.stopped_by = live.stopped_by or job.stop_by
        if live.stopped_by or live.suspending:  # before it began
            raise asyncio.CancelledError
        for _round in range(SIGN_ROUNDS):
            await asyncio.sleep(0)
        if refusal := await work.questions.permissions.refuse_work():
            live.feed.record(refusal)
            return
        if job.attempt > work.limits.attempts:
            live.feed.record(interrupted_failure(job.attempt - 1))
            return
        if not job.messages:
            what = _("I can't read what you wrote: it was damaged on my side.")
            live.feed.record(Failed(what, _("Please send it again.")))
            return
        channel = self._channel(job.thread.channel)
        context = TurnContext(work.sandbox, StoredLedger(work.account, job.conversation), work.steering)
        context.permissions, context.questions = work.questions.permissions, work.questions
        context.exposure = work.account.exposure = open_exposure(self._store, self._current, job.exposure)
        context.brief, context.meter = work.agent.prompt_of(job.agent), work.account.meter
        context.notes, context.judged = work.account.notes, work.account.judged
        context.own_sandboxes = work.task_sandboxes.open
        await self._rates.read_tools(self._store)
        context.tool_rates = self._rates
        for part in work.parts:
            await part.prepare(context)
        inputs = await self._make_inputs(job, channel, work)
        turn = make_turn(job, inputs, channel.window if channel else 0.2)
        if not job.title:
            work.title = work.agent.title_at_once(job.messages[0].text)
            work.title_text = "" if work.title else job.messages[0].text
        work.begun = True
        context.clock = work.clock
        async with asyncio.timeout(work.clock.seconds) as work.clock.timeout:
            async for block in work.agent.run(turn, context):
                block = await work.questions.prepare(block) if isinstance(block, Ask | Approve) else block
                live.feed.publish(block)
        work.clean = True

    async def _make_inputs(self, job: ClaimedRun, channel: Channel | None, work: TurnState) -> tuple[UserInput, ...]:
        """Prepare the messages. The last one brings the talk above it."""
        look = partial(talk_above, conversation=job.conversation, messages=job.messages, limits=work.limits)
        above = await self._store.run(look, durable=False)
        talk = [*[NO_TALK] * (len(job.messages) - 1), above]
        return tuple([await work.uploads.make_input(channel, *each) for each in zip(job.messages, talk, strict=True)])

    # ------------------------------------------------------------ the end of a turn

    async def _end_turn(self, live: RunningTurn, work: TurnState) -> None:
        try:
            if live.suspending:
                await self._suspend(live.job, work)
                await live.reply.close()
            else:
                await self._repair_state(live, work)
                await self._record_end(live, work)
        finally:
            self.feed.end_run(live.job.run, "suspended")  # unless its end was recorded
            if work.account.state:
                await work.account.state.release()
            await work.sandbox.aclose()
            if not live.suspending and _run_state(work.view) is not RunState.WAITING:
                await work.task_sandboxes.remove(leftovers=live.job.resumed)

    async def _suspend(self, job: ClaimedRun, work: TurnState) -> None:
        noted = [*work.account.meter.outcomes]

        def suspend(execute: Execute) -> None:
            claims.suspend_run(execute, job)
            record_part(execute, noted, time.time())

        try:
            await work.account.commit(suspend)
        except StorageError as error:  # a restart then counts this attempt; nothing else is lost
            log.warning("turn.not_suspended reason=%s", error)
        log.info("turn.suspended")

    async def _repair_state(self, live: RunningTurn, work: TurnState) -> None:
        """After a stop or a fault, keep the text so far and leave the checkpoint valid."""
        if live.stopped_by:
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
                await self._record(live, work, await prepare(live.job, work))
                break
            except Exception:  # the boundary of an end: one that cannot be recorded must not block its conversation
                log.exception("turn.not_recorded ending=%s", prepare.__name__.strip("_"))

    async def _whole(self, job: ClaimedRun, work: TurnState) -> RunResult:
        collected, before = await self._collect_artifacts(job, work)
        await self._recall_attempts(job, work)
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
        ending = RunEnding(state, tuple(asks), work.title, clean, asked, work.account.has_ledger)
        return RunResult(ending, final, collected, before, work.title_text, work.transcript)

    async def _recall_attempts(self, job: ClaimedRun, work: TurnState) -> None:
        """Add to the transcript, and to the steps of the final, what earlier attempts of the run did."""
        try:
            if job.resumed:
                keys = {each.key for each in job.messages}
                blocks = await work.agent.recall(job.conversation, keys)
                work.transcript.recall(blocks)
                if not job.answers:  # else an earlier run did them
                    work.view.steps = {b.id: b for b in blocks if isinstance(b, Step)} | work.view.steps
        except Exception:  # then the transcript has this attempt only
            log.exception("turn.not_recalled")

    async def _without_files(self, job: ClaimedRun, work: TurnState) -> RunResult:
        what = _("Something broke on my side when I stored this answer. It's logged.")
        what_to_do = _(
            "No files were sent. Ask me for them, or send {retry} to try again.", retry=command_hint("retry")
        )
        view = replace(work.view, asks=[], failed=Failed(what, what_to_do))
        return RunResult(RunEnding(RunState.FAILED, clean=False), view.final())

    async def _least(self, job: ClaimedRun, work: TurnState) -> RunResult:
        work.account.drop_unrecorded()  # not even its usage, which the log has
        return RunResult(RunEnding(RunState.FAILED, clean=False), View(failed=internal_fault()).final())

    async def _record(self, live: RunningTurn, work: TurnState, end: RunResult) -> None:
        """Commit the transaction that ends the run. Retries until the database accepts it: the work is done."""
        job, ending, collected, now = live.job, end.ending, end.collected, time.time()
        has_steered = job.resumed or work.steering.has_taken or bool(work.questions.asked)
        noted, named = [*live.meter.outcomes], {each.skill for each in job.messages if each.skill}

        def record(execute: Execute) -> tuple[list[OutboxItem], Usage]:
            parts = claims.finish_run(execute, job, ending, now)
            used = usage_of_run(parts)
            if end.transcript:
                steered = claims.steered_messages(execute, job) if has_steered else []
                end.transcript.store(execute, work.view, steered, collected, now)
            outputs.replace_stamps(execute, job.conversation, collected.stamps, end.before)
            final = replace(end.final, seconds=now - job.started, tokens=used.input + used.output)
            silent = is_silent(job.is_unattended, work.view, collected)
            rows = [] if silent else [(OutboxKind.REPLY, f"run:{job.run}", final.dump())]
            if collected.files:
                rows.append((OutboxKind.FILE, f"run:{job.run}:files", files_payload(collected.files)))
            channel = self._channel(job.thread.channel)
            ended = EndedTurn(job, ending.state, end.final.text, collected, channel, bool(rows), now)
            rows += [row for part in work.parts for row in part.end(execute, ended)]
            if end.title_text:
                enqueue_title(execute, job.run, job.conversation, end.title_text)
            record_run(execute, job.run, parts, ending.state, noted, named, now)
            items = [item for row in rows for item in outbox.enqueue_claimed(execute, job.run, *row, now)]
            return items, used

        if not job.is_unattended:
            self._outbox.adopt_reply(job.run, live.reply)
        try:
            items, used = await until_stored("turn", partial(work.account.commit, record))
        except ClaimLost:
            log.error("turn.lost_claim")  # noqa: TRY400 — nothing to trace: another worker ends this run
            work.account.drop_state()
            await live.reply.close()
            return
        self._outbox.offer(items)
        self._budgets.wake()
        self.feed.end_run(job.run, ending.state)
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
            return await self._store.run(lambda each: outputs.known_stamps(each, job.conversation), durable=False)
        except StorageError:  # then files may be sent twice rather than never; recording the end retries anyway
            log.exception("turn.outputs_unknown")
            return {}

    async def _collect_artifacts(self, job: ClaimedRun, work: TurnState) -> tuple[Artifacts, dict[str, str]]:
        """Return what is new in outputs/, and the stamps stored before."""
        if not (work.view.files or job.resumed or work.sandbox.used):
            return Artifacts(stamps={}), {}
        before = await self._known_stamps(job)
        channel, folder = self._channel(job.thread.channel), self.folder(job.conversation)
        limit = channel.limits.upload if channel else DEFAULT_UPLOAD_BYTES
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
