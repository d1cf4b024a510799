"""Slack's numbers: calls a minute of a method in a workspace, of chat.postMessage in a channel."""

from __future__ import annotations

from channels.shared.rate_limit import SAFETY_FACTOR, CallRate, MethodLimits

CALLS_PER_MINUTE = {
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "reactions.remove": 20,
    "users.conversations": 20,
    "users.list": 20,
    "chat.appendStream": 100,
    "users.info": 100,
    "views.publish": 100,
}
PER_CHANNEL = {"chat.postMessage": 60}
DEFAULT_CALLS_PER_MINUTE = 50  # of any other method in a workspace (docs.slack.dev/apis/web-api/rate-limits)
BURST = 1 / 6  # of a minute's calls may come at once…
STREAM_RESERVE, FIRST_RESERVE = 1 / 2, 1 / 4  # …of which live calls leave these shares for other calls


def slack_limits(rate_factor: float) -> MethodLimits:
    """Return the limits of a workspace, with `rate_factor` times Slack's rates. Its tiers are minima: "20+"."""

    def limit(calls: float, per_chat: bool = False) -> CallRate:
        calls *= SAFETY_FACTOR * rate_factor
        burst = max(2.0, calls * BURST)
        reserves = burst * STREAM_RESERVE, burst * FIRST_RESERVE
        return CallRate(
            calls, 60.0, burst, per_chat=per_chat, minimum=True, stream_reserve=reserves[0], first_reserve=reserves[1]
        )

    methods = {method: [limit(calls)] for method, calls in CALLS_PER_MINUTE.items()}
    channels = {method: [limit(calls, per_chat=True)] for method, calls in PER_CHANNEL.items()}
    return MethodLimits({"": [limit(DEFAULT_CALLS_PER_MINUTE)], **methods, **channels})
