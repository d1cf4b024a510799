"""Store the handles that platforms give with events: each until its end, its token as the caller sealed it."""

from __future__ import annotations

from agent.messages import Message, ReplyHandle, Thread
from bot.database.database import Execute
from bot.database.rows import insert_row


def store_handle(execute: Execute, message: Message, handle: ReplyHandle, now: float) -> None:
    """Store the handle of a message, in place of an earlier one, and drop those that have ended."""
    execute("DELETE FROM reply_handles WHERE until<=:now", {"now": now})
    values = {"chat": str(message.thread.without_topic), "message": "" if handle.of_chat else message.id}
    values |= {"token": handle.token, "author": f"{message.thread.channel}:{message.author.id}"}
    rest = ("token", "until", "author")
    insert_row(execute, "reply_handles", "chat, message", {**values, "until": handle.until}, rest)


def find_handle(execute: Execute, thread: Thread, message: str) -> ReplyHandle | None:
    """Return the handle by which to answer a message ("": none in particular), as it is stored."""
    sql = (
        "SELECT token, until, message FROM reply_handles WHERE chat=:chat AND message IN (:message, '')"
        " ORDER BY message DESC LIMIT 1"
    )
    rows = execute(sql, {"chat": str(thread.without_topic), "message": message})
    return ReplyHandle(rows[0]["token"], rows[0]["until"], not rows[0]["message"]) if rows else None


def remove_handles(execute: Execute) -> int:
    """Remove every handle; return how many."""
    return len(execute("DELETE FROM reply_handles RETURNING 1", {}))


def list_tokens(execute: Execute) -> list[tuple[str, str, str]]:
    """Return chat, message and stored token of every handle."""
    rows = execute("SELECT chat, message, token FROM reply_handles", {})
    return [(str(row["chat"]), str(row["message"]), str(row["token"])) for row in rows]


def replace_token(execute: Execute, chat: str, message: str, token: str) -> None:
    """Store a token that was sealed anew; "" drops the handle."""
    key = {"chat": chat, "message": message}
    if not token:
        execute("DELETE FROM reply_handles WHERE chat=:chat AND message=:message", key)
        return
    execute("UPDATE reply_handles SET token=:token WHERE chat=:chat AND message=:message", {**key, "token": token})
