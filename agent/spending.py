"""Define how budgets reserve the cost of a model call before it and settle it after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agent.context import ModelCall


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A model call that is about to be sent. `input` is an estimate, `output` an upper bound, both in tokens."""

    agent: str
    model: str
    kind: str
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not be made, for the person. `other_model`: a call of another model may be allowed."""

    what: str
    what_to_do: str
    other_model: bool = False


class Reservation(Protocol):
    """A part of the budgets that is held for one call. Ends once, by either method, also if its task is cancelled."""

    async def settle(self, call: ModelCall) -> None:
        """Record the call in place of the reservation."""

    async def abandon(self, *, charged: bool) -> None:
        """End the reservation of a call without an answer. If it was `charged`, its input counts."""


class SpendingGate(Protocol):
    """The budgets of one turn or background job."""

    async def reserve(self, planned: PlannedCall) -> Reservation | Refusal | None:
        """Reserve for a call; wait while running calls hold what is left. Returns None if no budget applies."""

    def take_warnings(self) -> list[str]:
        """Return the sentences about budgets that are nearly used up, each once."""
