"""Run background commands in the sandboxes of their conversations.

A queued row is claimed, then its command runs; its end is recorded and reported in one transaction. A command holds its
sandbox, so that neither idle reaping nor the need for room ends it. The sandbox does not survive the process: what runs
at a start was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from bot.base.background import run_forever, until_stored
from bot.base.data_dir import conversation_folder
from bot.base.plain_text import code_block
from bot.config.team import Right
from bot.database.database import Database, Execute
from bot.database.states import TaskState
from bot.database.wake_ups import Written
from bot.rights.budgets import charge_sandbox, record_used_up
from bot.rights.current import Current
from bot.storage import languages, outbox, tasks
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.tasks import TaskRow
from bot.storage.usage import Payer
from bot.tasks import reports
from bot.tasks.files import CommandFiles
from bot.tasks.reports import TaskEnd, log_path
from bot.tasks.starting import is_forbidden
from catalogue import N_, LazyText, _
from channels.shared.background import BackgroundTasks
from sandbox.base import SandboxError, SandboxGone, SandboxProvider, ShellCommand

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0  # between two looks at the rights of running commands
TAIL_JOB = "task-tail"
MAX_NOTE_BYTES = 2000  # of what the sandbox says beside the output, which goes to a file
SCRIPT = "mkdir -p {folder} && exec >{log} 2>&1 && eval {command}"
TOO_LONG = LazyText(N_("It was stopped because it took too long."))
FORBIDDEN = LazyText(N_("I have not started it: the rules here, or your role, do not allow it any more."))
NO_RIGHT = LazyText(N_("I stopped it: the rules here, or your role, do not allow it any more."))
FAULT = LazyText(N_("Something broke on my side. It's logged."))
NO_OUTPUT = N_("It has no output yet.")


class CommandTasks:
    """Runs the queued commands while `serve` runs."""

    def __init__(
        self,
        store: Database,
        current: Current,
        data_dir: Path,
        files: CommandFiles,
    ) -> None:
        self._store = store
        self._current = current
        self._data_dir = data_dir
        self._files = files
        self._wake = store.listen(Written.TASK)
        self._running: dict[int, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()

    async def serve(self, provider: SandboxProvider) -> None:
        """Run commands until cancelled. Those that then run are lost, which the next start reports."""
        try:
            await run_forever("tasks", partial(self._start_queued, provider))
        finally:
            await self._tasks.cancel()

    async def _start_queued(self, provider: SandboxProvider) -> None:
        for row in await self._store.run(partial(tasks.claim_queued, owner=self._store.me, now=time.time())):
            task = self._running[row.id] = self._tasks.start(self._run(provider, row), name=f"task {row.id}")
            task.add_done_callback(partial(self._forget, row.id))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS if self._running else None):
                await self._wake.wait()
        self._wake.clear()
        if self._running:
            await self._stop_ended()

    async def _stop_ended(self) -> None:
        """Kill the commands that were cancelled, or whose person lost the right to them or used up a budget."""
        for number in [*self._running]:
            end, is_over = await self._store.run(partial(self._look_at, number=number, now=time.time()))
            if is_over and (task := self._running.get(number)):
                task.cancel()
                log.info("task.stopped id=%d reason=%s", number, end.reason if end else "")

    def _look_at(self, execute: Execute, number: int, now: float) -> tuple[TaskEnd | None, bool]:
        """Record the end of a running command that may not run any more, and return it. Also return whether it is
        over: somebody else may have recorded that."""
        row = tasks.find_task(execute, number)
        if row is None or not row.is_open:
            return None, True
        access = self._current.access
        if is_forbidden(execute, self._current, row) or not access.may(execute, row.place, row.person, Right.TALK):
            end: TaskEnd | None = TaskEnd(TaskState.FAILED, reason=NO_RIGHT)
        else:
            end = self._refuse_spending(execute, row, now)
        if end:
            reports.record_end(execute, self._current.config, replace(row, follow_up=""), end, now)
        return end, end is not None

    def _forget(self, number: int, _task: asyncio.Task[None]) -> None:
        self._running.pop(number, None)

    async def _run(self, provider: SandboxProvider, row: TaskRow) -> None:
        """Run one command and record its end. This is the boundary of one task."""
        log.info("task.begin id=%d", row.id)
        began: float | None = None
        try:
            refused = await self._store.run(partial(self._refuse, row=row))
            began = None if refused else time.monotonic()
            end = refused or await self._execute(provider, row)
        except SandboxGone as error:
            end = TaskEnd(TaskState.LOST, reason=error.text)
        except SandboxError as error:
            end = TaskEnd(TaskState.FAILED, reason=error.text)
        except Exception:  # the boundary: a fault fails this task only
            log.exception("task.fault id=%d", row.id)
            end = TaskEnd(TaskState.FAILED, reason=FAULT)
        self._running.pop(row.id, None)  # its end is not one to be killed for
        found = await self._files.find(row)
        seconds = 0.0 if began is None else time.monotonic() - began

        def record(execute: Execute) -> None:
            config, now = self._current.config, time.time()
            if seconds:
                payer = Payer(row.begun_in or 0, row.conversation, row.place, row.person)
                charge_sandbox(execute, config, payer, seconds, now)
            reports.record_end(execute, config, row, end, now, found=found)

        await until_stored("task", lambda: self._store.run(record))
        log.info("task.%s id=%d", end.state, row.id)

    def _refuse(self, execute: Execute, row: TaskRow) -> TaskEnd | None:
        """Return the end of a command that a rule or a role forbids now: it may have waited through a restart."""
        if is_forbidden(execute, self._current, row):
            return TaskEnd(TaskState.FAILED, reason=FORBIDDEN)
        return self._refuse_spending(execute, row, time.time())

    def _refuse_spending(self, execute: Execute, row: TaskRow, now: float) -> TaskEnd | None:
        """Return the end of a command whose person has used up a budget, and note it in the audit."""
        budgets = self._current.access.budgets
        limit = budgets.find_used_up(execute, row.place, row.person, now)
        if limit is None:
            return None
        record_used_up(execute, limit, row.place, row.person, "command")
        with languages.speak_to(execute, row.place, row.who.person):
            return TaskEnd(TaskState.FAILED, reason=budgets.describe_used_up(limit))

    async def _execute(self, provider: SandboxProvider, row: TaskRow) -> TaskEnd:
        path = log_path(row.id)
        script = SCRIPT.format(
            folder=shlex.quote(path.rpartition("/")[0]), log=shlex.quote(path), command=shlex.quote(row.what)
        )
        folder, hours = conversation_folder(self._data_dir, row.conversation), self._current.config.tasks.hours
        command = ShellCommand(
            script, timeout_seconds=hours * 3600, max_output_bytes=MAX_NOTE_BYTES, is_background=True
        )
        async with provider.acquire(row.conversation, folder) as sandbox:
            result = await sandbox.run(command)
        reason = TOO_LONG if result.timed_out else result.output.strip()
        state = TaskState.DONE if result.exit_code == 0 else TaskState.FAILED
        return TaskEnd(state, result.exit_code, reason, await self._tail(row))

    async def _tail(self, row: TaskRow) -> str:
        folder = conversation_folder(self._data_dir, row.conversation)
        try:
            return await reports.read_tail(folder, row.id)
        except (OSError, SandboxError) as error:
            log.warning("task.no_tail id=%d reason=%s", row.id, error)
            return ""

    async def answer_tail(self, job: BackgroundJob) -> Callable[[Execute], object] | None:
        """Answer `/task N`: return what enqueues the state and the end of the output."""
        number, words, thread = job.arguments["number"], job.arguments["words"], job.arguments["thread"]
        row = await self._store.run(partial(tasks.find_task, number=number))
        if row is None:
            return None
        tail = await self._tail(row)

        def enqueue(execute: Execute) -> None:
            with languages.speak_to(execute, row.place, row.who.person):
                text = "\n".join([words, code_block(tail) if tail else _(NO_OUTPUT)])
                outbox.enqueue_notice(execute, thread, text, key=job.key, now=time.time())

        return enqueue


def enqueue_tail(execute: Execute, number: int, words: str, key: str, thread: str) -> None:
    """Have the output of a command shown after these words."""
    payload = {"number": number, "words": words, "thread": thread}
    enqueue_job(execute, key=f"{TAIL_JOB}:{key}", kind=TAIL_JOB, payload=payload)
