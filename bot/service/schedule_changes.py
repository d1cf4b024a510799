"""Do what every change of a schedule needs, whoever makes it: its owner, a page, or an offboarding."""

from __future__ import annotations

from bot.base.plain_text import without_formatting
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.storage import conversations, inbox
from bot.storage.schedules import ScheduleRow
from catalogue import _
from channels.shared.texts import shorten

MAX_TITLE_CHARS = 60


def withdraw_fire(execute: Execute, row: ScheduleRow) -> None:
    """Withdraw work that was queued and has not begun: the schedule was paused or deleted."""
    inbox.withdraw_conversation(execute, row.conversation)
    conversations.refresh_pending(execute, row.conversation)


def record_change(execute: Execute, row: ScheduleRow, action: str, by: str = "", channel: str = "") -> None:
    """Record in the audit that a schedule was changed, by a person of a channel ("": its own) or ("") the service."""
    what: dict[str, int | str] = {
        "schedule": row.id,
        "action": action,
        "kind": row.kind,
        "what": audit.digest(row.what),
    }
    subject = audit.person_name(row.channel, row.owner)
    event = AuditEvent(
        AuditKind.SCHEDULE_CHANGED, row.place, by, channel=channel or row.channel, subject=subject, what=what
    )
    audit.record(execute, event)


def short_words(row: ScheduleRow, sentence: str, **values: object) -> str:
    """Return a sentence about a schedule."""
    what = shorten(without_formatting(row.what), MAX_TITLE_CHARS)
    return _(sentence, number=row.id, what=what, **values)
