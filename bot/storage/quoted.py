"""Whom messages quote: forgetting a person also reaches what others quoted of them."""

from __future__ import annotations

from dataclasses import replace

from agent.messages import Message
from agent.stored_json import Damaged
from bot.database.database import Execute
from bot.database.rows import insert_row


def record_quotes(execute: Execute, message: Message, conversation: str) -> None:
    """Note whose words a message brings into a conversation."""
    for person in {quote.author_id for quote in message.quotes if quote.author_id}:
        values = {
            "person": f"{message.thread.channel}:{person}",
            "message": message.key,
            "conversation": conversation,
        }
        insert_row(execute, "quoted", "person, message", values, update=("conversation",))


def quoting_conversations(execute: Execute, person: str) -> list[str]:
    """Return the conversations in which somebody quoted this person."""
    rows = execute("SELECT DISTINCT conversation FROM quoted WHERE person=:person", {"person": person})
    return [str(row["conversation"]) for row in rows]


def blank_quotes(execute: Execute, person: str, conversation: str, limit: int) -> int:
    """Take a person's words out of messages of others in a conversation; return how many messages were changed."""
    sql = "SELECT message FROM quoted WHERE person=:person AND conversation=:conversation LIMIT :limit"
    values = {"person": person, "conversation": conversation, "limit": limit}
    keys = [str(row["message"]) for row in execute(sql, values)]
    for key in keys:
        rows = execute("SELECT id, payload FROM inbox WHERE key=:key AND payload<>''", {"key": key})
        for row in rows:
            execute(
                "UPDATE inbox SET payload=:payload WHERE id=:id",
                {"id": row["id"], "payload": _without_person(row["payload"], person)},
            )
        execute("DELETE FROM quoted WHERE person=:person AND message=:key", {"person": person, "key": key})
    return len(keys)


def _without_person(payload: bytes, person: str) -> bytes:
    """Return the message without the quotes of a person; what cannot be read has no place for its words."""
    try:
        message = Message.load(payload)
    except Damaged:
        return b""
    channel = message.thread.channel
    kept = tuple(quote for quote in message.quotes if f"{channel}:{quote.author_id}" != person)
    return replace(message, quotes=kept).dump()
