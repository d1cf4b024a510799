"""The agents and models that people chose: for a conversation, for themselves on a channel; agents also for a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.messages import Thread
from bot.database.database import Execute
from bot.database.rows import insert_row
from bot.storage.conversations import ConversationRow
from bot.storage.languages import CHAT, reader_key

DEFAULT = "default"  # the choice of the default agent, where a person or chat chose another one


def choose_agent(execute: Execute, conversation: str, agent: str) -> None:
    """Record which agent answers in a conversation from the next turn on."""
    execute("UPDATE conversations SET agent=:agent WHERE key=:key", {"key": conversation, "agent": agent})


def choose_default_agent(execute: Execute, thread: Thread, person: str, agent: str) -> None:
    """Store the agent of a person on this channel, or of this chat where the person is CHAT."""
    _store_default(execute, thread, person, {"agent": agent})


def choose_default_model(execute: Execute, thread: Thread, person: str, model: str, effort: str) -> None:
    """Store the model of a person on this channel; "" for none."""
    _store_default(execute, thread, person, {"model": model, "effort": effort})


def _store_default(execute: Execute, thread: Thread, person: str, chosen: Mapping[str, str]) -> None:
    values = {"reader": reader_key(thread, person), "agent": "", **chosen}
    insert_row(execute, "agent_defaults", "reader", values, update=tuple(chosen))


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model ("": that of the agent) with its effort ("": the configured one). `own`: a person chose it for themselves
    and nobody chose one for the conversation."""

    model: str = ""
    effort: str = ""
    own: bool = False


@dataclass(frozen=True, slots=True)
class Choices:
    """What was chosen: the agent ("": the default one) and the model."""

    agent: str
    model: ChosenModel


def choices_of(execute: Execute, row: ConversationRow, thread: Thread, person: str) -> Choices:
    """Return what was chosen in a conversation, or else by the person; or else the agent of the chat."""
    readers = {"person": reader_key(thread, person), "chat": reader_key(thread, CHAT)}
    sql = "SELECT reader, agent, model, effort FROM agent_defaults WHERE reader IN (:person, :chat)"
    found = {str(each["reader"]): each for each in execute(sql, readers)}
    own, of_chat = found.get(readers["person"]) if person else None, found.get(readers["chat"])
    agent = row.agent or (own and str(own["agent"])) or (of_chat and str(of_chat["agent"])) or ""
    model = ChosenModel(row.model, row.effort)
    if own and own["model"] and not row.model:
        model = ChosenModel(str(own["model"]), str(own["effort"]), own=True)
    return Choices("" if agent == DEFAULT else agent, model)
