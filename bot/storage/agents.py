"""The named agents that people chose with /agents: for a conversation, for themselves on a channel, and for a chat."""

from __future__ import annotations

from agent.messages import Thread
from bot.database.database import Execute
from bot.database.rows import insert_row
from bot.storage.languages import CHAT, reader_key

DEFAULT = "default"  # the choice of the default agent, where a person or chat chose another one


def choose_agent(execute: Execute, conversation: str, agent: str) -> None:
    """Record which agent answers in a conversation from the next turn on."""
    execute("UPDATE conversations SET agent=:agent WHERE key=:key", {"key": conversation, "agent": agent})


def choose_default_agent(execute: Execute, thread: Thread, person: str, agent: str) -> None:
    """Store the agent of a person on this channel, or of this chat where the person is CHAT."""
    insert_row(
        execute, "agent_defaults", "reader", {"reader": reader_key(thread, person), "agent": agent}, update=("agent",)
    )


def agent_of(execute: Execute, chosen: str, thread: Thread, person: str) -> str:
    """Return the agent: `chosen` in the conversation, by the person, by the chat; "" for the default one."""
    readers = {"person": reader_key(thread, person), "chat": reader_key(thread, CHAT)}
    rows = execute("SELECT reader, agent FROM agent_defaults WHERE reader IN (:person, :chat)", readers)
    found = {str(row["reader"]): str(row["agent"]) for row in rows}
    agent = chosen or (person and found.get(readers["person"])) or found.get(readers["chat"]) or ""
    return "" if agent == DEFAULT else agent
