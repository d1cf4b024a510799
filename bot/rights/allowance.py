"""The allowance of work without a person: how much may follow from one message, and for one person within a day.

What the agent begins takes from it in the transaction that begins it: the request to a background agent,
a command after which the agent continues, and a goal. A time of a schedule takes nothing: its owner confirmed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.messages import Message, Thread
from bot.base.times import local_time
from bot.config.schema import FollowUpLimits
from bot.database import audit
from bot.database.database import Execute
from bot.storage import follow_ups, outbox, people
from bot.storage.follow_ups import DAY_SECONDS, FollowUpRow
from catalogue import N_, LazyText, localized

PER_MESSAGE = N_(
    "I have gone on by myself after one message as often as I may ({limit} times), so I don't continue. Send me a"
    " message if I should go on."
)
PER_DAY = N_(
    "I have worked without a message from you as often as I may within 24 hours ({limit} times), so I don't begin this."
    " There is room again at {time}. Until then I work when you ask me."
)


@dataclass(frozen=True, slots=True)
class Lineage:
    """From which message work follows, as a digest, and how many steps lie between them."""

    root: str
    generation: int = 0

    @classmethod
    def of_message(cls, message: Message) -> Lineage:
        """Return what follows from a message, or from what this one follows from."""
        return cls(message.root or audit.digest(message.key), message.generation)

    @classmethod
    def of_run(cls, messages: Sequence[Message]) -> Lineage:
        """Return from what the work of a run follows: a message of a person, if it answers one."""
        first = min(messages, key=lambda message: message.generation, default=None)
        return cls.of_message(first) if first else cls("")


@dataclass(frozen=True, slots=True)
class UsedUp:
    """An allowance that is used up. `key` identifies what people are told of it once."""

    text: LazyText
    key: str


def take(
    execute: Execute,
    limits: FollowUpLimits,
    key: str,
    lineage: Lineage,
    channel: str,
    person: str,
    now: float,
) -> UsedUp | None:
    """Count a piece of work, or return why it may not begin. The same `key` counts once."""
    if follow_ups.find_follow_up(execute, key):
        return None
    if follow_ups.count_of_root(execute, lineage.root) >= limits.per_message:
        text = LazyText(PER_MESSAGE, limit=limits.per_message)
        return UsedUp(text, f"allowance:{lineage.root}")
    who, most = audit.digest(f"{channel}:{person}"), limits.per_day
    times = follow_ups.times_of_person(execute, who, now - DAY_SECONDS, most)
    if len(times) >= most:
        free_at = (times[-1] if times else now) + DAY_SECONDS
        zone = people.zone_of(execute, channel, person) or limits.time_zone or "UTC"
        text = LazyText(PER_DAY, limit=most, time=f"{local_time(free_at + 59, zone):%Y-%m-%d %H:%M}")
        return UsedUp(text, f"allowance:{who}:{times[-1] if times else now:.0f}")
    follow_ups.add_follow_up(execute, FollowUpRow(key, lineage.root, lineage.generation, who, now))
    return None


def next_step(execute: Execute, key: str) -> Lineage:
    """Return the lineage of the message with which work continues that was counted with this key."""
    row = follow_ups.find_follow_up(execute, key)
    return Lineage(row.root, row.generation + 1) if row else Lineage(audit.digest(key), 1)


def tell(execute: Execute, used_up: UsedUp, thread: Thread, now: float) -> None:
    """Say once, in the current language, that an allowance is used up."""
    outbox.enqueue_notice(execute, thread, localized(used_up.text), key=used_up.key, now=now)
