"""Decide when the deliveries of a hook are posted, and which of them together.

A delivery waits until none has come for a moment. Those of one subject go together, into the thread that the subject
has. New subjects get a thread each, up to the posts that the hook has left in this minute; more than that is a storm:
all of them become one post, at the latest a minute after the first of them came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WaitingDelivery:
    """A delivery that is not posted yet."""

    id: int
    subject: str
    received: float


@dataclass(frozen=True, slots=True)
class Bundle:
    """Deliveries that become one post. `subject` is that of a thread which exists, "" for a new one."""

    deliveries: tuple[int, ...]
    subjects: tuple[str, ...]
    subject: str = ""


def bundle_due(
    waiting: Sequence[WaitingDelivery],
    known: Collection[str],
    posted: Sequence[float],
    now: float,
    *,
    gather_seconds: float,
    per_minute: int,
) -> tuple[list[Bundle], float | None]:
    """Return what of one hook is due, and when to look again; None: not before the next delivery.

    `waiting` is in order, `known` are the subjects that have a thread, `posted` the times of the hook's latest posts.
    """
    if not waiting:
        return [], None
    first, latest = waiting[0].received, min(now, waiting[-1].received)  # the clock may have been set back
    until = min(first + WINDOW_SECONDS, latest + gather_seconds)
    recent = [at for at in posted if now - WINDOW_SECONDS < at <= now]
    groups: dict[str, list[int]] = {}
    for each in waiting:
        groups.setdefault(each.subject, []).append(each.id)
    is_storm = len(groups) + len(recent) > per_minute
    if is_storm and len(recent) >= per_minute:  # nothing is left: what comes now is one post when the minute is over
        until = max(until, min(recent) + WINDOW_SECONDS)
    if now < until:
        return [], until
    found = [Bundle(tuple(ids), (subject,), subject) for subject, ids in groups.items() if subject in known]
    new = {subject: ids for subject, ids in groups.items() if subject not in known}
    return found + (_one_bundle(new) if is_storm else [Bundle(tuple(ids), (each,)) for each, ids in new.items()]), None


def _one_bundle(groups: Mapping[str, Sequence[int]]) -> list[Bundle]:
    ids = sorted(id for group in groups.values() for id in group)
    return [Bundle(tuple(ids), tuple(groups))] if ids else []
