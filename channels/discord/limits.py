"""Discord's numbers: calls a second of a bot (discord.com/developers/docs/topics/rate-limits#global-rate-limit)."""

from __future__ import annotations

from channels.shared.rate_limit import CallRate

WINDOW_SECONDS = 1.06  # calls may arrive closer together than they were sent
BURST_MARGIN = 5.0  # over the setting `overall` in one window: 50 of 45, which is 47 a second in the long run


def account_window(overall: float) -> CallRate:
    """Return the limit of all calls with the token, scheduled or not."""
    calls = overall + BURST_MARGIN
    return CallRate(calls, WINDOW_SECONDS, calls, "all", sliding=True, checked=True)
