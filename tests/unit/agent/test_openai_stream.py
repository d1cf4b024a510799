"""The model stream against a server that sends exactly these bytes at these times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import openai
import orjson
import pytest
from aiohttp import web
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI

from agent.models.openai_stream import MERGE_WINDOW_SECONDS, make_chat_openai
from agent.models.reasoning import thinking_of
from agent.models.streamed_answer import MAX_ANSWER_CHARS, MAX_REST_CHARS, MAX_THINKING_CHARS, stream_answer
from agent.models.whole_calls import cut_reason
from agent.setting import Secret
from agent.settings.models import ModelSettings

Piece = bytes | float | asyncio.Event  # bytes to write, seconds to wait, or what to wait for


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "same", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def sse(*chunks: dict[str, Any] | bytes, end: bytes = b"\n\n") -> bytes:
    return b"".join(b"data: " + (c if isinstance(c, bytes) else orjson.dumps(c)) + end for c in chunks)


STOP = sse(delta("stop"), b"[DONE]")


@dataclass
class Wire:
    """The server: writes its chunks, then ends the answer (or drops the connection)."""

    pieces: Sequence[Piece]
    cut: bool = False
    status: int = 200
    url: str = ""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers, self.body = dict(request.headers), await request.json()
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for piece in self.pieces:
                if isinstance(piece, bytes):
                    await response.write(piece)
                elif isinstance(piece, asyncio.Event):
                    await piece.wait()
                else:
                    await asyncio.sleep(piece)
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        if self.cut and request.transport:
            request.transport.abort()
        return response


@asynccontextmanager
async def serving(*pieces: Piece, kind: type[Wire] = Wire, **more: Any) -> AsyncIterator[Wire]:
    wire = kind(pieces, **more)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", wire.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    wire.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield wire
    finally:
        await runner.cleanup()


@asynccontextmanager
async def model_at(wire: Wire, **more: Any) -> AsyncIterator[ChatOpenAI]:
    model = make_chat_openai(ModelSettings("m", base_url=wire.url, **more), {})
    try:
        yield model
    finally:
        await model.root_async_client.close()


async def stream(wire: Wire, window: float = 0.0, **more: Any) -> list[AIMessageChunk]:
    MERGE_WINDOW_SECONDS.set(window)
    async with model_at(wire, **more) as model:
        chunks = [chunk async for chunk in model.astream([HumanMessage("hi")])]
    return [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]


def whole(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    return total


# Case 39 of docs/cases.md
async def test_cjk_text_split_anywhere_is_complete_and_not_doubled() -> None:
    data = sse(*(delta(content=c) for c in "谢谢你，世界🌏")) + STOP
    for size in (1, 2, 3, 7):
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        async with serving(*pieces) as wire:
            assert whole(await stream(wire, window=0.05)).text == "谢谢你，世界🌏"


async def test_comments_crlf_blank_lines_and_a_missing_last_newline_are_accepted() -> None:
    data = b": keep-alive\r\n\r\n" + sse(delta(content="a"), delta(content="b"), end=b"\r\n\r\n")
    data += b"event: x\n\n" + b"data: " + orjson.dumps(delta("stop", content="c"))
    async with serving(data) as wire:
        assert whole(await stream(wire)).text == "abc"


async def test_the_first_delta_is_sent_at_once_and_later_ones_are_merged() -> None:
    words: list[Piece] = [sse(delta(content="w0 "))]
    for number in range(1, 40):
        words += [0.005, sse(delta(content=f"w{number} "))]
    async with serving(*words, STOP) as wire:
        texts = [chunk.text for chunk in await stream(wire, window=1.0) if chunk.text]
    assert texts[0] == "w0 "
    assert "".join(texts).split() == [f"w{n}" for n in range(40)]
    assert 2 <= len(texts) <= 10


async def test_a_held_delta_does_not_wait_for_the_next_bytes() -> None:
    MERGE_WINDOW_SECONDS.set(0.05)
    seen = asyncio.Event()
    async with serving(sse(delta(content="a"), delta(content="b")), seen, STOP) as wire, model_at(wire) as model:
        async with asyncio.timeout(60):
            async for chunk in model.astream([HumanMessage("hi")]):
                if chunk.text == "b":
                    seen.set()


async def test_text_before_a_tool_call_keeps_its_place() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "bash", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"command": "ls"}'}}
    data = sse(delta(content="I "), delta(content="look"), delta(tool_calls=[call]), delta(tool_calls=[more]))
    async with serving(data + sse(delta("tool_calls"), b"[DONE]")) as wire:
        chunks = await stream(wire, window=10)
    total = whole(chunks)
    assert total.text == "I look"
    assert [(c["name"], c["args"], c["id"]) for c in total.tool_calls] == [("bash", {"command": "ls"}, "c1")]
    first_call = next(i for i, chunk in enumerate(chunks) if chunk.tool_call_chunks)
    assert "".join(chunk.text for chunk in chunks[:first_call]) == "I look"


async def test_tool_calls_without_index_or_id_are_completed() -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    async with serving(sse(delta(tool_calls=calls)) + STOP) as wire:
        total = whole(await stream(wire))
    assert [call["name"] for call in total.tool_calls] == ["a", "b"]
    assert len({call["id"] for call in total.tool_calls}) == 2


async def test_reasoning_is_merged_like_text_but_kept_separate() -> None:
    """As DeepSeek streams: one kind of delta at a time, the other one null."""
    chunks = [delta(role="assistant", content=None, reasoning_content="")]
    chunks += [delta(content=None, reasoning_content=f"t{number} ") for number in range(200)]
    chunks += [delta(content=f"w{number} ", reasoning_content=None) for number in range(200)]
    async with serving(sse(*chunks), STOP) as wire:
        made = await stream(wire, window=0.2)
    assert len(made) < 20
    total = whole(made)
    assert total.text == "".join(f"w{number} " for number in range(200))
    [thoughts] = total.additional_kwargs["thoughts"].values()
    assert thoughts == {"reasoning_content": "".join(f"t{number} " for number in range(200))}


async def test_done_without_a_finish_reason_ends_an_answer_with_text() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    done = sse(b"[DONE]")
    async with serving(sse(delta(content="all of it")), done) as wire:
        assert whole(await stream(wire)).text == "all of it"
    async with serving(sse(delta(tool_calls=[call])), done) as wire:
        assert whole(await stream(wire)).tool_calls[0]["name"] == "ls"
    for silent in (sse(delta(role="assistant", content="")), sse(delta(reasoning_content="hm")), b""):
        async with serving(silent, done) as wire:
            with pytest.raises(openai.APIConnectionError, match="in the middle"):
                await stream(wire)


async def test_half_a_surrogate_pair_is_parsed() -> None:
    data = sse(b'{"choices": [{"index": 0, "delta": {"content": "a\\ud83d"}}]}', delta(content="b")) + STOP
    async with serving(data) as wire:
        assert whole(await stream(wire)).text == "a\ud83db"  # as it came: the agent's policy cleans it


async def test_a_line_in_many_chunks_is_joined_once() -> None:
    data = sse(delta(content="x" * 300_000)) + STOP
    async with serving(*[data[at : at + 1000] for at in range(0, len(data), 1000)]) as wire:
        assert len(whole(await stream(wire)).text) == 300_000


async def test_every_answer_has_a_unique_id() -> None:
    data = sse(delta(content="x", id="constant")) + STOP
    async with serving(data) as wire:
        assert whole(await stream(wire)).id != whole(await stream(wire)).id


async def test_usage_is_requested_and_read() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    async with serving(sse(delta(content="x"), delta("stop"), {"choices": [], "usage": usage}, b"[DONE]")) as wire:
        told = whole(await stream(wire)).usage_metadata
        assert wire.body["stream_options"] == {"include_usage": True}
    assert told is not None
    assert (told["input_tokens"], told["output_tokens"]) == (9, 2)
    assert told["input_token_details"]["cache_read"] == 4


@pytest.mark.parametrize(
    ("pieces", "cut", "kind"),
    [
        ([sse(delta(content="half"))], False, openai.APIConnectionError),  # ends without a finish
        ([sse(delta(content="half")), 0.05], True, openai.APIConnectionError),  # the connection breaks
        ([sse(b'{"choices": [{"delta": ')], False, openai.APIConnectionError),  # no JSON
        ([sse({"error": {"message": "overloaded", "code": 503}})], False, openai.APIError),
        ([sse(delta(content="half")), 5.0], False, (openai.APITimeoutError, aiohttp.SocketTimeoutError)),  # silence
        ([sse(delta(content="half")), *[b": ping\n\n", 0.1] * 40], False, openai.APITimeoutError),  # …kept alive
    ],
)
async def test_a_broken_stream_raises_a_network_error(
    pieces: list[Piece], cut: bool, kind: type[Exception] | tuple[type[Exception], ...]
) -> None:
    async with serving(*pieces, cut=cut) as wire:
        with pytest.raises(kind):
            await stream(wire, read_seconds=0.3)


async def test_a_refused_request_raises_before_the_stream() -> None:
    async with serving(status=404) as wire:
        with pytest.raises(openai.NotFoundError):
            await stream(wire)


async def test_later_requests_are_those_that_the_sdk_makes_and_fail_as_they_do() -> None:
    async with serving(sse(delta(content="a")) + STOP) as wire, model_at(wire, api_key=Secret("k")) as model:
        heads, errors = [], []
        for _ in range(2):
            assert "".join([c.text async for c in model.astream([HumanMessage("hello")])]) == "a"
            heads.append(wire.headers)
        assert heads[0] == heads[1]
        assert heads[0]["Authorization"] == "Bearer k"
        wire.status = 422
        async with model_at(wire) as other:
            for made in (model, other):
                with pytest.raises(openai.UnprocessableEntityError) as caught:
                    _ = [c async for c in made.astream([HumanMessage("hello")])]
                errors.append((str(caught.value), caught.value.body, caught.value.response.status_code))
    assert errors[0] == errors[1]


class Listener(AsyncCallbackHandler):
    """Somebody who listens, such as LangSmith."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.heard.append(str(token))


async def test_a_stream_is_the_same_whether_somebody_listens_or_not() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    data = sse(delta(content="I look"), delta(tool_calls=[call])) + sse(delta("tool_calls"), b"[DONE]")
    listener, told = Listener(), []
    async with serving(data) as wire, model_at(wire) as model:
        for config in (None, RunnableConfig(callbacks=[listener])):
            chunks = [chunk async for chunk in model.astream([HumanMessage("hi")], config)]
            assert len({chunk.id for chunk in chunks}) == 1
            told.append([chunk.model_copy(update={"id": None}) for chunk in chunks])
    assert told[0] == told[1]
    assert "".join(listener.heard) == "I look"


async def test_cancelling_closes_the_connection_at_once() -> None:
    endless: list[Piece] = [0.02, sse(delta(content="b"))]
    async with serving(sse(delta(content="a")), *endless * 500) as wire, model_at(wire) as model:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in model.astream([HumanMessage("hi")]):
                started.set()

        task = asyncio.create_task(read(), name="reader")
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(wire.gone.wait(), 60)
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "model stream"]


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("length", [100, 20_000, 3_000_000])
async def test_an_answer_without_end_ends_at_its_limit_and_closes_the_connection(length: int, field: str) -> None:
    piece = sse(delta(**{field: "b" * length}))
    async with serving(*[piece] * (3_000_000 // length), asyncio.Event()) as wire, model_at(wire) as model:
        answer = await stream_answer(model, [HumanMessage("hi")])
        await asyncio.wait_for(wire.gone.wait(), 60)
    assert cut_reason(answer) == "length"
    assert answer.text == "b" * (MAX_ANSWER_CHARS if field == "content" else 0)
    assert len(thinking_of(answer)) <= 2 * MAX_THINKING_CHARS


@pytest.mark.parametrize("length", [100, 20_000, 500_000])
async def test_what_follows_a_long_answer_is_kept_within_a_limit(length: int) -> None:
    piece, rest = sse(delta(content="b" * length)), list[str]()
    async with serving(*[piece] * (3_000_000 // length), asyncio.Event()) as wire, model_at(wire) as model:
        answer = await stream_answer(model, [HumanMessage("hi")], rest=rest)
        await asyncio.wait_for(wire.gone.wait(), 60)
    assert (len(answer.text), cut_reason(answer)) == (MAX_ANSWER_CHARS, "length")
    assert "".join(rest) == "b" * MAX_REST_CHARS


async def test_an_answer_that_ends_behind_its_limit_has_its_whole_rest_and_counts_its_tokens() -> None:
    rest = list[str]()
    end = delta("stop") | {"usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}}
    pieces = [sse(delta(content=text)) for text in ("b" * 199_999, "bcc", "dd")]
    async with serving(*pieces, sse(end), b"data: [DONE]\n\n") as wire, model_at(wire) as model:
        answer = await stream_answer(model, [HumanMessage("hi")], rest=rest)
    assert answer.text == "b" * 200_000
    assert "".join(rest) == "ccdd"
    assert cut_reason(answer) == "length"
    assert answer.usage_metadata
    assert answer.usage_metadata["output_tokens"] == 9


async def test_the_key_is_sent_and_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    async with serving(sse(delta(content="a")), STOP) as wire:
        await stream(wire, api_key=Secret("k1"))
        assert wire.headers["Authorization"] == "Bearer k1"
        await stream(wire)
        assert wire.headers["Authorization"] == "Bearer none"
