"""Report the end of background commands, once: in the transaction that records it. Show the end of their output.

Say above a post what worked: the number and title of the task or schedule, and whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agent.blocks import Final, command_hint
from bot.base.data_dir import LOG_FOLDER
from bot.base.plain_text import code_block
from bot.base.side_work import name_side_work, record_post
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import TaskState
from bot.journey.turn_part import EndedTurn
from bot.rights.claimed_run import ClaimedRun
from bot.rights.known_people import call_person
from bot.service.pings import Ping, route_ping
from bot.service.task_rows import shown_title
from bot.storage import languages, outbox, tasks
from bot.storage.tasks import TaskRow
from bot.tasks.files import LATER, FoundFiles, enqueue_found, take_files
from bot.tasks.starting import store_follow_up
from catalogue import N_, LazyText, _, format_duration, localized
from sandbox.base import WORKSPACE, SandboxFileError
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.safe_files import read_file, size_and_kind

MAX_TAIL_BYTES, MAX_TAIL_LINES = 1500, 15
MAX_REASON_CHARS = 300
RESTARTED = LazyText(N_("I was restarted while it ran."))
REPORTS = {
    TaskState.DONE: N_("✅ Background task {number} is done after {time}: {title}"),
    TaskState.FAILED: N_("❌ Background task {number} failed after {time}: {title}"),
    TaskState.LOST: N_("⚠️ Background task {number} was lost after {time}: {title}"),
}
EXIT_CODE = N_("Exit code {code}.")
LOST_HINT = N_("Its files are kept. `{command}` starts it again.")
FOLLOW_UP = "{request}\n\n[Background task {number} ended: {state}, exit code {code}. Its output: {path}]"


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a command ended, with the end of its output."""

    state: TaskState
    exit_code: int | None = None
    reason: LazyText | str = ""
    tail: str = ""


def log_path(number: int) -> str:
    """Return the path of a command's output in its sandbox."""
    return f"{WORKSPACE}/{LOG_FOLDER}/{number}.log"


async def read_tail(folder: Path, number: int) -> str:
    """Return the last lines of a command's output. "" if there are none. Raises OSError and SandboxError."""
    path = f"workspace/{LOG_FOLDER}/{number}.log"

    def read() -> bytes:
        size, _kind = size_and_kind(folder, path)
        return read_file(folder, path, MAX_TAIL_BYTES, max(0, size - MAX_TAIL_BYTES))

    try:
        data = await run_file_work(read)
    except SandboxFileError:
        return ""
    lines = data.decode("utf-8", "replace").split("\n")
    return "\n".join(lines[-MAX_TAIL_LINES:]).strip("\n")


def record_end(
    execute: Execute, config: Config, row: TaskRow, end: TaskEnd, now: float, found: FoundFiles | None = None
) -> None:
    """Record the end of a command and report it with its files, unless its end is recorded. The agent continues if it
    is to."""
    is_first, known = _report_end(execute, config, row, end, now, found), tasks.find_task(execute, row.id)
    follow_up = known.follow_up if known and row.follow_up else ""  # a stop takes it back while the command runs
    if not is_first or not follow_up or end.state is TaskState.LOST:
        return
    path = log_path(row.id)
    text = FOLLOW_UP.format(request=follow_up, number=row.id, state=end.state, code=end.exit_code, path=path)
    store_follow_up(execute, row, text, now)


def report_lost(execute: Execute, config: Config, now: float) -> None:
    """Report the commands that ran in processes that are dead: their sandboxes ended with them."""
    for row in tasks.lost_tasks(execute):
        _report_end(execute, config, row, TaskEnd(TaskState.LOST, reason=RESTARTED), now, LATER)


def _report_end(
    execute: Execute, config: Config, row: TaskRow, end: TaskEnd, now: float, found: FoundFiles | None = None
) -> bool:
    """Record the end of a task and enqueue its report. Return False if its end is recorded already."""
    if not tasks.end_task(execute, row.id, end.state, now, end.exit_code, str(end.reason)[:MAX_REASON_CHARS]):
        return False
    what: dict[str, int | str] = {"id": row.id, "kind": row.kind}
    if end.exit_code is not None:
        what["exit_code"] = end.exit_code
    event = AuditEvent(AuditKind.TASK_CHANGED, row.place, subject=audit.person_name(row.channel, row.person), what=what)
    audit.record(execute, replace(event, result=end.state))
    with languages.speak_to(execute, row.place, row.who.person):
        words = _describe_end(row, end, now)
        files = take_files(execute, row, found, now) if found else None
        head = words.partition("\n")[0]
        without_words = _("Background task {number} has ended.", number=row.id) if row.private else ""
        ping = Ping(row.person, row.place, head, f"task:{row.id}", "task", without_words)
        is_here = route_ping(execute, config, ping, now)
        mention = row.person if is_here else ""
        words = "\n".join([words, *(files.notes if files else ())])
        key, work = f"task:{row.id}", name_side_work(f"task:{row.id}", row.title)
        outbox.enqueue_notice(execute, row.thread, words, key=key, now=now, mention=mention)
        record_post(execute, row.place, key, work, row.person, words, key, now)
        if files:
            enqueue_found(execute, row, files, f"task:{row.id}:files", now)
    return True


def _describe_end(row: TaskRow, end: TaskEnd, now: float) -> str:
    time = format_duration(max(0.0, now - (row.started or row.created)))
    parts = [_(REPORTS[end.state], number=row.id, time=time, title=shown_title(row))]
    if end.exit_code:
        parts.append(_(EXIT_CODE, code=end.exit_code))
    if end.reason:
        parts.append(localized(end.reason)[:MAX_REASON_CHARS])
    if end.state is TaskState.LOST:
        parts.append(_(LOST_HINT, command=command_hint(f"task {row.id} retry")))
    return "\n".join([*parts, *([code_block(end.tail)] if end.tail else [])])


HEADS = {  # by the kind of the work: for its person, and in a shared chat
    "task": (N_("🔧 Task {number}: “{title}”"), N_("🔧 Task {number} for {name}: “{title}”")),
    "schedule": (N_("⏰ Schedule {number}: “{title}”"), N_("⏰ Schedule {number} of {name}: “{title}”")),
    "hook": (N_("🔔 Hook “{title}”"), N_("🔔 Hook “{title}”")),
}


def present_work(execute: Execute, ended: EndedTurn, final: Final) -> Final:
    """Put a head above what a background agent, or the run of a schedule or hook, says or asks."""
    head = _head_of(execute, ended.job)
    return replace(final, text=f"{head}\n\n{final.text}".strip()) if head else final


def _head_of(execute: Execute, job: ClaimedRun) -> str:
    work = name_side_work(job.conversation, job.title)
    if not work.kind:
        return ""
    alone, shared = HEADS[work.kind]
    name = "" if job.who.private else call_person(execute, job.thread.channel, job.requester, job.author.name)
    return _(shared if name else alone, number=work.number, title=work.title, name=name)
