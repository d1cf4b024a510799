"""Calls of tools that have a rate limit, counted over all processes on a database.

Where one process works alone it counts in memory, and there are none. Times are by the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection

from bot.database.database import Execute
from bot.database.dialect import NOW, AdvisoryLock, lock_until_commit

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
