"""The job that deletes what is stored of a person.

The job begins anew after a crash: each conversation is cleaned under a claim, its checkpoint and files first, then its
rows in small transactions, so that nobody waits. The last one takes it off the list of what is left. At last the
database overwrites what is left of deleted rows (`bot/privacy/retention.py`).

The job that deletes the conversations of a thread over HTTP, which its person has deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from agent.messages import Author, Message, Thread
from bot.base import stored_files
from bot.base.background import Effect
from bot.base.data_dir import LOG_FOLDER, conversation_folder
from bot.base.stored_files import WebFiles
from bot.database.database import Database, Execute
from bot.database.migrate import remove_upgrade_backups
from bot.database.states import RunState
from bot.database.web_people import WEB
from bot.journey.task_sandboxes import remove_task_folders
from bot.privacy.command import AGAIN_SECONDS, LATELY_JOB, lately_key
from bot.privacy.retention import overwrite_now
from bot.rights.budgets import period_bounds
from bot.rights.current import Current
from bot.rights.rates import counted_since
from bot.service.channel_state import sweep_channel_files
from bot.storage import conversations, forgetting, languages, memory, outbox, retention, runs
from bot.storage import forgotten_accounts as accounts
from bot.storage.blanked import StillCounted
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.personal import Tables
from catalogue import N_, _, join_sentences
from sandbox.base import SandboxFileError, SandboxProvider
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import empty_folder, remove_copies, safe_name

log = logging.getLogger(__name__)

OF_CHECKPOINT = (".pictures", ".outputs", ".mcp")  # scaled pictures, long results, content of MCP servers
BUSY_SECONDS = 5.0  # until the next look at conversations in which another person's turn works
DONE = N_("Done: I have forgotten you. What you write from now on is new to me.")
LATER = N_(
    "Another program reads my database at the moment: the space where your words were is overwritten when that has"
    " finished."
)
ASK_AGAIN = N_(
    "Somebody had me forget them, and with that I lost the thread of this conversation. I had asked you something here:"
    " that question is closed. Please ask me again."
)


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
        """Delete the checkpoint with the files that only it names, the uploads of these names, and the output of these
        background commands."""
        await self.forget_checkpoint(key)
        folder = conversation_folder(self.data_dir, key)
        if folder.exists():
            await run_file_work(remove_copies, folder / "uploads", uploads)
            await run_file_work(_remove_logs, folder, tasks)
            for part in OF_CHECKPOINT:
                await run_file_work(_empty_folder, folder, f"workspace/{part}")


def _empty_folder(folder: Path, rel: str) -> None:
    with suppress(SandboxFileError):  # the sandbox made something else of it
        empty_folder(folder, rel)


def _remove_logs(folder: Path, tasks: set[int]) -> None:
    """Delete what background commands printed."""
    with suppress(SandboxFileError):  # no command ran here, or its sandbox has removed the folder
        remove_copies(folder, {f"{number}.log" for number in tasks}, f"workspace/{LOG_FOLDER}")


@dataclass(frozen=True, slots=True)
class ForgetJobs:
    """Handles the jobs that forget people."""

    store: Database
    current: Current
    cleaner: ConversationCleaner
    stop_run: Callable[[int, str], None]
    begins_work: Callable[[Message], bool]
    tables: Tables

    @property
    def counted(self) -> StillCounted:
        """Which messages still count for the limits in force."""
        return StillCounted(counted_since(self.current, time.time()), self.begins_work)

    async def forget_person(self, job: BackgroundJob) -> Effect | None:
        """Handle a job: delete all that can be deleted now. If somebody's turn still works, the job continues later."""
        given = job.arguments
        person = PersonKey(given["channel"], given["person"])
        for run in await self.store.run(partial(forgetting.stop_runs, person=person)):
            self.stop_run(run, person.id)
        await self.store.run(partial(forgetting.stop_tasks, person=person))
        chats = [*map(Thread.parse, given["chats"])]
        traces = await self.store.run(partial(forgetting.find_traces, person=person, chats=chats))
        busy = [key for key in traces.private if not await self.clean(person, key, traces, private=True)]
        busy += [key for key in traces.shared if not await self.clean(person, key, traces, private=False)]
        if busy:
            log.info("forget.waits conversations=%d", len(busy))
            again = {**given, "chats": [*map(str, traces.chats)]}
            due = time.time() + BUSY_SECONDS
            return partial(enqueue_job, key=job.key, kind=job.kind, payload=again, due=due)
        await self._finish(person, traces, given)
        return None

    async def clean(self, person: PersonKey, key: str, traces: Traces, *, private: bool) -> bool:
        """Forget a person in a conversation. False: a turn works in it."""
        if not await self.store.run(partial(forgetting.claim_conversation, key=key)):
            return False
        try:
            if private:
                await self.cleaner.delete_all(key)
            else:
                await self.cleaner.delete_own(key, await self._attached_files(person, key), {*traces.tasks})
            some = partial(forgetting.forget_some, person=person, key=key, counted=self.counted, private=private)
            await self.store.run_steps(some)
            call: str | None = ""
            while call is not None:
                call = await self.store.run(partial(forgetting.forget_calls, person=person, key=key, after=call))
            now = time.time()
            work = partial(_finish_conversation, person=person, key=key, counted=self.counted, private=private, now=now)
            await self.store.run(work)
        except BaseException:  # others can work there until the job runs again
            await self.store.run(partial(forgetting.release_conversation, key=key))
            raise
        return True

    async def _attached_files(self, person: PersonKey, key: str) -> set[str]:
        """Return the names of the uploads that a person sent in a conversation."""
        found = set[str]()
        after: int | None = 0
        while after is not None:
            work = partial(forgetting.attached_files, person=person, key=key, after=after)
            names, after = await self.store.run(work)
            found |= {safe_name(name) for name in names}
        return found

    async def _finish(self, person: PersonKey, traces: Traces, given: dict[str, str]) -> None:
        """Forget what is not part of a conversation, and overwrite what was deleted."""
        after: int | None = 0
        data_dir = self.cleaner.data_dir
        while after is not None:
            work = partial(forgetting.forget_deliveries, person=person, traces=traces, after=after)
            after, copies = await self.store.run(work)
            await stored_files.remove_copies(data_dir, copies)
        await self.store.run_steps(partial(forgetting.forget_loose, person=person, counted=self.counted))
        usage = partial(accounts.forget_usage, person=person, chats=traces.chats, since=month_begin(self.current))
        await self.store.run_steps(usage)
        for account in await self.store.run(partial(accounts.memory_accounts, person=person)):
            some = partial(memory.forget_some, account=account, owner=person.id)
            await self.store.run_steps(some)
        await self.store.run(
            partial(accounts.forget_account, person=person, traces=traces, tables=self.tables, by=given["by"])
        )
        await WebFiles(data_dir).sweep(self.store)
        await sweep_channel_files(self.store, data_dir)
        await self.store.run(accounts.begin_merge)
        await self.store.run_steps(accounts.merge_index)
        await run_file_work(remove_upgrade_backups, data_dir, time.time())
        is_whole = await overwrite_now(self.store)
        if given["tell"]:
            await self.store.run(partial(_say_done, thread=Thread.parse(given["tell"]), person=person, whole=is_whole))
        log.info("forget.done")


def month_begin(current: Current) -> float:
    """Return when the month of the budgets began, in unix time."""
    zone = current.config.time_zone
    return period_bounds("month", time.time(), ZoneInfo(zone) if zone else None)[0]


def _finish_conversation(
    execute: Execute, person: PersonKey, key: str, counted: StillCounted, *, private: bool, now: float
) -> None:
    """Delete the rest of a conversation, and tell others whose questions are closed."""
    row = conversations.find_conversation(execute, key)
    waiting = [] if private or row is None else forgetting.others_who_wait(execute, person, key)
    forgetting.forget_in_conversation(execute, person, key, counted, private=private)
    for run in waiting:
        runs.finish_run(execute, run.id, RunState.STOPPED, now)
        thread, author = Thread.parse(row.thread) if row else None, run.author
        if thread:
            with languages.speak_to(execute, thread, author):
                mention = run.requester
                outbox.enqueue_notice(
                    execute,
                    thread,
                    _(ASK_AGAIN),
                    key=f"ask-again:{run.id}",
                    now=now,
                    reply_to=run.reply_to,
                    mention=mention,
                )


def _say_done(execute: Execute, thread: Thread, person: PersonKey, *, whole: bool) -> None:
    now = time.time()
    enqueue_job(execute, key=lately_key(person), kind=LATELY_JOB, payload={}, due=now + AGAIN_SECONDS)
    with languages.speak_to(execute, thread, Author(person.id, "")):
        words = _(DONE) if whole else join_sentences(_(DONE), _(LATER))
        outbox.enqueue_notice(execute, thread, words, key=f"forgotten:{now:.3f}", now=now)


async def end_lately(_: BackgroundJob) -> None:
    """A day has passed: the person may be forgotten again. The end of the job deletes its row."""


@dataclass(frozen=True, slots=True)
class ThreadDeletion:
    """Handles the jobs. `forgetting` deletes what a conversation holds of its person, which is all of it."""

    forgetting: ForgetJobs

    async def delete(self, job: BackgroundJob) -> Effect | None:
        """Handle a job; what a turn still works in is deleted later."""
        given, busy = job.arguments, []
        store = self.forgetting.store
        for key in given["conversations"]:
            if await self.forgetting.clean(PersonKey(WEB, given["person"]), key, Traces(), private=True):
                await store.run(partial(retention.delete_conversation, key=key))
            else:
                busy.append(key)
        await WebFiles(self.forgetting.cleaner.data_dir).sweep(store)
        if busy:
            again, due = {**given, "conversations": busy}, time.time() + BUSY_SECONDS
            return partial(enqueue_job, key=job.key, kind=job.kind, payload=again, due=due)
        return None
