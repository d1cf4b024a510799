"""Keep what was posted in a thread beside its conversation, until a message brings it to that conversation."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace

from agent.messages import Quote, Thread
from bot.database.database import Execute
from bot.database.rows import insert_row

MAX_CHARS = 4_000  # of one post; its end says that it continues
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
    if len(post.text) > MAX_CHARS:
        post = replace(post, text=post.text[: MAX_CHARS - len(CUT)] + CUT)
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
