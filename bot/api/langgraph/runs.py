"""Take the input of a run from the clients of LangGraph, and turn its events into those that they read."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from agent.messages import Kind, Message, Thread
from bot.api.langgraph import shapes
from bot.api.langgraph.content import InputFile
from bot.api.langgraph.shapes import GRAPH, MESSAGE_ID, NODE, STATUSES, ai, make_key, run_id, values
from bot.api.shared.caller import Caller
from bot.api.shared.event_json import Json
from bot.api.shared.posting import make_message, make_stop, take, take_with_files
from bot.api.shared.read_models import not_found
from bot.api.shared.uploads import kept_files
from bot.base.stored_files import WebFiles
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.http.event_stream import EventStream
from bot.http.route import HttpProblem
from bot.storage import conversations, inbox, questions, web
from bot.storage.inbox import InboxRow
from bot.storage.questions import QuestionRow

BUSY = HttpProblem(409, "busy", "A run of this thread is in progress.", "Wait for it, or send it with enqueue.")
NO_ROLLBACK = HttpProblem(
    *(422, "no_rollback", "A run cannot be undone."), "Use enqueue, interrupt or reject as multitask_strategy."
)


async def begin_stateless_run(door: Door, caller: Caller, thread: Thread, body: Json) -> InboxRow:
    """Take the input of a run that names no thread, in a new one, which is deleted later. Raises HttpProblem."""
    said, earlier = shapes.content_of_input(body.get("input")), shapes.earlier_of_input(body.get("input"))
    if body.get("on_completion") != "keep":
        await door.store.run(partial(web.plan_end, thread=thread, now=time.time()))
    message = make_message(caller, thread, said.text, make_key(thread, _id_of(body.get("input")), streamed=False))
    return await _take_with_files(door, replace(message, quotes=earlier), said.files)


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
        if reason := shapes.rejection_reason(command["resume"]):
            await take(door, make_message(caller, thread, reason, make_key(thread, uuid4().hex, streamed=streamed)))
    else:
        content = shapes.content_of_input(said)
        if busy and strategy == "reject":
            raise BUSY
        if busy and strategy == "interrupt":
            await door.receive([make_stop(caller, thread)])
        key = make_key(thread, _id_of(said), streamed=streamed)
        row = await _take_with_files(door, make_message(caller, thread, content.text, key), content.files)
    await door.store.run(partial(_note_graph, thread=thread), durable=False)
    return row


async def _take_with_files(door: Door, message: Message, given: Sequence[InputFile]) -> InboxRow:
    """Take a message with the files of its blocks, as `POST /v1/threads/{thread}/messages` does."""
    if not given:
        return await take(door, message)
    async with kept_files(WebFiles(door.current.config.data_dir)) as upload:
        for number, file in enumerate(given, 1):
            name = file.name or f"{file.mime.partition('/')[0] if '/' in file.mime else 'file'}{number}"
            await upload.add(name, file.mime, file.data, door.current.config.uploads.max_mb << 20)
        return await take_with_files(door, message, upload)


def _look(execute: Execute, thread: Thread) -> tuple[bool, bool, list[QuestionRow]]:
    """Return whether there is the thread, whether a run of it is in progress, and its open questions."""
    key = conversations.find_current(execute, thread)
    return bool(key), bool(key and inbox.open_rows(execute, key)), questions.open_questions_at(execute, thread)


def _note_graph(execute: Execute, thread: Thread) -> None:
    """Note the graph at a thread: some clients list by it."""
    note = {**web.read_note(execute, thread), "graph_id": GRAPH, "assistant_id": GRAPH}
    web.write_note(execute, thread, note, time.time())


def _id_of(value: Any) -> str:
    """Return the id of the last message of an input; a new one where it has none."""
    messages = value.get("messages") if isinstance(value, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    id = last.get("id") if isinstance(last, dict) else None
    return id if isinstance(id, str) and MESSAGE_ID.fullmatch(id) else uuid4().hex


MESSAGES = ("messages-tuple", "messages")  # asked for under the first name, sent under the second
MODES = (*MESSAGES, "values", "updates", "custom", "events", "debug", "tasks", "checkpoints", "tools", "lifecycle")


class LangGraphStream:
    """What `RunEvents` writes to (`bot.http.event_stream.EventStream`), for one run and its modes.

    Only the last event for a position has an id, so that a client which is cut in between gets all of them again.
    `resumed`: the client has a part already, which the state replaces where it cannot be continued.
    """

    def __init__(
        self, stream: EventStream, door: Door, thread: Thread, message: int, modes: Collection[str], *, resumed: bool
    ) -> None:
        self._stream = stream
        self._door = door
        self._thread = thread
        self._message = message
        self._modes = {*modes}
        self._resumed = resumed

    async def wait(self) -> None:
        """Wait until there may be more."""
        await self._stream.wait()

    async def begin(self) -> None:
        """Say which run it is."""
        if not self._resumed:
            about = {"run_id": run_id(self._message), "attempt": 1, "thread_id": self._thread.topic}
            await self._stream.send("metadata", about)
            await self._send_values()

    async def send(self, name: str, data: Json, id: str = "") -> None:
        """Send what an event of `/v1` says."""
        match name:
            case "text":
                await self._send_text(data["part"], data["delta"], id)
            case "snapshot":
                await self._send_snapshot(data, id)
            case "step" | "plan" | "notice" | "file" | "failed":
                if "custom" in self._modes:
                    await self._stream.send("custom", {"type": name, **data}, id)
            case "end":
                await self._send_end(data, id)

    async def _send_text(self, part: str, text: str, id: str = "") -> None:
        if text and not self._modes.isdisjoint(MESSAGES):
            about = {"langgraph_node": NODE, "run_id": run_id(self._message), "thread_id": self._thread.topic}
            await self._stream.send("messages", [ai(part, text, chunk=True), about], id)

    async def _send_snapshot(self, data: Json, id: str) -> None:
        if not self._resumed:
            for each in data["texts"]:
                await self._send_text(each["part"], each["text"], id)
            return
        await self._send_values([ai(each["part"], each["text"]) for each in data["texts"]], id)

    async def _send_values(self, more: Collection[Json] = (), id: str = "") -> None:
        if "values" in self._modes:
            found: dict[str, Any] = await self._read(partial(values, thread=self._thread))
            known = {each["id"] for each in found["messages"]}
            found["messages"] += [each for each in more if each["id"] not in known]
            await self._stream.send("values", found, id)

    async def _send_end(self, run: Json, id: str) -> None:
        if not self._modes.isdisjoint(("updates", "values")):
            found: dict[str, Any] = await self._read(partial(values, thread=self._thread))
            if "updates" in self._modes:
                await self._stream.send("updates", {NODE: {"messages": found["messages"][-1:]}})
                if asked := found.get("__interrupt__"):
                    await self._stream.send("updates", {"__interrupt__": asked})
            if "values" in self._modes:
                await self._stream.send("values", found)
        if run["state"] == "failed":
            await self._stream.send("error", {"error": "RunFailed", "message": run["failure"] or "The run failed."})
        status = STATUSES.get(run["state"], "interrupted")
        await self._stream.send("end", {"run_id": run_id(self._message), "status": status}, id)

    async def _read(self, work: Any) -> Any:
        return await self._door.store.run(work, durable=False)
