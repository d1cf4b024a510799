"""Take what the clients of LangGraph send as a run: its input is a message, its command the answer to a question."""

from __future__ import annotations

import time
from functools import partial
from typing import Any
from uuid import uuid4

from agent.messages import Kind, Thread
from bot.api.langgraph import shapes
from bot.api.langgraph.message_keys import MESSAGE_ID, make_key
from bot.api.langgraph.shapes import GRAPH
from bot.api.shared.caller import Caller
from bot.api.shared.event_json import Json
from bot.api.shared.posting import make_message, make_stop, take
from bot.api.shared.read_models import not_found
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.http.route import HttpProblem
from bot.storage import conversations, inbox, questions, web_threads
from bot.storage.inbox import InboxRow
from bot.storage.questions import QuestionRow

BUSY = HttpProblem(409, "busy", "A run of this thread is in progress.", "Wait for it, or send it with enqueue.")
NO_ROLLBACK = HttpProblem(
    *(422, "no_rollback", "A run cannot be undone."), "Use enqueue, interrupt or reject as multitask_strategy."
)


async def begin_run(door: Door, caller: Caller, thread: Thread, body: Json, *, streamed: bool = False) -> InboxRow:
    """Take the input of a run as a message, or its command as an answer. Raises HttpProblem."""
    exists, busy, asked = await door.store.run(partial(_look, thread=thread), durable=False)
    if not exists and body.get("if_not_exists") != "create":
        raise not_found("thread")
    strategy = body.get("multitask_strategy") or "enqueue"
    if strategy == "rollback":
        raise NO_ROLLBACK
    command, said = body.get("command"), body.get("input")
    if isinstance(command, dict) and command.get("resume") is not None:
        if not asked:
            raise not_found("open question")
        for question, answer in shapes.answers_of(asked, command["resume"]):
            key = make_key(thread, uuid4().hex, streamed=streamed)
            row = await take(door, make_message(caller, thread, answer, key, Kind.CLICK, question.id))
        if reason := shapes.reason_of(command["resume"]):
            await take(door, make_message(caller, thread, reason, make_key(thread, uuid4().hex, streamed=streamed)))
    else:
        text = shapes.text_of_input(said)
        if busy and strategy == "reject":
            raise BUSY
        if busy and strategy == "interrupt":
            await door.receive([make_stop(caller, thread)])
        row = await take(door, make_message(caller, thread, text, make_key(thread, _id_of(said), streamed=streamed)))
    await door.store.run(partial(_note_graph, thread=thread), durable=False)
    return row


def _look(execute: Execute, thread: Thread) -> tuple[bool, bool, list[QuestionRow]]:
    """Return whether there is the thread, whether a run of it is in progress, and its open questions."""
    key = conversations.find_current(execute, thread)
    return bool(key), bool(key and inbox.open_rows(execute, key)), questions.open_questions_at(execute, thread)


def _note_graph(execute: Execute, thread: Thread) -> None:
    """Note the graph at a thread: some clients list by it."""
    note = {**web_threads.read_note(execute, thread), "graph_id": GRAPH, "assistant_id": GRAPH}
    web_threads.write_note(execute, thread, note, time.time())


def _id_of(value: Any) -> str:
    """Return the id of the last message of an input; a new one where it has none."""
    messages = value.get("messages") if isinstance(value, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    id = last.get("id") if isinstance(last, dict) else None
    return id if isinstance(id, str) and MESSAGE_ID.fullmatch(id) else uuid4().hex
