"""Inputs of a turn and the services it depends on.

`Turn` is the input. `TurnContext` holds the services: sandbox, tool ledger and steering queue. The bot implements them
over its storage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol, TypeVar

from agent.blocks import Usage
from agent.messages import Message
from sandbox.base import SandboxHandle

T = TypeVar("T")

Execute = Callable[[str, Mapping[str, Any]], Sequence[Any]]
"""Run one SQL statement with named parameters in a transaction and return its rows, indexed by column name."""


MakePreviewLink = Callable[[object, int], Awaitable[str]]
"""Make a link to a port of a sandbox. Raises SandboxError."""


class TransactionRunner(Protocol):
    """The database of the checkpoints."""

    async def run(self, work: Callable[[Execute], T]) -> T:
        """Run `work` in a transaction and commit. If it raises, roll back and raise the same error."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a message: its path for the agent, or why it was refused."""

    name: str
    path: str = ""  # in the sandbox, "" if refused
    size: int = 0  # bytes
    refused: str = ""  # e.g. "exceeds the 20 MB download limit"


@dataclass(frozen=True, slots=True)
class UserInput:
    """One message for the agent, with its files."""

    message: Message
    uploads: tuple[UploadedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an open question: `id` is the interrupt's id, `key` the key of the message."""

    id: str
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one conversation.

    `conversation` is the checkpoint thread. `fresh` means that the checkpoint needs no check for unfinished work: the
    last turn ended cleanly, and this is the first attempt. `answers` resume interrupts.
    """

    conversation: str
    inputs: tuple[UserInput, ...]
    model: str = ""  # "" = the configured lead model
    answers: tuple[Answer, ...] = ()
    fresh: bool = False
    merge_window_seconds: float = 0.2  # how long text deltas are merged


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A tool call that was started before: its `result`, or None if it did not end."""

    result: str | None


class ToolLedger(Protocol):
    """Records tool calls of a conversation, so that effects happen once. Each method commits."""

    async def begin(self, call: str) -> LedgerEntry | None:
        """Record the call as started and return None, or return the entry of an earlier attempt."""

    async def end(self, call: str, result: str) -> None:
        """Record the result."""


@dataclass(slots=True)
class Meter:
    """Usage of a turn, counted after each model call. `model` is the one that answered last."""

    total: Usage = field(default_factory=Usage)
    model: str = ""
    _unrecorded: Usage = field(default_factory=Usage, init=False)

    def add(self, usage: Usage, model: str = "") -> None:
        """Count a call. Summaries and titles do not name their model, because the person did not choose it."""
        self.total = _add_usages(self.total, usage)
        self._unrecorded = _add_usages(self._unrecorded, usage)
        self.model = model or self.model

    def take_unrecorded(self) -> Usage:
        """Return the usage counted since the last call; the caller records it."""
        taken, self._unrecorded = self._unrecorded, Usage()
        return taken

    def put_back(self, usage: Usage) -> None:
        """Return usage that could not be recorded."""
        self._unrecorded = _add_usages(self._unrecorded, usage)


def _add_usages(one: Usage, other: Usage) -> Usage:
    return Usage(*(a + b for a, b in zip(astuple(one), astuple(other), strict=True)))


class SteeringQueue(Protocol):
    """Messages that people send while a turn runs."""

    async def take_unread(self) -> tuple[UserInput, ...]:
        """Return new messages, each once per turn. Cheap if there are none."""


@dataclass(slots=True)
class TurnContext:
    """The services of one turn, passed to LangGraph as its runtime context."""

    sandbox: SandboxHandle
    ledger: ToolLedger
    steering: SteeringQueue
    taken_steering: list[UserInput] = field(default_factory=list)  # messages that joined this turn
    meter: Meter = field(default_factory=Meter)
