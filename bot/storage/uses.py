"""Read which messages and tool calls count for the rate limits, from the rows that record them anyway.

Calls of tools that have a rate limit, counted over all processes on a database.

Where one process works alone it counts in memory, and there are none. Times are by the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import orjson

from agent.messages import Kind
from bot.database import audit
from bot.database.audit import AuditKind
from bot.database.database import Execute
from bot.database.dialect import BODY_BYTES, NOW, AdvisoryLock, lock_until_commit

RATE_LIMIT = "rate limit"  # why a row of the inbox was refused
FORGOTTEN = "forgotten"  # the same of a row whose person is forgotten
OF_FORGOTTEN = f"author>='{FORGOTTEN}:' AND author<'{FORGOTTEN};'"  # while they count: `author`, `bundle` are digests
_TOOL_RESULT = f'"{AuditKind.TOOL_RESULT}"'.encode()


class MessageUse(NamedTuple):
    """A message or command of a person, `author` with the channel; `payload` is that of a command.

    `thread` is that of the conversation, "" if it was deleted."""

    author: str
    conversation: str
    thread: str
    bundle: str
    received: float
    payload: bytes


class ForgottenUse(NamedTuple):
    """A message of somebody who was forgotten: digests of the person and of the chat."""

    author: str
    chat: str
    received: float


def forgotten_name(name: str) -> str:
    """Return what stands for a person or a chat in the row of a forgotten message."""
    return f"{FORGOTTEN}:{audit.digest(name)}"


def read_forgotten_uses(execute: Execute, since: float, before_row: int) -> list[ForgottenUse]:
    """Return the forgotten messages since this unix time that still count, in order, as `read_message_uses` does."""
    sql = (
        f"SELECT author, bundle AS chat, received FROM inbox WHERE {OF_FORGOTTEN} AND received>:since AND id<:before"
        " ORDER BY received"
    )
    return [*map(ForgottenUse._make, execute(sql, {"since": since, "before": before_row}))]


def read_message_uses(execute: Execute, since: float, before_row: int) -> list[MessageUse]:
    """Return what people sent since this unix time and was not refused, in order, without rows from `before_row` on.

    Rows that Fawn makes of a command or a schedule have a key that does not begin with the channel.
    """
    sql = (
        "SELECT author, conversation, coalesce(c.thread, '') AS thread, bundle, received,"
        f" CASE WHEN kind='{Kind.COMMAND}' THEN payload ELSE '' END AS payload"
        " FROM inbox LEFT JOIN conversations c ON c.key=conversation WHERE received>:since"
        f" AND id<:before AND kind IN ('{Kind.CHAT}', '{Kind.COMMAND}') AND error<>'{RATE_LIMIT}'"
        " AND inbox.key LIKE substr(author, 1, instr(author, ':')-1) || '%' ORDER BY received"
    )
    return [*map(MessageUse._make, execute(sql, {"since": since, "before": before_row}))]


def read_tool_uses(execute: Execute, before: int, limit: int) -> tuple[int, float, Sequence[tuple[str, float]]]:
    """Return the tool calls that the audit has in the `limit` rows below number `before`: names with unix times.

    They come with the lowest number and the earliest time read; 0 and 0.0 where there are no rows.
    """
    sql = f"SELECT seq, {BODY_BYTES} AS body FROM audit WHERE seq<:before ORDER BY seq DESC LIMIT :limit"
    rows = execute(sql, {"before": before, "limit": limit})
    if not rows:
        return 0, 0.0, ()
    found = []
    for row in rows:
        if _TOOL_RESULT in row["body"]:
            event = orjson.loads(row["body"])
            if event.get("result") in ("success", "error") and (tool := event.get("what", {}).get("tool")):
                found.append((tool, event["at"] / 1000))
    earliest = orjson.loads(rows[-1]["body"]).get("at", 0) / 1000
    return int(rows[-1]["seq"]), earliest, found


_LOCK = lock_until_commit(AdvisoryLock.TOOLS)


def take_tool_use(
    execute: Execute, key: str, tool: str, limits: Collection[tuple[int, float]], kept_seconds: float
) -> float | None:
    """Count a call under a key, or return in how many seconds there is room. A key that was counted counts once.

    `limits` are counts with the seconds in which they hold. A call that is refused does not count.
    Older uses than `kept_seconds` count for no tool, and are deleted.
    """
    execute(_LOCK, {})
    if execute("SELECT 1 FROM tool_uses WHERE key=:key", {"key": key}):
        return None
    execute(f"DELETE FROM tool_uses WHERE at<={NOW}-:kept", {"kept": kept_seconds})
    waits = [_seconds_left(execute, tool, count, seconds) for count, seconds in limits]
    if wait := max(waits):
        return wait
    execute(f"INSERT INTO tool_uses(key, tool, at) VALUES (:key, :tool, {NOW})", {"key": key, "tool": tool})
    return None


def _seconds_left(execute: Execute, tool: str, count: int, seconds: float) -> float:
    """Return in how many seconds there is room for one more call; 0.0: now."""
    sql = (
        f"SELECT at+:seconds-{NOW} AS wait FROM tool_uses WHERE tool=:tool AND at>{NOW}-:seconds"
        " ORDER BY at DESC LIMIT 1 OFFSET :skipped"
    )
    rows = execute(sql, {"seconds": seconds, "tool": tool, "skipped": count - 1})
    return max(0.001, float(rows[0]["wait"])) if rows else 0.0
