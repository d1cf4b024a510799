"""Turn the events of a run into those that the clients of LangGraph read."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from agent.messages import Thread
from bot.api.langgraph.shapes import NODE, STATUSES, ai, run_id, values
from bot.api.shared.event_json import Json
from bot.commands.feature import Door
from bot.http.event_stream import EventStream

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
