"""Group messages into templates: variable parts become marks, similar messages become one. Linear in the messages.

Each message is compared only with the templates of its level, length and first word, at most MAX_PEERS of them.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass

from log_entries import Entry

MAX_WORDS = 40
MAX_PEERS = 40
MAX_TEMPLATES = 5000  # and one of each level for all others
MAX_KNOWN = 100_000
SIMILAR = 0.6
ANY = "<*>"
REST = "(other messages)"
MARKS = [
    (re.compile(r'"[^"]{0,400}"|(?<![A-Za-z])\'[^\']{0,400}\'(?![A-Za-z])'), "<str>"),
    (re.compile(r"\b[a-z][a-z+]{1,9}://[^\s\"'<>]+"), "<url>"),
    (re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?\b"), "<ip>"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}"), "<mail>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[a-f]{0,63}\d)(?=\d{0,63}[a-f])[0-9a-f]{8,64}\b"), "<hex>"),
    (re.compile(r"(?<!\w)[-+]?\d[\d.,:-]*(?:(?:ns|us|µs|ms|s|m|h|B|kB|KB|MB|GB|%)\b)?"), "<n>"),
]
STATUS = re.compile(r"HTTP (\d{3}) (\S+) (.*)")


@dataclass
class Template:
    """Messages of one form. `times` are those that had one; `example` is the first line, as file:line."""

    words: list[str]
    level: str
    example: str
    text: str
    count: int = 0
    exception: str = ""
    frame: str = ""

    @property
    def name(self) -> str:
        return " ".join(self.words) or "(empty)"


def mask(message: str) -> list[str]:
    """Return the words of a message with marks for what varies."""
    if found := STATUS.fullmatch(message):
        path = "/".join("<n>" if any(map(str.isdigit, part)) else part for part in found[3].split("/"))
        return ["HTTP", found[1], found[2], path]
    for pattern, sign in MARKS:
        message = pattern.sub(sign, message)
    words = message.split()
    return words[:MAX_WORDS] + (["…"] if len(words) > MAX_WORDS else [])


class Grouping:
    """The templates so far; for each entry its time and its template, in the order of reading."""

    def __init__(self) -> None:
        self.templates: list[Template] = []
        self.at = array("d")  # NaN without a time
        self.which = array("l")
        self._known: dict[tuple[str, ...], int] = {}
        self._peers: dict[tuple[str, ...], list[int]] = {}

    def add(self, entry: Entry) -> None:
        words = mask(entry.message.strip() or entry.exception)
        if entry.exception and entry.exception not in entry.message:
            words = [*words, f"[{entry.exception}]"]
        level = entry.level or "none"
        key = (level, entry.exception, *words)
        number = self._known.get(key, -1)
        if number < 0:
            number = self._find(level, words, entry)
            if len(self._known) < MAX_KNOWN:
                self._known[key] = number
        self.templates[number].count += 1
        self.at.append(float("nan") if entry.at is None else entry.at)
        self.which.append(number)

    def _find(self, level: str, words: list[str], entry: Entry) -> int:
        """Return the template that fits, made more general if needed, or a new one."""
        first = words[0] if words and "<" not in words[0] else ""
        peers = self._peers.setdefault((level, entry.exception, str(len(words)), first), [])
        for number in peers:
            template = self.templates[number]
            same = sum(a == b for a, b in zip(template.words, words))
            fixed = sum(a == b and "<" not in a for a, b in zip(template.words, words))
            if same >= SIMILAR * len(words) and fixed:
                template.words = [a if a == b else ANY for a, b in zip(template.words, words)]
                return number
        if len(peers) >= MAX_PEERS or len(self.templates) >= MAX_TEMPLATES:
            return self._rest(level, entry)
        peers.append(len(self.templates))
        self.templates.append(self._new(words, level, entry))
        return peers[-1]

    def _rest(self, level: str, entry: Entry) -> int:
        """Return the template of what is too varied."""
        key = ("rest", level)
        if key not in self._known:
            self._known[key] = len(self.templates)
            self.templates.append(self._new([REST], level, entry))
        return self._known[key]

    def _new(self, words: list[str], level: str, entry: Entry) -> Template:
        text = entry.line.text if entry.message else f"{entry.line.text} … {entry.exception}"
        place = f"{entry.line.file}:{entry.line.number}"
        return Template(words, level, place, text[:300], exception=entry.exception, frame=entry.frame)
