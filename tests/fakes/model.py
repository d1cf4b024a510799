"""A scripted OpenAI-compatible model on loopback: streams, calls tools, fails and is as strict as a real provider.

    async with FakeModel() as model:                       # base_url + "/v1" is what a client needs
        ... 'do it ::{"steps": [{"calls": [{"name": "bash", "args": {"command": "ls"}}]}], "text": "done"}' ...
        model.requests()[-1].messages                      # what the client sent

Directives are described in `tests.fakes.model_script`. A test in the same process may pass `script`, a function from
the request's body to an `Answer` (None: let the directive decide). As its own process: `python -m tests.fakes.model
--port N`, with `POST /_control/requests {}` for the log.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from tests.fakes.model_dialects import REASONING_FIELDS, DeepSeek, Dialect, Kimi
from tests.fakes.model_script import Answer, ToolCall, answer_of, directive_of, helper_answer, rejected, words
from tests.fakes.server import Json, LocalServer, cut, main

__all__ = ["Answer", "FakeModel", "Request", "ToolCall", "words"]


@dataclass(slots=True)
class Request:
    """A request as it came and what became of it. Times are time.monotonic(), 0 where it did not come to that."""

    at: float
    bytes: int
    id: str = ""  # the directive's id
    status: int = 200
    first: float = 0.0  # the first word or tool call was sent
    end: float = 0.0  # the last byte was sent
    used: int = 0  # tokens that a whole answer tells
    gone: bool = False  # the client disconnected before the end
    helper: bool = False  # it asked for a summary or a title
    rejected: str = ""
    messages: list[Json] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    body: Json = field(default_factory=dict)  # its other parameters
    headers: dict[str, str] = field(default_factory=dict)


Script = Callable[[Json], Answer | None]
MOST_AT_ONCE = 200  # words in one write


class FakeModel(LocalServer):
    """The server. `keep_bodies=False` leaves messages and tools out of the log, for long runs."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        api_key: str = "",
        latency: float = 0.0,
        dialect: Dialect | None = None,
    ) -> None:
        super().__init__(latency=latency)
        self.script = script
        self.dialect = dialect
        self.window_bytes = 0  # a longer request is refused; 0: none is
        self.api_key = api_key  # "": any
        self.keep_bodies = True
        self.thinks = False  # a model that thinks aloud, and refuses tool calls without its thoughts
        self._log: list[Request] = []
        self._tries: dict[str, int] = {}
        self._seen: set[int] = set()  # prefixes of conversations, for the usage's cached tokens
        self._answers = 0

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)

    # ------------------------------------------------------------ for tests

    @property
    def thoughts(self) -> list[str]:
        """Return the reasoning of a reasoning model for this request."""
        return [f"thought {self._answers}, ", *(f"step {number}, " for number in range(50)), "done"]

    def requests(self, id: str = "") -> list[Request]:
        """Return all requests so far (or those of one directive), in order of arrival."""
        return [request for request in self._log if id in ("", request.id)]

    def forget(self, keep_bodies: bool = True) -> None:
        """Empty the log."""
        self._log.clear()
        self.keep_bodies = keep_bodies

    # ------------------------------------------------------------ calls

    async def _models(self, request: web.Request) -> web.Response:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            error = {"message": "Incorrect API key provided", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        model = {"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}
        return web.json_response({"object": "list", "data": [model]})

    async def _receive(self, request: web.Request) -> tuple[Request, bytes]:
        """Log a request, and return its entry and its body."""
        at = time.monotonic()
        raw = await request.read()
        entry = Request(at, len(raw))
        self._log.append(entry)
        return entry, raw

    def _keep(self, entry: Request, request: web.Request, body: Json, messages: str) -> None:
        """Log what was sent, unless bodies are not kept. `messages` is the dialect's name of the messages."""
        if self.keep_bodies:
            entry.messages, entry.tools, entry.headers = body[messages], body.get("tools") or [], dict(request.headers)
            entry.body = {name: value for name, value in body.items() if name not in (messages, "tools")}

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        entry, raw = await self._receive(request)
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return self._refusal(entry, 401, "Incorrect API key provided", "invalid_api_key")
        body: Json = orjson.loads(raw)
        entry.helper = not body.get("tools") and bool(helper_answer(body["messages"]))
        if not entry.helper:
            entry.id = str((directive_of(body["messages"])[0] or {}).get("id", ""))
        self._keep(entry, request, body, "messages")
        if self.dialect:
            known = [{k: v for k, v in m.items() if k not in REASONING_FIELDS} for m in body["messages"]]
            entry.rejected = self.dialect.refuses(body) or rejected(known)
            if self.window_bytes and len(raw) > self.window_bytes:
                entry.rejected = self.dialect.too_long
        else:
            entry.rejected = rejected(body["messages"], self.thinks)
        if entry.rejected:
            return self._refusal(entry, 400, entry.rejected)
        if fault := self.take_fault("chat"):
            if fault.kind in ("error", "flood"):
                return self._refusal(
                    entry, 429 if fault.kind == "flood" else fault.code, "scripted", after=fault.seconds
                )
            if answer := await self.suffer(fault, request):
                return answer
        script = self._answer(body)
        while script.held and script.held():
            await asyncio.sleep(0.02)
        if script.delay or self.latency:
            await asyncio.sleep(script.delay + self.latency)
        if script.status != 200:
            return self._refusal(entry, script.status, "scripted", after=script.retry_after)
        self._answers += 1
        usage = self._usage(body, raw, script)
        entry.used = int(usage.get("total_tokens", 0))
        if script.body:
            entry.first = entry.end = time.monotonic()
            return web.Response(text=script.body, content_type="application/json")
        if body.get("stream"):
            try:
                return await self._stream(request, body, script, usage, entry)
            except ConnectionError:
                entry.gone = True
                return cut(request)
        return self._whole(body, script, usage, entry)

    def _whole(self, body: Json, script: Answer, usage: Json, entry: Request) -> web.Response:
        message: Json = {"role": "assistant", "content": script.text or None, "refusal": script.refusal or None}
        if self.thinks:
            message["reasoning_content"] = "".join(self.thoughts)
        if self.dialect and self.dialect.thinks(body):
            message |= self.dialect.message(self.thoughts)
        if script.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call_id, call in self._numbered(script)
            ]
        entry.first = entry.end = time.monotonic()
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": script.ends}
        answer = {**self._head(body, "chat.completion"), "choices": [choice], "usage": usage}
        return web.Response(body=dump(answer), content_type="application/json")

    async def _stream(
        self, request: web.Request, body: Json, script: Answer, usage: Json, entry: Request
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        head = self._head(body, "chat.completion.chunk")

        def event(delta: Json, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            so_far = {"usage": {**usage, "completion_tokens": 1}} if script.counted else {}
            return b"data: " + dump({**head, "choices": [choice], **so_far}) + b"\n\n"

        await stream.write(event({"role": "assistant", "content": ""}))
        thinker = self.dialect or (DeepSeek() if self.thinks else None)
        for delta in thinker.deltas(self.thoughts) if thinker and thinker.thinks(body) else ():
            await stream.write(event(delta))
        pieces = [event({"content": word}) for word in script.words] * script.repeat
        if not await _paced(stream, pieces, script, entry):
            return cut(request) if script.abort_at >= 0 else stream
        for word in script.refusal.split():
            await stream.write(event({"refusal": f"{word} "}))
        for index, (call_id, call) in enumerate(self._numbered(script)):
            entry.first = entry.first or time.monotonic()
            for function in _fragments(script, call):
                start: Json = {"id": call_id, "type": "function"} if "name" in function else {}
                if start and self.dialect:
                    start = self.dialect.call(start, index)
                await stream.write(event({"tool_calls": [{"index": index, **start, "function": function}]}))
        for raw in script.events:
            await stream.write(b"data: " + raw.encode() + b"\n\n")
        if isinstance(self.dialect, Kimi):
            choice = {"index": 0, "delta": {}, "finish_reason": script.ends, "usage": usage}
            await stream.write(b"data: " + dump({**head, "choices": [choice]}) + b"\n\n")
        else:
            await stream.write(event({}, script.ends))
        if not isinstance(self.dialect, Kimi) and (body.get("stream_options") or {}).get("include_usage"):
            await stream.write(b"data: " + orjson.dumps({**head, "choices": [], "usage": usage}) + b"\n\n")
        await stream.write(b"data: [DONE]\n\n")
        entry.end = time.monotonic()
        await stream.write_eof()
        return stream

    # ------------------------------------------------------------ helpers

    def _answer(self, body: Json) -> Answer:
        return (self.script(body) if self.script else None) or answer_of(body, self._tries)

    def _head(self, body: Json, kind: str) -> Json:
        return {"id": f"chatcmpl-{self._answers}", "object": kind, "created": 1, "model": body.get("model", "")}

    def _numbered(self, script: Answer) -> list[tuple[str, ToolCall]]:
        prefix = f"call_{self.dialect.preset}_{self.port}" if self.dialect else "call"
        numbered = [(call.id or f"{prefix}_{self._answers}_{index}", call) for index, call in enumerate(script.calls)]
        if self.dialect:
            self.dialect.issued |= {id_ for id_, _ in numbered}
        return numbered

    def _usage(self, body: Json, raw: bytes, script: Answer) -> Json:
        """Count four bytes as a token; a prefix of an earlier request counts as cached, as with real providers."""
        cached = prefix = 0
        if self.keep_bodies:
            sizes = 0
            for message in body["messages"]:
                text = orjson.dumps(message)
                prefix = hash((prefix, text))
                sizes += len(text)
                if prefix in self._seen:
                    cached = sizes // 4
                self._seen.add(prefix)
        prompt = max(len(raw) // 4, cached)
        completion = len(script.words) * script.repeat + sum(len(call.arguments) // 4 + 5 for call in script.calls)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        }
        return self.dialect.usage(usage) if self.dialect else usage

    def _refusal(
        self, entry: Request, status: int, words: str, code: str | None = None, after: float | None = None
    ) -> web.Response:
        entry.status, entry.end = status, time.monotonic()
        headers = {"Retry-After": f"{after:g}"} if after is not None else {}
        error = (self.dialect or Dialect()).error(status, words, code)
        return web.json_response(error, status=status, headers=headers)


async def _paced(stream: web.StreamResponse, pieces: list[bytes], script: Answer, entry: Request) -> bool:
    """Write the words at their pace by the clock; late words are sent together. False: the script cut it off."""
    cuts = [at for at in (script.abort_at, script.cut_at, script.hang_at, script.garbage_at) if at >= 0]
    stop = min(cuts, default=-1)
    begin = time.monotonic()
    sent = 0
    end = len(pieces) if stop < 0 else min(stop, len(pieces))
    while sent < end:
        due = sent + MOST_AT_ONCE if not script.pace else int((time.monotonic() - begin) / script.pace) + 1
        due = min(end, due)
        if due > sent:
            await stream.write(b"".join(pieces[sent:due]))
            entry.first = entry.first or time.monotonic()
            sent = due
        if script.pace and sent < end:
            await asyncio.sleep(max(0.0, begin + sent * script.pace - time.monotonic()))
    if stop < 0:
        return True
    if script.hang_at == stop:
        await asyncio.Event().wait()
    if script.garbage_at == stop:
        await stream.write(b'data: {"choices": [{"delta": \n\n')
    if script.abort_at < 0:
        await stream.write_eof()
    return False


def dump(value: Json) -> bytes:
    """Serialize JSON as any server might, also with half a surrogate pair."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


def _fragments(script: Answer, call: ToolCall) -> list[Json]:
    """Return a tool call as providers stream it: the name first, then the arguments in chunks."""
    name = {"name": call.name} if script.names else {}
    return [{"name": call.name, "arguments": ""}, *({**name, "arguments": piece} for piece in script.pieces_of(call))]


if __name__ == "__main__":
    main(FakeModel())
