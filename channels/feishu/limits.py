"""Feishu's numbers: calls of each API of an app, 50 a second and 1,000 a minute.

open.feishu.cn/document/ukTMukTMukTM/uUzN04SN3QjL1cDN. Each page of an API names its tier; this is that of all the ones
that Fawn calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from channels.shared.rate_limit import SAFETY_FACTOR, CallRate

CALLS_A_SECOND, CALLS_A_MINUTE = 50, 1000
WINDOW_SECONDS, MINUTE_SECONDS = 1.06, 61.0  # calls may arrive closer together than they were sent
_ID = re.compile(r"(?<=/)(?:o[muc]_[^/]+|\d[^/]*|(?<=elements/)[^/]+|(?<=reactions/)[^/]+)")


def name_api(method: str, path: str) -> str:
    """Return the API of a call: its path without ids."""
    return f"{method} {_ID.sub('*', path)}"


class FeishuLimits:
    """What counts the calls of an API."""

    def limits_of(self, method: str, group: bool) -> Sequence[CallRate]:
        second, minute = CALLS_A_SECOND * SAFETY_FACTOR, CALLS_A_MINUTE * SAFETY_FACTOR
        return (
            CallRate(second, WINDOW_SECONDS, second, f"{method} a second", sliding=True),
            CallRate(minute, MINUTE_SECONDS, minute, f"{method} a minute", sliding=True),
        )
