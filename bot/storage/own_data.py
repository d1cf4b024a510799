"""Read what is stored of a person, as plain values for an export."""

from __future__ import annotations

from typing import Any

from agent.messages import Thread
from bot.database import audit
from bot.database.database import Execute
from bot.storage.forgetting import PersonKey, Traces, messages_of
from bot.storage.languages import reader_key
from bot.storage.personal import Tables
from bot.storage.transcripts import IS_MADE_UP

MAX_ROWS = 100_000  # of one kind
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


def describe_account(execute: Execute, person: PersonKey, traces: Traces, tables: Tables) -> list[dict[str, Any]]:
    """Return what is stored of a person apart from conversations."""
    reader = reader_key(Thread(person.channel, "", ""), person.id)
    values = {"channel": person.channel, "person": person.id, "author": person.key, "reader": reader}
    values |= {"digest": audit.digest(person.key)}
    found = [
        {"kind": table.exported, **dict(row)}
        for table in tables
        if table.export
        for row in execute(f"{table.export} LIMIT {MAX_ROWS}", values)
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
        f"SELECT kind AS sort, CASE WHEN {IS_MADE_UP} THEN '' ELSE author END AS author, text, step_title,"
        " output, state, at"
        " FROM transcript WHERE conversation=:key ORDER BY id"
    )
    rows = execute(f"{sql} LIMIT {MAX_ROWS}", values) if whole else ()
    found += [{"kind": "transcript", **dict(row)} for row in rows]
    found += [{"kind": "call", **dict(row)} for row in execute(_CALLS, values)]
    return found + [{"kind": "grant", **dict(row)} for row in execute(_GRANTS, values)]
