"""Carry letters between processes over NOTIFY: short texts that are told at once, and may be lost.

A payload is shorter than 8000 bytes, so a long letter is compressed and goes in parts. What one process sends arrives
in its order, on the channel of one receiver or on that of all.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import logging
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

ALL = "fawn_letters"
MAX_PART_BYTES = 7000  # beside the head of a payload, of which PostgreSQL takes less than 8000
MAX_PARTS = 300
MAX_LETTER_BYTES = 8 << 20
MAX_WAITING = 3000  # payloads, while the server is away
MAX_SENDERS = 100  # of letters that have begun to arrive

Payload = tuple[str, str]  # a channel, and what is told there


@dataclass(frozen=True, slots=True)
class Letter:
    """What a process tells others: `topic` says who of them reads it."""

    sender: str
    topic: str
    text: str


def channel_of(process: str) -> str:
    """Return the channel of one process."""
    return f"{ALL}_{process}"


@dataclass(slots=True)
class OutgoingLetters:
    """The payloads that wait. Where too many wait, the oldest are lost."""

    me: str
    _waiting: deque[Payload] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, topic: str, text: str, to: str) -> None:
        """Have a letter wait. One that is too long is lost."""
        channel = channel_of(to) if to else ALL
        parts = _parts(text)
        if len(parts) > MAX_PARTS:
            log.warning("letter.too_long topic=%s bytes=%d", topic, len(text))
            return
        number = next(self._numbers)  # without it, NOTIFY would leave out a second one with the same text
        for place, part in enumerate(parts):
            self._waiting.append((channel, f"{self.me} {number} {place} {len(parts)} {topic} {part}"))

    def take(self, most: int) -> list[Payload]:
        """Return the next payloads, which wait no more."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def put_back(self, payloads: list[Payload]) -> None:
        """Have payloads wait again that could not be told."""
        room = MAX_WAITING - len(self._waiting)
        self._waiting.extendleft(reversed(payloads[len(payloads) - min(room, len(payloads)) :]))


def _parts(text: str) -> list[str]:
    raw = text.encode()
    if len(raw) <= MAX_PART_BYTES:
        return [f"t{text}"]
    packed = base64.b64encode(zlib.compress(raw, 1)).decode()
    return [f"z{packed[at : at + MAX_PART_BYTES]}" for at in range(0, len(packed), MAX_PART_BYTES)]


@dataclass(slots=True)
class IncomingLetters:
    """Puts the parts of letters together. A letter of which a part is missing is lost."""

    me: str
    _begun: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # sender → number, parts

    def add(self, payload: str) -> Letter | None:
        """Return the letter that this payload ends; None for one of this process, one that goes on, and for others."""
        sender, _, rest = payload.partition(" ")
        number, place, count, topic, text = [*rest.split(" ", 4), "", "", "", "", ""][:5]
        if sender == self.me or not (place.isdecimal() and count.isdecimal()):
            return None
        known, parts = self._begun.pop(sender, ("", []))
        parts = parts if known == number else []
        if int(place) != len(parts) or not len(parts) < int(count) <= MAX_PARTS:
            return None
        parts.append(text)
        if len(parts) < int(count):
            if len(self._begun) < MAX_SENDERS:
                self._begun[sender] = (number, parts)
            return None
        return Letter(sender, topic, found) if (found := _join(parts)) is not None else None


def _join(parts: list[str]) -> str | None:
    """Return the text of a letter; None where it is none."""
    kinds, texts = {part[:1] for part in parts}, [part[1:] for part in parts]
    if kinds == {"t"} and len(parts) == 1:
        return texts[0]
    if kinds != {"z"}:
        return None
    unpack = zlib.decompressobj()
    try:
        raw = unpack.decompress(base64.b64decode("".join(texts), validate=True), MAX_LETTER_BYTES)
        return raw.decode() if unpack.eof else None
    except (zlib.error, binascii.Error, UnicodeDecodeError):
        return None
