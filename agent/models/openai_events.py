"""Read the events of a Chat Completions stream: each is checked once, and the arguments of a call are joined once."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import openai
import orjson

from agent.models.arguments import AnswerBounds

Chunk = dict[str, Any]


MAX_BODY_BYTES = 16_000_000  # of an answer that is no stream
FLAT_FIELDS = ("message", "msg", "detail", "errors")  # of an error: its words
COUNT_DIGITS = 15  # of what a usage counts
STREAM_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")  # what begins a line of a stream


class BrokenStream(openai.APIConnectionError):
    """The server had begun to answer."""


class ErrorBody(openai.APIError):
    """The server has sent an error with the status of an answer, before any of it."""


class StrangeBody(openai.APIError):
    """The server has sent something that is neither an answer nor an error, such as a page to log in."""


async def parse_events(parts: AsyncIterator[bytes], request: httpx2.Request) -> AsyncIterator[Chunk | None]:
    """Yield the JSON of each `data:` line, and None for `[DONE]`. A part may end anywhere, even within a character.

    Raises openai.APIError; an event that cannot be read breaks the stream, as a lost connection does.
    """
    body = OtherBody()
    async for line in _lines(parts):
        if data := _event_data(line):
            body.lines = None
            yield _parse_event(data, request)
        else:
            body.take(line)
    if body.lines:
        for chunk in _parse_body(b"\n".join(body.lines), request):
            yield chunk


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest: list[bytes] = []  # parts of an incomplete line, joined once
    async for part in parts:
        first, *lines = part.split(b"\n")
        rest.append(first)
        if lines:
            lines, rest = [b"".join(rest), *lines[:-1]], lines[-1:]
            for line in lines:
                yield line
        await asyncio.sleep(0)  # lets other tasks run while data is always available
    yield b"".join(rest)


class OtherBody:
    """The lines of an answer that is no stream of events, as far as it may be long; None once an event has come."""

    def __init__(self) -> None:
        self.lines: list[bytes] | None = []
        self._room = MAX_BODY_BYTES

    def take(self, line: bytes) -> None:
        """Keep a line that belongs to no event."""
        if self.lines is not None and line.strip() and not line.startswith(STREAM_FIELDS):
            self._room -= len(line)
            if self._room > 0:
                self.lines.append(line)


def _event_data(line: bytes) -> bytes:
    data = b""
    while line.startswith(b"data:"):  # some proxies repeat it
        data = line = line[5:].strip()
    return data


def _parse_event(data: bytes, request: httpx2.Request) -> Chunk | None:
    if data == b"[DONE]":
        return None
    try:
        chunk = _parse_json(data)
        failure = failure_of(chunk)
        if failure is None:
            return _checked(chunk)
    except (ValueError, RecursionError) as error:
        raise BrokenStream(message="The stream cannot be read.", request=request) from error
    raise openai.APIError(words_of(failure), request=request, body=failure)


def failure_of(given: Any) -> Any:
    """Return the error in an event or body, None without one."""
    if not isinstance(given, dict):
        return None
    status = given.get("base_resp")
    if isinstance(status, dict) and status.get("status_code"):
        return {"code": status["status_code"], "message": status.get("status_msg")}
    if given.get("error"):
        return given["error"]
    # vLLM's flat form, FastAPI's `detail`, and others: an event without choices whose words are no part of an answer
    is_flat = not given.get("choices") and any(given.get(name) for name in FLAT_FIELDS)
    return given if is_flat else None


def words_of(failure: Any) -> str:
    """Return what an error says."""
    names = FLAT_FIELDS if isinstance(failure, dict) else ()
    return str(next((failure[name] for name in names if failure.get(name)), failure))


def _parse_body(data: bytes, request: httpx2.Request) -> list[Chunk | None]:
    """Return a whole answer as one chunk: some servers ignore `stream`. Raises openai.APIError for another body."""
    try:
        given = _parse_json(data)
        given = given[0] if isinstance(given, list) and given else given  # Gemini's errors
        if not isinstance(given, dict):
            raise ValueError("not an object")  # noqa: TRY004  # JSON in a wrong shape
        failure = failure_of(given)
        if failure is None and given.get("choices"):
            for choice in _list(given["choices"]):
                choice["delta"] = _object(choice).pop("message", None)
            return [_checked(given), None]
    except (ValueError, RecursionError) as error:
        raise StrangeBody("The body is no answer.", request=request, body=None) from error
    failure = failure or given  # an object without choices
    raise ErrorBody(words_of(failure), request=request, body=failure)


def _parse_json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # a lone surrogate, which is valid JSON
        return json.loads(data)


def _checked(given: Any) -> Chunk:
    """Return the chunk in the shape that its readers expect, without what means nothing. Raises ValueError."""
    chunk: Chunk = _object(given)
    if _is_only_text(chunk):
        return chunk
    chunk["usage"] = _numbers(chunk.get("usage")) or None
    chunk["choices"] = [_object(choice) for choice in _list(chunk.get("choices")) if choice is not None]
    for choice in chunk["choices"]:
        if "delta" not in choice:  # some servers send another form of answer as the only event
            choice["delta"] = choice.get("message") or {"content": choice.get("text")}
        choice["delta"] = delta = _object(choice["delta"] or {})
        choice["usage"] = _numbers(choice.get("usage")) or None
        delta.pop("id", None)  # some servers use one id for all messages; langchain then makes a unique one
        delta.pop("function_call", None)  # the form of 2023, which nobody answers
        if not isinstance(delta.get("content") or "", str | list):
            raise ValueError("content is no text")  # noqa: TRY004  # JSON in a wrong shape
        if isinstance(refusal := delta.pop("refusal", None), str) and not delta.get("content"):
            delta["content"] = refusal  # in place of the answer
        for name in ("reasoning_content", "reasoning"):
            if not isinstance(delta.get(name) or "", str):
                del delta[name]
        if not isinstance(delta.get("reasoning_details") or [], list):
            del delta["reasoning_details"]
        calls = [_object(call) for call in _list(delta.pop("tool_calls", None)) if call is not None]
        if calls:
            delta["tool_calls"] = [_checked_call(call, index) for index, call in enumerate(calls)]
    return chunk


def _is_only_text(chunk: Chunk) -> bool:
    """Return whether an event is a piece of text and nothing else, as most are: then nothing has to be put right."""
    choices = chunk.get("choices")
    if type(choices) is not list or len(choices) != 1 or chunk.get("usage") is not None:
        return False
    choice = choices[0]
    if type(choice) is not dict or choice.get("usage") or type(delta := choice.get("delta")) is not dict:
        return False
    return len(delta) == 1 and type(delta.get("content")) is str


def _checked_call(call: Chunk, index: int) -> Chunk:
    """Return a call with its index, id, name and arguments, some of which servers omit or send in another form."""
    function = call["function"] = _object(call.get("function") or {})
    name, arguments = function.get("name") or "", function.get("arguments")
    if not isinstance(name, str):
        raise ValueError("the name of a call is no text")  # noqa: TRY004  # JSON in a wrong shape
    if not isinstance(arguments, str):  # an object, in one piece
        arguments = "" if arguments is None else json.dumps(arguments)
    function |= {"name": name, "arguments": arguments}
    if not isinstance(call.get("index"), int):  # then each name begins a call
        call["index"], call["guessed"] = index, True
    if not isinstance(call.get("id") or "", str):
        call["id"] = str(call["id"])
    return call


def _object(value: Any) -> Chunk:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004  # JSON in a wrong shape
    return value


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("not a list")  # noqa: TRY004  # JSON in a wrong shape
    return value


def _numbers(value: Any) -> Chunk:
    """Return what counts something in a usage."""
    items: Mapping[str, Any] = value if isinstance(value, dict) else {}
    details = {name: _counts(each) for name, each in items.items() if name.endswith("_details")}
    return _counts(items) | details


def _counts(value: Any) -> Chunk:
    """Return the whole numbers in an object, also those that a server writes as a text or with a point."""
    items: Mapping[str, Any] = value if isinstance(value, dict) else {}
    return {name: count for name, each in items.items() if (count := _count(each)) is not None}


def _count(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) <= COUNT_DIGITS else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and abs(value) < 10**COUNT_DIGITS else None


class CallPieces:
    """The tool calls of one stream: what begins a call is passed on at once, its arguments come joined at the end."""

    def __init__(self) -> None:
        self._open: dict[int, Chunk] = {}  # the latest call at each index of the server
        self._calls: list[Chunk] = []
        self._bounds = AnswerBounds()

    def take(self, delta: Chunk) -> None:
        """Leave only the beginnings of calls in the delta."""
        begun = [each for call in delta.pop("tool_calls", ()) if (each := self._take(call))]
        if begun:
            delta["tool_calls"] = begun

    def put_back(self, delta: Chunk) -> None:
        """Put the arguments of all calls into the delta."""
        begun = {call["index"]: call for call in delta.get("tool_calls", ())}  # langchain joins none within a delta
        for number, call in enumerate(self._calls):
            if call["pieces"]:
                end = begun.setdefault(number, {"index": number, "function": {}})
                end["function"]["arguments"] = "".join(call["pieces"])
                call["pieces"] = []
        if begun:
            delta["tool_calls"] = list(begun.values())

    def _take(self, call: Chunk) -> Chunk | None:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        guessed = call.pop("guessed", False)
        known = self._open.get(call["index"])
        if known is None or (name and not _continues(call, known, guessed)):
            if name and not self._bounds.admits_call():
                self._open[call["index"]] = {"number": -1, "id": call.get("id"), "name": name, "pieces": []}
                return None
            known = {"number": len(self._calls), "id": call.get("id"), "name": name, "pieces": []}
            self._open[call["index"]] = known
            self._calls.append(known)
            if name and not known["id"]:
                known["id"] = f"call_{uuid.uuid4().hex[:24]}"
            begun = {**call, "index": known["number"], "id": known["id"], "function": {"name": name, "arguments": ""}}
        elif known["number"] < 0:  # it is left out
            return None
        else:
            begun = {key: each for key, each in call.items() if key not in ("index", "id", "type", "function")}
            if begun:
                begun |= {"index": known["number"], "id": known["id"], "function": {"arguments": ""}}
        if arguments:
            known["pieces"].append(self._bounds.cut(known["number"], arguments))
        return begun or None


def _continues(call: Chunk, known: Chunk, guessed: bool) -> bool:
    """Return whether a delta with a name belongs to the known call: some servers repeat the name in each delta."""
    if call.get("id"):
        return bool(call["id"] == known["id"])
    return bool(call["function"]["name"] == known["name"] and not guessed)
