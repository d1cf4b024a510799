"""Decide when the deliveries of a hook are posted, which of them together, and in which thread they continue.

A delivery waits until none has come for a moment. Those of one subject go together, into the thread that the subject
has. New subjects get a thread each, up to the posts that the hook has left in this minute; more than that is a storm:
all of them become one post, at the latest a minute after the first of them came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.database.database import Execute
from bot.database.states import OutboxState
from bot.storage import hooks, outbox, sent_messages
from bot.storage.hooks import DeliveryRow, GroupRow

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


def settle_roots(execute: Execute, hook: str) -> float:
    """Note which threads have begun; return since when the oldest post that begins one is on its way, 0 for none.

    Where the platform refused such a post, its group continues in a conversation beside that of the chat.
    """
    oldest = 0.0
    for root in hooks.open_roots(execute, hook):
        row = outbox.find_row(execute, root)
        if row and row.state in (OutboxState.NEW, OutboxState.CLAIMED):
            oldest = min(oldest or row.created, row.created)
            continue
        posts = sent_messages.known_messages(execute, row.reply_key) if row else ()
        if row and row.state == OutboxState.SENT and (ids := [post.id for post in posts if post.id]):
            thread = replace(row.thread, topic=ids[0].partition("/")[0])
            hooks.settle_root(execute, hook, root, place=str(thread))
        else:
            conversation = root.removesuffix(":root").replace(f"hook:{hook}:", "hook:", 1)
            hooks.settle_root(execute, hook, root, conversation=conversation)
    return oldest


@dataclass(frozen=True, slots=True)
class SortedWaiting:
    """Waiting deliveries: those that the first post of their thread shows, by thread, and the others.

    `homes` are the groups that `waiting` continues, by the subject that it has there.
    """

    shown: Sequence[Sequence[int]]
    waiting: Sequence[WaitingDelivery]
    homes: Mapping[str, GroupRow]


def sort_waiting(rows: Sequence[DeliveryRow], groups: Mapping[str, GroupRow]) -> SortedWaiting:
    """Sort deliveries by where they continue. Those whose thread has not begun yet are left out."""
    shown, waiting, homes = dict[str, list[int]](), list[WaitingDelivery](), dict[str, GroupRow]()
    for row in rows:
        group = groups.get(row.group_key)
        if group is None:
            waiting.append(WaitingDelivery(row.id, row.group_key, row.received))
        elif group.place and row.id <= group.shown:
            shown.setdefault(group.place, []).append(row.id)
        elif group.home:
            subject = f"\0{group.home}"  # no sender can name it so
            homes[subject] = group
            waiting.append(WaitingDelivery(row.id, subject, row.received))
    return SortedWaiting([*shown.values()], waiting, homes)
