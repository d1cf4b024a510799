"""Read for an operator what a command is about to change, or why a message has no answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bot.admin.run_trace import look_up_trace
from bot.database.audit import AuditKind, find_aliases, find_names, read_newest
from bot.database.database import Database, Execute
from bot.storage import conversations, inbox, people
from bot.storage.forgetting import PersonKey, count_traces
from bot.storage.runs import find_run

SHOWN = 5  # messages of a thread
SEARCHED = 5000  # newest rows of the audit


def lookups(store: Database) -> Mapping[str, Callable[..., Any]]:
    """Return the operations that only read."""

    async def look_up_person(channel: str, person: str) -> dict[str, Any]:
        return await store.run(partial(_describe_person, person=PersonKey(channel, person)))

    async def why(what: str) -> dict[str, Any]:
        return await store.run(partial(_find_reasons, what=what))

    async def trace(what: str) -> dict[str, Any]:
        return await look_up_trace(store, what)

    return {"forget.look": look_up_person, "why": why, "trace": trace}


def _describe_person(execute: Execute, person: PersonKey) -> dict[str, Any]:
    """Return the name of a person and how much is stored of them; `known` is false if nothing is."""
    row = people.find_person(execute, person.channel, person.id)
    counts = count_traces(execute, person)
    paired = bool(row and (row.allowed or row.operator))
    return {"known": bool(row) or any(counts.values()), "name": row.name if row else "", "paired": paired, **counts}


def _find_reasons(execute: Execute, what: str) -> dict[str, Any]:
    """Return what happened to the message with this key, or to the latest ones of this thread."""
    row = inbox.find_message(execute, what)
    rows = [row] if row else inbox.latest_of_thread(execute, what, SHOWN)
    found = []
    for each in rows:
        run = find_run(execute, each.run) if each.run else None
        state = {"state": int(each.state), "run": run.state if run else "", "kind": each.kind}
        found.append({"key": each.key, "at": each.received, "reason": each.error, **state})
    is_thread = bool(conversations.list_threads(execute, what))
    refused = [] if row else _denials(execute, what)
    return {"what": what, "messages": found, "refused": refused, "known": bool(rows or refused or is_thread)}


def _denials(execute: Execute, address: str) -> list[dict[str, Any]]:
    """Return whose messages in this place were refused lately, the latest first."""
    places = find_aliases(execute, address) if address else set()
    events = [row.event for row in read_newest(execute, SEARCHED)] if places else []
    found = [each for each in events if each["kind"] == AuditKind.ACCESS_DENIED and each.get("where") in places][:SHOWN]
    names = find_names(execute, {each.get("who", "") for each in found})
    return [
        {
            "at": each["at"] / 1000,
            "person": names.get(each.get("who", ""), ""),
            "reason": each.get("what", {}).get("reason", ""),
        }
        for each in found
    ]
