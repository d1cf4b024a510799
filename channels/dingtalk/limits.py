"""DingTalk's numbers: calls of each API of an app in a second.

The refusal `QpsLimitForAppkeyAndApi` names no number (open.dingtalk.com/document/orgapp/call-frequency-limit);
integrators report 20 to 40.
"""

from __future__ import annotations

from channels.shared.rate_limit import SAFETY_FACTOR, CallRate, MethodLimits

CALLS_IN_WINDOW = 20 * SAFETY_FACTOR
WINDOW_SECONDS = 1.06  # calls may arrive closer together than they were sent
LIMITS = MethodLimits({"": [CallRate(CALLS_IN_WINDOW, WINDOW_SECONDS, CALLS_IN_WINDOW, sliding=True)]})
