"""Send a dead letter again, or drop it: who did it is in the audit."""

from __future__ import annotations

from collections.abc import Mapping

from agent.messages import Thread
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.storage import outbox
from bot.storage.outbox import EVENT_PREFIX


def requeue(
    execute: Execute, id: str, what: Mapping[str, int | str], place: Thread | None = None, who: str = ""
) -> bool:
    """Deliver a dead reply again; return whether there was one. `what` says how, `who` did it in which `place`."""
    number = parse_row_id(id)
    changed = number is not None and outbox.requeue_dead(execute, number)
    return changed and _record(execute, AuditEvent(AuditKind.DEAD_REQUEUED, place, who, what={**what, "id": id}))


def drop(execute: Execute, id: str, what: Mapping[str, int | str], place: Thread | None = None, who: str = "") -> bool:
    """Forget a dead letter, as `requeue` delivers it."""
    number = parse_row_id(id.removeprefix(EVENT_PREFIX))
    forget = outbox.drop_event if id.startswith(EVENT_PREFIX) else outbox.drop_delivery
    changed = number is not None and forget(execute, number)
    return changed and _record(execute, AuditEvent(AuditKind.DEAD_DROPPED, place, who, what={**what, "id": id}))


def _record(execute: Execute, event: AuditEvent) -> bool:
    audit.record(execute, event)
    return True
