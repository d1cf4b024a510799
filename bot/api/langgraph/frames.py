"""Turn the events of a run into the frames of a thread's stream, the newer protocol of LangGraph's clients.

Their types are in the package langchain-protocol (`langchain_protocol.protocol`). A server for comparison:
https://github.com/langchain-ai/langgraphjs/tree/main/libs/langgraph-api/src/protocol
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bot.api.langgraph.shapes import GRAPH, NODE
from bot.api.shared.event_json import Json
from bot.api.shared.run_reader import RunEvent

SLOTS = 2048  # numbers of one millisecond: with them, a number of a frame is exact in JavaScript until the year 2109
PER_BLOCK = 8  # numbers of one block of a feed
SUMMARY_PART = "answered"  # sums up what a person answered, and is no message of the agent


@dataclass(frozen=True, slots=True)
class ThreadFrame:
    """An event of a thread: `number` orders all of them, `id` is the same in each stream that has it."""

    channel: str
    method: str
    data: Json
    number: int
    id: str

    def to_json(self) -> Json:
        """Return the frame as it is sent."""
        at = self.number // SLOTS
        params = {"namespace": [], "timestamp": at, "data": self.data}
        return {"type": "event", "event_id": self.id, "seq": self.number, "method": self.method, "params": params}


Said = tuple[str, Json]  # a channel, and what is said on it
METHODS = {"input": "input.requested"}  # others are called as their channel


def make_frame(said: Said, number: int, id: str) -> ThreadFrame:
    """Return a frame."""
    channel, data = said
    return ThreadFrame(channel, METHODS.get(channel, channel), data, number, id)


def number_at(at: float) -> int:
    """Return a number behind all that ended before this Unix time, and before all that begins later."""
    return int(at * 1000) * SLOTS + SLOTS - 1


@dataclass(slots=True)
class RunFrames:
    """The frames of one run, which remember what is begun: one message at a time, and each tool call once."""

    run: int
    began: int  # `RunFeed.began`, or when it had ended
    _texts: dict[str, str] = field(default_factory=dict)
    _open: str | None = None
    _tools: set[str] = field(default_factory=set)

    def begin(self, values: Json) -> Iterator[ThreadFrame]:
        """Yield what opens the run."""
        yield from self._number(0, [_lifecycle("running"), ("values", values)])

    def read(self, event: RunEvent) -> Iterator[ThreadFrame]:
        """Yield what an event says."""
        yield from self._number(event.position.number, [*self._say(event.name, event.data)])

    def show(self, view: Json) -> Iterator[ThreadFrame]:
        """Yield all that a run showed which was not followed."""
        yield from self._number(1, [*self._say("snapshot", view)])

    def end(self, finished: float, values: Json, asked: list[Json], run: Json) -> Iterator[ThreadFrame]:
        """Yield what closes the run. The last frame has the last number of its millisecond."""
        said: list[Said] = [*self._finish(), ("values", values)]
        said.append(("updates", {"node": NODE, "values": {"messages": values["messages"][-1:]}}))
        waits = asked if run["state"] == "waiting" else []
        for ask in waits:  # the client for Python reads `value`, the others `payload`
            said.append(("input", {"interrupt_id": ask["id"], "value": ask["value"], "payload": ask["value"]}))
        said.append(_outcome(run))
        number = int(finished * 1000) * SLOTS
        for place, each in enumerate(said):
            last = place == len(said) - 1
            yield make_frame(each, number + (SLOTS - 1 if last else place), f"{self.run}.end.{number}.{place}")

    def _number(self, block: int, said: list[Said]) -> Iterator[ThreadFrame]:
        base = (self.began + 1) * SLOTS + block * PER_BLOCK
        for place, each in enumerate(said):
            yield make_frame(each, base + min(place, PER_BLOCK - 1), f"{self.run}.{self.began}.{block}.{place}")

    def _say(self, name: str, data: Json) -> Iterator[Said]:
        match name:
            case "text":
                yield from self._text(data["part"], data["delta"], replace=data["replace"])
            case "snapshot":
                for each in data["texts"]:
                    yield from self._text(each["part"], each["text"], replace=True)
                for step in data["steps"]:
                    yield from self._say("step", step)
            case "step":
                yield from self._step(data)
                yield "custom", {"name": name, "payload": data}
            case "plan" | "notice" | "file" | "failed" | "question":
                yield "custom", {"name": name, "payload": data}

    def _text(self, part: str, delta: str, *, replace: bool) -> Iterator[Said]:
        if part == SUMMARY_PART:
            return
        id = part or f"{self.run}"
        if not delta and id not in self._texts:
            return
        before = "" if replace else self._texts.get(id, "")
        self._texts[id] = before + delta
        if self._open != id or replace:
            yield from self._finish()
            self._open = id
            about = {"run_id": f"{self.run}", "langgraph_node": NODE}
            yield "messages", {"event": "message-start", "role": "ai", "id": id, "metadata": about}
            yield "messages", {"event": "content-block-start", "index": 0, "content": {"type": "text", "text": ""}}
            delta = self._texts[id]
        if delta:
            change = {"type": "text-delta", "text": delta}
            yield "messages", {"event": "content-block-delta", "index": 0, "delta": change}

    def _finish(self) -> Iterator[Said]:
        if self._open is not None:
            content = {"type": "text", "text": self._texts[self._open]}
            self._open = None
            yield "messages", {"event": "content-block-finish", "index": 0, "content": content}
            yield "messages", {"event": "message-finish"}

    def _step(self, step: Json) -> Iterator[Said]:
        if step["thinking"]:
            return
        about: dict[str, Any] = {"tool_call_id": step["id"]}
        if step["id"] not in self._tools:
            self._tools.add(step["id"])
            yield from self._finish()
            yield "tools", {**about, "event": "tool-started", "tool_name": step["title"], "input": step["detail"]}
        if step["state"] == "done":
            yield "tools", {**about, "event": "tool-finished", "output": step["progress"] or "done"}
        elif step["state"] != "running":
            yield "tools", {**about, "event": "tool-error", "message": step["state"]}


def _lifecycle(event: str, **more: str) -> Said:
    return "lifecycle", {"event": event, "graph_name": GRAPH, **more}


def _outcome(run: Json) -> Said:
    if run["state"] == "failed":
        return _lifecycle("failed", error=run["failure"] or "The run failed.")
    return _lifecycle("completed" if run["state"] == "done" else "interrupted")
