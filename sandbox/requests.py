"""Define what a proxy of sandboxes reports of each request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """A request of a sandbox: what became of it, where it went, and how many bytes of it."""

    outcome: Literal["done", "refused", "failed", "other"]
    host: str
    port: int
    sent: int = 0
    received: int = 0


ReportEgress = Callable[[str, EgressRequest], None]  # with the key of the sandbox


def report_nothing(_key: str, _request: EgressRequest) -> None:
    """Tell nobody."""
