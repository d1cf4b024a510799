"""ChatOpenAI with a fast stream: events are parsed with orjson, and deltas are merged.

The SDK builds a pydantic object per token, which takes three to five times the CPU and can starve the event loop for
seconds. langchain-openai still makes the payload, authenticates and maps errors; only the stream is read here, plugged
in through the public field `async_client` (its `_astream` accepts plain dicts). The first delta is passed on at once;
later ones are merged over `MERGE_WINDOW_SECONDS` and flushed by a timer, so that none waits for the next bytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

import aiohttp
import httpx2
import openai
import orjson
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.utils.utils import LC_ID_PREFIX
from langchain_openai import ChatOpenAI

from agent.models.errors import words_for_operator
from agent.models.http_transport import READ_PACE, ReadPace, open_http_client
from agent.models.openai_events import BrokenStream, CallPieces, Chunk, parse_events
from agent.models.reasoning import REASONING_FIELDS, ReasoningDetails, ThinkingOpenAI, ThinkTags
from agent.models.responses import MarkedResponses, StatelessResponses
from agent.models.streamed_answer import count_delta, has_listeners
from agent.models.wire import Repair, Repairs
from agent.settings.models import ModelSettings

log = logging.getLogger(__name__)

MERGE_WINDOW_SECONDS: ContextVar[float] = ContextVar("window", default=0.2)
"""Seconds for which a new stream collects text deltas before it passes them on. The turn sets it."""

OPENAI_URL = "https://api.openai.com/v1"
OWN_HEADERS = (b"content-length", b"transfer-encoding")  # of each request

MERGEABLE_FIELDS = frozenset({"content", *REASONING_FIELDS})


def make_chat_openai(settings: ModelSettings, options: Mapping[str, Any]) -> ChatOpenAI:
    """Make a ChatOpenAI with the fast stream, which neither retries nor reads the environment.

    A missing URL means OpenAI's API, a missing key a server without authentication.
    """
    base_url = settings.base_url or OPENAI_URL
    given: dict[str, Any] = {
        "model": settings.model or settings.name,
        "base_url": base_url,
        "api_key": settings.api_key.reveal() if settings.api_key else "none",
        "use_responses_api": False,
        "stream_usage": True,  # off by default with a custom base_url, and then no tokens are counted
        "stream_chunk_timeout": None,  # DeltaStream has its own timeout, without a task per chunk
        **options,
        "max_retries": 0,
        "http_async_client": open_http_client(settings),
        "http_socket_options": (),  # of a client that nothing uses: with them, it warns that it ignores the proxy
    }
    if given["use_responses_api"]:
        stateless = StatelessResponses(**given)
        stateless.root_async_client = MarkedResponses(stateless.root_async_client)
        return stateless
    model = DirectOpenAI(**given)
    http: httpx2.AsyncClient = given["http_async_client"]
    model.async_client = StreamingCompletions(model.root_async_client, http, settings.read_seconds)
    return model


class DirectOpenAI(ThinkingOpenAI):
    """The model without the callbacks of each stream, where nobody listens to them."""

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, *, stop: Any = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        """Do what the inherited method does for a conversation of plain texts."""
        messages = self._convert_input(input).to_messages()
        if has_listeners(config) or self._needs_more(messages, kwargs):
            async for said in super().astream(input, config, stop=stop, **kwargs):
                yield said
            return
        id_ = f"{LC_ID_PREFIX}-{uuid.uuid4()}"
        last: AIMessageChunk | None = None
        async for chunk in self._astream(messages, stop=stop, **kwargs):
            last = cast(AIMessageChunk, chunk.message)
            count_delta(last)
            last.id = last.id or id_
            last.response_metadata = {**(chunk.generation_info or {}), **last.response_metadata}
            yield last
        if last is None:
            raise ValueError("the stream had no data")
        if not last.chunk_position:
            yield AIMessageChunk(content="", chunk_position="last", id=id_)

    def _needs_more(self, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> bool:
        """Return whether an option or a message needs further steps."""
        return bool(
            self.callbacks
            or self.rate_limiter
            or self.output_version
            or not self._should_stream(async_api=True, **{**kwargs, "stream": True})
            or not all(isinstance(message.content, str) for message in messages)
        )


class StreamingCompletions:
    """The SDK's completions resource, except that a streamed `create` returns a `DeltaStream`.

    The SDK takes half a millisecond to build a request; each one after the first repeats its address, headers and
    timeouts.
    """

    def __init__(self, client: openai.AsyncOpenAI, http: httpx2.AsyncClient, silence_seconds: float) -> None:
        self._client = client
        self._http = http  # that of the SDK's client
        self._silence_seconds = silence_seconds
        self._first: httpx2.Request | None = None
        self._repairs = Repairs()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client.chat.completions, name)

    async def create(self, **payload: Any) -> Any:
        """Do what the SDK's `create` does, without its slow transformation of the whole conversation."""
        if not payload.get("stream"):
            return await self._client.chat.completions.create(**payload)
        extra = {"headers": "extra_headers", "params": "extra_query", "extra_json": "extra_body", "timeout": "timeout"}
        options = {option: payload.pop(name) for option, name in extra.items() if payload.get(name) is not None}
        body = {**payload, **options.pop("extra_json", {})}
        READ_PACE.set(pace := ReadPace())
        response = await self._post_repaired(body, options)
        return DeltaStream(response, MERGE_WINDOW_SECONDS.get(), self._silence_seconds, pace)

    async def _post_repaired(self, body: dict[str, Any], options: dict[str, Any]) -> httpx2.Response:
        """Post the body; where the server says what it refuses, once more without, and remember what helped."""
        body, tried = self._repairs.prepare(body), list[Repair]()
        while True:
            try:
                response = await self._post(body, options)
            except openai.APIStatusError as error:
                repair = self._repairs.find(error, body, tried)
                if repair is None:
                    raise
                log.warning("model.request_repaired change=%s error=%s", repair, words_for_operator(error))
                tried.append(repair)
                body = repair.apply(body)
            else:
                self._repairs.known += tried
                return response

    async def _post(self, body: dict[str, Any], options: dict[str, Any]) -> httpx2.Response:
        content = _dump_body(body)
        if self._first is None or options:
            stream = await self._client.post(
                "/chat/completions",
                cast_to=object,
                content=content,
                options=cast(Any, options),  # the SDK's TypedDict is not public
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            if not options:
                self._first = stream.response.request
            return stream.response
        first = self._first
        headers = [(name, value) for name, value in first.headers.raw if name.lower() not in OWN_HEADERS]
        request = httpx2.Request("POST", first.url, headers=headers, content=content, extensions=first.extensions)
        response = await self._http.send(request, stream=True)
        if not response.is_success:
            await response.aread()
            raise self._client._make_status_error_from_response(response)  # noqa: SLF001  what its own requests raise
        return response


class DeltaStream:
    """One streamed answer: an async context manager and iterator of merged chunk dicts.

    Raises openai.APIError, or TimeoutError. Leaving the context closes the connection at once.
    """

    def __init__(
        self, response: httpx2.Response, window_seconds: float, silence_seconds: float, pace: ReadPace
    ) -> None:
        self._response = response
        self._request = response.request
        self._window_seconds = window_seconds
        self._silence_seconds = silence_seconds
        self._pace = pace
        self._ready: deque[Chunk] = deque()
        self._tags = ThinkTags()
        self._details = ReasoningDetails()
        self._calls = CallPieces()
        self._held_chunk: Chunk | None = None
        self._held_field = ""  # the text field of the held chunk
        self._last_flush = 0.0  # loop time
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
                self._reader.exception()  # retrieved, because the iterator may not have raised it
        finally:
            await self._response.aclose()

    def __aiter__(self) -> DeltaStream:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            if self._reader.done():
                self._flush_merged()
                if self._ready:
                    break
                try:
                    self._reader.result()
                except TimeoutError:
                    raise
                except (aiohttp.ClientError, OSError) as error:
                    raise BrokenStream(message="The connection broke.", request=self._request) from error
                raise StopAsyncIteration
            self._wake.clear()
            try:
                async with asyncio.timeout(self._silence_seconds):  # keep-alive comments do not count as data
                    await self._wake.wait()
            except TimeoutError as error:
                raise openai.APITimeoutError(request=self._request) from error
        return self._ready.popleft()

    async def _read_events(self) -> None:
        finished = has_content = False
        usage: Chunk | None = None  # the latest: some servers send the usage so far with every chunk
        async for chunk in parse_events(self._response.aiter_bytes(), self._request):
            if chunk is None:
                finished = finished or has_content  # some servers omit the finish reason
                continue
            passes = not chunk["choices"]
            for choice in chunk["choices"][:1]:  # one is asked for
                delta = choice["delta"]
                has_content = has_content or bool(delta.get("content") or delta.get("tool_calls"))
                passes = "tool_calls" not in delta
                self._tags.take(delta)
                self._details.take(delta)
                self._calls.take(delta)
                if finished:
                    choice["finish_reason"] = None  # repeated, and langchain would join both
                if choice.get("finish_reason"):
                    self._tags.put_back(delta)
                    self._details.put_back(delta)
                    self._calls.put_back(delta)
                finished = finished or bool(choice.get("finish_reason"))
                passes = passes or "tool_calls" in delta or bool(delta.get("content"))
                usage = _counted(choice.pop("usage", None)) or usage  # Kimi's
            usage = _counted(chunk.pop("usage", None)) or usage
            if passes:
                self._merge_chunk(chunk)
            else:
                self._wake.set()  # arguments of a call, which are data
        self._end_stream(usage)
        if not finished:
            raise BrokenStream(message="The stream ended in the middle.", request=self._request)

    def _end_stream(self, usage: Chunk | None) -> None:
        """Pass on what was held back, and the usage."""
        rest: Chunk = {}
        self._tags.put_back(rest)
        self._calls.put_back(rest)
        if rest:
            self._merge_chunk({"choices": [{"index": 0, "delta": rest}]})
        if usage:
            _complete_usage(usage)
            self._merge_chunk({"choices": [], "usage": usage})

    def _merge_chunk(self, chunk: Chunk) -> None:
        field, text = _plain_text(chunk)
        if field != self._held_field:  # another field, a tool call, the end or usage comes after the held text
            self._flush_merged()
            self._held_field = field
        if not text:
            self._ready.append(chunk)
            self._wake.set()
            return
        if self._held_chunk is None:
            self._held_chunk = chunk
        else:
            self._held_chunk["choices"][0]["delta"][field] += text
        loop = asyncio.get_running_loop()
        if self._pace.seconds:  # reads are a window apart already: flush everything that one read returned
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
            self._pace.seconds = self._window_seconds  # after the first text, one read per window is enough
            self._last_flush = asyncio.get_running_loop().time()
            self._wake.set()


def _dump_body(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # a lone surrogate in a tool argument, which json escapes
        return json.dumps(body).encode()


def _plain_text(chunk: Chunk) -> tuple[str, str]:
    """Return field and text of a chunk that contains only one text, else two "". Only such chunks may be merged."""
    choices: list[Chunk] = chunk.get("choices") or []
    if len(choices) != 1 or chunk.get("usage"):
        return "", ""
    choice = choices[0]
    delta = {name: value for name, value in (choice.get("delta") or {}).items() if value}
    texts = delta.keys() - {"role"}
    if choice.get("finish_reason") or choice.get("logprobs") or len(texts) != 1 or not texts & MERGEABLE_FIELDS:
        return "", ""
    field = texts.pop()
    return field, str(delta[field])


def _counted(usage: Chunk | None) -> Chunk | None:
    """Return a usage that counts something."""
    return usage if usage and (usage.get("prompt_tokens") or usage.get("completion_tokens")) else None


def _complete_usage(usage: Chunk) -> None:
    """Put the number of cached tokens where OpenAI has it: Kimi and DeepSeek have fields of their own."""
    details = usage["prompt_tokens_details"] = usage.get("prompt_tokens_details") or {}
    if cached := usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"):
        details.setdefault("cached_tokens", cached)
