"""A client of the event streams, which knows nothing but docs/api.md: it reads lines, and folds what they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

Json = dict[str, Any]


@dataclass(frozen=True)
class Event:
    name: str
    data: Any
    id: str = ""


async def read_events(answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Yield the events of an answer; a comment is an event without a name."""
    assert answer.status == 200, await answer.text()
    assert answer.content_type == "text/event-stream"
    lines: list[str] = []
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line:
            lines.append(line)
            continue
        fields = dict(each.split(": ", 1) for each in lines if not each.startswith(":"))
        if "event" in fields:
            yield Event(fields["event"], orjson.loads(fields["data"]), fields.get("id", ""))
        elif any(each.startswith(":") for each in lines):
            yield Event("", None)
        lines = []


@dataclass
class Fold:
    """What a client shows of threads: stored entries, and each run in progress until its end."""

    entries: list[Json] = field(default_factory=list)
    live: dict[int, dict[str, str]] = field(default_factory=dict)  # run → part → text
    ends: list[Json] = field(default_factory=list)
    threads: dict[str, Json] = field(default_factory=dict)
    last: str = ""
    seen: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.seen.append(event)
        self.last = event.id or self.last
        data = event.data
        match event.name:
            case "text":
                texts = self.live.setdefault(data["run"], {})
                texts[data["part"]] = ("" if data["replace"] else texts.get(data["part"], "")) + data["delta"]
            case "snapshot":
                self.live[data["run"]] = {each["part"]: each["text"] for each in data["texts"]}
            case "entry":
                assert data["id"] not in [each["id"] for each in self.entries], "an entry came twice"
                self.entries.append(data)
            case "end":
                self.live.pop(data["id"], None)
                self.ends.append(data)
            case "thread":
                self.threads[data["id"]] = data

    def texts(self) -> list[str]:
        """Return the answers: of stored entries, then of runs in progress."""
        stored = [each["text"] for each in self.entries if each["kind"] == "text"]
        return stored + [text for texts in self.live.values() for text in texts.values() if text]


async def follow(
    client: aiohttp.ClientSession, path: str, fold: Fold, until: Callable[[Fold], object], after: str = ""
) -> Fold:
    """Read events into `fold` until it is as wanted, or the stream ends."""
    headers = {"Last-Event-ID": after} if after else {}
    async with asyncio.timeout(60), client.get(path, headers=headers) as answer:
        async for event in read_events(answer):
            fold.add(event)
            if until(fold):
                break
    return fold
