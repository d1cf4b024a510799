"""OpenAI's Responses API on loopback, as strict as the real one; scripted like `tests.fakes.model`.

Facts: platform.openai.com/docs/api-reference/responses and its streaming events; guides/reasoning ("encrypted reasoning
items": with `store: false`, reasoning comes back only as `encrypted_content`, if `include` asks for it; other ids are
not found: "Items are not persisted when `store` is set to false").
"""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from tests.fakes.model import FakeModel
from tests.fakes.model_script import Answer, ToolCall
from tests.fakes.server import Json, cut

PARAMETERS = {
    "model", "input", "tools", "tool_choice", "stream", "store", "include", "reasoning", "instructions",
    "max_output_tokens", "temperature", "parallel_tool_calls", "text",
}  # fmt: skip
ITEMS: dict[str, set[str]] = {
    "message": {"role", "content", "id", "status", "phase"},
    "function_call": {"call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"call_id", "output", "id", "status"},
    "reasoning": {"id", "summary", "encrypted_content", "status", "content"},
}
PARTS = {"system": {"input_text"}, "developer": {"input_text"}, "user": {"input_text", "input_image"}}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
ENCRYPTED = "encrypted "
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class FakeResponses(FakeModel):
    """The server. It reasons unless the effort is none."""

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/responses", self._respond)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        entry, raw = await self._receive(request)
        body: Json = orjson.loads(raw)
        self._keep(entry, request, body, "input")
        entry.rejected = _refuses(body)
        code = "invalid_value"
        if self.window_bytes and len(raw) > self.window_bytes:
            entry.rejected = "Your input exceeds the context window of this model. Please adjust your input."
            code = "context_length_exceeded"
        if entry.rejected:
            return self._refusal(entry, 400, entry.rejected, code)
        script = self._answer({"messages": _as_chat(body["input"]), "tools": body.get("tools")})
        if script.status != 200:
            return self._refusal(entry, script.status, "scripted", "rate_limit_exceeded", script.retry_after)
        self._answers += 1
        usage = self._usage({"messages": body["input"]}, raw, script)
        output = self._output(body, script)
        response = {
            "id": f"resp_{self._answers}", "object": "response", "created_at": 1, "status": "completed", "error": None,
            "incomplete_details": None, "instructions": None, "model": body["model"], "output": output,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}, "temperature": 1.0,
            "top_p": 1.0, "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 52},
                "total_tokens": usage["total_tokens"],
            },
        }  # fmt: skip
        if reason := INCOMPLETE.get(script.finish):
            response |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        if not body.get("stream"):
            return web.json_response(response)
        return await self._send(request, script, response, output)

    def _output(self, body: Json, script: Answer) -> list[Json]:
        output: list[Json] = []
        reasoning = body.get("reasoning") or {}
        if reasoning.get("effort") != "none":  # the ids of its tool calls then name it
            text = "".join(self.thoughts)
            item: Json = {"id": f"rs_{self._answers}", "type": "reasoning", "summary": []}
            if reasoning.get("summary"):
                item["summary"] = [{"type": "summary_text", "text": text}]
            if "reasoning.encrypted_content" in body.get("include", ()):
                item["encrypted_content"] = f"{ENCRYPTED}rs_{self._answers}"
            output.append(item)
        answer = self._answers if output else ""
        if script.text:
            part = {"type": "output_text", "text": script.text, "annotations": []}
            message = {"id": f"msg_{self._answers}", "type": "message", "role": "assistant", "status": "completed"}
            output.append({**message, "content": [part]})
        for number, call in enumerate(script.calls):
            ids = {
                "id": f"fc_{answer}_{number}",
                "call_id": call.id or f"call_{self._answers}_{number}",
            }
            what = {"name": call.name, "arguments": call.arguments, "status": "completed"}
            output.append({"type": "function_call", **ids, **what})
        return output

    async def _send(
        self, request: web.Request, script: Answer, response: Json, output: list[Json]
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        sent = 0

        async def send(kind: str, **values: Any) -> None:
            nonlocal sent
            event = {"type": kind, "sequence_number": sent, **values}
            sent += 1
            await stream.write(f"event: {kind}\ndata: ".encode() + orjson.dumps(event) + b"\n\n")

        await send("response.created", response={**response, "status": "in_progress", "output": [], "usage": None})
        for index, item in enumerate(output):
            at = {"item_id": item["id"], "output_index": index}
            empty: Json = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
            await send("response.output_item.added", output_index=index, item={**item, **empty[item["type"]]})
            if item["type"] == "message":
                part = item["content"][0]
                await send("response.content_part.added", **at, content_index=0, part={**part, "text": ""})
                for number, word in enumerate(script.words):
                    if number == script.abort_at:
                        return cut(request)
                    if number == script.cut_at:
                        await stream.write_eof()
                        return stream
                    if number == script.garbage_at:
                        await send("error", code="server_error", message="scripted", param=None)
                        return stream
                    await send("response.output_text.delta", **at, content_index=0, delta=word, logprobs=[])
                await send("response.output_text.done", **at, content_index=0, text=part["text"], logprobs=[])
                await send("response.content_part.done", **at, content_index=0, part=part)
            elif item["type"] == "function_call":
                for piece in script.pieces_of(ToolCall(item["name"], item["arguments"])):
                    await send("response.function_call_arguments.delta", **at, delta=piece)
                await send("response.function_call_arguments.done", **at, arguments=item["arguments"])
            elif item["summary"]:
                part = item["summary"][0]
                await send("response.reasoning_summary_part.added", **at, summary_index=0, part={**part, "text": ""})
                for thought in self.thoughts:
                    await send("response.reasoning_summary_text.delta", **at, summary_index=0, delta=thought)
                await send("response.reasoning_summary_text.done", **at, summary_index=0, text=part["text"])
                await send("response.reasoning_summary_part.done", **at, summary_index=0, part=part)
            await send("response.output_item.done", output_index=index, item=item)
        for raw in script.events:
            await stream.write(f"data: {raw}\n\n".encode())
        await send(f"response.{response['status']}", response=response)
        await stream.write_eof()
        return stream


def _refuses(body: Json) -> str:
    if unknown := body.keys() - PARAMETERS:
        return f"Unknown parameter: '{min(unknown)}'."
    if body.get("store") is not False:
        return "this test wants no conversation to be stored"
    if (effort := (body.get("reasoning") or {}).get("effort", "low")) not in EFFORTS:
        return f"Unsupported value: '{effort}' is not supported with the model."
    for number, tool in enumerate(body.get("tools") or ()):
        if tool.keys() - {"type", "name", "description", "parameters", "strict"} or tool["type"] != "function":
            return f"Unknown parameter: 'tools[{number}]'."
    calls: set[str] = set()
    reasoned: set[str] = set()
    for number, item in enumerate(body["input"]):
        kind = item.get("type", "message")
        if kind not in ITEMS or item.keys() - {"type", *ITEMS[kind]}:
            return f"Unknown parameter in 'input[{number}]': {sorted(item)}."
        if kind == "message" and (wrong := _wrong_part(item)):
            return f"Invalid value: 'input[{number}].content': {wrong}"
        if kind == "reasoning":
            if not item.get("encrypted_content"):
                return f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
            if item["encrypted_content"] != f"{ENCRYPTED}{item['id']}":
                return "The encrypted content could not be verified."
            reasoned.add(item["id"].removeprefix("rs_"))
        if kind == "function_call":
            calls.add(item["call_id"])
            answer = str(item.get("id", "")).removeprefix("fc_").split("_")[0]
            if answer and answer not in reasoned:
                return f"Item '{item['id']}' of type 'function_call' was provided without its required 'reasoning' item"
        if kind == "function_call_output":
            if item["call_id"] not in calls:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            calls.discard(item["call_id"])
    return f"No tool output found for function call {min(calls)}." if calls else ""


def _wrong_part(item: Json) -> str:
    if isinstance(item["content"], str):
        return ""
    known = PARTS.get(item["role"], {"output_text", "refusal"})
    wrong = [part["type"] for part in item["content"] if part["type"] not in known]
    return f"'{wrong[0]}' is not supported" if wrong else ""


def _as_chat(items: list[Json]) -> list[Json]:
    """Return the conversation as Chat Completions have it, for the script. Calls of one answer are one message."""
    chat: list[Json] = []
    for item in items:
        match item:
            case {"type": "function_call", "call_id": call}:
                if chat and chat[-1].get("tool_calls"):
                    chat[-1]["tool_calls"].append({"id": call})
                else:
                    chat.append({"role": "assistant", "content": "", "tool_calls": [{"id": call}]})
            case {"type": "function_call_output", "call_id": call}:
                chat.append({"role": "tool", "tool_call_id": call})
            case {"role": role, "content": content}:
                text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                chat.append({"role": role, "content": text})
    return chat
