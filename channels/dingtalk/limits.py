"""DingTalk's numbers: calls of each API of an app in a second.

The refusal `QpsLimitForAppkeyAndApi` names no number (open.dingtalk.com/document/orgapp/call-frequency-limit);
integrators report 20 to 40.
"""

from __future__ import annotations

from collections.abc import Sequence

from channels.shared.rate_limit import SAFETY_FACTOR, CallRate

CALLS_A_SECOND = 20
WINDOW_SECONDS = 1.06  # calls may arrive closer together than they were sent


class DingTalkLimits:
    """What counts the calls of an API; `method` is its verb and path."""

    def limits_of(self, method: str, group: bool) -> Sequence[CallRate]:
        calls = CALLS_A_SECOND * SAFETY_FACTOR
        return (CallRate(calls, WINDOW_SECONDS, calls, method, sliding=True),)
