"""Parse the arguments of tool calls strictly and in linear time, whichever model class reads them.

langchain completes arguments that were cut off, by guessing, in quadratic time
(docs/decisions/0063-whole-calls-only.md).
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from langchain_core.messages import AIMessageChunk, ai
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk

MAX_LEVELS = 50  # what tools, checkpoints and servers read recursively
MAX_CHARS = 4_000_000  # of all arguments of one answer
MAX_CALLS = 64  # of one answer
MAX_QUOTE_CHARS = 40
CHUNKS_PER_STEP = 50
BAD_MARK = "\N{REPLACEMENT CHARACTER} "  # begins the reason that stands in place of arguments
TOO_LONG = f"{BAD_MARK}The arguments of one answer may have {MAX_CHARS:,} characters together; this call exceeds that."
TEXT_FIELDS = ("partial_json", "arguments")  # of a content block: Anthropic, Responses


class BadArguments(ValueError):
    """The arguments of a call cannot be used. The text tells the model why."""


def _refuse_constant(name: str) -> Any:
    raise BadArguments(f"{name} is not valid JSON.")


# Models often write line breaks into strings as they are: this is unambiguous, and therefore accepted.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)

MAX_REPAIRED_CHARS = 100_000
_FENCED = re.compile(r"```\w{0,10}\s(.*)```", re.DOTALL)
_TAIL = re.compile(r"(?:\s|```|[;,`]|</?[\w:=-]{1,40}>|</?[|｜][^<>\s]{1,60}>)*+")  # what servers cut off badly
_SIGNS = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*+(?:"|\Z))|(?P<comma>,)(?=\s*+[}\]])|(?P<break>\\[nrt])'
    r"|(?<![\w.])(?P<name>[A-Za-z_]\w{0,60}+)(?=\s*+:)",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the whole arguments of a call, in linear time. Raises BadArguments."""
    if len(text) > MAX_CHARS:
        raise BadArguments(TOO_LONG.removeprefix(BAD_MARK))
    try:
        value = _read(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - MAX_QUOTE_CHARS // 2) : error.pos + MAX_QUOTE_CHARS // 2]
        raise BadArguments(
            f"The arguments are not valid JSON: {error.msg} at character {error.pos}, near {near!r}."
        ) from None
    except RecursionError:
        raise BadArguments(f"The arguments are nested too deeply; {MAX_LEVELS} levels are allowed.") from None
    except BadArguments:
        raise
    except (ValueError, TypeError):  # a number of thousands of digits; no text
        raise BadArguments("The arguments are not valid JSON.") from None
    check_arguments(value)
    return cast(dict[str, Any], value)


def _read(text: str) -> Any:
    """Return the value of a text that is JSON, or that can be read in one way only. Raises json.JSONDecodeError."""
    if text.strip() in ("", "null", "None"):
        return {}  # a tool without arguments
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError:
        if (value := _repair(text)) is None:
            raise
    if isinstance(value, str):  # JSON within JSON
        inner = _DECODER.decode(value)
        return inner if isinstance(inner, dict) else value
    return value


def _repair(text: str) -> Any:
    """Return the value of a text that is JSON but for a few signs that can mean one thing only, else None."""
    if len(text) > MAX_REPAIRED_CHARS:
        return None
    bare = text.strip().removeprefix("\ufeff").strip()
    if fenced := _FENCED.fullmatch(bare):
        bare = fenced[1].strip()
    for tried in dict.fromkeys((bare, _plain_json(bare))):
        try:
            value, end = _DECODER.raw_decode(tried)
            if value == {} and tried[end:].lstrip().startswith("{"):  # servers begin with an empty object
                tried = tried[end:].lstrip()  # the object that counts
                value, end = _DECODER.raw_decode(tried)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict | str) and _TAIL.fullmatch(tried, end):
            return value
    return _python_value(bare)


def _plain_json(text: str) -> str:
    """Return the text without commas before an end and escaped single quotes, with quoted names."""
    return _SIGNS.sub(_mend_sign, text)


def _mend_sign(found: re.Match[str]) -> str:
    if found["text"] is not None:
        return _ESCAPE.sub(lambda each: each[0].removeprefix("\\") if each[1] == "'" else each[0], found["text"])
    if found["name"] is not None:
        return f'"{found["name"]}"'
    return " " if found["break"] is not None else ""


def _python_value(text: str) -> Any:
    """Return the value of a Python dict without escapes, else None."""
    if "\\" in text or not text.startswith("{"):
        return None
    try:
        return json.loads(json.dumps(ast.literal_eval(text), allow_nan=False))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def check_arguments(value: object) -> None:
    """Raise BadArguments unless the value is an object that all readers can read."""
    if not isinstance(value, dict):
        raise BadArguments("The arguments must be a JSON object.")
    level: list[object] = [value]
    for _ in range(MAX_LEVELS):
        if any(isinstance(item, float) and item - item != 0 for item in level):
            raise BadArguments("The arguments contain a number that is too large.")
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise BadArguments(f"The arguments are nested too deeply; {MAX_LEVELS} levels are allowed.")


def _children(item: object) -> Iterator[object]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def use_strict_parser() -> None:
    """Let every message of langchain parse arguments with `parse_arguments`."""
    vars(ai)["parse_partial_json"] = parse_arguments  # the name by which `init_tool_calls` calls it


def mark_arguments(text: object) -> str:
    """Return the arguments, or the reason why they cannot be used, behind a mark: langchain cannot parse that."""
    if not text:
        return "{}"
    given = text if isinstance(text, str) else json.dumps(text)  # some servers send an object
    try:
        return json.dumps(parse_arguments(given), ensure_ascii=False)
    except BadArguments as error:
        return f"{BAD_MARK}{error}"


async def join_arguments(chunks: AsyncIterator[ChatGenerationChunk]) -> AsyncIterator[ChatGenerationChunk]:
    """Yield the chunks, with each run of pieces of one call's arguments as one chunk.

    langchain would copy what it has so far for each piece. What exceeds the bounds of an answer is not collected.
    """
    bounds = AnswerBounds()
    held: ChatGenerationChunk | None = None
    index: object = None
    texts: list[str] = []
    number = 0
    async for chunk in chunks:
        number += 1
        if number % CHUNKS_PER_STEP == 0:
            await asyncio.sleep(0)  # lets other tasks run while data is always available
        if not bounds.admits(chunk):
            continue
        piece = _argument_piece(chunk)
        if held and (piece is None or piece["index"] != index):
            yield _with_arguments(held, "".join(texts))
            held = None
        if piece is None:
            yield chunk
            continue
        if held is None:
            held, index, texts = chunk, piece["index"], []
        texts.append(bounds.cut(piece["index"], piece["args"] or ""))
    if held:
        yield _with_arguments(held, "".join(texts))


class AnswerBounds:
    """How much of the calls of one answer is collected while it streams: one call too many, so that it is refused."""

    def __init__(self) -> None:
        self._chars = 0
        self._calls = 0
        self._left_out: set[object] = set()
        self._too_long: set[object] = set()

    def cut(self, call: object, arguments: str) -> str:
        """Return these arguments of a call; the first that are too many become the reason, and the others nothing."""
        self._chars += len(arguments)
        if self._chars <= MAX_CHARS or not arguments:
            return arguments
        if call in self._too_long:
            return ""
        self._too_long.add(call)
        return TOO_LONG

    def admits_call(self) -> bool:
        """Count a call that begins."""
        self._calls += 1
        return self._calls <= MAX_CALLS + 1

    def admits(self, chunk: ChatGenerationChunk) -> bool:
        """Return whether the chunk belongs to a call that is collected, or to none."""
        message = chunk.message
        if not isinstance(message, AIMessageChunk) or len(message.tool_call_chunks) != 1:
            return True
        [piece] = message.tool_call_chunks
        if piece["name"] and not self.admits_call():
            self._left_out.add(piece["index"])
        return piece["index"] not in self._left_out


def _argument_piece(chunk: ChatGenerationChunk) -> ToolCallChunk | None:
    """Return the piece of arguments that the chunk consists of, None if there is anything else in it."""
    message = chunk.message
    if not isinstance(message, AIMessageChunk) or len(message.tool_call_chunks) != 1:
        return None
    [piece] = message.tool_call_chunks
    blocks = message.content or []
    bare = isinstance(blocks, list) and all(isinstance(b, dict) and _text_field(b) for b in blocks) and len(blocks) < 2
    more = message.usage_metadata or message.response_metadata.keys() - {"model_provider"}
    if piece["name"] or piece["id"] or not bare or more:
        return None
    return piece


def _text_field(block: Any) -> str:
    return next((field for field in TEXT_FIELDS if field in block and "name" not in block), "")


def _with_arguments(chunk: ChatGenerationChunk, text: str) -> ChatGenerationChunk:
    message = cast(AIMessageChunk, chunk.message)
    message.tool_call_chunks[0]["args"] = text
    message.tool_calls, message.invalid_tool_calls = [], []
    for block in message.content:
        if isinstance(block, dict):
            block[_text_field(block)] = text
    return chunk
