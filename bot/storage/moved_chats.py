"""Move what belongs to a chat to its new address: a Telegram group that becomes a supergroup gets another id.

MOVED and KEPT together are all columns that hold an address of a chat, or its id.
"""

from __future__ import annotations

from agent.messages import Thread
from bot.database.database import Execute
from bot.database.states import OutboxState
from bot.storage.budgets import forget_sums
from bot.storage.memory import move_memories
from bot.storage.people import chat_subject

MOVED = (
    "posts.thread",
    "conversations.thread",
    "schedules.thread",
    "tasks.thread",
    "held_pings.thread",
    "side_posts.thread",
    "overheard.thread",
    "listening.chat",
    "questions.asked_in",
    "usage.chat",
    "calls.thread",
    "permission_grants.place",
    "languages.reader",
    "agent_defaults.reader",
    "memory.thread",
)
"""Columns with `str(Thread)`."""

REPLACED = ("listening.chat", "languages.reader", "agent_defaults.reader")
"""Keys among them: where the new address has a row already, that of the old one replaces it."""

MOVED_OTHERWISE = (
    "addresses.thread",
    "outbox.thread",
    "memory.audience",
    "memory_index.audience",
    "person_roles.subject",
    "budgets.scope",
)

KEPT = {
    "hook_groups.thread": "the address in the configuration, by which the next delivery is found",
    "hook_groups.place": "a thread below a message, which no platform moves that has them",
    "waiting_numbers.subject": "a digest of a question",
    "hand_overs.subject": "the same",
    "web_files.thread": "a thread of the HTTP API, which no platform moves",
    "web_threads.thread": "the same",
    "budget_holds.scope": "a hold ends with its call, soon",
    "plan_holds.scope": "a hold ends with its request; the counters of the budgets are summed again",
    "*.conversation": "the name of a conversation, which it keeps",
    "conversations.key": "the same",
    "addresses.conversation": "the same",
    "checkpoints.thread": "the same",
    "checkpoint_writes.thread": "the same",
    "heard.chat": "how far the old chat was read",
    "heard.workspace": "the same",
    "heard.topic": "the same",
    "reply_handles.chat": "no platform that moves chats gives handles",
    "gaps.workspace": "no chat",
    "people.thread": "a direct chat",
    "audit_names.name": "where something happened then",
    "inbox.payload": "what arrived then",
    "inbox.key": "the same",
    "side_posts.key": "the same",
    "overheard.key": "the same",
    "outbox.payload": "what is delivered, without its address",
    "jobs.payload": "short work; what it posts goes to the chat as it was",
    "memory.account": "no chat",
    "memory_queue.account": "no chat",
    "memory.subject": "what a note is about",
    "permission_grants.subject": "what a call is about",
    "calls.subject": "the same",
}


def move_chat(execute: Execute, old: Thread, new: Thread) -> None:
    """Move what belongs to a chat to its new address."""
    values = {"old": str(old), "new": str(new)}
    execute(
        "INSERT INTO addresses(thread, conversation, count)"
        " SELECT :new, conversation, count FROM addresses WHERE thread=:old"
        " ON CONFLICT(thread) DO UPDATE SET conversation=excluded.conversation, count=excluded.count",
        values,
    )
    for column in MOVED:
        table, _dot, name = column.partition(".")
        if column in REPLACED:
            execute(
                f"DELETE FROM {table} WHERE {name}=:new AND EXISTS (SELECT 1 FROM {table} WHERE {name}=:old)", values
            )
        execute(f"UPDATE {table} SET {name}=:new WHERE {name}=:old", values)
    move_memories(execute, old, new)
    forget_sums(execute)
    subjects = {"channel": old.channel, "old": chat_subject(old.chat), "new": chat_subject(new.chat)}
    of_channel = "person_roles WHERE channel=:channel AND subject"
    execute(f"DELETE FROM {of_channel}=:new AND EXISTS (SELECT 1 FROM {of_channel}=:old)", subjects)
    execute("UPDATE person_roles SET subject=:new WHERE channel=:channel AND subject=:old", subjects)
    execute(
        f"UPDATE outbox SET thread=:new WHERE thread=:old AND state IN ({OutboxState.NEW}, {OutboxState.CLAIMED})",
        values,
    )
