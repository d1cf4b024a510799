"""Store what was said around the bot in groups whose platform has no history: kept for a while, as context only.

Keep what was posted in a thread beside its conversation, until a message brings it to that conversation.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace

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
        "member": int(message.is_by_person and not message.author.guest),
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
        "SELECT name, text, person, message, member FROM overheard WHERE thread=:thread AND at>=:since"
        " ORDER BY id DESC LIMIT :most",
        {"thread": thread, "since": since, "most": most},
    )
    return tuple(
        Quote(row["name"], row["text"], "earlier", row["person"].partition(":")[2], row["message"], bool(row["member"]))
        for row in reversed(rows)
    )


def end_kept(execute: Execute, before: float, limit: int) -> int:
    """Delete some of what was said before a time; return how many."""
    sql = "DELETE FROM overheard WHERE id IN (SELECT id FROM overheard WHERE at<:before LIMIT :limit) RETURNING 1"
    return len(execute(sql, {"before": before, "limit": limit}))


def end_listening(execute: Execute) -> None:
    """Forget which chats were told: the setting is off, and would have to be announced again."""
    execute("DELETE FROM listening", {})


MAX_POST_CHARS = 4_000  # of one post; its end says that it continues
MAX_POSTS, MAX_TOTAL_CHARS = 20, 20_000  # the latest of a thread
CUT = " […]"
_OF_ADDRESS = re.compile(r"#[0-9]+$")


@dataclass(frozen=True, slots=True)
class SidePost:
    """A post beside a conversation. `key` is that of its row in the outbox, `conversation` who made it, and `origin`
    what it was, for the model: data, never an instruction. `person` is whom it was for ("channel:id")."""

    key: str
    thread: str
    conversation: str
    person: str
    origin: str
    text: str
    at: float


def is_beside(conversation: str) -> bool:
    """Return whether a conversation is not one that an address has: its posts lie beside the thread's conversation."""
    return not _OF_ADDRESS.search(conversation)


def record_side_post(execute: Execute, post: SidePost) -> None:
    """Keep a post for the conversation of its thread. The same key is kept once."""
    if len(post.text) > MAX_POST_CHARS:
        post = replace(post, text=post.text[: MAX_POST_CHARS - len(CUT)] + CUT)
    insert_row(execute, "side_posts", "key", asdict(post))
    execute(
        "DELETE FROM side_posts WHERE thread=:thread AND id NOT IN"
        " (SELECT id FROM side_posts WHERE thread=:thread ORDER BY id DESC LIMIT :most)",
        {"thread": post.thread, "most": MAX_POSTS},
    )


def has_side_posts(execute: Execute, thread: str, conversation: str) -> bool:
    """Return whether something was posted in a thread beside this conversation."""
    sql = "SELECT 1 FROM side_posts WHERE thread=:thread AND conversation<>:conversation LIMIT 1"
    return bool(execute(sql, {"thread": thread, "conversation": conversation}))


def take_side_posts(execute: Execute, thread: str, conversation: str) -> list[SidePost]:
    """Return what was posted in a thread beside this conversation, in order, and keep it no longer."""
    sql = (
        "DELETE FROM side_posts WHERE thread=:thread AND conversation<>:conversation"
        " RETURNING id, key, thread, conversation, person, origin, text, at"
    )
    rows = execute(sql, {"thread": thread, "conversation": conversation})
    names = [field.name for field in fields(SidePost)]
    posts = [SidePost(**{name: row[name] for name in names}) for row in sorted(rows, key=lambda row: int(row["id"]))]
    kept, chars = list[SidePost](), 0
    for post in reversed(posts):
        chars += len(post.text)
        if chars > MAX_TOTAL_CHARS:
            break
        kept.append(post)
    return kept[::-1]


def drop_side_posts(execute: Execute, thread: Thread) -> None:
    """Forget what was posted: a new conversation begins without what was there before."""
    execute("DELETE FROM side_posts WHERE thread=:thread", {"thread": str(thread)})


def to_quote(post: SidePost) -> Quote:
    """Return the post as the conversation gets it."""
    return Quote(post.origin, post.text, "posted", post.person.partition(":")[2])
