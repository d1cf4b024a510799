"""Rate limits of people, chats and tools.

The counts are in memory. After a start, and when the limits change, they are read once from rows that exist anyway: the
messages from the inbox, the tool calls from the audit. Where several processes share a database, those of messages are
read again after a second, and the calls of tools that have a limit are rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import uuid4
from zoneinfo import ZoneInfo

from agent.messages import Message, Thread
from agent.stored_json import Damaged
from bot.config.addresses import chat_names, person_names
from bot.config.spending import RateLimitConfig
from bot.database.database import Database, Execute
from bot.database.web_people import payer_key, true_person
from bot.rights.current import Current
from bot.storage.blanked import PIECE_SECONDS
from bot.storage.uses import (
    MessageUse,
    forgotten_name,
    read_forgotten_uses,
    read_message_uses,
    read_tool_uses,
    take_tool_use,
)
from catalogue import format_duration, ngettext

MESSAGE_SCOPES = ("person", "chat")
PAGE_ROWS = 2000  # of the audit, read in one transaction
LAST_ROW = 2**63 - 1
REPEAT_SECONDS = 600.0  # within which a channel offers again what was not stored
MAX_NAME_CHARS = 200  # of a tool, which a model may have made up
MAX_KEYS = 10_000  # then those without a recent use are forgotten
Uses = Mapping[str, tuple[str, Collection[str]]]  # scope → the key, and the names by which an entry may call it


@dataclass(frozen=True, slots=True)
class RateRefusal:
    """A limit that is reached, and the unix time from which on there is room."""

    limit: RateLimitConfig
    key: str
    until: float

    def sentence(self, time_zone: str) -> str:
        """Return what the author of the message is told."""
        at = datetime.fromtimestamp(self.until + 59, ZoneInfo(time_zone) if time_zone else None)  # a whole minute
        window = format_duration(self.limit.seconds)
        time = f"{at:%Y-%m-%d %H:%M}"
        if self.limit.scope == "chat":
            return ngettext(
                "This chat may send {n} message in {window}, so I don't take this one, nor another one until {time}."
                " Please send it again then.",
                "This chat may send {n} messages in {window}, so I don't take this one, nor another one until {time}."
                " Please send it again then.",
                self.limit.count,
                window=window,
                time=time,
            )
        return ngettext(
            "You may send {n} message in {window}, so I don't take this one, nor another one until {time}."
            " Please send it again then.",
            "You may send {n} messages in {window}, so I don't take this one, nor another one until {time}."
            " Please send it again then.",
            self.limit.count,
            window=window,
            time=time,
        )


class ToolAndMessageRates:
    """Counts uses in sliding windows. Only uses that were allowed count.

    A use with a key counts once: the transaction that took it may be undone, and come again.
    """

    SHARED_SECONDS = 1.0  # for which a process that is not alone relies on what it has counted

    def __init__(self, current: Current, *, is_shared: bool = False) -> None:
        self._current = current
        self.is_shared = is_shared  # with other processes
        self._read_at = 0.0  # the messages
        self._times: dict[str, deque[float]] = {}
        self._taken: dict[str, float] = {}  # keys of uses → when
        self._forgotten: dict[str, list[float]] = {}  # digest → the uses of who was forgotten
        self._read_for: dict[tuple[str, ...], Sequence[RateLimitConfig]] = {}  # scopes → limits that were read for

    def read_messages(self, execute: Execute, row: int, now: float, begins_work: Callable[[Message], bool]) -> None:
        """Count the messages before this row of the inbox, unless that was done for the limits in force.

        `begins_work` says whether a command counts.
        """
        if self.is_shared and abs(now - self._read_at) >= self.SHARED_SECONDS:
            self._read_for.pop(MESSAGE_SCOPES, None)
        since = self._begin_reading(now, *MESSAGE_SCOPES)
        if since is None:
            return
        self._read_at = now
        self._forgotten.clear()
        for forgotten in read_forgotten_uses(execute, since, row):
            for digest in (forgotten.author, forgotten.chat):
                self._forgotten.setdefault(digest, []).append(forgotten.received)
        pieces: dict[tuple[str, str], float] = {}
        counters: dict[tuple[str, str], list[deque[float]]] = {}
        for use in read_message_uses(execute, since, row):
            if use.bundle:
                last = pieces.get((use.author, use.bundle), 0.0)
                pieces[use.author, use.bundle] = use.received
                if use.received - last <= PIECE_SECONDS:
                    continue
            if use.payload and not _counts(use.payload, begins_work):
                continue
            key = use.author, use.conversation
            if key not in counters:
                thread = _thread_of(use)
                counters[key] = self._counters(_message_uses(thread, use.author.partition(":")[2]))
            for times in counters[key]:
                times.append(use.received)
        self._times = {key: deque(sorted(times)) for key, times in self._times.items()}

    async def tools_of(self, store: Database) -> ToolCallRates:
        """Return the rates of tools, with the earlier calls."""
        if not store.is_shared:
            await self.read_tools(store)
        return ToolCallRates(self, store)

    async def read_tools(self, store: Database) -> None:
        """Count the earlier calls of tools, unless that was done for the limits in force."""
        since = self._begin_reading(time.time(), "tool")
        if since is None:
            return
        found: dict[str, list[float]] = {}
        row, earliest = LAST_ROW, time.time()
        while row and earliest > since:
            row, earliest, calls = await store.run(partial(read_tool_uses, before=row, limit=PAGE_ROWS), durable=False)
            for tool, at in calls:
                found.setdefault(tool, []).append(at)
        for tool, uses in found.items():
            for times in self._counters({"tool": (tool, (tool,))}):
                times.extend(uses)
        self._times = {key: deque(sorted(times)) for key, times in self._times.items()}  # some may be new

    def _begin_reading(self, now: float, *scopes: str) -> float | None:
        """Return the unix time from which on uses count, or None if they were read for the limits in force."""
        limits = self._current.config.rate_limits
        if limits is self._read_for.get(scopes, ()):
            return None
        self._read_for[scopes] = limits
        self._times = {key: times for key, times in self._times.items() if key.partition(":")[0] not in scopes}
        longest = longest_window(limits, scopes)
        return now - longest if longest else None

    def take_message(self, message: Message, now: float) -> RateRefusal | None:
        """Count a message of a person in a chat, or return why it is refused."""
        return self._take(_message_uses(message.thread, message.author.id), now, message.key)

    def take(self, tool: str, now: float | None = None) -> float | None:
        """Count a call of a tool and return None, or return the unix time when it may be called again."""
        refused = self._take({"tool": (tool, (tool,))}, time.time() if now is None else now)
        return refused.until if refused else None

    def take_once(self, execute: Execute, tool: str, key: str) -> float | None:
        """As `take`, for a call that has a key, in the transaction that makes it."""
        if self.is_shared:
            return self.take_shared(execute, tool, key)
        refused = self._take({"tool": (tool, (tool,))}, time.time(), key)
        return refused.until if refused else None

    def has_limit(self, tool: str) -> bool:
        """Return whether a limit in force counts the calls of a tool."""
        return bool(self._limits_of_tool(tool))

    def take_shared(self, execute: Execute, tool: str, key: str) -> float | None:
        """As `take_once`, over all processes on the database."""
        if not (limits := self._limits_of_tool(tool)):
            return None
        counts = [(limit.count, limit.seconds) for limit in limits]
        kept = longest_window(self._current.config.rate_limits, ("tool",))
        wait = take_tool_use(execute, key, tool[:MAX_NAME_CHARS], counts, kept)
        return None if wait is None else time.time() + wait

    def _limits_of_tool(self, tool: str) -> list[RateLimitConfig]:
        return _limits_of(self._current.config.rate_limits, {"tool": (tool, (tool,))})

    def _counters(self, uses: Uses) -> list[deque[float]]:
        limits = _limits_of(self._current.config.rate_limits, uses)
        return [self._times_of(limit, uses) for limit in limits]

    def _times_of(self, limit: RateLimitConfig, uses: Uses) -> deque[float]:
        """Return the uses that count for a limit, to be changed. Those of who was forgotten are among them."""
        key = _key(limit, uses)
        if key not in self._times:
            self._times[key] = deque(self._forgotten.get(forgotten_name(uses[limit.scope][0]), ()))
        return self._times[key]

    def _take(self, uses: Uses, now: float, key: str = "") -> RateRefusal | None:
        if key and key in self._taken:
            return None
        counted: list[deque[float]] = []
        for limit in _limits_of(self._current.config.rate_limits, uses):
            times = self._times_of(limit, uses)
            while times and times[0] <= now - limit.seconds:
                times.popleft()
            if len(times) >= limit.count:
                return RateRefusal(limit, _key(limit, uses), times[-limit.count] + limit.seconds)
            counted.append(times)
        for times in counted:
            times.append(now)
        if key and counted:
            self._note_taken(key, now)
        if len(self._times) > MAX_KEYS:
            longest = max(limit.seconds for limit in self._current.config.rate_limits)
            self._times = {key: times for key, times in self._times.items() if times and times[-1] > now - longest}
        return None

    def _note_taken(self, key: str, now: float) -> None:
        """Remember the key of a use for a while."""
        self._taken[key] = now
        while self._taken[first := next(iter(self._taken))] < now - REPEAT_SECONDS:
            del self._taken[first]


@dataclass(frozen=True, slots=True)
class ToolCallRates:
    """The rates of tools, for calls of turns: in memory, or in the rows of all processes on the database."""

    rates: ToolAndMessageRates
    store: Database

    async def take(self, tool: str) -> float | None:
        """See `agent.core.context.ToolRates`. Raises StorageError where the database counts."""
        if not self.store.is_shared:
            return self.rates.take(tool)
        if not self.rates.has_limit(tool):
            return None
        return await self.store.run(partial(self.rates.take_shared, tool=tool, key=uuid4().hex))


def longest_window(limits: Sequence[RateLimitConfig], scopes: Collection[str] = MESSAGE_SCOPES) -> float:
    """Return for how many seconds a use may count at most."""
    return max((limit.seconds for limit in limits if limit.scope in scopes), default=0.0)


def counted_since(current: Current, now: float) -> float:
    """Return the unix time after which a message may count for a limit in force."""
    return now - max(longest_window(current.config.rate_limits), current.limits.flood_seconds)


def _key(limit: RateLimitConfig, uses: Uses) -> str:
    return f"{limit.scope}:{limit.seconds:g}:{uses[limit.scope][0]}"


def _message_uses(thread: Thread, person: str) -> Uses:
    return {
        "person": (payer_key(thread.channel, person), person_names(*true_person(thread.channel, person))),
        "chat": (str(thread.without_topic), chat_names(thread)),
    }


def _thread_of(use: MessageUse) -> Thread:
    """Return where a message was sent; a thread without chat if its conversation, that of a schedule, is deleted."""
    address = use.thread or use.conversation.rpartition("#")[0]
    return Thread.parse(address) if address else Thread(use.author.partition(":")[0], "", "")


def _counts(command: bytes, begins_work: Callable[[Message], bool]) -> bool:
    try:
        return begins_work(Message.load(command))
    except Damaged:
        return False


def _limits_of(limits: Sequence[RateLimitConfig], uses: Uses) -> list[RateLimitConfig]:
    """Return the limits that apply. One for this person, chat or tool replaces those of its scope for all others."""
    mine = [limit for limit in limits if limit.scope in uses]
    own = [limit for limit in mine if limit.which and limit.which in uses[limit.scope][1]]
    scopes = {limit.scope for limit in own}
    return own + [limit for limit in mine if not limit.which and limit.scope not in scopes]
