"""Schedule the calls to a platform inside its rate limits. A platform gives only numbers: its `CallRate`s.

The rules are the same everywhere. Final messages go first, then first words, then progress. A reply goes live only
while the call that will end it is likely free, because that call is kept for it; otherwise its answer comes whole,
once. A limit that the platform documents as a minimum is exceeded carefully, call by call, until the platform refuses
one; then the wait that it asks for is kept exactly (docs/decisions/0106-one-scheduler-of-calls.md).
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from channels.base import TryLater


class Priority(IntEnum):
    """The order of calls when the rate limit is reached."""

    FINAL = 0  # a message that stays
    FIRST = 1  # the first words of a reply
    STREAM = 2  # progress, which the next call makes obsolete
    READ = 3  # a question to the platform: it takes what posts leave, but needs no reserve


SAFETY_FACTOR = 0.95  # of a limit: calls may arrive closer together than they were sent
LEARN_AGAIN_SECONDS = 60.0  # after a refusal, and twice that after each further one…
MAX_LEARN_AGAIN_SECONDS = 3600.0  # …up to this
# Of a sliding burst is kept for the ends of replies, at most: it is never full while calls come. The smallest with
# which no end waits as long as the limit has room for all of them (python -m bench.owed_share).
OWED_SHARE = 0.8
REFUSED_SHARE, ACCEPTED_CALLS = 0.7, 20  # of a sliding burst after a refusal; accepted calls that give back one of it
MAX_PROBES = 8  # calls beyond a minimum that are under way at once, of which a refusal meets all


@dataclass(frozen=True, slots=True)
class CallRate:
    """So many `calls` in `seconds`, of which `burst` may come at once.

    `name` is that of the calls that are counted together; "" counts each method for itself. `per_chat` counts each chat
    for itself. `minimum`: the platform may allow more. `sliding`: all of the calls may come at once, and none more
    before the `seconds` are over. Progress leaves `stream_reserve` of the burst to other calls, first words leave
    `first_reserve`. A `checked` limit counts also the calls that nobody scheduled: each asks `count_call` at its time.
    """

    calls: float
    seconds: float
    burst: float
    name: str = ""
    per_chat: bool = False
    minimum: bool = False
    sliding: bool = False
    checked: bool = False
    stream_reserve: float = 0.0
    first_reserve: float = 0.0


def account_limit(overall: float) -> CallRate:
    """Return the limit of all calls of an account: so many a second, with most of the burst left to finals."""
    calls = overall * SAFETY_FACTOR
    burst = max(1.0, calls)
    spare = burst - 1
    return CallRate(
        calls, 1.0, burst, "all", stream_reserve=min(0.85 * burst, spare), first_reserve=min(0.75 * burst, spare)
    )


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The numbers of most platforms: calls per second in a chat and overall, calls per minute in a group, and `burst`
    calls at once. `account` replaces the overall limit by another kind."""

    chat: float = 1.0
    burst: int = 2
    group_minute: float = 20.0
    overall: float = 30.0
    account: CallRate | None = None

    def limits_of(self, method: str, group: bool) -> Sequence[CallRate]:
        # A full bucket and the refill of a minute together are the group's limit in any minute.
        rate = min(self.chat, max(self.group_minute - self.burst, 1) / 60) if group else self.chat
        chat = CallRate(rate, 1.0, self.burst, "chat", per_chat=True, stream_reserve=min(1, self.burst - 1))
        return chat, self.account or account_limit(self.overall)


@dataclass(frozen=True, slots=True)
class MethodLimits:
    """The numbers of a platform that counts each method for itself; "" stands for the methods without their own."""

    methods: Mapping[str, Sequence[CallRate]]  # the narrowest first

    def limits_of(self, method: str, group: bool) -> Sequence[CallRate]:
        return self.methods.get(method) or self.methods[""]


@dataclass(slots=True)
class Accounts:
    """How many processes share each account: each makes its part of the calls that the account may make.

    The limit of a chat is not divided: the posts of a thread come from one process at a time.
    """

    processes: int = 1

    def part(self, limit: CallRate) -> float:
        """Return the part of a limit that is this process's."""
        return 1.0 if limit.per_chat else 1.0 / self.processes


ACCOUNTS = Accounts()


def share_accounts(processes: int) -> None:
    """Count so many processes that post with the same accounts."""
    ACCOUNTS.processes = max(1, processes)


class PlatformLimits(Protocol):
    """The numbers of a platform."""

    def limits_of(self, method: str, group: bool) -> Sequence[CallRate]:
        """Return the limits that count a call, the narrowest first."""


class TokenBucket:
    """The calls that one limit counts: tokens that refill up to the burst.

    Progress and first words leave their reserve, and one token for each reply whose end is owed here, as far as the
    burst reaches.
    """

    def __init__(self, limit: CallRate) -> None:
        self.limit = limit
        self._learned = limit.burst  # of the whole account
        self._loop = asyncio.get_running_loop()
        self._tokens = self._size
        self._at = self._loop.time()
        self._closed_until = 0.0
        self._order = itertools.count()
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._reads: list[tuple[Priority, int, asyncio.Future[None]]] = []  # go when no post that waits may
        self._timer: asyncio.TimerHandle | None = None
        self._owed = 0  # replies whose end will need a token
        self._probes = 0  # calls beyond the tokens that are under way…
        self._max_probes = 1 if limit.minimum else 0  # …and how many may be
        self._refusals = 0
        self.paused_before = False  # when the last refusal came
        self._drained_at = 0.0  # end of the last pause after a refusal
        self._learns_at = 0.0  # time from which calls may go beyond the tokens

    def seconds_until_free(self, priority: Priority) -> float:
        """Return the seconds until such a call is allowed, if no other comes first."""
        now = self._loop.time()
        if self._closed_until > now:
            return self._closed_until - now
        need = 1 + self._reserve(priority)
        return 0.0 if self._may_probe(priority) else self._seconds_until(need)

    def try_acquire(self, priority: Priority) -> bool:
        """Take a token if one is available now."""
        if self._waiting or (self._reads and priority is Priority.READ) or self.seconds_until_free(priority):
            return False
        self._take(priority)
        return True

    async def acquire(self, priority: Priority) -> None:
        """Wait for a token: by priority, then in order."""
        if self.try_acquire(priority):
            return
        turn = self._loop.create_future()
        queue = self._reads if priority is Priority.READ else self._waiting
        heapq.heappush(queue, (priority, next(self._order), turn))
        self._serve_waiting()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the token was granted at the same moment
                self.release_unused()
            raise

    def release_unused(self) -> None:
        """Return a token that was not used."""
        if self._probes:
            self._probes -= 1
        else:
            self._give_back()
        self._serve_waiting()

    def note_accepted(self) -> None:
        """Note that the platform took a call: beyond a minimum, twice as many may follow."""
        if self._probes:
            self._probes -= 1
            self._max_probes = min(self._max_probes + 1, MAX_PROBES)
            self._serve_waiting()

    def note_refused(self, seconds: float) -> None:
        """Allow no call for the seconds that the platform asked for, and after that only what it documents."""
        now = self._loop.time()
        self._probes = max(0, self._probes - 1)
        self.paused_before = self._closed_until > now
        if not self.paused_before:  # of several calls under way, the first counts
            self._refusals += 1
        self.pause(seconds)
        self._drain()
        again = LEARN_AGAIN_SECONDS * 2.0 ** min(self._refusals - 1, 10)
        self._learns_at = self._closed_until + min(again, MAX_LEARN_AGAIN_SECONDS)
        self._max_probes = min(self._max_probes, 1)

    def pause(self, seconds: float) -> None:
        """Allow no call for so many seconds, because the platform asked for it."""
        self._closed_until = max(self._closed_until, self._loop.time() + seconds)

    def paused_seconds(self) -> float:
        """Return the seconds until the end of the pause."""
        return max(0.0, self._closed_until - self._loop.time())

    def renew(self, at: float) -> bool:
        """Count the token acquired at a time as one of now. Returns False if it counts no longer."""
        return True

    # ------------------------------------------------------------ ends of replies

    def owe_end(self) -> None:
        """Keep a token for the end of a reply."""
        self._owed += 1

    def settle_end(self) -> None:
        """Keep a token less: a reply has ended."""
        self._owed = max(0, self._owed - 1)
        self._serve_waiting()

    @property
    def has_token(self) -> bool:
        """Whether a call keeps within what the platform documents."""
        return not (self._waiting or self._reads) and not self.paused_seconds() and not self._seconds_until(1)

    @property
    def end_is_free(self) -> bool:
        """Whether the end of one more reply is likely free when it comes."""
        if self._closed_until > self._loop.time():
            return False
        spare = self._available() - self._owed
        return spare + (self._max_probes - self._probes if self._learns else 0) >= 1 - 1e-9

    @property
    def is_idle(self) -> bool:
        used = self._waiting or self._reads or self._owed or self._probes or self._loop.time() < self._learns_at
        return not used and not self.paused_seconds() and self._available() >= self._size

    # ------------------------------------------------------------ parts

    @property
    def _rate(self) -> float:
        return self.limit.calls / self.limit.seconds * ACCOUNTS.part(self.limit)

    @property
    def _size(self) -> float:
        return max(1.0, self._learned * ACCOUNTS.part(self.limit))

    @property
    def _most_owed(self) -> float:
        return self._size - 1

    @property
    def _learns(self) -> bool:
        return self.limit.minimum and self._loop.time() >= self._learns_at

    def _may_probe(self, priority: Priority) -> bool:
        """Whether a call may go beyond the tokens. Progress never does: a refusal would stop the other calls, too."""
        return self._learns and self._probes < self._max_probes and priority is not Priority.STREAM

    def _reserve(self, priority: Priority) -> float:
        if priority in (Priority.FINAL, Priority.READ):
            return 0.0
        share = self.limit.stream_reserve if priority is Priority.STREAM else self.limit.first_reserve
        share = min(share * ACCOUNTS.part(self.limit), self._size - 1)
        if self._drained_at:  # half of what comes back rebuilds the reserve, the other half is for progress
            share = min(share, max(0.0, self._loop.time() - self._drained_at) * self._rate / 2)
        return max(share, min(float(self._owed), self._most_owed))

    def _take(self, priority: Priority) -> None:
        if self._seconds_until(1 + self._reserve(priority)):
            self._probes += 1
        else:
            self._spend()

    def _serve_waiting(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        waits: list[float] = []
        for queue in (self._waiting, self._reads):
            while queue:
                priority, _, turn = queue[0]
                if not turn.done():
                    if wait := self.seconds_until_free(priority):
                        waits.append(wait)
                        break
                    self._take(priority)
                    turn.set_result(None)
                heapq.heappop(queue)
        if waits:
            self._timer = self._loop.call_later(max(min(waits), 0.001), self._serve_waiting)

    # ------------------------------------------------------------ the count

    def _available(self) -> float:
        """Return the tokens of this moment."""
        now = self._loop.time()
        self._tokens = min(self._size, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
        return self._tokens

    def _seconds_until(self, need: float) -> float:
        """Return the seconds until there are so many tokens."""
        missing = need - self._available()
        return missing / self._rate if missing > 1e-9 else 0.0

    def _spend(self) -> None:
        self._tokens -= 1

    def _give_back(self) -> None:
        self._tokens = min(self._size, self._tokens + 1)

    def _drain(self) -> None:
        """Begin with one token after the pause, because the platform counts more calls than we do."""
        self._tokens = 1.0
        self._at = self._drained_at = max(self._loop.time(), self._closed_until)


class SlidingBucket(TokenBucket):
    """The calls of the last `seconds`, of which there may be `burst`: less after a refusal, until enough are accepted.

    A platform may allow less than what is known of it, and calls of other programs may count, too.
    """

    def __init__(self, limit: CallRate) -> None:
        super().__init__(limit)
        self._calls: deque[float] = deque()  # loop times

    @property
    def _most_owed(self) -> float:
        return OWED_SHARE * self._size

    def renew(self, at: float) -> bool:
        self._available()
        earlier = bisect.bisect_right(self._calls, at)  # it was granted a little before its task went on
        if not earlier:
            return False
        del self._calls[earlier - 1]
        self._calls.append(self._loop.time())
        return True

    def _available(self) -> float:
        oldest = self._loop.time() - self.limit.seconds
        while self._calls and self._calls[0] <= oldest:
            self._calls.popleft()
        return self._size - len(self._calls)

    def _seconds_until(self, need: float) -> float:
        missing = int(need - self._available() + 1 - 1e-9)
        if missing <= 0:
            return 0.0
        freed = self._calls[min(missing, len(self._calls)) - 1] if self._calls else self._loop.time()
        return max(freed + self.limit.seconds - self._loop.time(), 1e-6)

    def _spend(self) -> None:
        self._calls.append(self._loop.time())

    def _give_back(self) -> None:
        if self._calls:
            self._calls.pop()

    def _drain(self) -> None:
        """Allow fewer calls after the pause."""
        if not self.paused_before:
            self._learned = max(1.0, self._learned * REFUSED_SHARE)

    def note_accepted(self) -> None:
        super().note_accepted()
        self._learned = min(self.limit.burst, self._learned + 1 / ACCEPTED_CALLS)


@dataclass(slots=True)
class Ticket:
    """A token of a checked limit that a task has acquired for its next call."""

    bucket: TokenBucket
    at: float  # loop time
    used: bool = False


_TICKET: ContextVar[Ticket | None] = ContextVar("ticket", default=None)


class RateLimiter:
    """The scheduler of one platform account: all of its limits, by the calls that they count."""

    MAX_FINAL_WAIT_SECONDS = 2.0  # for what the platform has closed, before TryLater

    def __init__(self, limits: PlatformLimits, refusal: Callable[[float], TryLater] | None = None) -> None:
        self._limits = limits
        self._refusal = refusal or (lambda s: TryLater(f"the platform asked to retry after {s:.3g} s", s))
        self._known: dict[tuple[str, bool], Sequence[CallRate]] = {}  # by method, and whether the chat is a group
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._sweep_size = 4096  # number of buckets at which the idle ones are dropped

    async def acquire(self, chat: str, priority: Priority, *, method: str = "", group: bool = False) -> None:
        """Wait until a call is allowed. Raises TryLater for a final if a limit is closed for long."""
        buckets = self._buckets_of(chat, method, group)
        if priority is Priority.FINAL:
            left = max(bucket.paused_seconds() for bucket in buckets)
            if left > self.MAX_FINAL_WAIT_SECONDS:
                raise self._refusal(left)
        taken: list[TokenBucket] = []
        try:
            for bucket in buckets:
                await bucket.acquire(priority)
                taken.append(bucket)
        except asyncio.CancelledError:
            for bucket in taken:
                bucket.release_unused()
            raise
        self._issue_ticket(taken)

    async def count_call(self, chat: str = "", method: str = "", priority: Priority = Priority.FINAL) -> None:
        """Count an HTTP call in the checked limits: the token that this task has acquired for it, or wait for one."""
        for bucket in self._buckets_of(chat, method, False):
            if not bucket.limit.checked:
                continue
            ticket = _TICKET.get()
            if ticket and ticket.bucket is bucket and not ticket.used:
                ticket.used = True
                if bucket.renew(ticket.at):
                    continue
            await bucket.acquire(priority)

    def _issue_ticket(self, taken: Sequence[TokenBucket]) -> None:
        """Note the token that the next call of this task counts."""
        if taken[-1].limit.checked:
            _TICKET.set(Ticket(taken[-1], asyncio.get_running_loop().time()))

    def try_acquire(self, chat: str, priority: Priority, *, method: str = "", group: bool = False) -> bool:
        """Take the tokens of a call if they are available now."""
        taken: list[TokenBucket] = []
        for bucket in self._buckets_of(chat, method, group):
            if not bucket.try_acquire(priority):
                for earlier in taken:
                    earlier.release_unused()
                return False
            taken.append(bucket)
        self._issue_ticket(taken)
        return True

    def release_unused(self, chat: str, method: str = "", *, group: bool = False) -> None:
        """Return the tokens of a call that was not made."""
        for bucket in self._buckets_of(chat, method, group):
            bucket.release_unused()
        _TICKET.set(None)

    def has_token(self, chat: str, method: str = "") -> bool:
        """Return whether a call keeps within what the platform documents."""
        return all(bucket.has_token for bucket in self._buckets_of(chat, method, False))

    def seconds_until_free(self, chat: str, method: str = "") -> float:
        """Return the seconds until a final call is allowed, if no other comes first."""
        return max(b.seconds_until_free(Priority.FINAL) for b in self._buckets_of(chat, method, False))

    def note_accepted(self, chat: str, method: str = "") -> None:
        """Note that the platform took a call."""
        for bucket in self._buckets_of(chat, method, False):
            bucket.note_accepted()

    def note_refused(self, chat: str, seconds: float, method: str = "") -> None:
        """Close a method for the seconds that the platform asked for."""
        self._buckets_of(chat, method, False)[0].note_refused(seconds)

    def note_account_refused(self, seconds: float) -> None:
        """Close every call of the account for the seconds that the platform asked for."""
        self._buckets_of("", "", False)[-1].note_refused(seconds)

    def note_account_accepted(self) -> None:
        """Note that the platform took a call, where the chat's own limit needs no count."""
        self._buckets_of("", "", False)[-1].note_accepted()

    def pause_chat(self, chat: str, seconds: float, *, group: bool = False) -> None:
        """Allow no call to this chat for so many seconds; others continue."""
        self._buckets_of(chat, "", group)[0].pause(seconds)

    def end_is_free(self, chat: str, method: str = "") -> bool:
        """Return whether the end of one more reply is likely free when it comes."""
        return all(bucket.end_is_free for bucket in self._buckets_of(chat, method, False))

    def owe_end(self, chat: str, method: str = "", *, group: bool = False) -> None:
        """Keep a call for the end of a reply, until `settle_end`. A chat's own limit leaves one anyway."""
        self._buckets_of(chat, method, group)[-1].owe_end()

    def settle_end(self, chat: str, method: str = "", *, group: bool = False) -> None:
        self._buckets_of(chat, method, group)[-1].settle_end()

    def _buckets_of(self, chat: str, method: str, group: bool) -> list[TokenBucket]:
        limits = self._known.get((method, group))
        if limits is None:
            limits = self._known[method, group] = self._limits.limits_of(method, group)
        return [self._bucket(limit, (limit.name or method, chat if limit.per_chat else "")) for limit in limits]

    def _bucket(self, limit: CallRate, key: tuple[str, str]) -> TokenBucket:
        if bucket := self._buckets.get(key):
            return bucket
        if len(self._buckets) >= self._sweep_size:
            self._buckets = {known: bucket for known, bucket in self._buckets.items() if not bucket.is_idle}
            self._sweep_size = max(4096, 2 * len(self._buckets))
        self._buckets[key] = SlidingBucket(limit) if limit.sliding else TokenBucket(limit)
        return self._buckets[key]


class ReplyRateLimit(Protocol):
    """The rate limit of one reply's calls.

    `idempotent_posts`: how often a message may be posted while the outcomes are unknown, where a repeated post is
    visible once and needs no mark; 0 where it is visible again.
    """

    @property
    def idempotent_posts(self) -> int: ...

    async def acquire(self, priority: Priority) -> None:
        """Wait until a call is allowed. Raises TryLater."""

    def try_acquire(self, priority: Priority) -> bool:
        """Take the tokens of a call if they are available now."""

    def release_unused(self) -> None:
        """Return the tokens of a call that was not made."""

    def pause(self, seconds: float) -> None:
        """Allow no streaming call for so many seconds."""

    def owe_end(self) -> None:
        """Keep a call for the end of the reply, where that takes one in any case."""

    def settle_end(self) -> None:
        """Keep none any more: the reply has ended, or is closed. May be called again."""


class RateLimitScope:
    """The rate limit of a reply: that of its chat, and the overall one."""

    def __init__(self, limiter: RateLimiter, chat: str, *, group: bool = False, idempotent_posts: int = 0) -> None:
        self.idempotent_posts = idempotent_posts
        self._limiter = limiter
        self._chat = chat
        self._group = group
        self._owes = False

    async def acquire(self, priority: Priority) -> None:
        await self._limiter.acquire(self._chat, priority, group=self._group)

    def try_acquire(self, priority: Priority) -> bool:
        return self._limiter.try_acquire(self._chat, priority, group=self._group)

    def release_unused(self) -> None:
        self._limiter.release_unused(self._chat, group=self._group)

    def pause(self, seconds: float) -> None:
        self._limiter.pause_chat(self._chat, seconds, group=self._group)

    def owe_end(self) -> None:
        if not self._owes:
            self._owes = True
            self._limiter.owe_end(self._chat, group=self._group)

    def settle_end(self) -> None:
        if self._owes:
            self._owes = False
            self._limiter.settle_end(self._chat, group=self._group)
