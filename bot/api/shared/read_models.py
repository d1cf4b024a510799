"""Show threads, messages, runs and questions of one person, as plain JSON values."""

from __future__ import annotations

from typing import Any

import orjson

from agent.messages import Attachment, Kind, Thread
from agent.stored_json import Damaged
from bot.api.shared.caller import Caller
from bot.database.database import Execute
from bot.database.states import ConversationState, EntryKind, QuestionState, RunState
from bot.http.route import HttpProblem
from bot.journey.outbox import undelivered_file
from bot.storage import conversations, inbox, questions, runs, transcripts
from bot.storage.conversations import ConversationRow
from bot.storage.inbox import InboxRow
from bot.storage.questions import QuestionRow
from bot.storage.runs import RunRow
from bot.storage.transcripts import StoredEntry
from bot.storage.web import find_file, id_of_entry, parse_run_file

PAGE = 50
Json = dict[str, Any]


def not_found(what: str) -> HttpProblem:
    """Return the refusal for what does not exist, and for what is another person's: nobody learns which."""
    return HttpProblem(404, "not_found", f"You have no such {what}.", "Compare the id with the answer that named it.")


def own_conversation(execute: Execute, caller: Caller, key: str) -> Thread | None:
    """Return the address of a conversation of the caller; None if it is none of theirs."""
    row = conversations.find_conversation(execute, key) if key else None
    thread = Thread.parse(row.thread) if row else None
    return thread if thread and thread.without_topic == caller.chat else None


def list_threads(execute: Execute, caller: Caller, before: str) -> Json:
    """Return a page of threads, the latest first, and the cursor of the next one."""
    rows = conversations.latest_of_chat(execute, caller.chat, before, PAGE)
    last = f"{rows[-1].used!r}~{rows[-1].key}" if len(rows) == PAGE else None
    return {"threads": [*map(_thread, rows)], "next": last}


def read_thread(execute: Execute, caller: Caller, id: str, after: int) -> Json:
    """Return a thread with a page of its transcript and its open questions. Raises HttpProblem."""
    thread = caller.thread(id)
    row = find_thread(execute, thread)
    entries = transcripts.read_thread(execute, str(thread), after, PAGE)
    asked = questions.open_questions_at(execute, thread)
    more: Json = {
        "entries": [entry_json(execute, caller, each) for each in entries],
        "next": entries[-1].id if len(entries) == PAGE else None,
    }
    more["events"] = f"{entries[-1].id if entries else after}"
    return {**_thread(row), **more, "questions": [*map(_question, asked)]}


def find_thread(execute: Execute, thread: Thread) -> ConversationRow:
    """Return the conversation of a thread. Raises HttpProblem."""
    row = conversations.find_conversation(execute, conversations.find_current(execute, thread))
    if row is None:
        raise not_found("thread")
    return row


def thread_state(execute: Execute, caller: Caller, thread: Thread) -> Json | None:
    """Return what happens in a thread now: the run in progress, what waits for one, and what is open to answer."""
    row = conversations.find_conversation(execute, conversations.find_current(execute, thread))
    if row is None:
        return None
    run = runs.latest_run(execute, row.key)
    busy = run if run and run.state in (RunState.QUEUED, RunState.RUNNING) else None
    asked = [*map(_question, questions.open_questions_at(execute, thread))]
    posted = [entry_json(execute, caller, each) for each in transcripts.notices_with_buttons(execute, thread)]
    waiting = inbox.pending_rows(execute, row.key, PAGE)
    taken = inbox.rows_of_run(execute, busy.id) if busy else []
    return {
        **_thread(row),
        "state": busy.state if busy else "queued" if waiting else "waiting" if asked else "idle",
        "run": busy.id if busy else None,
        "messages": [_message(each) for each in [*taken, *waiting] if each.kind == Kind.CHAT],
        "questions": asked,
        "notices": posted,
    }


def _message(row: InboxRow) -> Json:
    """Return a message that is no entry of the transcript yet."""
    try:
        text, files = row.message.text, [*map(sent_file, row.message.attachments)]
    except Damaged:
        text, files = "", []
    return {"id": row.id, "run": row.run, "text": text, "files": files, "at": row.received}


def sent_file(file: Attachment) -> Json:
    """Return a file that came with a message."""
    return {"id": file.ref, "name": file.name, "size": file.size, "caption": "", "url": f"/v1/files/{file.ref}"}


def busy_threads(execute: Execute, caller: Caller) -> list[str]:
    """Return the addresses of the caller's latest threads in which something goes on, or is open to answer."""
    rows = conversations.latest_of_chat(execute, caller.chat, "", PAGE)
    return [row.thread for row in rows if row.state == ConversationState.WAITING or row.pending]


def read_message(execute: Execute, caller: Caller, number: int) -> Json:
    """Return a message and the run that took it. Raises HttpProblem."""
    row = inbox.find_row(execute, number)
    thread = own_conversation(execute, caller, row.conversation) if row else None
    if row is None or thread is None:
        raise not_found("message")
    return message_json(thread, row)


def message_json(thread: Thread, row: InboxRow) -> Json:
    """Return a message; `run` is null until a turn takes it."""
    return {"id": row.id, "thread": thread.topic, "run": row.run}


def read_run(execute: Execute, caller: Caller, number: int) -> tuple[Json, RunRow, Thread]:
    """Return a run, its row and its thread. Raises HttpProblem."""
    row = runs.find_run(execute, number)
    thread = own_conversation(execute, caller, row.conversation) if row else None
    if row is None or thread is None:
        raise not_found("run")
    asked = questions.unresolved_questions(execute, row.conversation)
    shown = [_question(each) for each in asked if each.run == row.id and each.state == QuestionState.OPEN]
    found = {"id": row.id, "thread": thread.topic, "state": row.state, "attempt": row.attempt, "started": row.started}
    text = transcripts.answer_of_run(execute, row.conversation, row.id)
    kept = transcripts.read_run(execute, row.conversation, row.id)
    files = [_file(execute, caller, each) for each in kept if each.kind == EntryKind.FILE and not each.author]
    notices = [each.text for each in kept if each.kind == EntryKind.NOTICE]
    failure = notices[-1] if notices and row.state == RunState.FAILED else ""
    ended = {"finished": row.finished, "text": text, "failure": failure, "files": files, "questions": shown}
    return {**found, **ended}, row, thread


def _thread(row: ConversationRow) -> Json:
    return {"id": Thread.parse(row.thread).topic, "title": row.title, "created": row.created, "used": row.used}


def entry_json(execute: Execute, caller: Caller, entry: StoredEntry) -> Json:
    """Return an entry of a transcript of the caller."""
    shown = {"id": entry.id, "run": entry.run or None, "kind": entry.kind, "text": entry.text, "at": entry.at}
    shown |= {"by": "person" if entry.author else "agent", "state": entry.state, "seconds": entry.seconds}
    shown["of_sub_agent"] = bool(entry.parent)
    file = _file(execute, caller, entry) if entry.kind == EntryKind.FILE else None
    return shown | {"file": file, "questions": [*map(_posted_ask, orjson.loads(entry.asks or "[]"))]}


def _file(execute: Execute, caller: Caller, entry: StoredEntry) -> Json:
    """Return a file that an entry names, also one that is on its way. Its size is null where it cannot be delivered."""
    id = id_of_entry(entry.item, sent=bool(entry.author))
    named, row = parse_run_file(id), find_file(execute, id, caller.author.id)
    if row is None and not named:
        return {"id": "", "name": entry.text, "size": None, "caption": "", "url": None}
    file = row or (undelivered_file(execute, *named) if named else None)
    name, size, caption = (file.name, file.size, file.caption) if file else (entry.text, None, "")
    return {"id": id, "name": name, "size": size, "caption": caption, "url": f"/v1/files/{id}"}


def _posted_ask(ask: Json) -> Json:
    return {"id": ask["id"], "text": ask["question"], "options": ask["options"], "free_text": ask["free_text"]}


def _question(row: QuestionRow) -> Json:
    shown = {"id": row.id, "run": row.run, "kind": row.kind, "text": row.text, "call": row.call}
    return shown | {"options": row.options, "free_text": bool(row.free_text), "until": row.until}
