"""The background tasks of a turn: what its tools start, list and cancel for the requester."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.messages import Origin
from bot.commands.background import cancel_task
from bot.database.database import Database, Execute
from bot.database.states import TaskKind
from bot.rights import allowance
from bot.rights.allowance import Lineage, UsedUp
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.storage import languages, runs, tasks
from bot.storage.tasks import TaskRow
from bot.tasks import starting
from bot.tasks.reports import log_path
from bot.tasks.starting import TaskPlace, TaskRefused, Worker
from catalogue import use_language


class TurnTasks:
    """`agent.background.BackgroundWork` of one turn. It acts for the requester, or for who had the request repeated."""

    def __init__(
        self, store: Database, current: Current, job: ClaimedRun, stop_run: Callable[[int, str], None]
    ) -> None:
        self._store = store
        self._current = current
        self._stop_run = stop_run
        self._prefix = job.conversation
        who, lineage = job.beneficiary, Lineage.of_run(job.messages)
        self._who = TaskPlace(who.person, who.thread, who.private, job.conversation, lineage, run=job.run)
        self._worker = Worker("", job.agent, job.model, job.effort)
        self._run = job.run
        self._is_follow_up = is_follow_up(job)

    async def start_command(self, key: str, tool: str, title: str, command: str, follow_up: str) -> str:
        """Run a command in the conversation's sandbox. The same `key` starts it once."""
        start = partial(starting.start_command, tool=tool, title=title, command=command, follow_up=follow_up)
        number = await self._start(start, key)
        if isinstance(number, str):
            return number
        then = "You continue then." if follow_up else "You are not told."
        return (
            f"Started as background task {number}. Its output goes to {log_path(number)}. The person gets a message"
            f" when it ends. {then} Do not wait for it."
        )

    async def start_agent(self, key: str, title: str, prompt: str, kind: str) -> str:
        """Let a sub-agent work in a conversation and a sandbox of its own. The same `key` starts it once."""
        if self._is_follow_up:
            return "Not possible: only the request of a person or a schedule can start a background agent."
        number = await self._start(
            partial(starting.start_agent, title=title, prompt=prompt, worker=replace(self._worker, kind=kind)), key
        )
        if isinstance(number, str):
            return number
        return f"Started as background task {number}. The person gets its result as a message. Do not wait for it."

    async def _start(self, start: Callable[..., int], key: str) -> int | str:
        full_key = f"{self._prefix}/{key}"
        start = partial(start, current=self._current, key=full_key, now=time.time())

        def work(execute: Execute) -> int:
            run = runs.find_run(execute, self._run)
            if run and run.stop_by:  # what it started now would outlive the stop
                raise TaskRefused("a person has stopped this work.")
            people = tuple(runs.people_of(run)) if run else ()
            return start(execute, who=replace(self._who, people=people))

        try:
            with use_language("en"):
                return await self._store.run(work)
        except TaskRefused as error:
            if error.used_up:
                await self._store.run(partial(self._tell, used_up=error.used_up))
            return f"Not possible: {error}"

    def _tell(self, execute: Execute, used_up: UsedUp) -> None:
        """Say to the person that an allowance is used up."""
        with languages.speak_to(execute, self._who.thread, self._who.person):
            allowance.tell(execute, used_up, self._who.thread, time.time())

    async def list_tasks(self) -> str:
        """Return the tasks of the requester: in a shared chat, those that report there."""
        rows = await self._store.run(self._list)
        return "\n".join(map(_describe_row, rows)) or "The person has no background tasks here."

    def _list(self, execute: Execute) -> list[TaskRow]:
        place, person = self._who.thread, self._who.person
        if self._who.private:
            return tasks.list_of_person(execute, place.channel, person.id)
        return [row for row in tasks.list_of_chat(execute, place) if row.person == person.id]

    async def cancel(self, number: int) -> str:
        """End a task of the requester."""

        def work(execute: Execute) -> Callable[[], None] | str:
            if not runs.is_alone(execute, self._run, self._who.person.id):
                return "Not possible: several people take part in this request, and a task is one person's alone."
            row = next((row for row in self._list(execute) if row.id == number), None)
            if row is None:
                return f"The person has no background task {number} here."
            stop = cancel_task(execute, row, self._who.person.id, time.time(), self._stop_run)
            return stop or f"Background task {number} has ended already."

        done = await self._store.run(work)
        if isinstance(done, str):
            return done
        done()
        return f"Background task {number} is cancelled."


def is_follow_up(job: ClaimedRun) -> bool:
    """Return whether the agent began this run, also one that goes on with the answer to its question."""
    made_up = any(message.origin in (Origin.TASK, Origin.TOOL) or message.generation for message in job.messages)
    return made_up or (bool(job.answers) and job.conversation.startswith("task:"))


def _describe_row(row: TaskRow) -> str:
    code = "" if row.exit_code is None else f", exit code {row.exit_code}"
    output = f", output: {log_path(row.id)}" if row.kind == TaskKind.COMMAND else ""
    return f"{row.id}: {row.shown}{code}, {row.kind}, {row.title}{output}"
