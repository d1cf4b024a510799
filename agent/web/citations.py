"""Compare the sentences of a report with the pages they cite: by their numbers and their words, without a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

MIN_SHARE = 0.5  # of a sentence's words that its page has to contain
MIN_WORDS = 3  # a shorter sentence is a label of its source: it belongs to the sentence before it
STEM_CHARS = 5  # so that "measured" and "measures" count as one word

_LINK = re.compile(
    r"\[([^\[\]\n]*+)\]\((https?://[^\s)\[]++)\)|<(https?://[^\s<>]++)>|(https?://[^\s<>()\[\]]++)|\[\^?(\w++)\](?!:)"
)
_DEFINITION = re.compile(r"^ {0,3}\[\^?(\w++)\]:?\s++[^\n]*?(https?://[^\s<>)]+)[^\n]*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+#|>]|\d+\.)\s)")
_NUMBER = re.compile(r"\d+(?:[.,'’\u202f ]\d+)*")
_WORD = re.compile(r"[^\W\d_]{4,}")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True, slots=True)
class Citation:
    """A sentence, without its links, and the URL it cites."""

    claim: str
    url: str


def find_citations(report: str) -> Iterator[Citation]:
    """Yield every link with its sentence. `[1]` refers to a line `[1]: URL` or `[1] Title URL`."""
    urls = {match[1]: match[2].rstrip(".,;") for match in _DEFINITION.finditer(report)}
    before = ""
    for sentence in _SENTENCE_END.split(_DEFINITION.sub("", report)):
        links = list(_LINK.finditer(sentence))
        plain = " ".join(_LINK.sub(lambda match: match[1] or "", sentence).split()).strip(" -*+#>|")
        plain = re.sub(r"^\d+[.)]\s+", "", plain)
        outside = _LINK.sub("", sentence)
        claim = plain if len(_terms(outside)) >= MIN_WORDS or not before else before
        for link in links:
            if url := link[2] or link[3] or (link[4] or "").rstrip(".,;:!?*_") or urls.get(link[5] or "", ""):
                yield Citation(claim, url)
        if len(_terms(outside)) >= MIN_WORDS:
            before = plain


def find_unsupported(claim: str, page: str) -> str:
    """Return what the page lacks: numbers, or most of the words; "" if it supports the claim.

    Words are compared only if the page is written in the same script.
    """
    known = {_digits(number) for number in _NUMBER.findall(page)}
    missing = [number for number in _NUMBER.findall(claim) if _digits(number) not in known]
    if missing:
        return "the number " + ", ".join(missing)
    terms, found = _terms(claim), _terms(page)
    if not terms or bool(_CJK.search(claim)) != bool(_CJK.search(page)):
        return ""
    lacking = sorted(terms - found)
    return f"most of its words, such as {', '.join(lacking[:5])}" if len(lacking) > len(terms) * MIN_SHARE else ""


def _digits(number: str) -> str:
    """Return the number without separators of thousands, as both 1,234.5 and 1.234,5 are written."""
    return re.sub(r"\D", "", number)


def _terms(text: str) -> set[str]:
    """Return the beginnings of the words, and the pairs of CJK characters."""
    words = {word[:STEM_CHARS] for word in _WORD.findall(_CJK.sub(" ", text.casefold()))}
    return words | {pair for pair in map("".join, pairwise(text)) if len(_CJK.findall(pair)) == 2}
