"""Threads, runs and messages as the clients of LangGraph read them, and what those send as messages and answers.

The fields are those that `langgraph_sdk` 0.4 and `@langchain/langgraph-sdk` 1.x read
(https://github.com/langchain-ai/langgraph/blob/main/libs/sdk-py/langgraph_sdk/schema.py).

Keep the ids that clients give their messages in the keys of these messages.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import orjson

from agent.messages import Quote, Thread
from agent.stored_json import Damaged
from bot.api.langgraph.content import NOT_TEXT, InputContent, read_content
from bot.api.shared.event_json import Json, spell
from bot.database.database import Execute
from bot.database.states import EntryKind, InboxState, QuestionKind, RunState
from bot.http.route import HttpProblem
from bot.storage import conversations, inbox, questions, runs, transcripts, web
from bot.storage.inbox import InboxRow
from bot.storage.questions import QuestionRow
from bot.storage.runs import RunRow
from bot.storage.transcripts import StoredEntry

MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STREAMED = "web:s:"
_KEY = re.compile(r"web:(?:s:)?[0-9a-f]{16}:([A-Za-z0-9_-]{1,64})")


def make_key(thread: Thread, id: str, *, streamed: bool) -> str:
    """Return the key of a message with this id of its client: sent again, it is the same message.

    `streamed`: it came by the protocol of thread streams.
    """
    return f"{_STREAMED if streamed else 'web:'}{sha256(f'{thread}'.encode()).hexdigest()[:16]}:{id}"


def message_id(key: str) -> str:
    """Return the id that a client gave a message, by the key of the message; the key where it gave none."""
    found = _KEY.fullmatch(key)
    return found[1] if found else key


def is_streamed(key: str) -> bool:
    """Return whether a message came by the protocol of thread streams."""
    return key.startswith(_STREAMED)


GRAPH = "fawn"
NODE = "fawn"  # the only node of the graph
MAX_MESSAGES = 1000  # of a thread, that its state has: the latest
STATUSES = {
    RunState.QUEUED: "pending",
    RunState.RUNNING: "running",
    RunState.DONE: "success",
    RunState.WAITING: "interrupted",
    RunState.STOPPED: "interrupted",
    RunState.FAILED: "error",
}
NO_ANSWER = HttpProblem(
    *(422, "no_option", "This is no answer to the open questions."),
    "Resume with the answer, or with {interrupt id: answer}; an approval also takes {decisions: [{type: approve}]}.",
)


def assistant(name: str = GRAPH) -> Json:
    """Return the only assistant: the agent that answers in the thread."""
    began = iso(0.0)
    facts = {"assistant_id": name, "graph_id": GRAPH, "name": name, "description": None, "version": 1}
    return {**facts, "config": {}, "context": {}, "metadata": {}, "created_at": began, "updated_at": began}


def iso(at: float) -> str:
    """Return a Unix time as the clients read it."""
    return datetime.fromtimestamp(at, UTC).isoformat()


def run_id(message: int) -> str:
    """Return the id of a run: that of the message which began it, as a UUID."""
    return str(uuid.UUID(int=message))


def parse_run_id(text: str) -> int | None:
    """Return the message of a run; None for what is no id of one."""
    try:
        number = uuid.UUID(text).int
    except ValueError:
        return None
    return number if number < 1 << 63 else None


def human(id: str, text: str) -> Json:
    """Return what a person said."""
    return {"type": "human", "id": id, "content": text, "additional_kwargs": {}, "response_metadata": {}, "name": None}


def ai(id: str, text: str, *, chunk: bool = False) -> Json:
    """Return what the agent said; with `chunk`, a piece of it."""
    more: Json = {"tool_call_chunks": []} if chunk else {}
    kind = "AIMessageChunk" if chunk else "ai"
    facts: Json = {"type": kind, "id": id, "content": text, "additional_kwargs": {}, "response_metadata": {}}
    return {**facts, "name": None, "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None, **more}


def thread_messages(execute: Execute, thread: Thread) -> list[Json]:
    """Return the messages of a thread: those of its transcript, then those that wait or are worked on."""
    key = conversations.find_current(execute, thread)
    stored = transcripts.latest_of_conversation(execute, key, MAX_MESSAGES)
    found = [each for each in map(_message_of_entry, stored) if each]
    known = {each["id"] for each in found}
    for row in [*inbox.open_rows(execute, key)]:
        if (id := message_id(row.key)) not in known and (text := _text_of(row)):
            found.append(human(id, text))
    return found


def _message_of_entry(entry: StoredEntry) -> Json | None:
    match entry.kind:
        case EntryKind.MESSAGE | EntryKind.ANSWER if entry.author:
            return human(message_id(entry.item.removeprefix("message:")), entry.text)
        case EntryKind.TEXT:
            return ai(entry.item.removeprefix("text:"), entry.text)
        case EntryKind.QUESTION | EntryKind.NOTICE:
            return ai(entry.item, entry.text)
    return None


def _text_of(row: InboxRow) -> str:
    try:
        return row.message.text
    except Damaged:
        return ""


def interrupts(execute: Execute, thread: Thread) -> list[Json]:
    """Return the open questions of a thread."""
    return [{"id": row.id, "value": _interrupt_value(row)} for row in questions.open_questions_at(execute, thread)]


def _interrupt_value(row: QuestionRow) -> Json:
    """Return a question; an approval as LangChain's clients show one.

    https://docs.langchain.com/oss/python/langchain/human-in-the-loop
    """
    if row.kind != QuestionKind.APPROVE:
        return {"kind": "ask", "question": spell(row.text), "options": row.options}
    name, args = _parts_of_call(row.call)
    request = {"name": name, "args": args, "description": f"{spell(row.text)}\n\n{row.call}"}
    review = {"action_name": name, "allowed_decisions": ["approve", "reject"]}
    return {"action_requests": [request], "review_configs": [review]}


def _parts_of_call(call: str) -> tuple[str, Json]:
    """Return name and arguments of a call as `agent.permissions.rules.describe_call` wrote it."""
    name, _break, text = call.partition("\n")
    with suppress(orjson.JSONDecodeError):
        args = orjson.loads(text)
        if isinstance(args, dict):
            return name, args
    return name or "call", {"call": call}


def values(execute: Execute, thread: Thread) -> Json:
    """Return the state of a thread."""
    asked = interrupts(execute, thread)
    return {"messages": thread_messages(execute, thread)} | ({"__interrupt__": asked} if asked else {})


def thread_json(execute: Execute, thread: Thread) -> Json | None:
    """Return a thread; None where there is none."""
    key = conversations.find_current(execute, thread)
    row = conversations.find_conversation(execute, key) if key else None
    if row is None:
        return None
    asked, busy = interrupts(execute, thread), bool(inbox.open_rows(execute, key))
    latest = runs.latest_run(execute, key)
    failed = latest is not None and latest.state == RunState.FAILED
    status = "busy" if busy else "interrupted" if asked else "error" if failed else "idle"
    times = {"created_at": iso(row.created), "updated_at": iso(row.used), "state_updated_at": iso(row.used)}
    note = {**web.read_note(execute, thread), **({"title": row.title} if row.title else {})}
    facts = {"thread_id": thread.topic, **times, "metadata": note, "status": status, "config": {}}
    found = {"messages": thread_messages(execute, thread)}
    return {**facts, "values": found, "interrupts": {GRAPH: asked} if asked else {}}


def state_json(execute: Execute, thread: Thread) -> Json | None:
    """Return the state of a thread with its open questions; None where there is no thread."""
    found = thread_json(execute, thread)
    if found is None:
        return None
    asked = found["interrupts"].get(GRAPH, [])
    messages = found["values"]["messages"]
    checkpoint = {"thread_id": thread.topic, "checkpoint_ns": "", "checkpoint_map": None}
    checkpoint["checkpoint_id"] = f"{thread.topic}-{len(messages)}"  # only the latest is kept
    task = {"id": "fawn", "name": "ask", "error": None, "interrupts": asked, "checkpoint": None, "state": None}
    tasks = [{**task, "result": None}] if asked else []
    next_: list[str] = ["ask"] if asked else [NODE] if found["status"] == "busy" else []
    rest = {"created_at": found["updated_at"], "parent_checkpoint": None, "tasks": tasks, "interrupts": asked}
    return {"values": found["values"], "next": next_, "checkpoint": checkpoint, "metadata": {}, **rest}


def run_json(thread: Thread, row: InboxRow, run: RunRow | None) -> Json:
    """Return a run by the message that began it."""
    waits = "pending" if row.state == InboxState.NEW else "interrupted"
    status = STATUSES[RunState(run.state)] if run else waits
    at = iso(row.received)
    facts = {"run_id": run_id(row.id), "thread_id": thread.topic, "assistant_id": GRAPH, "created_at": at}
    ended = iso(run.finished) if run and run.finished else at
    rest = {"metadata": {}, "kwargs": {}, "multitask_strategy": "enqueue"}
    return {**facts, "updated_at": ended, "status": status, **rest}


def content_of_input(value: Any) -> InputContent:
    """Return what a person says with an input: its messages after the agent's last one. Raises HttpProblem."""
    said: list[InputContent] = []
    messages = value.get("messages") if isinstance(value, dict) else None
    for message in messages if isinstance(messages, list) else []:
        role = message.get("role") or message.get("type") if isinstance(message, dict) else None
        if role in ("user", "human"):
            said.append(read_content(message.get("content")))
        elif role in ("assistant", "ai"):
            said.clear()
    text = "\n\n".join(each.text for each in said if each.text.strip())
    files = tuple(file for each in said for file in each.files)
    if not (text or files) or "\0" in text:
        raise NOT_TEXT
    return InputContent(text, files)


def earlier_of_input(value: Any) -> tuple[Quote, ...]:
    """Return what was said before, where an input has it: its messages up to the agent's last one.

    A stateless run has nothing else of them.
    """
    messages = value.get("messages") if isinstance(value, dict) else None
    found, count = list[Quote](), 0
    for message in messages if isinstance(messages, list) else []:
        role = message.get("role") or message.get("type") if isinstance(message, dict) else None
        if role in ("user", "human", "assistant", "ai"):
            is_agent = role in ("assistant", "ai")
            content = read_content(message.get("content") or "")
            text = "\n".join([*([content.text] if content.text else []), *(f"[{each.name}]" for each in content.files)])
            if text.strip() and "\0" not in text:
                found.append(Quote("assistant" if is_agent else "user", text, "forward"))
            count = len(found) if is_agent else count
    return tuple(found[:count])


def answers_of(asked: Sequence[QuestionRow], resume: Any) -> list[tuple[QuestionRow, str]]:
    """Return which open question gets which answer. Raises HttpProblem."""
    by_id = {row.id: row for row in asked}
    if isinstance(resume, dict) and resume and {*resume} <= {*by_id}:
        given = [(by_id[id], value) for id, value in resume.items()]
    elif len(asked) == 1:
        given = [(asked[0], resume)]
    else:
        raise NO_ANSWER
    found = []
    for row, value in given:
        answer = row.accept(_answer_of(row, value))
        if answer is None:
            raise NO_ANSWER
        found.append((row, answer))
    return found


def rejection_reason(resume: Any) -> str:
    """Return why a person rejects a call, where they say so with their decision."""
    if isinstance(resume, dict) and len(resume) == 1 and "decisions" not in resume:
        [resume] = resume.values()  # of one question
    value = _decision(resume)
    text = value.get("message") if isinstance(value, dict) and value.get("type") == "reject" else None
    return text if isinstance(text, str) and text.strip() and "\0" not in text else ""


def _decision(value: Any) -> Any:
    """Return the only decision of an answer as LangChain's clients write it; any other answer as it is."""
    if isinstance(value, dict) and isinstance(decisions := value.get("decisions"), list) and len(decisions) == 1:
        return decisions[0]
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _answer_of(row: QuestionRow, value: Any) -> str:
    """Return an answer as a text; a decision about an approval as its option."""
    value = _decision(value)
    if isinstance(value, dict):
        kind = value.get("type")
        if row.kind == QuestionKind.APPROVE and kind in ("approve", "accept", "reject", "ignore"):
            return row.options[kind in ("reject", "ignore")]  # they are in the language of their reader
        value = value.get("answer", value.get("args"))
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise NO_ANSWER
    return value
