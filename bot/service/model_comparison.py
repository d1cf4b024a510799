"""Compare two models in a role by what is stored of both: who is cheaper, and whether people notice.

The requests were not shared out at random, so a difference is an observation and no proof. What is proposed must hold
at the bad end of its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.storage.outcomes import OutcomeSums

MIN_REQUESTS = 30  # of each model, all of a known price
MIN_THUMBS = 20  # of each model
LEAST_SAVED = 0.10  # of the cost of a request
THUMBS_MARGIN = 0.15  # by how much the share of 👍 may be lower, at the bad end
FAILED_MARGIN = 0.05  # the same of the share of failed calls, higher
Z = 1.96  # of a 95 % interval


@dataclass(frozen=True, slots=True)
class Cheaper:
    """A model that cost less in a role, with as good thumbs: the share saved, its interval from `least` to `most`."""

    role: str
    present: str
    other: str
    saved: float
    least: float
    most: float
    before: OutcomeSums
    after: OutcomeSums


def find_cheaper(role: str, present: str, models: Mapping[str, OutcomeSums], allowed: Iterable[str]) -> Cheaper | None:
    """Return the model that saves most in place of the `present` one, of those that are `allowed`."""
    before = models.get(present)
    if before is None:
        return None
    compared = [_compare(role, present, name, before, models[name]) for name in allowed if name in models]
    return max((each for each in compared if each), key=lambda each: each.least, default=None)


def _compare(role: str, present: str, name: str, before: OutcomeSums, after: OutcomeSums) -> Cheaper | None:
    if name == present or not (_is_enough(before) and _is_enough(after)):
        return None
    ratio = cost_ratio(before, after)
    if ratio is None:
        return None
    middle, low, high = ratio
    if 1 - high < LEAST_SAVED:
        return None
    thumbs = share_difference(after.up, after.up + after.down, before.up, before.up + before.down)
    failed = share_difference(after.failed, after.calls, before.failed, before.calls)
    if thumbs[0] < -THUMBS_MARGIN or failed[1] > FAILED_MARGIN:
        return None
    return Cheaper(role, present, name, 1 - middle, 1 - high, 1 - low, before, after)


def _is_enough(sums: OutcomeSums) -> bool:
    return sums.requests >= MIN_REQUESTS and not sums.unpriced and sums.up + sums.down >= MIN_THUMBS


def cost_ratio(before: OutcomeSums, after: OutcomeSums) -> tuple[float, float, float] | None:
    """Return the cost of a request as a share of what it was before, with its interval; None without a cost.

    The interval is that of the logarithm of a ratio of two means, by the delta method.
    """
    first, second = before.cost / before.requests, after.cost / after.requests
    if first <= 0 or second <= 0:
        return None
    error = math.sqrt(_relative_variance(before, first) + _relative_variance(after, second))
    ratio = second / first
    return ratio, ratio * math.exp(-Z * error), ratio * math.exp(Z * error)


def _relative_variance(sums: OutcomeSums, mean: float) -> float:
    """Return the variance of the mean, as a share of its square."""
    n = sums.requests
    variance = max(0.0, sums.squares - n * mean * mean) / (n - 1)
    return variance / (n * mean * mean)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Return the interval of a share."""
    if n <= 0:
        return 0.0, 1.0
    share, square = hits / n, Z * Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = Z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def share_difference(hits: int, n: int, other_hits: int, other_n: int) -> tuple[float, float]:
    """Return the interval of the first share without the second one, by Newcombe's hybrid of two Wilson intervals."""
    if not (n and other_n):
        return -1.0, 1.0
    one, two = hits / n, other_hits / other_n
    low, high = wilson(hits, n)
    other_low, other_high = wilson(other_hits, other_n)
    return (
        one - two - math.hypot(one - low, other_high - two),
        one - two + math.hypot(high - one, two - other_low),
    )
