"""Expect the cost of a request by those before it, and ask when it costs more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

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
        """Return what a request like this one costs."""

    async def spent(self, unit: Unit) -> int:
        """Return what this request has cost so far."""

    async def hold(self, bound: CostBound) -> None:
        """Hold in the budgets what this request may still cost, until it ends."""

    def excess(self, spent: int, expected: int, unit: Unit) -> str:
        """Return the question whether to go on."""
