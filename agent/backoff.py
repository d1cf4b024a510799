"""The one backoff of retries, for every package."""

from __future__ import annotations

import random


def backoff_seconds(failures: int, longest: float, first: float = 0.5) -> float:
    """Return the seconds to wait after so many failures in a row: doubling from `first`, at most `longest`."""
    return jitter(min(longest, first * 2.0 ** min(failures - 1, 20)))


def jitter(seconds: float) -> float:
    """Vary a wait by 20 %, so that clients that failed together do not retry together."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 — no secret
