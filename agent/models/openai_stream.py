"""The cheap stream: ChatOpenAI whose server-sent events are parsed with orjson and whose deltas are merged.

The SDK builds a pydantic object per token, which takes three to five times the CPU and, while data keeps coming,
starves the event loop for seconds. Here langchain-openai keeps the payload, the authentication and the mapping of
errors; only the reading of the stream is ours, plugged in through the public field `async_client` (its `_astream` takes
plain dicts). The first delta goes out at once. Later ones are merged over `MERGE_WINDOW_SECONDS` and flushed by a
timer, so that a held delta never waits for the next bytes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import openai
import orjson
from langchain_openai import ChatOpenAI

from agent.models.http_transport import READ_PACE, AiohttpTransport, ReadPace
from agent.models.reasoning import REASONING_FIELDS, ThinkingOpenAI
from agent.models.settings import ModelSettings

MERGE_WINDOW_SECONDS: ContextVar[float] = ContextVar("window", default=0.2)
"""Seconds over which text deltas of a stream that starts now are merged; set by the turn."""

OPENAI_URL = "https://api.openai.com/v1"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

Chunk = dict[str, Any]
MERGEABLE_FIELDS = frozenset({"content", *REASONING_FIELDS})  # deltas that are texts


def make_chat_openai(settings: ModelSettings, options: Mapping[str, Any]) -> ChatOpenAI:
    """A ChatOpenAI for `settings` over aiohttp with the cheap stream. It never retries: one policy does.

    Nothing is read from the environment by the SDK: a missing URL means OpenAI's own, a missing key an open server.
    """
    base_url = settings.base_url or OPENAI_URL
    http = httpx2.AsyncClient(
        transport=AiohttpTransport(
            proxy=settings.proxy,
            verify=ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else None,
            trust_env=urlsplit(base_url).hostname
            not in LOOPBACK_HOSTS,  # a model on this machine is not behind a proxy
        ),
        timeout=httpx2.Timeout(settings.read_seconds, connect=settings.connect_seconds, pool=settings.connect_seconds),
    )
    given: dict[str, Any] = {
        "model": settings.model or settings.name,
        "base_url": base_url,
        "api_key": settings.api_key.reveal() if settings.api_key else "none",
        "use_responses_api": False,
        "stream_usage": True,  # with a base_url of one's own it is off, and then nothing is accounted
        "stream_chunk_timeout": None,  # the stream below watches the silence itself, without a task per chunk
        **options,
        "max_retries": 0,
        "http_async_client": http,
    }
    model = ThinkingOpenAI(**given)
    model.async_client = StreamingCompletions(model.root_async_client, settings.read_seconds)
    return model


class StreamingCompletions:
    """The SDK's completions resource, except that a streamed `create` gives a `DeltaStream`."""

    def __init__(self, client: openai.AsyncOpenAI, silence: float) -> None:
        self._client = client
        self._silence_seconds = silence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client.chat.completions, name)

    async def create(self, **payload: Any) -> Any:
        """As the SDK's. It is posted as it is: the SDK's own `create` walks through the whole conversation once more,
        which takes longer than all the rest of the request."""
        if not payload.get("stream"):
            return await self._client.chat.completions.create(**payload)
        extra = {"headers": "extra_headers", "params": "extra_query", "extra_json": "extra_body", "timeout": "timeout"}
        options = {option: payload.pop(name) for option, name in extra.items() if payload.get(name) is not None}
        body = {**payload, **options.pop("extra_json", {})}
        READ_PACE.set(pace := ReadPace())
        try:
            stream = await self._post(body, options)
        except openai.BadRequestError as error:
            if not _add_missing_reasoning(error, body["messages"]):
                raise
            stream = await self._post(body, options)
        return DeltaStream(stream, MERGE_WINDOW_SECONDS.get(), self._silence_seconds, pace)

    async def _post(self, body: dict[str, Any], options: dict[str, Any]) -> openai.AsyncStream[object]:
        return await self._client.post(
            "/chat/completions",
            cast_to=object,
            content=_dump_body(body),
            options=cast(Any, options),  # the SDK's TypedDict is not public
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )


class DeltaStream:
    """One streamed answer: an async context manager and iterator of chunk dicts, merged in time.

    Raises openai.APIError and its kin, as the SDK would. Leaving it closes the connection at once.
    """

    def __init__(self, stream: openai.AsyncStream[object], window: float, silence: float, pace: ReadPace) -> None:
        self._stream = stream
        self._request = stream.response.request
        self._window_seconds = window
        self._silence_seconds = silence
        self._pace = pace
        self._ready: deque[Chunk] = deque()
        self._held_chunk: Chunk | None = None
        self._held_field = ""  # which text is held
        self._last_flush = 0.0  # when the last text went out
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> DeltaStream:
        self._reader = asyncio.create_task(self._read_events(), name="model stream")
        self._reader.add_done_callback(lambda _: self._wake.set())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._timer:
            self._timer.cancel()
        try:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            if not self._reader.cancelled():
                self._reader.exception()  # told to the iterator already, if it went that far
        finally:
            await self._stream.close()

    def __aiter__(self) -> DeltaStream:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            if self._reader.done():
                self._flush_merged()
                if self._ready:
                    break
                self._reader.result()
                raise StopAsyncIteration
            self._wake.clear()
            try:
                async with asyncio.timeout(
                    self._silence_seconds
                ):  # comments that keep the socket alive are silence, too
                    await self._wake.wait()
            except TimeoutError as error:
                raise openai.APITimeoutError(request=self._request) from error
        return self._ready.popleft()

    async def _read_events(self) -> None:
        finished = said = False
        try:
            async for chunk in _parse_events(self._stream.response.aiter_bytes(), self._request):
                if chunk is None:
                    finished = finished or said  # some servers name no reason; without a word it is no answer
                    continue
                for choice in chunk.get("choices") or ():
                    delta = choice.get("delta") or {}
                    said = said or bool(delta.get("content") or delta.get("tool_calls"))
                    finished = finished or bool(choice.get("finish_reason"))
                self._merge_chunk(chunk)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=self._request) from error
        except httpx2.HTTPError as error:
            raise openai.APIConnectionError(request=self._request) from error
        if not finished:
            raise openai.APIConnectionError(message="The stream ended in the middle.", request=self._request)

    def _merge_chunk(self, chunk: Chunk) -> None:
        kind, text = _plain_text(chunk)
        if kind != self._held_field:  # a tool call, an end, usage passes on, after the text before it
            self._flush_merged()
            self._held_field = kind
        if not text:
            self._ready.append(chunk)
            self._wake.set()
            return
        if self._held_chunk is None:
            self._held_chunk = chunk
        else:
            self._held_chunk["choices"][0]["delta"][kind] += text
        loop = asyncio.get_running_loop()
        if self._pace.seconds:  # looked at a window apart already: what came with one look goes on together
            self._timer = self._timer or loop.call_later(0, self._flush_merged)
            return
        due = self._last_flush + self._window_seconds
        if loop.time() >= due:
            self._flush_merged()
        elif self._timer is None:
            self._timer = loop.call_at(due, self._flush_merged)

    def _flush_merged(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._held_chunk is not None:
            self._ready.append(self._held_chunk)
            self._held_chunk = None
            self._pace.seconds = self._window_seconds  # something is shown: from now on a look every window is enough
            self._last_flush = asyncio.get_running_loop().time()
            self._wake.set()


def _dump_body(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # half a surrogate pair that some model wrote into its arguments: json escapes it
        return json.dumps(body).encode()


def _add_missing_reasoning(error: openai.BadRequestError, messages: list[Chunk]) -> bool:
    """Whether a server that thinks refuses tool calls without thoughts: another model's, which this mends."""
    if "reasoning_content" not in str(error):
        return False
    missing = [m for m in messages if m.get("tool_calls") and "reasoning_content" not in m]
    for message in missing:
        message["reasoning_content"] = ""
    return bool(missing)


def _plain_text(chunk: Chunk) -> tuple[str, str]:
    """Kind and text of a chunk that carries nothing but one text, else "": only such chunks may be merged."""
    choices: list[Chunk] = chunk.get("choices") or []
    if len(choices) != 1 or chunk.get("usage"):
        return "", ""
    choice = choices[0]
    delta = {name: value for name, value in (choice.get("delta") or {}).items() if value}
    texts = delta.keys() - {"role"}
    if choice.get("finish_reason") or choice.get("logprobs") or len(texts) != 1 or not texts & MERGEABLE_FIELDS:
        return "", ""
    kind = texts.pop()
    return kind, str(delta[kind])


async def _parse_events(parts: AsyncIterator[bytes], request: httpx2.Request) -> AsyncIterator[Chunk | None]:
    """The JSON of each `data:` line, None for the server's word that this was all. Lines, and the characters in them,
    may be cut anywhere between two parts."""
    rest: list[bytes] = []  # of a line that is not at its end, joined once
    async for part in parts:
        first, *lines = part.split(b"\n")
        rest.append(first)
        if lines:
            lines, rest = [b"".join(rest), *lines[:-1]], lines[-1:]
            for line in lines:
                if data := _event_data(line):
                    yield _parse_event(data, request)
        await asyncio.sleep(0)  # while data is always there nothing else would let the loop go
    if data := _event_data(b"".join(rest)):
        yield _parse_event(data, request)


def _event_data(line: bytes) -> bytes:
    return line[5:].strip() if line.startswith(b"data:") else b""


def _parse_event(data: bytes, request: httpx2.Request) -> Chunk | None:
    if data == b"[DONE]":
        return None
    try:
        chunk = _parse_json(data)
    except ValueError as error:
        raise openai.APIConnectionError(message="The stream is not JSON.", request=request) from error
    if failure := chunk.get("error"):
        message = failure.get("message") if isinstance(failure, dict) else failure
        raise openai.APIError(str(message), request=request, body=failure)
    for choice in chunk.get("choices") or ():
        if isinstance(delta := choice.get("delta"), dict):
            delta.pop("id", None)  # the id of a message must be ours: some servers use one for all
            for index, call in enumerate(delta.get("tool_calls") or ()):
                _complete_tool_call(call, index)
    return chunk  # type: ignore[no-any-return]  # orjson.loads gives Any; the server's protocol says a JSON object


def _parse_json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # half a surrogate pair, which is JSON all the same
        return json.loads(data)


def _complete_tool_call(call: Chunk, index: int) -> None:
    """Some compatible servers leave out the index or the id of a tool call; without them it would be lost."""
    call.setdefault("index", index)
    if (call.get("function") or {}).get("name") and not call.get("id"):
        call["id"] = f"call_{uuid.uuid4().hex[:24]}"
