"""Define how budgets reserve the cost of a paid call before it and settle it after it. Imports nothing heavy.

Expect the cost of a request by those before it, and ask when it costs more.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict, TypeVar

from agent.blocks import Usage
from agent.outcomes import CallOutcome
from agent.spans import SpanKind, note_event, note_here, open_span

R = TypeVar("R")

ASCII_CHARS_PER_TOKEN = 3

LEAD = "lead"  # the agent that answers the person
TURN = "turn"  # the kind of the calls in which an agent works
VOICE, EMBEDDING = "voice", "embedding"  # kinds of calls of other endpoints than those of `models`
SANDBOX = "sandbox"  # the kind of the use of a sandbox, which is no call
EXTERNAL = "external"  # the kind of the work of an external agent, which pays with keys of its own


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A finished paid call with its tokens, as far as the provider reports them. `at` is its end in unix time."""

    agent: str
    model: str  # the name of its configuration entry
    kind: str  # turn, summary, title, evaluation, memory, voice, embedding
    input: int
    output: int
    cached: int
    reasoning: int
    seconds: float
    at: float
    audio_seconds: float = 0.0  # of a voice message; it has its price, and is not stored
    reported_cost: int | None = None  # in micro-dollars, where only the other side knows it


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A paid call that is about to be sent. `input` is an estimate, `output` an upper bound, both in tokens."""

    agent: str
    model: str
    kind: str
    input: int
    output: int
    audio_seconds: float = 0.0  # an upper bound

    def cut_off(self, output: int = 0, seconds: float = 0.0) -> ModelCall:
        """Return the call as it counts if it ends now, after so many tokens of its answer."""
        name, at = (self.agent, self.model, self.kind), time.time()
        return ModelCall(*name, self.input, output, 0, 0, seconds, at, audio_seconds=self.audio_seconds)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not be made, for the person. `other_model`: a call of another model may be allowed.

    `scope` is that of the budget that is used up, or `price` where a price is unknown.
    """

    what: str
    what_to_do: str
    other_model: bool = False
    scope: str = "price"


class Reservation(Protocol):
    """A part of the budgets that is held for one call. Ends once, by either method, also if its task is cancelled."""

    async def settle(self, call: ModelCall) -> None:
        """Record the call in place of the reservation."""

    async def cancel(self) -> None:
        """Give the reservation back: the call cost nothing."""


class SpendingGate(Protocol):
    """The budgets of one turn or background job."""

    async def reserve(self, planned: PlannedCall) -> Reservation | Refusal | None:
        """Reserve for a call; wait while running calls hold what is left. Returns None if no budget applies."""

    def take_warnings(self) -> list[str]:
        """Return the sentences about budgets that are nearly used up, each once."""


@dataclass(eq=False, slots=True)
class Meter:
    """The model calls of a turn, with those of its sub-agents and summaries. A part's calls count in its `whole`.

    `gate` are the budgets that apply; None: no budget is configured. The root knows the `conversation` of its turn, the
    calls that were `made`, and the `outcomes` of all calls of tools and skills and of the failed ones of models.
    """

    total: Usage = field(default_factory=Usage)
    whole: Meter | None = None
    gate: SpendingGate | None = None
    conversation: str = ""
    made: list[ModelCall] = field(default_factory=list)
    outcomes: list[CallOutcome] = field(default_factory=list)
    _unrecorded: list[ModelCall] = field(default_factory=list, init=False)

    @property
    def root(self) -> Meter:
        """The meter of the whole turn, which identifies it."""
        return self.whole.root if self.whole else self

    def add(self, call: ModelCall, *, recorded: bool = False) -> None:
        """Count a call. Unless it is `recorded` already, `take_unrecorded` returns it."""
        names = ("input", "output", "cached", "reasoning")
        sums = {name: getattr(self.total, name) + getattr(call, name) for name in names}
        self.total = Usage(**sums, calls=self.total.calls + 1)
        if self.whole:
            self.whole.add(call, recorded=recorded)
            return
        self.made.append(call)
        if not recorded:
            self._unrecorded.append(call)

    @property
    def unrecorded(self) -> Sequence[ModelCall]:
        """The calls that `take_unrecorded` would return."""
        return tuple(self._unrecorded)

    def note(self, outcome: CallOutcome) -> None:
        """Keep how a call ended."""
        self.root.outcomes.append(outcome)

    def take_unrecorded(self) -> list[ModelCall]:
        """Return the calls since the last call of this method; the caller records them."""
        taken, self._unrecorded = self._unrecorded, []
        return taken

    def put_back(self, calls: list[ModelCall]) -> None:
        """Return calls that could not be recorded."""
        self._unrecorded = calls + self._unrecorded


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text. Other letters than ASCII count as one each: Chinese has about 0.7 a character."""
    if text.isascii():
        return -(-len(text) // ASCII_CHARS_PER_TOKEN)
    ascii_chars = len(text.encode("ascii", "ignore"))
    return len(text) - ascii_chars + -(-ascii_chars // ASCII_CHARS_PER_TOKEN)


async def reserve_call(meter: Meter, planned: PlannedCall) -> Reservation | Refusal | None:
    """Reserve for a call with the budgets of a turn or job. Returns None if no budget applies."""
    gate = meter.root.gate
    held = await gate.reserve(planned) if gate else None
    if isinstance(held, Refusal):
        note_event(SpanKind.REFUSAL, held.scope)
    return held


async def count_call(
    meter: Meter,
    planned: PlannedCall,
    held: Reservation | None,
    ask: Callable[[], Awaitable[tuple[R, ModelCall]]],
    charge_of: Callable[[BaseException], ModelCall | None],
) -> R:
    """Make a call and count it; settle its reservation, also if it fails.

    `charge_of` returns what a call that ended with this error cost; None: nothing.
    """
    with open_span(SpanKind.MODEL, planned.model, sort=planned.kind, agent=planned.agent):
        try:
            result, call = await ask()
        except BaseException as error:
            if cut_off := charge_of(error):
                await _count(meter, held, cut_off)
            elif held:
                await held.cancel()
            raise
        await _count(meter, held, call)
    return result


def cut_off_charge(
    planned: PlannedCall, is_charged: Callable[[BaseException], bool]
) -> Callable[[BaseException], ModelCall | None]:
    """Return the `charge_of` of a call that begins now and costs its input where it was sent, whatever came back."""
    began = time.monotonic()
    return lambda error: planned.cut_off(seconds=time.monotonic() - began) if is_charged(error) else None


async def _count(meter: Meter, held: Reservation | None, call: ModelCall) -> None:
    meter.add(call, recorded=held is not None)
    note_here(call=call)
    if held:
        await held.settle(call)


Unit = Literal["money", "tokens"]
"""Micro-dollars; tokens where a price is unknown."""


class CostBound(TypedDict):
    """What a person agreed to: the amount above which the request asks, and what budgets of tokens hold for it."""

    amount: int
    unit: Unit
    tokens: int


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """What the person is told, and the amount above which the request asks; None: nothing is known."""

    text: str
    amount: int | None = None
    unit: Unit = "money"
    tokens: int = 0  # which budgets of tokens hold


class CostHistory(Protocol):
    """The costs of earlier requests and of this one, which may consist of several runs with questions between them."""

    async def expected(self) -> ExpectedCost:
        """Return what a request with a plan costs: what this one has cost so far, and the work of those before it."""

    async def spent(self, unit: Unit) -> int:
        """Return what this request has cost so far."""

    async def hold(self, bound: CostBound) -> None:
        """Hold in the budgets what is left of this bound, until the request ends."""

    def excess(self, spent: int, expected: int, unit: Unit) -> str:
        """Return the question whether to go on."""
