"""A small OpenAI-compatible model on loopback, which answers each word of a drill in the way that can be counted."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson
from aiohttp import web

Json = dict[str, Any]

HELD = "-held"  # the end of a word whose answer waits until the drill wants it
WORD = re.compile(rf"drill-\d+(?:{HELD})?")
PACE_SECONDS = 0.05  # between two pieces of an answer
HELPER = "Drill"  # the answer to everything but a message of a person: titles and the like


def answer_to(word: str) -> str:
    """Return the answer to a word, which no part of it contains."""
    return f"Whole answer to {word}!"


class DrillModel:
    """The server. Words that end with HELD are answered once `released` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.released = asyncio.Event()

    def add_routes(self, app: web.Application) -> None:
        """Have an application answer as the API does."""
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "drill", "object": "model", "owned_by": "fawn"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        body: Json = orjson.loads(await request.read())
        words = [*dict.fromkeys(WORD.findall(_last_words(body)))] if body.get("tools") else []
        if any(word.endswith(HELD) for word in words):
            await self.released.wait()
        text = "\n".join(map(answer_to, words)) or HELPER
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        head = {"id": f"chatcmpl-{self.calls}", "created": 1, "model": "drill"}
        if body.get("stream"):
            return await _stream(request, body, head, text, usage)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return web.Response(body=orjson.dumps(whole), content_type="application/json")


async def _stream(request: web.Request, body: Json, head: Json, text: str, usage: Json) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in re.findall(r"\S+\s*", text)]
    deltas.append(({}, "stop"))
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        await answer.write(b"data: " + orjson.dumps(event) + b"\n\n")
        await asyncio.sleep(PACE_SECONDS)
    if (body.get("stream_options") or {}).get("include_usage"):
        counted = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        await answer.write(b"data: " + orjson.dumps(counted) + b"\n\n")
    await answer.write(b"data: [DONE]\n\n")
    await answer.write_eof()
    return answer


def _last_words(body: Json) -> str:
    """Return what people said since the last answer."""
    said: list[str] = []
    for message in reversed(body["messages"]):
        if message["role"] not in ("user", "system"):
            break
        if message["role"] == "user":
            content = message.get("content") or ""
            said.append(content if isinstance(content, str) else orjson.dumps(content).decode())
    return "\n".join(reversed(said))
