"""Delete what is stored of a person apart from conversations, in small steps that can be repeated."""

from __future__ import annotations

import time
from collections.abc import Collection

import orjson

from agent.messages import Thread
from bot.database import audit
from bot.database.database import Execute
from bot.database.dialect import MERGE_PAGES
from bot.storage import calls, follow_ups
from bot.storage.forgetting import FORGOTTEN_RUN, PersonKey, Traces
from bot.storage.languages import reader_key
from bot.storage.personal import Tables

FIRST_MERGED_PAGES = 16  # of the full-text index
_FORGET_USAGE = f"""UPDATE usage SET run=0, conversation='{FORGOTTEN_RUN}',
    person=CASE WHEN at<:since THEN '' ELSE person END
    WHERE id IN (SELECT id FROM usage WHERE person=:author AND (at<:since OR conversation<>'{FORGOTTEN_RUN}')
        LIMIT :limit) RETURNING 1"""
_FORGET_CHAT_USAGE = """UPDATE usage SET chat=''
    WHERE id IN (SELECT id FROM usage WHERE chat=:chat AND at<:since LIMIT :limit) RETURNING 1"""


def forget_account(execute: Execute, person: PersonKey, traces: Traces, tables: Tables, *, by: str) -> None:
    """Delete what else is stored of the person apart from conversations: schedules, choices, names, grants.

    Roles and what pairing decided stay, without a name: forgetting must not undo a rule.
    """
    values = {"channel": person.channel, "person": person.id, "author": person.key}
    for number in traces.schedules:
        execute("DELETE FROM schedule_fires WHERE schedule=:id", {"id": number})
        execute("DELETE FROM schedules WHERE id=:id", {"id": number})
    for statement in (each for table in tables for each in table.forget):
        execute(statement, {**values, "everywhere": calls.EVERYWHERE})
    readers = [reader_key(Thread(person.channel, "", ""), person.id), *(reader_key(chat, "") for chat in traces.chats)]
    for reader in readers:
        execute("DELETE FROM languages WHERE reader=:reader", {"reader": reader})
        execute("DELETE FROM agent_defaults WHERE reader=:reader", {"reader": reader})
    follow_ups.forget_person(execute, person.key, time.time())
    for row in execute("SELECT key, payload FROM jobs WHERE payload LIKE '%\"who\":%'", {}):  # pings to be pushed
        if orjson.loads(row["payload"]).get("who") == person.id:
            execute("DELETE FROM jobs WHERE key=:key", {"key": row["key"]})
    audit.forget_person(execute, person.channel, person.id, traces.chats, by=by)


def forget_usage(execute: Execute, person: PersonKey, chats: Collection[Thread], since: float, *, limit: int) -> int:
    """Take the person and their runs from some rows of the usage; return how many.

    Those since `since`, the beginning of the month, keep the person until it ends, because budgets are sums of them.
    """
    values = {"author": person.key, "since": since, "limit": limit}
    rows = len(execute(_FORGET_USAGE, values))
    return rows + sum(len(execute(_FORGET_CHAT_USAGE, {**values, "chat": str(chat)})) for chat in chats)


def memory_accounts(execute: Execute, person: PersonKey) -> list[str]:
    """Return the accounts in which a person has memories, or work that waits to be read."""
    sql = "SELECT account FROM memory WHERE owner=:person UNION SELECT account FROM memory_queue WHERE owner=:person"
    found = (str(row["account"]) for row in execute(sql, {"person": person.id}))
    return [account for account in found if account.partition("/")[0] == person.channel]


def begin_merge(execute: Execute) -> None:
    """Begin to merge the full-text index, whose old segments contain deleted words."""
    _merge(execute, -FIRST_MERGED_PAGES)


def merge_index(execute: Execute, *, limit: int) -> int:
    """Merge some pages of the full-text index; return 0 if nothing is left to merge."""
    return int(_merge(execute, limit))


def _merge(execute: Execute, pages: int) -> bool:  # https://www.sqlite.org/fts5.html, "The 'merge' command"
    [before] = execute("SELECT total_changes() AS n", {})
    execute(f"INSERT INTO memory_index{MERGE_PAGES}", {"pages": pages})
    [after] = execute("SELECT total_changes() AS n", {})
    return int(after["n"]) - int(before["n"]) >= 2


def end_forgotten_usage(execute: Execute, since: float) -> int:
    """Drop the person of usage before a time, of people who were forgotten after it; return how many rows."""
    sql = (
        "UPDATE usage SET person='', chat='' WHERE run=0 AND person<>'' AND at<:since"
        f" AND conversation='{FORGOTTEN_RUN}' RETURNING id"
    )
    return len(execute(sql, {"since": since}))
