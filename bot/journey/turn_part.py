"""Let a feature act in a turn: before the agent works, and in the transaction that ends the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent.blocks import Final
from agent.core.context import TurnContext
from bot.database.database import Execute
from bot.database.states import OutboxKind, RunState
from bot.journey.artifacts import Artifacts
from bot.journey.running_turn import Account
from bot.rights.claimed_run import ClaimedRun
from bot.storage.usage import RequestPart
from channels.base import Channel

OutboxRow: TypeAlias = tuple[OutboxKind, str, bytes]
"""The kind, key and payload of a row of the outbox."""


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """A run that ends, as the features see it. `answers` is whether its reply is posted."""

    job: ClaimedRun
    state: RunState
    text: str
    collected: Artifacts
    channel: Channel | None
    answers: bool
    now: float
    parts: Sequence[RequestPart]  # the model calls of its request


async def _prepare_nothing(_context: TurnContext) -> None:
    """The part has nothing to give to the agent."""


def _end_nothing(_execute: Execute, _ended: EndedTurn) -> Sequence[OutboxRow]:
    return ()


def _suspend_nothing(_execute: Execute) -> None:
    """A later process continues, and ends the part."""


def _present_as_is(_execute: Execute, _ended: EndedTurn, final: Final) -> Final:
    return final


@dataclass(frozen=True, slots=True)
class TurnPart:
    """The part of one feature in one turn. `end` returns what goes out after the reply, which `present` may change if
    it is posted; `suspend` takes their place where a later process continues the run. All may come again, after a
    fault of the database."""

    prepare: Callable[[TurnContext], Awaitable[None]] = _prepare_nothing
    end: Callable[[Execute, EndedTurn], Sequence[OutboxRow]] = _end_nothing
    suspend: Callable[[Execute], None] = _suspend_nothing
    present: Callable[[Execute, EndedTurn, Final], Final] = _present_as_is


MakeTurnPart: TypeAlias = Callable[[ClaimedRun, Account], TurnPart]
"""Makes the part of a feature in a turn."""
