"""The schedules of a turn: what its tool does for the requester."""

from __future__ import annotations

import time
from functools import partial

from agent.schedules import ScheduleRequest
from bot.database.database import Database, Execute
from bot.journey.exposure import inherit_exposure
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.schedules.proposals import (
    DECIDABLE,
    ProposalRefused,
    ask_to_change,
    find_own,
    propose_schedule,
)
from bot.service.schedule_words import describe_line, describe_next
from bot.storage import runs, schedules
from bot.storage.schedules import ScheduleRow
from catalogue import use_language


class TurnSchedules:
    """`agent.schedules.Schedules` of one turn. It acts for the requester, and in their place only."""

    def __init__(self, store: Database, current: Current, job: ClaimedRun) -> None:
        self._store = store
        self._current = current
        self._who = job.who
        self._run = job.run
        self._conversation = job.conversation

    async def list_schedules(self) -> str:
        """Return the schedules of the requester: in a shared chat, those that post there."""
        return await self._store.run(self._list)

    def _list(self, execute: Execute) -> str:
        place, person = self._who.thread, self._who.person
        rows = schedules.list_owned(execute, place.channel, person.id)
        if not self._who.private:
            rows = [row for row in rows if row.place.chat == place.chat]
        with use_language("en"):
            lines = [
                f"{describe_line(row, with_owner=False)} {describe_next(row.timing, time.time())}".strip()
                for row in rows
            ]
        return "\n".join(lines) or "The person has no schedules here."

    async def propose(self, request: ScheduleRequest) -> str:
        """Ask the requester to confirm a new or changed schedule."""
        now = time.time()
        try:
            row = await self._store.run(partial(self._propose, request=request, now=now))
        except ProposalRefused as error:
            return f"Not possible: {error}"
        with use_language("en"):
            shown = describe_next(row.timing, now)
        return (
            f"Proposed as schedule {row.changes or row.id}. {shown} They now see it in words, with the buttons Yes"
            " and No; it is not active before they press Yes. Do not wait, and do not repeat what the question says."
        )

    def _propose(self, execute: Execute, request: ScheduleRequest, now: float) -> ScheduleRow:
        if request.number:
            self._find_own(execute, request.number)
        row = propose_schedule(execute, self._current, self._who, request, now)
        inherit_exposure(execute, self._conversation, f"schedule:{row.changes or row.id}")
        return row

    def _find_own(self, execute: Execute, number: int) -> ScheduleRow:
        """Return a schedule that this run may change: of all its people, and in this place. Raises ProposalRefused."""
        if not runs.is_alone(execute, self._run, self._who.person.id):
            raise ProposalRefused("several people take part in this request, and a schedule is one person's alone.")
        row = find_own(execute, self._who, number)
        if not self._who.private and row.place.chat != self._who.thread.chat:
            raise ProposalRefused("this schedule posts in another chat. Its owner can change it there.")
        return row

    async def pause(self, number: int) -> str:
        """Ask the requester whether a schedule of theirs is to be paused."""
        return await self._ask("pause", number)

    async def delete(self, number: int) -> str:
        """Ask the requester whether a schedule of theirs is to be deleted."""
        return await self._ask("delete", number)

    async def _ask(self, verb: str, number: int) -> str:
        """What a turn read may have talked the model into it, so that only the owner's word changes anything."""

        def work(execute: Execute) -> str:
            row = self._find_own(execute, number)
            if row.state not in DECIDABLE[verb]:
                return f"Schedule {number} is not active."
            ask_to_change(execute, row, verb, self._run, time.time())
            return (
                f"The owner is asked where schedule {number} posts, with the buttons Yes and No. Nothing changes before"
                " they press Yes. Do not wait, and do not repeat the question."
            )

        try:
            answer = await self._store.run(work)
        except ProposalRefused as error:
            return f"Not possible: {error}"
        return answer
