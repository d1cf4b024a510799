"""Read what is stored of a person, as plain values for an export."""

from __future__ import annotations

from typing import Any

from agent.messages import Thread
from bot.storage import audit
from bot.storage.database import Execute
from bot.storage.forgetting import PersonKey, Traces, messages_of
from bot.storage.languages import reader_key
from bot.storage.person_roles import OF_PERSON
from bot.storage.transcripts import IS_MADE_UP

MAX_ROWS = 100_000  # of one kind
_ACCOUNT = {
    "person": "SELECT name, zone, memory, notify, notify_where, quiet, digest, push_url<>'' AS has_bark,"
    " allowed, operator"
    " FROM people WHERE channel=:channel AND person=:person",
    "memory": "SELECT kind AS sort, subject, text, confidence, said, thread FROM memory WHERE owner=:person"
    " AND account>=:channel || '/' AND account<:channel || '0' ORDER BY id",
    "usage": "SELECT at, agent, model, kind AS sort, input, output, cached, reasoning, cost, chat FROM usage"
    " WHERE person=:author ORDER BY at",
    "role": f"SELECT subject, role, given FROM person_roles WHERE {OF_PERSON}",
    "task": "SELECT id, kind AS sort, state, title, what, follow_up, thread, created, ended, exit_code, reason"
    " FROM tasks WHERE channel=:channel AND person=:person ORDER BY id",
    "follow_up": "SELECT at, generation FROM follow_ups WHERE person=:digest ORDER BY at",
    "language": "SELECT language FROM languages WHERE reader=:reader",
    "agent": "SELECT agent FROM agent_defaults WHERE reader=:reader",
}
_SCHEDULE = (
    "SELECT id, kind AS sort, what, url, form, expression, zone, state, thread, created FROM schedules WHERE id=:id"
)
_GRANTS = (
    "SELECT tool, subject, given, conversation FROM permission_grants"
    " WHERE conversation=:key AND channel=:channel AND person=:person"
)
_CALLS = (
    "SELECT at, tool, subject, verdict FROM calls WHERE conversation=:key AND person=:author"
    f" ORDER BY id LIMIT {MAX_ROWS}"
)


def describe_account(execute: Execute, person: PersonKey, traces: Traces) -> list[dict[str, Any]]:
    """Return what is stored of a person apart from conversations."""
    reader = reader_key(Thread(person.channel, "", ""), person.id)
    values = {"channel": person.channel, "person": person.id, "author": person.key, "reader": reader}
    values |= {"digest": audit.digest(person.key)}
    found = [
        {"kind": kind, **dict(row)}
        for kind, sql in _ACCOUNT.items()
        for row in execute(f"{sql} LIMIT {MAX_ROWS}", values)
    ]
    found += [
        {"kind": "schedule", **dict(row)} for number in traces.schedules for row in execute(_SCHEDULE, {"id": number})
    ]
    return found + [{"kind": "grant", **dict(row)} for row in execute(_GRANTS, {**values, "key": ""})]


def read_conversation(execute: Execute, key: str, person: PersonKey, *, whole: bool) -> list[dict[str, Any]]:
    """Return what a person wrote in a conversation; with `whole`, also what the agent said and did."""
    values = {"key": key, "channel": person.channel, "person": person.id, "author": person.key}
    found = [
        {
            "kind": "message",
            "sort": message.kind,
            "at": message.time,
            "thread": str(message.thread),
            "text": message.text,
            "files": [file.name for file in message.attachments],
        }
        for message in messages_of(execute, person, key)
        if message.is_by_person
    ]
    sql = (
        f"SELECT kind AS sort, CASE WHEN {IS_MADE_UP} THEN '' ELSE author END AS author, text, state, at"
        " FROM transcript WHERE conversation=:key ORDER BY id"
    )
    rows = execute(f"{sql} LIMIT {MAX_ROWS}", values) if whole else ()
    found += [{"kind": "transcript", **dict(row)} for row in rows]
    found += [{"kind": "call", **dict(row)} for row in execute(_CALLS, values)]
    return found + [{"kind": "grant", **dict(row)} for row in execute(_GRANTS, values)]
