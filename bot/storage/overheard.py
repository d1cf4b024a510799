"""Store what was said around the bot in groups whose platform has no history: kept for a while, as context only."""

from __future__ import annotations

from agent.messages import Message, Quote, Thread
from bot.database.audit import person_name
from bot.database.database import Execute
from bot.database.rows import insert_row

MAX_CHARS = 2_000  # of one message
MAX_MESSAGES = 100  # the latest of a thread


def is_listening(execute: Execute, chat: Thread) -> bool:
    """Return whether a chat was told that its talk is kept."""
    return bool(execute("SELECT 1 FROM listening WHERE chat=:chat", {"chat": str(chat)}))


def begin_listening(execute: Execute, chat: Thread, now: float) -> None:
    """Record that a chat was told."""
    insert_row(execute, "listening", "chat", {"chat": str(chat), "since": now})


def keep_message(execute: Execute, message: Message) -> None:
    """Keep a message that was not for the bot. The same key is kept once."""
    thread = str(message.thread)
    values = {
        "key": message.key,
        "thread": thread,
        "person": person_name(message.thread.channel, message.author.id),
        "name": message.author.name,
        "message": message.id,
        "text": message.text[:MAX_CHARS],
        "at": message.time,
    }
    insert_row(execute, "overheard", "key", values)
    execute(
        "DELETE FROM overheard WHERE thread=:thread AND id<="
        " (SELECT id FROM overheard WHERE thread=:thread ORDER BY id DESC LIMIT 1 OFFSET :most)",
        {"thread": thread, "most": MAX_MESSAGES},
    )


def change_message(execute: Execute, key: str, text: str) -> None:
    """Change a kept message as its author did; "" deletes it."""
    if text:
        execute("UPDATE overheard SET text=:text WHERE key=:key", {"key": key, "text": text[:MAX_CHARS]})
    else:
        execute("DELETE FROM overheard WHERE key=:key", {"key": key})


def kept_talk(execute: Execute, thread: str, since: float, most: int) -> tuple[Quote, ...]:
    """Return the latest messages of a thread since a time, oldest first. Telegram counts whole seconds."""
    rows = execute(
        "SELECT name, text, person, message FROM overheard WHERE thread=:thread AND at>=:since"
        " ORDER BY id DESC LIMIT :most",
        {"thread": thread, "since": since, "most": most},
    )
    return tuple(
        Quote(row["name"], row["text"], "earlier", row["person"].partition(":")[2], row["message"])
        for row in reversed(rows)
    )


def end_kept(execute: Execute, before: float, limit: int) -> int:
    """Delete some of what was said before a time; return how many."""
    sql = "DELETE FROM overheard WHERE id IN (SELECT id FROM overheard WHERE at<:before LIMIT :limit) RETURNING 1"
    return len(execute(sql, {"before": before, "limit": limit}))


def end_listening(execute: Execute) -> None:
    """Forget which chats were told: the setting is off, and would have to be announced again."""
    execute("DELETE FROM listening", {})
