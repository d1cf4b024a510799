"""The tool ledger: calls with effects, recorded before they start and with their result."""

from __future__ import annotations

from agent.core.context import LedgerEntry
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row

_KEY = "conversation, call"


def begin_call(execute: Execute, conversation: str, call: str) -> LedgerEntry | None:
    """Record that a call starts and return None, or return what is known of its earlier try."""
    new = insert_row(execute, "ledger", _KEY, {"conversation": conversation, "call": call})
    return None if new else find_call(execute, conversation, call)


def find_call(execute: Execute, conversation: str, call: str) -> LedgerEntry | None:
    """Return what is known of a call."""
    sql = "SELECT result FROM ledger WHERE conversation=:conversation AND call=:call"
    return read_row(execute, LedgerEntry, sql, conversation=conversation, call=call)


def record_result(execute: Execute, conversation: str, call: str, result: str) -> None:
    """Record the result of a call."""
    values = {"conversation": conversation, "call": call, "result": result}
    insert_row(execute, "ledger", _KEY, values, update=("result",))


def forget_calls(execute: Execute, conversation: str) -> None:
    """Delete the calls of a conversation, whose turn has ended."""
    execute("DELETE FROM ledger WHERE conversation=:conversation", {"conversation": conversation})
