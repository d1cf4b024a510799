"""Find what a model writes for its server and not for people: calls of tools, thoughts and end tokens in the text.

A server whose parser does not know the model's dialect leaves them in the answer. Code is not touched: there they are
what the answer is about.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import orjson
from langchain_core.messages import AIMessage

MAX_THOUGHTS = 20  # of one answer
CALL_AS_TEXT = "call_as_text"  # of an answer that wrote a call as text, which was cut
_MARK = r"<[|｜][^<>\s|｜]{1,60}+[|｜]?>|<[^<>\s|｜]{1,60}+[|｜]>"  # <|im_end|>, <｜DSML｜invoke>, <tool_call|>
_DSML = r"</?[|｜][^<>\n]{1,200}+>"
_CALL_TAG = (
    r"<(?:[\w-]{1,20}:)?(?:tool_?calls?|function_?calls?|tool_code|tool_use|function|invoke)(?=[\s=>:])[^<>\n]{0,200}+>"
)
_TAG = re.compile(r"<[^<>\n]{1,60}+>")
_CALL = re.compile(
    rf"^[ \t]*(?:{_CALL_TAG}|\[TOOL_CALLS?\]|```tool_(?:code|calls?)\b)|\[TOOL_CALLS\]"
    r"|</?[|｜][^<>\n]{0,60}?(?:tool|function|invoke|python_tag|DSML)[^<>\n]{0,200}?>",
    re.MULTILINE,
)
_THOUGHT_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection)"
_OPENED = re.compile(rf"^[ \t]*<({_THOUGHT_NAMES})>", re.MULTILINE | re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_THOUGHT_NAMES})>(?![ ,.;:)])", re.IGNORECASE)
_END = re.compile(rf"(?:{_MARK}|</s>|<end_of_turn>|<eos>|<EOS>)(?=\s*(?:\Z|<[|｜]))|(?:{_MARK})(?=\n)")
_HEAD = re.compile(r"\s*(?:<\|(?:im_start|start|start_header_id)\|>)?assistant(?:<\|end_header_id\|>)?\n|\s*<s>")
_CHANNEL = re.compile(r"<\|channel\|>(\w{1,20}+)[^<]{0,200}+(?:<\|constrain\|>[^<]{0,40}+)?<\|message\|>")
_WRAPPED = re.compile(r"\s*<(answer|final|final_answer|response|output)>(.*)</\1>\s*", re.DOTALL)
_CODE = re.compile(r"^[ \t]*```(?!tool_(?:code|calls?)\b).*?(?:^[ \t]*```|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_SAID_CALL = re.compile(r"\[?([\w.-]{1,64})\(.*\)\]?", re.DOTALL)
_GATE = re.compile(
    rf"{_MARK}|{_DSML}|{_CALL_TAG}|\[TOOL_CALLS|```tool_|</?(?:{_THOUGHT_NAMES})>|</s>|<end_of_turn>", re.IGNORECASE
)
_GATE_BEGIN = re.compile(r"(?:<[^\s>]{0,60}|\[[A-Z_]{0,10}|`{1,3}[a-z_]{0,9})\Z")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The words of an answer for people, its thoughts, and whether it wrote a call as text."""

    text: str
    thoughts: str = ""
    has_call: bool = False


def clean_marks(text: str) -> Cleaned:
    """Part an answer in the words for people and the rest."""
    if not any(sign in text for sign in ("<", "[TOOL_CALL", "```tool_")):
        return Cleaned(text)
    thoughts: list[str] = []
    text = _of_channels(text, thoughts)
    text = _without_thoughts(text, thoughts)
    call = _CALL.search(masked := _mask_code(text))
    text = text[: call.start()] if call else text
    if head := _HEAD.match(masked) if masked.lstrip().startswith("<") else None:
        text, masked = text[head.end() :], masked[head.end() :]
    if end := _END.search(masked[: len(text)]):
        text = text[: end.start()]
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[2]
    return Cleaned(text.strip() if thoughts or call or wrapped else text, "\n".join(thoughts), bool(call))


def clean_answer(answer: AIMessage) -> str:
    """Leave only the words for people in an answer, in place. Returns the thoughts that stood in it."""
    if not isinstance(answer.content, str):
        return ""
    cleaned = clean_marks(answer.content)
    answer.content = cleaned.text
    if cleaned.has_call:
        answer.additional_kwargs[CALL_AS_TEXT] = True
    return cleaned.thoughts.strip()


def is_call_as_text(text: str, tools: Collection[str]) -> bool:
    """Return whether an answer is nothing but a call of one of the tools, as JSON or as in Python."""
    text = _without_frame(text.strip().removeprefix("```json").removesuffix("```").strip())
    if (said := _SAID_CALL.fullmatch(text)) and said[1].rpartition(".")[2] in tools:
        return True
    try:
        value = orjson.loads(text) if text.startswith(("{", "[")) else None
    except orjson.JSONDecodeError:
        return False
    calls = value if isinstance(value, list) else [value]
    return bool(calls) and all(
        isinstance(call, dict)
        and (call.get("name") or call.get("tool_name")) in tools
        and call.keys() & {"arguments", "parameters", "args"}
        for call in calls
    )


def _without_frame(text: str) -> str:
    """Return the text without the tags of any name at its beginning and at its end."""
    while found := _TAG.match(text):
        text = text[found.end() :].lstrip()
    while text.endswith(">") and (found := _TAG.fullmatch(text, max(0, text.rfind("<")))):
        text = text[: found.start()].rstrip()
    return text


def _mask_code(text: str) -> str:
    return _CODE.sub(lambda found: "\0" * len(found[0]), text)


def _of_channels(text: str, thoughts: list[str]) -> str:
    """Return the text of the final channel of a harmony answer; a call in the commentary stays a call."""
    if "<|channel|>" not in text:
        return text
    parts = _CHANNEL.split(text)  # what comes first, then name and content of each channel
    channels = list(zip(parts[1::2], parts[2::2], strict=True))
    final = [content for name, content in channels if name == "final"]
    thoughts += [_plain(content) for name, content in channels if name == "analysis"]
    if final:
        return _plain(final[-1])
    return f"{_plain(parts[0])}\n<tool_call>" if "to=" in text else _plain(parts[0])


def _plain(content: str) -> str:
    return content.partition("<|")[0].strip()


def _without_thoughts(text: str, thoughts: list[str]) -> str:
    for _ in range(MAX_THOUGHTS):
        masked = _mask_code(text)
        if not (opened := _OPENED.search(masked)):
            break
        end = re.compile(rf"</{re.escape(opened[1])}>").search(masked, opened.end())
        if end is None:
            break  # its end may have been lost, and the answer with it: it stays
        thoughts.append(text[opened.end() : end.start()])
        text = f"{text[: opened.start()].rstrip()}\n\n{text[end.end() :].lstrip()}".strip()
    masked = _mask_code(text)
    *_, closed = [None, *_CLOSED.finditer(masked)]
    if closed and closed[0].replace("/", "") not in masked:  # a template opens the tag in the prompt
        thoughts.append(text[: closed.start()])
        text = text[closed.end() :].lstrip()
    return text


class MarkGate:
    """Lets the text of a stream pass up to what may be a mark; the whole answer, cleaned, replaces it at the end."""

    def __init__(self) -> None:
        self._held = ""
        self._closed = False

    def take(self, text: str) -> str:
        """Return the part that can be shown now."""
        if self._closed:
            return ""
        if not self._held and not ("<" in text or "[" in text or "`" in text):
            return text
        text, self._held = self._held + text, ""
        if found := _GATE.search(text):
            self._closed = True
            return text[: found.start()]
        if begun := _GATE_BEGIN.search(text):
            self._held = text[begun.start() :]
            text = text[: begun.start()]
        return text
