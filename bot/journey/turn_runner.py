"""One turn, from the claimed messages to its end, which `bot.journey.turn_end` records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.blocks import Approve, Ask, Failed, internal_fault
from agent.core.context import TurnContext
from agent.parsing.child import ParserProcess
from agent.shown_links import LinkGuard
from bot.base.data_dir import conversation_folder
from bot.base.log import key_var, run_var, thread_var
from bot.database.database import Database
from bot.journey.attachments import Attachments, UploadInspector
from bot.journey.exposure import open_exposure
from bot.journey.feed import Feed
from bot.journey.live_questions import StoredLiveQuestions
from bot.journey.outbox import Outbox
from bot.journey.questions import answer_key
from bot.journey.replies import open_run_reply
from bot.journey.running_turn import (
    RunningTurn,
    StoredLedger,
    StoredSteering,
    interrupted_failure,
    is_given_up,
    make_turn,
    open_account,
)
from bot.journey.step_journal import StepJournal
from bot.journey.task_sandboxes import TaskSandboxes
from bot.journey.turn_end import TurnEnd, TurnState
from bot.journey.turn_part import MakeTurnPart
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.permissions import TurnPermissions
from bot.rights.rates import ToolAndMessageRates
from bot.rights.reservations import Budgets
from catalogue import _, format_duration, set_language
from channels.base import Channel, Reply
from sandbox.base import SandboxProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.engines.select import LazySandbox

if TYPE_CHECKING:  # it imports the whole agent stack, which the bot loads in a thread after it listens
    from agent.turn.turn import Agent

log = logging.getLogger(__name__)

TOLD_SECONDS = 5.0  # for the notice that says who answered elsewhere, before the work goes on below it
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
        self._end = TurnEnd(store, budgets, self.feed, outbox, channel, data_dir)
        self._parts = parts
        self._working: set[int] = set()  # runs whose end is not being recorded yet

    def folder(self, conversation: str) -> Path:
        """Return the folder of a conversation's workspace, uploads and outputs."""
        return conversation_folder(self._data_dir, conversation)

    def make_reply(self, job: ClaimedRun) -> Reply:
        """Return the reply that shows this run and continues what is visible of it already."""
        channel, works = self._channel(job.thread.channel), partial(self._working.__contains__, job.run)
        return open_run_reply(self._store, self._current, channel, job, works)

    async def run_turn(self, live: RunningTurn) -> None:
        """Run the agent, then record the end. Never raises: this is the boundary of a turn's task."""
        set_language(live.job.language)
        thread_var.set(str(live.job.thread))
        run_var.set(str(live.job.run))
        key_var.set(live.job.messages[0].key if live.job.messages else "")
        log.info("turn.begin attempt=%d messages=%d", live.job.attempt, len(live.job.messages))
        async with self._current.use_agent() as agent:
            await self._run_and_end(live, self._begin(live, agent))

    async def _run_and_end(self, live: RunningTurn, work: TurnState) -> None:
        live.working = True
        self._working.add(live.job.run)
        try:
            await self._run_agent(live, work)
        except asyncio.CancelledError:
            if not (live.stopped_by or live.lost):
                live.suspending = True  # the service shuts down
            if task := asyncio.current_task():
                task.uncancel()
        except TimeoutError:
            limit = format_duration(work.clock.seconds)
            what = _("This took longer than the limit of {time}.", time=limit)
            live.feed.record(Failed(what, _("What is done so far is kept.")))
        except Exception:  # the boundary: a fault fails this turn only, and its reply says so
            if not live.lost:
                log.exception("turn.fault")
                live.feed.record(internal_fault())
        live.working = False
        self._working.discard(live.job.run)
        await asyncio.shield(self._end.record(live, work))

    def _begin(self, live: RunningTurn, agent: Agent) -> TurnState:
        job, limits, account = live.job, self._current.limits, open_account(self._store, live, self._budgets)
        shared = account.claimed if self._store.is_shared else None
        account.state = agent.hold_state(job.conversation, job.state, shared)
        folder = self.folder(job.conversation)
        sandbox = LazySandbox(self._provider, job.conversation, folder)
        voice = self._current.config.voice
        inspector = UploadInspector(sandbox, agent.sees_pictures, voice, account.meter, self._parser)
        uploads = Attachments(self._store, job.conversation, folder, self._current, inspector=inspector)
        journal = StepJournal(self._store, account.claimed, job, live.feed)
        steering = StoredSteering(account, live, uploads, self._channel(job.thread.channel), self._current)
        permissions = TurnPermissions(self._store, self._current, job)
        ask = StoredLiveQuestions(account, live, steering, limits, permissions)
        own = TaskSandboxes(self._provider, self._folders, job.conversation, folder)
        parts = [make(job, account) for make in self._parts]
        return TurnState(agent, limits, account, uploads, steering, live.feed.view, journal, ask, own, sandbox, parts)

    async def _run_agent(self, live: RunningTurn, work: TurnState) -> None:
        job = live.job
        await work.journal.recall(live)
        live.stopped_by = live.stopped_by or job.stop_by
        if live.stopped_by or live.suspending or live.lost:  # before it began
            raise asyncio.CancelledError
        for _round in range(SIGN_ROUNDS):
            await asyncio.sleep(0)
        if refusal := await work.questions.permissions.refuse_work():
            live.feed.record(refusal)
            return
        if is_given_up(job, work.limits):
            live.feed.record(interrupted_failure(job.attempt - 1, [each.text for each in job.messages]))
            return
        if not job.messages:
            what = _("I can't read what you wrote: it was damaged on my side.")
            live.feed.record(Failed(what, _("Please send it again.")))
            return
        told = [answer_key(answer.id, answer.key) for answer in job.answers]
        await self._outbox.wait_for(told, TOLD_SECONDS)
        channel = self._channel(job.thread.channel)
        context = TurnContext(work.sandbox, StoredLedger(work.account, job.conversation), work.steering)
        context.permissions, context.questions = work.questions.permissions, work.questions
        context.exposure = work.account.exposure = open_exposure(self._store, self._current, job.exposure)
        context.brief, context.meter = work.agent.prompt_of(job.agent), work.account.meter
        context.notes, context.judged = work.account.notes, work.account.judged
        context.own_sandboxes = work.task_sandboxes.open
        context.tool_rates = await self._rates.tools_of(self._store)
        for part in work.parts:
            await part.prepare(context)
        inputs = await work.uploads.make_inputs(channel, job.messages)
        turn = make_turn(job, inputs, channel.window if channel else 0.2, live.begun_steps)
        if not job.title:
            work.title = work.agent.title_at_once(job.messages[0].text)
            work.title_text = "" if work.title else job.messages[0].text
        work.begun = True
        context.clock = work.clock
        async with asyncio.timeout(work.clock.seconds) as work.clock.timeout:
            guard = LinkGuard(context.exposure) if channel and channel.limits.fetches_links else None
            async for made in work.agent.run(turn, context):
                for block in guard.take(made) if guard else (made,):
                    asked = await work.questions.prepare(block) if isinstance(block, Ask | Approve) else block
                    live.feed.publish(asked)
        work.clean = True
