"""The job that deletes what is stored of a person.

The job begins anew after a crash: each conversation is cleaned under a claim, its checkpoint and files first, then its
rows in one transaction, which also takes it off the list of what is left. At last the databases are rewritten, because
deleted rows stay readable in free pages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from agent.messages import Author, Thread
from bot.budget_limits import period_bounds
from bot.current import Current
from bot.data_dir import conversation_folder
from bot.forget_command import FORGET_PERSON_JOB
from bot.jobs import Effect, JobWorker
from bot.outbox import Outbox
from bot.own_data import EXPORT_JOB, ExportJobs
from bot.scheduler import Scheduler
from bot.storage import forgetting, languages, outbox
from bot.storage.database import Database, Execute
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.task_sandboxes import remove_task_folders
from bot.tasks.reports import LOG_FOLDER
from catalogue import N_, _
from sandbox.base import SandboxFileError, SandboxProvider
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.removal import remove_tree
from sandbox.disk.safe_files import remove_copies, safe_name

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0  # until the next look at conversations in which another person's turn works
DONE = N_("Done: I have forgotten you. What you write from now on is new to me.")


@dataclass(frozen=True, slots=True)
class ConversationCleaner:
    """Deletes checkpoints and files of conversations that are claimed. `forget_checkpoint` takes the conversation."""

    data_dir: Path
    provider: SandboxProvider
    folders: ConversationFolders
    forget_checkpoint: Callable[[str], Awaitable[None]]

    async def delete_all(self, key: str) -> None:
        """Delete the checkpoint and all files. Raises OSError if any are left."""
        await self.forget_checkpoint(key)
        await self.provider.destroy(key)
        folder = conversation_folder(self.data_dir, key)
        await remove_task_folders(self.folders, folder)
        if not await self.folders.remove_folder(folder):
            raise OSError(f"{folder} could not be deleted")

    async def delete_own(self, key: str, uploads: set[str], tasks: set[int]) -> None:
        """Delete the checkpoint, the uploads of these names, and the output of these background commands."""
        await self.forget_checkpoint(key)
        folder = conversation_folder(self.data_dir, key)
        if (uploads or tasks) and folder.exists():
            async with self.folders.open_folder(folder):
                await run_file_work(remove_copies, folder / "uploads", uploads)
                await run_file_work(_remove_logs, folder, tasks)


def _remove_logs(folder: Path, tasks: set[int]) -> None:
    """Delete what background commands printed."""
    with suppress(SandboxFileError):  # no command ran here, or its sandbox has removed the folder
        remove_copies(folder, {f"{number}.log" for number in tasks}, f"workspace/{LOG_FOLDER}")


@dataclass(frozen=True, slots=True)
class ForgetJobs:
    """Handles the jobs that forget people. The first of `databases` is the store."""

    databases: tuple[Database, ...]
    current: Current
    cleaner: ConversationCleaner
    scheduler: Scheduler
    outbox: Outbox
    stop_task: Callable[[int], None]

    @property
    def store(self) -> Database:
        return self.databases[0]

    async def forget_person(self, job: BackgroundJob) -> Effect | None:
        """Handle a job: delete all that can be deleted now. If somebody's turn still works, the job continues later."""
        given = job.arguments
        person = PersonKey(given["channel"], given["person"])
        for run in await self.store.run(partial(forgetting.stop_runs, person=person)):
            self.scheduler.stop_run(run, person.id)
        for task in await self.store.run(partial(forgetting.stop_tasks, person=person)):
            self.stop_task(task)
        chats = [*map(Thread.parse, given["chats"])]
        traces = await self.store.run(partial(forgetting.find_traces, person=person, chats=chats))
        busy = [key for key in traces.private if not await self._clean(person, key, traces, private=True)]
        busy += [key for key in traces.shared if not await self._clean(person, key, traces, private=False)]
        if busy:
            log.info("forget.waits conversations=%d", len(busy))
            again = {**given, "chats": [*map(str, traces.chats)]}
            due = time.time() + BUSY_SECONDS
            return partial(enqueue_job, key=job.key, kind=job.kind, payload=again, due=due)
        await self._finish(person, traces, given)
        return None

    async def _clean(self, person: PersonKey, key: str, traces: Traces, *, private: bool) -> bool:
        """Forget a person in a conversation. False: a turn works in it."""
        if not await self.store.run(partial(forgetting.claim_conversation, key=key)):
            return False
        try:
            if private:
                await self.cleaner.delete_all(key)
            else:
                messages = await self.store.run(partial(forgetting.messages_of, person=person, conversation=key))
                names = {safe_name(file.name) for message in messages for file in message.attachments}
                await self.cleaner.delete_own(key, names, {*traces.tasks})
            work = partial(forgetting.forget_in_conversation, person=person, key=key, private=private)
            await self.store.run(work)
        except BaseException:  # others can work there until the job runs again
            await self.store.run(partial(forgetting.release_conversation, key=key))
            raise
        return True

    async def _finish(self, person: PersonKey, traces: Traces, given: dict[str, str]) -> None:
        """Forget what is not part of a conversation, and overwrite what was deleted."""
        after: int | None = 0
        while after is not None:
            work = partial(forgetting.forget_deliveries, person=person, traces=traces, after=after)
            after, copies = await self.store.run(work)
            for copy in map(Path, copies):
                await run_file_work(remove_tree, copy.parent)
        since = month_begin(self.current)
        await self.store.run(
            partial(forgetting.forget_account, person=person, traces=traces, since=since, by=given["by"])
        )
        for database in self.databases:
            await database.compact()
        if given["tell"]:
            await self.store.run(partial(_say_done, thread=Thread.parse(given["tell"]), person=person))
            self.outbox.wake()
        log.info("forget.done")


def month_begin(current: Current) -> float:
    """Return when the month of the budgets began, in unix time."""
    zone = current.config.time_zone
    return period_bounds("month", time.time(), ZoneInfo(zone) if zone else None)[0]


def _say_done(execute: Execute, thread: Thread, person: PersonKey) -> None:
    now = time.time()
    with languages.speak_to(execute, thread, Author(person.id, "")):
        outbox.enqueue_notice(execute, thread, _(DONE), key=f"forgotten:{now:.3f}", now=now)


def register_privacy_jobs(
    jobs: JobWorker,
    databases: tuple[Database, ...],
    current: Current,
    cleaner: ConversationCleaner,
    scheduler: Scheduler,
    outbox: Outbox,
    stop_task: Callable[[int], None],
) -> None:
    """Have the jobs of `/forget me` and `/export me` run."""
    forget = ForgetJobs(databases, current, cleaner, scheduler, outbox, stop_task)
    jobs.register(FORGET_PERSON_JOB, forget.forget_person)
    jobs.register(EXPORT_JOB, ExportJobs(databases[0], current, outbox.wake).export)
