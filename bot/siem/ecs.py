"""Name a row of the audit by the Elastic Common Schema (https://www.elastic.co/docs/reference/ecs).

What the schema has no field for stands below `fawn.`. The body as it was hashed goes along: a receiver can check the
chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from bot.base.version import VERSION
from bot.database.audit import NAMED_FIELDS, AuditKind, AuditRow

ECS_VERSION = "8.17.0"
CATEGORIES: Mapping[
    str, str
] = {  # by the beginning of a kind; https://www.elastic.co/docs/reference/ecs/ecs-allowed-values-event-category
    "pairing": "iam",
    "access": "iam",
    "grant": "iam",
    "key": "iam",
    "page": "authentication",
    "person": "iam",
    "config": "configuration",
    "service": "process",
    "tool": "process",
    "egress": "network",
    "skill": "package",
    "budget": "configuration",
    "schedule": "configuration",
}
MAX_TIME_MS = 253_402_300_800_000  # the year 10000
FAILED = ("denied", "failed", "fault", "refused", "expired", "error", "deny")
OK = ("ok", "done", "allowed", "granted", "approved", "approve", "delivered", "accepted")


def parse_row(row: AuditRow) -> dict[str, Any] | None:
    """Return what a row says; None for one that was damaged, by whoever could write into the database."""
    try:
        event = row.event
        is_whole = 0 <= event["at"] < MAX_TIME_MS and isinstance(event["kind"], str)
        is_whole &= isinstance(event.get("what", {}), dict)
        is_whole &= all(isinstance(event.get(name, ""), str) for name in NAMED_FIELDS)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return event if is_whole else None


def describe_damage(row: AuditRow) -> dict[str, Any]:
    """Return a row that cannot be read, as it is: what comes after it goes out, too."""
    about = {"event.kind": "alert", "event.category": ["intrusion_detection"], "event.action": "audit.damaged"}
    return _envelope(row, datetime.now(UTC)) | about | {"event.outcome": "failure"}


def _envelope(row: AuditRow, at: datetime) -> dict[str, Any]:
    """Return what every row has: which one it is, and its bytes, over which the chain goes."""
    return {
        "@timestamp": at.isoformat(timespec="milliseconds"),
        "ecs.version": ECS_VERSION,
        "event.id": str(row.seq),
        "event.sequence": row.seq,
        "event.hash": row.hash.hex(),
        "event.original": row.body.decode("utf-8", "replace"),
        "service.type": "fawn",
        "service.version": VERSION,
    }


def describe_row(row: AuditRow, event: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a row, which says `event`; `names` says who its pseudonyms are, as far as that is known."""
    kind, result = str(event["kind"]), str(event.get("result", ""))
    who = str(event.get("who", ""))
    found = _envelope(row, datetime.fromtimestamp(event["at"] / 1000, UTC)) | {
        "event.kind": "event",
        "event.category": [CATEGORIES.get(kind.partition(".")[0], "session")],
        "event.action": kind,
        "event.outcome": _outcome(kind, result),
    }
    if who:
        channel, _colon, person = names.get(who, "").partition(":")
        found |= {"user.id": person or who, "user.hash": who} | ({"user.domain": channel} if channel else {})
    elif "user" in event.get("what", {}):
        found["user.name"] = event["what"]["user"]
    for field in ("subject", "where"):
        if alias := event.get(field):
            found[f"fawn.{field}"] = names.get(alias, alias)
    found |= {f"fawn.{field}": event[field] for field in ("run", "result", "cost") if field in event}
    return found | {f"fawn.what.{name}": value for name, value in event.get("what", {}).items()}


def describe_anchor(seq: int, anchor: str) -> dict[str, Any]:
    """Return the head of the chain, signed if a key is configured: what `fawn audit verify --anchor` takes."""
    return {
        "@timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ecs.version": ECS_VERSION,
        "event.id": f"{seq}-anchor",
        "event.kind": "state",
        "event.action": "audit.head",
        "event.outcome": "success",
        "service.type": "fawn",
        "service.version": VERSION,
        "fawn.anchor": anchor,
    }


def as_line(event: Mapping[str, Any]) -> bytes:
    """Return an event as one line of JSON, without its end."""
    return orjson.dumps(event)


def _outcome(kind: str, result: str) -> str:
    """Return the outcome in the words of the schema."""
    word = result.partition(" ")[0].rstrip(":.").lower() or kind.rpartition(".")[2]
    if word.startswith(FAILED) or kind in (AuditKind.ACCESS_DENIED, AuditKind.BUDGET_REFUSED, AuditKind.DEAD_LETTER):
        return "failure"
    return "success" if word in OK or not result else "unknown"
