"""Tell the thoughts that stand in tags before an answer from the answer itself.

Servers without a reasoning parser (llama.cpp, LM Studio, vLLM and SGLang by default, Groq's raw format) stream what the
model writes. The thoughts go back as they came: those servers' templates look for the tags in the text.
"""

from __future__ import annotations

from typing import Any

TAGS = {  # only at the very beginning of an answer, where no answer has them
    "<think>": "</think>",  # Qwen, DeepSeek, MiniMax, GLM
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # Gemini
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi
}
TAGGED_FIELD = "tagged_thoughts"  # of a delta, and of what is stored
MAX_BLANK_CHARS = 1000  # before a tag
_ORPHAN = "\n</think>\n"  # of templates that open the tag in the prompt


class ThinkTags:
    """The tagged thoughts of one stream, moved from `content` of its deltas into a field of their own."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a tag
        self._end = ""  # the tag for which the thoughts wait
        self._begun = False  # no tag can open any more
        self._strips = False  # the answer has not begun after the thoughts

    def take(self, delta: dict[str, Any]) -> None:
        """Move thoughts out of the delta, and hold back what may become a tag."""
        text = delta.get("content")
        if not isinstance(text, str) or not text:
            return
        if not self._begun:
            text = self._open(self._held + text)
        elif self._end:
            text = self._held + text
        if self._end:
            text = self._think(text, delta)
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        delta["content"] = text

    def put_back(self, delta: dict[str, Any]) -> None:
        """Put what was held back into the last delta."""
        if self._held:
            field = TAGGED_FIELD if self._end else "content"
            delta[field] = f"{delta.get(field) or ''}{self._held}"
            self._held = ""

    def _open(self, text: str) -> str:
        begin = text.lstrip()
        tag = next((tag for tag in TAGS if begin.startswith(tag)), None)
        if tag is None and len(text) < MAX_BLANK_CHARS and any(tag.startswith(begin) for tag in TAGS):
            self._held = text
            return ""
        self._begun, self._held = True, ""
        if tag is None:
            return text
        self._end = TAGS[tag]
        return begin.removeprefix(tag)

    def _think(self, text: str, delta: dict[str, Any]) -> str:
        thought, closed, answer = text.partition(self._end)
        self._held = ""
        if not closed:
            partial = range(min(len(self._end) - 1, len(thought)), 0, -1)
            size = next((size for size in partial if self._end.startswith(thought[-size:])), 0)
            thought, self._held = thought[: len(thought) - size], thought[len(thought) - size :]
        else:
            self._end, self._strips = "", True
        if thought:
            delta[TAGGED_FIELD] = thought
        return answer


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the tagged thoughts at the beginning of a whole answer, and the answer."""
    begin = text.lstrip()
    for tag, end in TAGS.items():
        if begin.startswith(tag):
            thought, _closed, answer = begin.removeprefix(tag).partition(end)
            return thought, answer.lstrip()
    thought, closed, answer = f"{text}\n".partition(_ORPHAN)
    if closed and thought.count("```") % 2 == 0:
        return thought, answer.strip()
    return "", text


def with_tags(thoughts: str, text: object) -> str:
    """Return thoughts and answer as the server had sent them."""
    return f"<think>{thoughts}</think>\n\n{text or ''}"
