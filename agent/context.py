"""Inputs of a turn and the services it depends on.

`Turn` is the work. `TurnContext` is everything around it that outlives the turn: the sandbox, the tool ledger, the
steering queue. The bot implements them over the store; tests use small real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol, TypeVar

from agent.blocks import Usage
from agent.messages import Message
from sandbox.base import SandboxHandle

T = TypeVar("T")

Execute = Callable[[str, Mapping[str, Any]], Sequence[Any]]
"""Run one SQL statement with named parameters inside a transaction and give its rows (index by column name)."""


class TransactionRunner(Protocol):
    """Where checkpoints live: a whole transaction in one hop, concurrent ones share one fsync."""

    async def run(self, work: Callable[[Execute], T]) -> T:
        """Run `work` in a transaction and commit. Whatever it raises rolls it back and is raised here."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file that came with a message: where it is for the agent, or why it is not there."""

    name: str
    path: str = ""  # virtual, "" when refused
    size: int = 0
    refused: str = ""  # e.g. "exceeds the 20 MB download limit"


@dataclass(frozen=True, slots=True)
class UserInput:
    """One message for the agent with the files it brought."""

    message: Message
    uploads: tuple[UploadedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said to an open question. `id` is the interrupt's id, `key` that of the message that says it."""

    id: str
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one conversation.

    `conversation` is the checkpoint thread. `fresh` promises that nothing unfinished can be in the checkpoint (the
    last turn ended cleanly and this is the first attempt), which saves a look at it. `answers` resume interrupts, as
    many as were answered.
    """

    conversation: str
    inputs: tuple[UserInput, ...]
    model: str = ""  # "" = the configured lead model
    answers: tuple[Answer, ...] = ()
    fresh: bool = False
    merge_window_seconds: float = 0.2  # seconds over which deltas may be merged


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the ledger knows of a tool call that was started before: its `result`, or None when it never ended."""

    result: str | None


class ToolLedger(Protocol):
    """Effects happen once: keyed by conversation and tool call id, committed before and after the call."""

    async def begin(self, call: str) -> LedgerEntry | None:
        """None: go ahead (and it is recorded as started). Else what is known of the earlier try."""

    async def end(self, call: str, result: str) -> None:
        """Record the result."""


@dataclass(slots=True)
class Meter:
    """What the model calls of a turn cost, counted as each one ends. `model` is the one that answered last."""

    total: Usage = field(default_factory=Usage)
    model: str = ""
    _untaken: Usage = field(default_factory=Usage, init=False)

    def add(self, usage: Usage, model: str = "") -> None:
        """Count a call. Calls that the person did not choose the model of (summaries, titles) name none."""
        self.total = _sum(self.total, usage)
        self._untaken = _sum(self._untaken, usage)
        self.model = model or self.model

    def take_unrecorded(self) -> Usage:
        """What was counted since this was last asked: whoever asks records it."""
        taken, self._untaken = self._untaken, Usage()
        return taken

    def put_back(self, usage: Usage) -> None:
        """What was taken could not be recorded."""
        self._untaken = _sum(self._untaken, usage)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(*(a + b for a, b in zip(astuple(one), astuple(other), strict=True)))


class SteeringQueue(Protocol):
    """What people wrote into the conversation since the turn began."""

    async def take_unread(self) -> tuple[UserInput, ...]:
        """New messages, each given only once per turn. Cheap when there are none."""


@dataclass(slots=True)
class TurnContext:
    """The surroundings of one turn; handed to LangGraph as its runtime context."""

    sandbox: SandboxHandle
    ledger: ToolLedger
    steering: SteeringQueue
    taken_steering: list[UserInput] = field(default_factory=list)  # what steering took into this turn
    meter: Meter = field(default_factory=Meter)
