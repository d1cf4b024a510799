"""Talk to a service over its HTTP API: one that runs elsewhere, by its address and a key, or one in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import orjson

from agent.blocks import Approve, Ask, Block, Failed, File, Notice, Plan, PlanItem, Step, Text

Json = dict[str, Any]
Question: TypeAlias = str | Json | Ask | Approve
WAIT_SECONDS = 1.0  # before a stream that was cut is continued
QUIET_SECONDS = 60.0  # without anything, also without a heartbeat, after which a stream counts as cut
BLOCKS: dict[str, Any] = {"text": Text, "step": Step, "file": File, "notice": Notice, "failed": Failed}
LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class FawnError(Exception):
    """The service refused a request: a `status`, a `code` for programs, and what to do."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(f"{problem.get('title', '')} {problem.get('detail', '')}".strip() or f"status {status}")
        self.status, self.code = status, str(problem.get("code", ""))


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended: done, waiting (for answers to `questions`), stopped, failed or withdrawn."""

    text: str
    state: str
    run: int
    thread: str
    failure: str
    files: tuple[Json, ...]  # with `name`, `size` and `url`, for `download`
    questions: tuple[Json, ...]


class Fawn:
    """A service, at `url` with a `key`; or else one of this process, with the configuration in `config`."""

    def __init__(self, *, url: str = "", key: str = "", config: str | Path = "") -> None:
        self._url, self._key, self._config = url, key, config
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession
        self.run = 0  # the latest that was asked for, once it has begun

    async def __aenter__(self) -> Fawn:
        url, key = self._url, self._key
        if not url:
            from fawn.embedded import serving

            url, key = await self._stack.enter_async_context(serving(Path(self._config) if self._config else None))
        timeout = aiohttp.ClientTimeout(sock_read=QUIET_SECONDS)
        session = aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout)
        self._http = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def ask(
        self, text: str, *, thread: str = "", files: Iterable[str | Path] = ()
    ) -> AsyncIterator[Block | Answer]:
        """Yield the blocks of the answer as they come, and at last the Answer. Raises FawnError."""
        named = [(path.name, path) for path in map(Path, files)]
        sent = await self.post(thread or uuid4().hex, text, named)
        async for block in self._follow(f"/v1/messages/{sent['id']}/events"):
            yield block

    async def post(self, thread: str, text: str, files: Iterable[tuple[str, Path]] = ()) -> Json:
        """Write a message with files (name, path) in a thread; return it as the API does. Raises FawnError."""
        form = aiohttp.FormData({"text": text} if text else {}, default_to_multipart=True, quote_fields=False)
        for name, path in files:
            form.add_field("file", await asyncio.to_thread(path.read_bytes), filename=name)
        headers = {"Idempotency-Key": uuid4().hex}
        return await self._call("POST", f"/v1/threads/{thread}/messages", data=form, headers=headers)

    async def command(self, thread: str, command: str) -> None:
        """Send a command of the chats, such as /status; a notice in the thread answers it. Raises FawnError."""
        await self._call("POST", f"/v1/threads/{thread}/commands", json={"command": command})

    def events(self, thread: str, opened: Callable[[], None] = lambda: None) -> AsyncIterator[tuple[str, Json]]:
        """Yield name and data of what happens in a thread from now on. `opened` is called when the stream is open."""
        return self._read(f"/v1/threads/{thread}/events", opened)

    async def answer(self, question: Question, answer: str) -> AsyncIterator[Block | Answer]:
        """Answer an open question: one of `Answer.questions`, a block that asks, or the id of either.

        Yields the blocks of the work that goes on, and its Answer. Raises FawnError.
        """
        id = question if isinstance(question, str) else question["id"] if isinstance(question, dict) else question.id
        sent = await self._call("POST", f"/v1/questions/{quote(id, safe='')}/answer", json={"answer": answer})
        async for block in self._follow(f"/v1/messages/{sent['message']}/events"):
            yield block

    async def check(self) -> None:
        """Raise FawnError where the key is not good."""
        await self._call("GET", "/v1/threads")

    async def stop(self, run: int = 0) -> None:
        """Stop a run, or the latest one that was asked for."""
        await self._call("POST", f"/v1/runs/{run or self.run}/stop")

    async def download(self, url: str, target: str | Path) -> Path:
        """Save a file of an Answer. Raises FawnError."""
        async with self._http.get(url) as answer:
            await _refuse(answer)
            with Path(target).open("wb") as file:  # noqa: ASYNC230 — pieces of a local file
                async for chunk in answer.content.iter_chunked(1 << 18):
                    file.write(chunk)
        return Path(target)

    async def _call(self, method: str, path: str, **more: Any) -> Json:
        async with self._http.request(method, path, **more) as answer:
            await _refuse(answer)
            found: Json = await answer.json()
            return found

    async def _follow(self, path: str) -> AsyncIterator[Block | Answer]:
        asked = set[str]()
        async for name, data in self._read(path):
            asked |= {data["id"]} if name == "question" else set()
            if name == "end":
                for question in data.get("questions", ()):
                    if question["id"] not in asked:  # it was asked before this stream began
                        yield read_question(question)
                yield _answer(data)
                return
            for block in read_blocks(name, data):
                yield block

    async def _read(self, path: str, opened: Callable[[], None] = lambda: None) -> AsyncIterator[tuple[str, Json]]:
        """Yield the events of a stream, which goes on where it was cut."""
        last = ""
        while True:
            try:
                async with self._http.get(path, headers={"Last-Event-ID": last} if last else {}) as answer:
                    await _refuse(answer)
                    opened()
                    async for name, data, id in _events(answer):
                        last = id or last
                        self.run = data.get("run") or self.run
                        yield name, data
            except LOST:
                pass
            await asyncio.sleep(WAIT_SECONDS)


async def _refuse(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 400:
        raise FawnError(answer.status, await answer.json(content_type=None))


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Json, str]]:
    fields: dict[str, str] = {}
    async for line in answer.content:
        name, colon, value = line.decode().rstrip("\n").partition(": ")
        if colon:
            fields[name] = value
        elif not name and "data" in fields:
            yield fields["event"], orjson.loads(fields["data"]), fields.get("id", "")
            fields = {}


def _answer(data: Json) -> Answer:
    facts = (data.get("text", ""), data["state"], data["id"] or 0, data.get("thread", ""), data.get("failure", ""))
    return Answer(*facts, tuple(data.get("files", ())), tuple(data.get("questions", ())))


def read_question(data: Json) -> Ask | Approve:
    if data["kind"] == "approve":
        detail, count = data.get("detail", ""), len(data["options"])
        return Approve(data["id"], data["text"], detail, data["call"], option_count=count)
    return Ask(data["id"], data["text"], tuple(data["options"]), data["free_text"])


def read_blocks(name: str, data: Json) -> list[Block]:
    """Return the blocks of an event; those of a snapshot replace what was shown."""
    match name:
        case "text" | "step" | "file" | "notice" | "failed":  # their data has the fields of the block
            kind = BLOCKS[name]
            return [
                kind(**{field: data[field] for field in kind.__slots__ if field in data})
            ]  # newer ones may be missing
        case "plan":
            return [Plan(tuple(PlanItem(**item) for item in data["items"]))]
        case "question":
            return [read_question(data)]
        case "snapshot":
            steps = [block for step in data["steps"] for block in read_blocks("step", step)]
            return [*steps, *(Text(each["text"], each["part"], replace=True) for each in data["texts"])]
    return []
