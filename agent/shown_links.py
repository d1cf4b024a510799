"""Break links in what an agent shows where the platform fetches them by itself: nobody has to press one.

Once private data and text by strangers have met, such a fetch carries out what the address says, as a call would. So
the rule is that of calls: an address that a person named stays, and a few that pages have named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from agent.blocks import Ask, Block, File, Notice, Plan, Step, Text
from agent.exposure import Exposure, find_address

_LINK = re.compile(
    r"https?://[^\s<>\"`|\\^{}]++|(?<![\w@/.-])(?:[\w-]{1,63}\.){1,9}[a-z]{2,24}(?::\d{1,5})?[/?][^\s<>\"`|\\^{}]++",
    re.IGNORECASE,
)
_FIRST = re.compile(r"[A-Za-z0-9]")  # of a link
MAX_HELD_CHARS = 2000  # no platform takes a longer link


def break_links(text: str, exposure: Exposure, admitted: dict[str, bool]) -> str:
    """Return a text whose links a platform does not recognize, except those that may be fetched."""

    def shown(found: re.Match[str]) -> str:
        link = found[0]
        if link not in admitted:
            admitted[link] = exposure.admits(find_address(link))
        if admitted[link]:
            return link
        return link.replace("://", "[:]//", 1) if "://" in link else link.replace(".", "[.]")

    return _LINK.sub(shown, text) if "/" in text or "?" in text else text


class LinkGuard:
    """Breaks the links in the blocks of one turn, whatever pieces its text comes in."""

    def __init__(self, exposure: Exposure) -> None:
        self._exposure = exposure
        self._admitted: dict[str, bool] = {}
        self._held = Text("")  # the end of the latest text, which may be the beginning of a link

    def take(self, block: Block) -> Iterator[Block]:
        """Yield what is to be shown now."""
        held, self._held = self._held, Text("")
        goes_on = isinstance(block, Text) and block.part == held.part
        if held.delta and not goes_on:
            yield replace(held, delta=self._break(held.delta))
        if not isinstance(block, Text):
            yield self._break_block(block)
        elif block.replace:
            yield replace(block, delta=self._break(block.delta))
        else:
            text = held.delta + block.delta
            at = _end_of_whole_words(text) if self._exposure.asks else len(text)
            self._held = Text(text[at:], block.part)
            if at:
                yield replace(block, delta=self._break(text[:at]))

    def _break(self, text: str) -> str:
        return break_links(text, self._exposure, self._admitted) if self._exposure.asks else text

    def _break_block(self, block: Block) -> Block:
        match block:
            case File():
                return replace(block, caption=self._break(block.caption))
            case Notice():
                return replace(block, text=self._break(block.text))
            case Ask():
                return replace(block, question=self._break(block.question))
            case Plan():
                return Plan(tuple(replace(item, title=self._break(item.title)) for item in block.items))
            case Step():
                title, detail = self._break(block.title), self._break(block.detail)
                return replace(
                    block,
                    title=title,
                    detail=detail,
                    progress=self._break(block.progress),
                    output=self._break(block.output),
                )
        return block


def _end_of_whole_words(text: str) -> int:
    """Return where the last word begins that more text may make a link."""
    word = max(map(text.rfind, " \n\t")) + 1
    begun = _FIRST.search(text, word)
    return begun.start() if begun and len(text) - begun.start() <= MAX_HELD_CHARS else len(text)
