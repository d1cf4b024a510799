"""Define how budgets reserve the cost of a paid call before it and settle it after it. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from agent.context import Meter, ModelCall

R = TypeVar("R")

LEAD = "lead"  # the agent that answers the person
VOICE, EMBEDDING = "voice", "embedding"  # kinds of calls of other endpoints than those of `models`
CHARS_PER_TOKEN = 3  # an estimate on the safe side, where no provider has counted yet


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A paid call that is about to be sent. `input` is an estimate, `output` an upper bound, both in tokens."""

    agent: str
    model: str
    kind: str
    input: int
    output: int
    audio_seconds: float = 0.0  # an upper bound


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


async def reserve_call(meter: Meter, planned: PlannedCall) -> Reservation | Refusal | None:
    """Reserve for a call with the budgets of a turn or job. Returns None if no budget applies."""
    gate = meter.root.gate
    return await gate.reserve(planned) if gate else None


async def count_call(
    meter: Meter,
    held: Reservation | None,
    ask: Callable[[], Awaitable[tuple[R, ModelCall]]],
    is_charged: Callable[[BaseException], bool],
) -> R:
    """Make a call and count it; settle its reservation, also if it fails. `is_charged` judges the error."""
    try:
        result, call = await ask()
    except BaseException as error:
        if held:
            await held.abandon(charged=is_charged(error))
        raise
    meter.add(call, recorded=held is not None)
    if held:
        await held.settle(call)
    return result
