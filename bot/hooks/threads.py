"""Find where deliveries continue: in the thread of their group, which begins at a post that must be delivered first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bot.database.database import Execute
from bot.database.states import OutboxState
from bot.hooks.bundling import WaitingDelivery
from bot.storage import hooks, outbox, sent_messages
from bot.storage.hooks import DeliveryRow, GroupRow


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
