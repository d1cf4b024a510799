"""The wait between retries."""

from __future__ import annotations

import pytest

from agent.backoff import backoff_seconds


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1.0), (4, 4.0), (10_000, 60.0)])
def test_waits_double_up_to_the_longest(failures: int, seconds: float) -> None:
    waits = [backoff_seconds(failures, 60.0) for _ in range(100)]
    assert 0.8 * seconds <= min(waits) < max(waits) <= 1.2 * seconds
