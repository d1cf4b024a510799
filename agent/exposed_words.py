"""Which words a search may carry without a question: those that cannot be private data, or that a person wrote.

A word asks if it stood in private material that the conversation has met, unless a person wrote it in a message. So do
words that could encode something: those with digits that neither a person nor a page has named, long ones, and many new
ones. Ordinary words that the model chose run, so that it may search in its own words.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

WORD_BYTES = 4
MAX_SAID = 5000  # words of persons, the latest
MAX_LISTED = 5000  # numbers and names with digits of pages, the latest
MAX_PRIVATE = 20_000  # words of private material; with more, each new word asks
MAX_NEW_WORDS = 10  # of a search, which nobody has written
MAX_NEW_CHARS = 24  # of such a word
MAX_QUERY_CHARS = 200
MAX_TEXT_CHARS = 2_000_000  # of one text that are read
INLINE_CHARS = 20_000  # a longer text is read in a thread

_WORD = re.compile(r"\w+")
_ODD = re.compile(r"[^\w\s.,:;!?'\"()\[\]\-+/&%#@$€£¥·|“”‘’「」《》、，。：；！？（）–—…]")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")  # written without spaces
_YEAR = re.compile(r"(?:19|20)\d\d")
_COMMON = """
a about after all also am an and any are as at be because been before best between but by can compare could did do does
each example find for from get guide had has have he her his how i if in info information into is it its latest list me
more most my new news no not of on one only or other our out over page price search she should site so some than that
the their them then there these they this to top under up us use using vs was we were what when where which who why will
with without would you your
aber alle als am an auch auf aus bei bis das dass dem den der des die ein eine einem einen einer es für hat ich im in
ist kann man mehr mit nach nicht noch nur oder ohne sich sie sind so über um und uns vom von vor war was wenn wer wie
wird wo zu zum zur
au aux avec ce ces comment dans de des du elle en est et il la le les leur mais ne ou par pas pour que qui sans se son
sur un une
con como del el en es las lo los más no para pero por que se sin su una y
什么 怎么 如何 哪些 以及 或者 关于 最新 比较 可以 我们 他们 这个 那个 没有 一个
"""
COMMON = frozenset(_COMMON.split())


@dataclass(slots=True)
class MetWords:
    """Digests of the words that a conversation has met: of persons, of pages (with digits only), and private ones."""

    said: dict[bytes, None] = field(default_factory=dict)
    listed: dict[bytes, None] = field(default_factory=dict)
    private: dict[bytes, None] = field(default_factory=dict)

    def add(self, *, said: Collection[bytes], listed: Collection[bytes], private: Collection[bytes]) -> bool:
        """Add words; return whether there were new ones."""
        kinds = ((self.said, said, MAX_SAID), (self.listed, listed, MAX_LISTED), (self.private, private, MAX_PRIVATE))
        added = [_add(known, new, most) for known, new, most in kinds]
        return any(added)

    def carries(self, query: str) -> bool:
        """Return whether a search could carry private data."""
        if len(query) > MAX_QUERY_CHARS or _ODD.search(query):
            return True
        new = 0
        for word in dict.fromkeys(_words(query)):
            digest = _digest(word)
            if word in COMMON or digest in self.said or _YEAR.fullmatch(word):
                continue
            if digest in self.private:
                return True
            if digest in self.listed:
                continue
            new += 1
            if len(self.private) >= MAX_PRIVATE or _has_digits(word) or len(word) > MAX_NEW_CHARS:
                return True
        return new > MAX_NEW_WORDS

    def copy(self) -> MetWords:
        """Return the present state."""
        return replace(self, said=dict(self.said), listed=dict(self.listed), private=dict(self.private))


async def digest_words(text: str, *, with_digits: bool = False) -> list[bytes]:
    """Return the digests of the words of a text; `with_digits`: of those that have digits."""
    if len(text) <= INLINE_CHARS:
        return _digests(text, with_digits)
    return await asyncio.to_thread(_digests, text, with_digits)


def _digests(text: str, with_digits: bool) -> list[bytes]:
    words: Iterable[str] = dict.fromkeys(_words(text[:MAX_TEXT_CHARS]))
    return [_digest(word) for word in words if not with_digits or _has_digits(word)]


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case; of a script without spaces, each two signs that follow each other."""
    for found in _WORD.finditer(text.casefold()):
        word, at = found[0], 0
        for wide in _WIDE.finditer(word):
            if plain := word[at : wide.start()]:
                yield plain
            signs, at = wide[0], wide.end()
            yield from (signs[n : n + 2] for n in range(max(1, len(signs) - 1)))
        if plain := word[at:]:
            yield plain


def _digest(word: str) -> bytes:
    return blake2b(word.encode("utf-8", "surrogatepass"), digest_size=WORD_BYTES).digest()


def _has_digits(word: str) -> bool:
    return any(char.isdigit() or char == "_" for char in word)


def _add(known: dict[bytes, None], new: Collection[bytes], most: int) -> bool:
    added = [each for each in new if each not in known]
    known |= dict.fromkeys(added)
    for old in list(known)[: max(0, len(known) - most)]:
        del known[old]
    return bool(added)
