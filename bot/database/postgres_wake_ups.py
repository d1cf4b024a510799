"""Wake the readers of other processes: NOTIFY after a commit, on a connection of its own, and a look each second.

Inside of a transaction, NOTIFY would have all commits wait for each other. A notification may be lost with its
connection; whoever waits looks again within a second. The same connections carry the letters of processes.

Carry letters between processes over NOTIFY: short texts that are told at once, and may be lost.

A payload is shorter than 8000 bytes, so a long letter is compressed and goes in parts. What one process sends arrives
in its order, on the channel of one receiver or on that of all.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import logging
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
from psycopg.sql import SQL, Identifier

from bot.database.database import Mark
from bot.database.postgres_session import Target, connection_options
from bot.database.wake_ups import Written

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


CHANNEL = "fawn"
MAX_PAYLOAD_BYTES = 7500  # PostgreSQL takes less than 8000
AGAIN_SECONDS = 1.0  # after which a lost connection is tried again
LOOK_SECONDS = 1.0  # between looks for what no notification told
PAYLOADS_AT_ONCE = 20
TELL_LETTERS = "SELECT pg_notify(channel, payload) FROM unnest(%s::text[], %s::text[]) AS letters(channel, payload)"


class WakeUps:
    """The wake-ups and letters of the process `me`.

    `heard` gets what others have written, `read` their letters; `look` wakes every reader.
    """

    def __init__(
        self,
        target: Target,
        me: str,
        heard: Callable[[Collection[Mark]], None],
        look: Callable[[], None],
        read: Callable[[str, str, str], None],
    ) -> None:
        self._target, self._me, self._heard, self._look, self._read = target, me, heard, look, read
        self._outgoing, self._incoming = OutgoingLetters(me), IncomingLetters(me)
        self._pending: set[Mark] = set()
        self._more, self._told = asyncio.Event(), asyncio.Event()
        self._told.set()

    def announce(self, marks: Collection[Mark]) -> None:
        """Tell the other processes soon what was committed."""
        self._pending.update(marks)
        self._told.clear()
        self._more.set()

    async def flush(self) -> None:
        """Wait until all of it was told, at most a second: then the others look by themselves."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._told.wait()

    def send(self, topic: str, text: str, to: str) -> None:
        """Send a letter soon to one process, or ("") to all others."""
        self._outgoing.add(topic, text, to)
        self._more.set()

    async def serve(self) -> None:
        """Tell and hear until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self._tell), name="wake others")
            group.create_task(self._keep(self._hear), name="hear others")
            group.create_task(self._look_each_second(), name="look")

    async def _keep(self, talk: Callable[[psycopg.AsyncConnection], asyncio.Future[None] | object]) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(**connection_options(self._target), autocommit=True)
                async with connection:
                    await talk(connection)  # type: ignore[misc]  # one of both below
            except (psycopg.Error, OSError) as error:
                log.warning("store.wake_ups reason=%s", " ".join(str(error).split()))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _tell(self, connection: psycopg.AsyncConnection) -> None:
        await connection.execute("SET synchronous_commit=off")  # there is nothing to be kept
        while True:
            await self._more.wait()
            self._more.clear()
            marks, self._pending = self._pending, set()
            try:
                for text in _payloads(self._me, marks):
                    await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))
            except psycopg.Error:
                self.announce(marks)
                raise
            if not self._pending:
                self._told.set()
            await self._tell_letters(connection)

    async def _tell_letters(self, connection: psycopg.AsyncConnection) -> None:
        while payloads := self._outgoing.take(PAYLOADS_AT_ONCE):
            try:
                await connection.execute(TELL_LETTERS, [*map(list, zip(*payloads, strict=True))])
            except psycopg.Error:
                self._outgoing.put_back(payloads)
                self._more.set()
                raise

    async def _hear(self, connection: psycopg.AsyncConnection) -> None:
        for channel in (CHANNEL, ALL, channel_of(self._me)):
            await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
        self._look()  # what was told while nobody listened
        async for notice in connection.notifies():
            if notice.channel != CHANNEL:
                if letter := self._incoming.add(notice.payload):
                    self._read(letter.sender, letter.topic, letter.text)
                continue
            sender, *lines = notice.payload.split("\n")
            if sender != self._me and (marks := [*_marks(lines)]):
                self._heard(marks)

    async def _look_each_second(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()


def _payloads(me: str, marks: Iterable[Mark]) -> Iterator[str]:
    """Yield notifications: the sender, and a line for each mark. One whose name is too long is left to the look."""
    lines, size = [me], len(me)
    for kind, name in marks:
        line = f"{kind} {name}"
        more = len(line.encode()) + 1
        if size + more > MAX_PAYLOAD_BYTES and len(lines) > 1:
            yield "\n".join(lines)
            lines, size = [me], len(me)
        if more < MAX_PAYLOAD_BYTES - size and "\n" not in line:
            lines.append(line)
            size += more
    if len(lines) > 1:
        yield "\n".join(lines)


def _marks(lines: Iterable[str]) -> Iterator[Mark]:
    for line in lines:
        kind, _, name = line.partition(" ")
        with suppress(ValueError):  # a kind that another version has
            yield Written(kind), name
