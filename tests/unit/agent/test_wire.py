"""Servers that are stricter than OpenAI's: orders of roles, fields and tools that they refuse, refusals unexplained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import httpx2
import openai
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agent.blocks import Block, Failed
from agent.models.errors import words_for_operator
from agent.models.wire import valid_messages
from agent.settings.models import ModelSettings
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_openai_stream import Wire, delta, serving, sse

Json = dict[str, Any]
HELLO = sse(delta(content="hello"), delta("stop"), b"[DONE]")


class Strict(Wire):
    """A server that answers "hello", unless `refuses` returns what it says instead."""

    refuses: Callable[[Json], tuple[int, str] | bytes | None]
    bodies: list[Json]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        said = self.refuses(body)
        if isinstance(said, tuple):
            return web.Response(status=said[0], text=said[1], content_type="application/json")
        return web.Response(body=said or HELLO, content_type="text/event-stream")


async def run(make: Workshop, wire: Wire, refuses: Callable[[Json], tuple[int, str] | bytes | None]) -> Bench:
    assert isinstance(wire, Strict)
    wire.refuses, wire.bodies = refuses, []
    return await make(settings=(ModelSettings("m", base_url=wire.url, retries=0, options={"max_tokens": 500}),))


def failure(blocks: list[Block]) -> str:
    return next((block.what for block in blocks if isinstance(block, Failed)), "")


# ---------------------------------------------------------------- the order of roles


def conversations() -> st.SearchStrategy[list[Json]]:
    text = st.sampled_from(["", "a", "b"])
    call = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    message = st.one_of(
        st.builds(lambda content: {"role": "user", "content": content}, text),
        st.builds(lambda content: {"role": "user", "content": [{"type": "text", "text": content}]}, text),
        st.builds(lambda content: {"role": "assistant", "content": content}, text),
        st.builds(lambda content: {"role": "system", "content": content}, st.just("rules")),
    )
    called = st.builds(
        lambda content: [
            {"role": "assistant", "content": None, "tool_calls": call},
            {"role": "tool", "tool_call_id": "1", "content": content},
        ],
        text,
    )
    return st.lists(st.one_of(message.map(lambda each: [each]), called), max_size=12).map(
        lambda groups: [message for group in groups for message in group]
    )


def faults(messages: list[Json]) -> Iterator[str]:
    for first, second in pairwise(messages):
        pair = (first["role"], second["role"])
        if pair in (("tool", "user"), ("user", "user"), ("system", "system")):
            yield f"{pair}"
        if pair == ("assistant", "assistant") and not first.get("tool_calls"):
            yield f"{pair}"
    for number, message in enumerate(messages):
        if number and message["role"] == "system":
            yield "system not first"
        if not message.get("content") and not message.get("tool_calls"):
            yield f"empty {message['role']}"


def said(messages: list[Json]) -> str:
    texts = [
        m["content"] if isinstance(m["content"], str) else "".join(p["text"] for p in m["content"] or ())
        for m in messages
    ]
    return re.sub(r"\(I have.*?\)|\(no output\)|\s", "", "".join(texts))


@given(conversations())
def test_every_conversation_gets_an_order_that_strict_servers_take_and_keeps_its_words(messages: list[Json]) -> None:
    made = valid_messages(messages)
    assert list(faults(made)) == []
    assert said(made) == said(messages)
    assert valid_messages(made) == made


# ---------------------------------------------------------------- what a server refuses by name


def named(message: str, **more: Any) -> tuple[int, str]:
    return 400, json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}})


def has_tool(body: Json) -> int | None:
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    return names.index("look") if "look" in names else None


def roles(body: Json) -> list[str]:
    return [message["role"] for message in body["messages"]]


REFUSALS: dict[str, Callable[[Json], tuple[int, str] | None]] = {
    "stream_options": lambda b: (
        named("Unrecognized request argument supplied: stream_options") if "stream_options" in b else None
    ),
    "fields as pydantic says": lambda b: (
        (
            422,
            json.dumps(
                {
                    "detail": [
                        {
                            "type": "extra_forbidden",
                            "loc": ["body", "stream_options"],
                            "msg": "Extra inputs are not permitted",
                        }
                    ]
                }
            ),
        )
        if "stream_options" in b
        else None
    ),
    "flat words": lambda b: (
        (
            400,
            json.dumps(
                {
                    "object": "error",
                    "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options')}]",
                    "code": 400,
                }
            ),
        )
        if "stream_options" in b
        else None
    ),
    "max_completion_tokens": lambda b: (
        named("Unsupported parameter: max_completion_tokens")
        if "max_completion_tokens" in b or "max_tokens" not in b
        else None
    ),
    "by param": lambda b: (
        named("This model does not take it.", param="stream_options") if "stream_options" in b else None
    ),
    "two, one after the other": lambda b: next(
        (named(f"unknown field `{name}`") for name in ("stream_options", "max_completion_tokens") if name in b), None
    ),
    "a tool by its name": lambda b: (
        named("Invalid schema for function 'look': array schema missing items") if has_tool(b) is not None else None
    ),
    "a tool by its place": lambda b: (
        named(f"tools.{at}.custom.input_schema: JSON schema is invalid") if (at := has_tool(b)) is not None else None
    ),
    "a tool in Gemini's words": lambda b: (
        (
            400,
            json.dumps(
                [
                    {
                        "error": {
                            "code": 400,
                            "message": f"* R.tools[0].function_declarations[{at}].parameters: should be an OBJECT",
                        }
                    }
                ]
            ),
        )
        if (at := has_tool(b)) is not None
        else None
    ),
    "system": lambda b: named("System role not supported") if "system" in roles(b) else None,
    "a template that raises": lambda b: (
        (500, json.dumps({"error": {"code": 500, "message": "Only user and assistant roles are supported!"}}))
        if "system" in roles(b)
        else None
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_what_a_server_refuses_by_name_is_left_out_once_and_from_then_on(make: Workshop, name: str) -> None:
    async with serving(kind=Strict) as wire:
        bench = await run(make, wire, REFUSALS[name])
        assert view(await bench.run(say("hi"))).text == "hello"
        assert isinstance(wire, Strict)
        assert len(wire.bodies) == 2 + name.startswith("two")
        assert wire.bodies[-1].get("max_tokens", 500) == 500
        assert view(await bench.run(say("and now", "m2"))).text == "hello"
        assert REFUSALS[name](wire.bodies[-1]) is None
        assert len(wire.bodies) == 3 + name.startswith("two")


async def test_a_server_that_goes_on_refusing_is_asked_a_few_times_only_and_remembered_for_nothing(
    make: Workshop,
) -> None:
    def refuses(body: Json) -> tuple[int, str]:
        return named("stream_options, max_completion_tokens, max_tokens, 'look', 'wait', 'tool_choice', role system")

    async with serving(kind=Strict) as wire:
        bench = await run(make, wire, refuses)
        assert failure(await bench.run(say("hi"))) == "My model's server refused the request (400)."
        assert isinstance(wire, Strict)
        assert len(wire.bodies) <= 5
        first = wire.bodies[0]
        wire.bodies.clear()
        await bench.run(say("again", "m2"))
        assert wire.bodies[0].keys() == first.keys()
        assert wire.bodies[0]["tools"] == first["tools"]


# ---------------------------------------------------------------- too long, in words that nobody knows

UNEXPLAINED: dict[str, tuple[int, str] | bytes] = {
    "other words": named("The beans are more than the pot holds."),
    "no words": (400, ""),
    "another language": named("请求内容过多"),
    "unprocessable": (422, json.dumps({"detail": "payload"})),
    "a status of its own": (418, "teapot"),
    "a proxy's": (500, json.dumps({"error": {"message": "litellm.InternalServerError: request 9121 over 8192"}})),
    "a detail": (503, json.dumps({"detail": "Requested tokens (4431) over 4096"})),
    "flat, in the stream": sse(
        {"object": "error", "message": "too much", "type": "BadRequestError", "code": 400}, b"[DONE]"
    ),
    "a detail in the stream, with its words": sse({"detail": "this exceeds the context window"}, b"[DONE]"),
    "no output": sse(
        delta(content=""),
        delta("length"),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}},
        b"[DONE]",
    ),
    "no output, no usage": sse(delta("length"), b"[DONE]"),
}


@pytest.mark.parametrize("name", UNEXPLAINED)
async def test_a_long_conversation_that_is_refused_without_a_reason_is_shortened_once(
    make: Workshop, name: str
) -> None:
    def refuses(body: Json) -> tuple[int, str] | bytes | None:
        if not body.get("tools"):
            return None
        if sum(len(str(m["content"])) for m in body["messages"] if m["role"] != "system") > 20_000:
            return UNEXPLAINED[name]
        return None

    async with serving(kind=Strict) as wire:
        bench = await run(make, wire, lambda body: sse(delta(content="word " * 6000), delta("stop")))
        await bench.run(say("tell me a story"))
        assert isinstance(wire, Strict)
        wire.refuses, wire.bodies = refuses, []
        blocks = await bench.run(say("and now", "m2"))
        assert view(blocks).final().text == "hello"
        assert len(wire.bodies) == 3  # refused, the summary, the answer
        assert view(await bench.run(say("and then", "m3"))).final().text == "hello"
        assert len(wire.bodies) == 4


@pytest.mark.parametrize("name", UNEXPLAINED)
async def test_a_short_conversation_is_not_and_a_long_one_not_again_and_again(make: Workshop, name: str) -> None:
    async with serving(kind=Strict) as wire:
        bench = await run(make, wire, lambda body: UNEXPLAINED[name])
        assert failure(await bench.run(say("hi")))
        assert isinstance(wire, Strict)
        assert len(wire.bodies) == 1
        wire.bodies.clear()
        told = await bench.run(say("word " * 5000, "m2"))
        assert failure(told)
        assert len(wire.bodies) <= 3


def test_operators_read_the_first_words_of_the_provider() -> None:
    body = {"message": "Invalid\nschema \x1b[31mfor 'look'" + "x" * 999}
    error = openai.APIError("x", request=httpx2.Request("POST", "http://x"), body=body)
    assert words_for_operator(error).startswith("APIError: Invalid schema [31mfor 'look'xxx")
    assert len(words_for_operator(error)) < 220
