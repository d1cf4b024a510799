"""Anthropic's Messages API on loopback, as strict as the real one; scripted like `tests.fakes.model`.

Facts: platform.claude.com/docs, "Versions" (2026-10-21 refuses temperature, top_p and top_k), "Messages", "Streaming
messages", "Extended thinking" (a turn that calls tools begins with its thinking, unchanged, with its signature;
budget_tokens is at least 1,024 and below max_tokens), "Adaptive thinking" (required from Opus 4.7 on, which refuses a
budget; from 4.6 on allowed), "Prompt caching" (the top-level `cache_control` caches up to the last block). Every object
refuses unknown fields with "Extra inputs are not permitted".
"""

from __future__ import annotations

import re
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.model import FakeModel, Request
from tests.fakes.model_script import Answer, ToolCall
from tests.fakes.server import Json, cut

PARAMETERS = {
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "thinking", "output_config",
    "cache_control", "stop_sequences", "metadata",
}  # fmt: skip
BLOCKS: dict[str, set[str]] = {
    "text": {"text"},
    "image": {"source"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "thinking": {"thinking", "signature"},
}
SIGNATURE = "signature of "
STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}


class FakeAnthropic(FakeModel):
    """The server. Models named claude-opus-5… think adaptively, others within a budget."""

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/messages", self._messages)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        entry, raw = await self._receive(request)
        body: Json = orjson.loads(raw)
        self._keep(entry, request, body, "messages")
        if not (request.headers.get("x-api-key") or request.headers.get("Authorization", "").startswith("Bearer ")):
            return self._fail(entry, 401, "authentication_error", "x-api-key header is required")
        if not request.headers.get("anthropic-version"):
            return self._fail(entry, 400, "invalid_request_error", "anthropic-version: header is required")
        entry.rejected = _refuses(body)
        if self.window_bytes and len(raw) > self.window_bytes:
            entry.rejected = "prompt is too long: 210000 tokens > 200000 maximum"
        if entry.rejected:
            return self._fail(entry, 400, "invalid_request_error", entry.rejected)
        script = self._answer({"messages": _as_chat(body["messages"]), "tools": body.get("tools")})
        if script.status != 200:
            kind = {429: "rate_limit_error", 529: "overloaded_error"}.get(script.status, "api_error")
            return self._fail(entry, script.status, kind, "scripted", script.retry_after)
        self._answers += 1
        content = self._content(body, script)
        usage = self._own_usage(body, raw, script)
        stop = STOP_REASONS.get(script.finish) or ("tool_use" if script.calls else "end_turn")
        head = {"id": f"msg_{self._answers}", "type": "message", "role": "assistant", "model": body["model"]}
        if not body.get("stream"):
            whole = {**head, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}
            return web.json_response(whole)
        calls = iter(script.calls)
        for block in content:
            if block["type"] == "tool_use":
                block["input"] = next(calls)  # streamed as the text that it is
        return await self._send(request, script, {**head, "content": [], "usage": usage}, content, stop)

    def _content(self, body: Json, script: Answer) -> list[Json]:
        content: list[Json] = []
        if body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
            text = "".join(self.thoughts)
            content.append({"type": "thinking", "thinking": text, "signature": f"{SIGNATURE}{text}"})
        if script.text:
            content.append({"type": "text", "text": script.text})
        for number, call in enumerate(script.calls):
            id_ = call.id or f"toolu_{self._answers}_{number}"
            content.append({"type": "tool_use", "id": id_, "name": call.name, "input": _input(call)})
        return content

    def _own_usage(self, body: Json, raw: bytes, script: Answer) -> Json:
        usage = self._usage(body, raw, script)
        cached = usage["prompt_tokens_details"]["cached_tokens"] if body.get("cache_control") else 0
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion_tokens"],
        }

    async def _send(
        self, request: web.Request, script: Answer, message: Json, content: list[Json], stop: str
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)

        async def send(kind: str, **values: Any) -> None:
            event = {"type": kind, **values}
            await stream.write(f"event: {kind}\ndata: ".encode() + orjson.dumps(event) + b"\n\n")

        await send("message_start", message=message)
        await send("ping")
        for index, block in enumerate(content):
            empty: Json = {
                "text": {"text": ""},
                "thinking": {"thinking": "", "signature": ""},
                "tool_use": {"input": {}},
            }
            await send("content_block_start", index=index, content_block={**block, **empty[block["type"]]})
            for number, delta in enumerate(self._deltas(block, script)):
                if block["type"] == "text" and number == script.abort_at:
                    return cut(request)
                if block["type"] == "text" and number == script.cut_at:
                    await stream.write_eof()
                    return stream
                if block["type"] == "text" and number == script.garbage_at:
                    await send("error", error={"type": "overloaded_error", "message": "Overloaded"})
                    return stream
                await send("content_block_delta", index=index, delta=delta)
            await send("content_block_stop", index=index)
        for raw in script.events:
            kind = orjson.loads(raw).get("type", "ping")
            await stream.write(f"event: {kind}\ndata: {raw}\n\n".encode())
        stopped = {"stop_reason": stop, "stop_sequence": None}
        await send("message_delta", delta=stopped, usage=message["usage"])  # "cumulative"
        await send("message_stop")
        await stream.write_eof()
        return stream

    def _deltas(self, block: Json, script: Answer) -> list[Json]:
        match block["type"]:
            case "text":
                return [{"type": "text_delta", "text": word} for word in script.words]
            case "thinking":
                texts = [{"type": "thinking_delta", "thinking": thought} for thought in self.thoughts]
                return [*texts, {"type": "signature_delta", "signature": block["signature"]}]
        pieces = ["", *script.pieces_of(block["input"])]
        return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]

    def _fail(self, entry: Request, status: int, kind: str, words: str, after: float | None = None) -> web.Response:
        entry.status = status
        headers = {"retry-after": f"{after:g}"} if after is not None else {}
        error = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}
        return web.json_response(error, status=status, headers=headers)


def _input(call: ToolCall) -> Any:
    """Return the arguments of a call in an answer that is not streamed, as text if they are no JSON."""
    try:
        return orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return call.arguments


def _refuses(body: Json) -> str:
    if unknown := body.keys() - PARAMETERS:
        return f"{min(unknown)}: Extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    for number, tool in enumerate(body.get("tools") or ()):
        if tool.keys() - {"name", "description", "input_schema"} or tool["input_schema"].get("type") != "object":
            return f"tools.{number}: Extra inputs are not permitted, or input_schema.type is missing"
    open_calls: set[str] = set()
    for number, message in enumerate(body["messages"]):
        place = f"messages.{number}"
        if message.keys() != {"role", "content"} or message["role"] not in ("user", "assistant"):
            return f"{place}: Extra inputs are not permitted"
        blocks = _blocks(message)
        for block in blocks:
            if wrong := _wrong_block(block):
                return f"{place}.content: {wrong}"
        if open_calls - {block.get("tool_use_id") for block in blocks}:
            return f"{place}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"} - open_calls:
            return f"{place}: unexpected `tool_use_id` found in `tool_result` blocks"
        open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
    return _refuses_thinking(body) or ("messages: at least one message is required" if not body["messages"] else "")


def _refuses_thinking(body: Json) -> str:
    thinking, adaptive = body.get("thinking") or {}, body["model"].startswith("claude-opus-5")
    if thinking.get("type") == "adaptive" and not adaptive:
        return "adaptive thinking is not supported on this model"
    if thinking.get("type") != "enabled":
        return ""
    if adaptive:
        return "thinking.type.enabled is not supported on this model"
    if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        return "`max_tokens` must be greater than `thinking.budget_tokens`"
    for message in reversed(body["messages"]):
        kinds = [block["type"] for block in _blocks(message)]
        if message["role"] == "assistant":
            if "tool_use" in kinds and kinds[0] != "thinking":
                return "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, …"
        elif "tool_result" not in kinds:
            break
    return ""


def _wrong_block(block: Json) -> str:
    known = BLOCKS.get(block["type"])
    if known is None or block.keys() - {"type", "cache_control", *known}:
        return f"{block['type']}: Extra inputs are not permitted"
    match block:
        case {"type": "text", "text": text} if not text.strip():
            return "text content blocks must be non-empty"
        case {"type": "thinking", "thinking": text, "signature": signature} if signature != f"{SIGNATURE}{text}":
            return "Invalid `signature` in `thinking` block"
        case {"type": "tool_use", "id": id_} if not re.fullmatch(r"[a-zA-Z0-9_-]+", id_):
            return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        case {"type": "image", "source": source} if source.get("type") != "base64":
            return "image.source: not a picture"
    return ""


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _as_chat(messages: list[Json]) -> list[Json]:
    """Return the conversation as Chat Completions have it, for the script."""
    chat: list[Json] = []
    for message in messages:
        blocks = _blocks(message)
        chat += [{"role": "tool", "tool_call_id": b["tool_use_id"]} for b in blocks if b["type"] == "tool_result"]
        text = "".join(block.get("text", "") for block in blocks)
        calls = [{"id": block["id"]} for block in blocks if block["type"] == "tool_use"]
        if text or calls:
            chat.append({"role": message["role"], "content": text, **({"tool_calls": calls} if calls else {})})
    return chat
