"""Ask a person while a turn works, and take the answer into it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any

from agent.blocks import Approve, Ask, View
from bot.base.side_work import name_side_work, record_posted
from bot.config.schema import ServiceLimits
from bot.database.database import Execute
from bot.journey import claims, questions
from bot.journey.inbox import longest_wait
from bot.journey.running_turn import Account, RunningTurn, StoredSteering
from bot.rights.approvals import RoutedApproval, ask_elsewhere, question_columns, send_long_call
from bot.rights.claimed_run import ClaimedRun
from bot.rights.permissions import TurnPermissions
from bot.storage import outbox
from bot.storage import questions as stored_questions
from catalogue import _


class StoredLiveQuestions:
    """`agent.core.context.LiveQuestions` of one turn. `asked` are the ids of the questions that this turn has shown."""

    def __init__(
        self,
        account: Account,
        live: RunningTurn,
        steering: StoredSteering,
        limits: ServiceLimits,
        permissions: TurnPermissions,
    ) -> None:
        self.asked: set[str] = set()
        self.permissions = permissions
        self._account = account
        self._live = live
        self._steering = steering
        self._limits = limits
        self._waiting: dict[str, tuple[Ask | Approve, asyncio.Future[str]]] = {}
        self._lock = asyncio.Lock()  # one look at a time: whoever gives up knows that no look has its answer

    async def ask(self, question: Ask | Approve, idle: asyncio.Future[None]) -> str | None:
        """Show a question at once and return the answer; None when `idle` is done before."""
        question = await self.prepare(question)
        job = self._live.job
        if (work := name_side_work(job.conversation, job.title)).kind:  # nothing above the question names it
            asks = _("{work} asks:", work=work.label)
            question = replace(question, question=f"**{asks}** {question.question}")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = question, answer
        self.asked.add(question.id)
        try:
            await self._account.commit(partial(_ask_at_once, job=self._live.job, ask=question, now=time.time()))
            while True:
                news = self._live.next_message()
                was_idle = idle.done()
                async with self._lock:
                    delay = await self._take_answers()
                if answer.done() or was_idle:
                    return answer.result() if answer.done() else None
                waited: set[asyncio.Future[Any]] = {answer, idle, news}
                await asyncio.wait(waited, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[question.id]

    async def prepare(self, question: Ask | Approve) -> Ask | Approve:
        """Return the question with the time when it expires, and an approval with its options, or as others get it."""
        if isinstance(question, Approve) and not isinstance(question, RoutedApproval):
            question = await self.permissions.complete(question)
        hours = self._limits.question_hours if isinstance(question, Ask) else self._limits.approval_hours
        return replace(question, hours=hours, until=time.time() + hours * 3600 if hours else 0.0)

    async def _take_answers(self) -> float | None:
        """Take the answers that have come. Returns in how many seconds further messages are ready."""
        asked = [id for id, (_question, answer) in self._waiting.items() if not answer.done()]
        wait = longest_wait(self._limits)
        taken, ready = await self._account.commit(
            lambda execute: claims.take_answers(
                execute, self.permissions.access, self._live.job, asked, time.time(), wait
            )
        )
        from agent.core.user_message import format_answer  # with the agent stack, which is loaded by now

        for answer, message in taken:
            item = await self._steering.note_taken(message) if message else None
            if (waiting := self._waiting.get(answer.id)) and not waiting[1].done():
                question, given = waiting
                given.set_result(format_answer(answer.text, item, question))
        return None if ready is None else max(0.0, ready - time.time())

    def hide_shown(self, view: View) -> View:
        """Return the view without the questions that the chat shows already, and with a hint to them."""
        shown = [ask for ask in view.asks if ask.id in self.asked]
        if not shown:
            return view
        hint = _("I'll continue when you have answered my question above.")
        asks = [ask for ask in view.asks if ask.id not in self.asked]
        return replace(view, asks=asks, kept=[*view.kept, *([] if asks else [hint])])


def _ask_at_once(execute: Execute, job: ClaimedRun, ask: Ask | Approve, now: float) -> None:
    """Store a question of a running turn and enqueue it. One that is there already stays, with its answer."""
    if any(each.id == ask.id for each in stored_questions.unresolved_questions(execute, job.conversation)):
        return
    answerers, shown = question_columns(ask, job.requester), ask.to_question()
    stored_questions.store_question(execute, ask, job.conversation, run=job.run, number=0, answerers=answerers, now=now)
    questions.record_asked(execute, ask, job.conversation, job.run, answerers["who"])
    ask_elsewhere(execute, ask, job.thread, job.run, job.author, now)
    key = f"ask:{job.run}:{ask.id}"
    record_posted(execute, job.conversation, job.requester, shown.question, key=key, now=now)
    send_long_call(execute, ask, job.thread, key=key, now=now)
    outbox.enqueue_notice(
        execute,
        job.thread,
        shown.question,
        key=key,
        now=now,
        reply_to=job.reply_to,
        asks=(shown,),
        conversation=job.conversation,
    )
