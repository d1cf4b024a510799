"""Read the newest entries of the audit, of the places of which a person may read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agent.messages import Thread
from bot.database import audit
from bot.database.audit import AuditKind
from bot.database.database import Execute
from bot.database.web_people import WEB, web_id
from bot.rights.access import LOCAL_CHANNEL, AccessPolicy
from bot.rights.deeds import READ_AUDIT
from bot.storage import conversations

MAX_READ_ROWS = 5000  # 30 ms
KINDS = frozenset((*AuditKind, *(kind.partition(".")[0] for kind in AuditKind)))


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Numbered events, the newest first, and the number behind which one more page may have others; None: none."""

    events: Sequence[tuple[int, dict[str, Any]]]
    next: int | None


def newest_events(
    execute: Execute,
    places: Collection[str] | None,
    count: int,
    *,
    kind: str = "",
    person: Collection[str] = (),
    before: int = audit.NEWEST,
) -> AuditPage:
    """Return the newest `count` events of these places (None: of everything) that are wanted, before a number.

    `kind` is a kind, or what comes before its dot. `person` are the pseudonyms of whoever did it or is
    concerned, empty for anybody.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    rows = audit.read_newest(execute, MAX_READ_ROWS, before)
    for row in rows:
        event = row.event
        if person and {event.get("who"), event.get("subject")}.isdisjoint(person):
            continue
        if kind not in ("", event["kind"], str(event["kind"]).partition(".")[0]):
            continue
        if places is None or event.get("where") in places:
            found.append((row.seq, event))
            if len(found) == count:
                return AuditPage(found, row.seq if row.seq != rows[-1].seq or len(rows) == MAX_READ_ROWS else None)
    return AuditPage(found, rows[-1].seq if len(rows) == MAX_READ_ROWS else None)


def aliases_of(execute: Execute, channel: str, person: str) -> set[str]:
    """Return the pseudonyms of a person, on their platform and over HTTP."""
    names = (audit.person_name(channel, person), audit.person_name(WEB, web_id(channel, person)))
    return {alias for name in names if (alias := audit.find_alias(execute, name))}


def readable_places(execute: Execute, access: AccessPolicy, thread: Thread, person: str) -> set[str] | None:
    """Return the pseudonyms of the places of which a person may read the audit from here; None for everything, on the
    console."""
    if thread.channel == LOCAL_CHANNEL:
        return None
    if thread.chat:
        workspaces = access.workspaces_where(execute, thread, person, READ_AUDIT)
    else:  # their direct chat is not known: whoever never wrote there may operate nevertheless
        known = conversations.workspaces_of(execute, thread.channel)
        places = [Thread(thread.channel, workspace, "") for workspace in known]
        workspaces = [place.workspace for place in places if access.may_do(execute, place, person, READ_AUDIT)]
    beginnings = [str(Thread(thread.channel, workspace, "")).removesuffix("/") for workspace in workspaces]
    return set().union(*(audit.find_aliases(execute, each) for each in beginnings))
