"""Read what a message of an input says: its texts, and the files in its blocks.

The forms of blocks: LangChain's of both versions (`source_type`, `base64`), which agent-chat-ui sends; OpenAI's
(`image_url`, `input_audio`, `file`) and Anthropic's (`source`).
https://docs.langchain.com/oss/python/langchain/messages#multimodal
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.http.route import HttpProblem

_DATA = re.compile(r"data:([a-zA-Z0-9.+/-]*)(?:;[a-zA-Z0-9=.+_-]+)*;base64,(.*)", re.DOTALL)
_MIMES = {"image": "image/png", "audio": "audio/mpeg", "input_audio": "audio/mpeg", "video": "video/mp4"}
NOT_TEXT = HttpProblem(
    *(422, "bad_input", "The input has no text."), 'Send {"messages": [{"role": "user", "content": "…"}]}.'
)
NOT_BASE64 = HttpProblem(422, "bad_input", "The data of a file is not base64.", "Encode its bytes as base64.")
NO_DATA = HttpProblem(
    *(422, "bad_input", "A block of the input has neither text nor data."),
    "Send blocks of text, and files with their bytes as base64 or as a data: URL.",
)


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of a message; `name` is "" where its block has none."""

    name: str
    mime: str
    data: bytes


@dataclass(frozen=True, slots=True)
class InputContent:
    """What a message says."""

    text: str
    files: tuple[InputFile, ...] = ()


def read_content(content: Any) -> InputContent:
    """Return the text and the files of a message's content. An address elsewhere becomes text: the agent may ask for it
    by its own rules. Raises HttpProblem."""
    if isinstance(content, str):
        return InputContent(content)
    texts, files = list[str](), list[InputFile]()
    for block in content if isinstance(content, list) else []:
        if isinstance(block, str):
            texts.append(block)
            continue
        if not isinstance(block, dict):
            raise NO_DATA
        if (data := _data_of(block)) is not None:
            files.append(InputFile(_name_of(block), _mime_of(block, data[0]), _decoded(data[1])))
        elif text := next((each for each in (block.get("text"), *_addresses(block)) if isinstance(each, str)), None):
            texts.append(text)
        elif block.get("type") != "text":
            raise NO_DATA
    return InputContent("\n".join(texts), tuple(files))


def _sources(block: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield the objects of a block that may hold the data."""
    yield block
    for name in ("source", "image_url", "file", "input_audio"):
        if isinstance(found := block.get(name), dict):
            yield found


def _data_of(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the type and the base64 data of a block, None for one without."""
    for source in _sources(block):
        for name in ("base64", "data", "file_data", "url", "image_url"):
            value = source.get(name)
            if isinstance(value, str) and (found := _DATA.fullmatch(value)):
                return found[1], found[2]
            if isinstance(value, str) and name in ("base64", "data", "file_data"):
                return "", value
    return None


def _addresses(block: Mapping[str, Any]) -> Iterable[Any]:
    for source in _sources(block):
        yield from (source.get("url"), source.get("image_url"))


def _name_of(block: Mapping[str, Any]) -> str:
    places = [*_sources(block), *(block.get(name) for name in ("metadata", "extras"))]
    found = (place.get(name) for place in places if isinstance(place, dict) for name in ("filename", "name", "title"))
    return next((each for each in found if isinstance(each, str) and each), "")


def _mime_of(block: Mapping[str, Any], told: str) -> str:
    found = [told, *(source.get(name) for source in _sources(block) for name in ("mime_type", "media_type"))]
    said = next((each for each in found if isinstance(each, str) and each), "")
    audio = block.get("input_audio")
    if not said and isinstance(audio, dict) and isinstance(audio.get("format"), str):
        said = f"audio/{audio['format']}"
    return said or _MIMES.get(str(block.get("type")), "application/octet-stream")


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(re.sub(r"\s+", "", data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise NOT_BASE64 from error
