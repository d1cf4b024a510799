"""The progress that a server reports during a call, as the live text of its step.

The token is ours, and notifications are heard before the SDK: it starts a task for each of them, so a server that
floods would fill the event loop. A person sees the latest report once in a while.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from agent.mcp.bounds import clean_text
from catalogue import _

SHOW_SECONDS = 1.0  # between two texts of one call
MAX_TEXT_CHARS = 80

Report = Callable[[Mapping[str, Any]], None]


class ProgressReports:
    """The calls of a connection that may report: by token."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._calls: dict[str, Report] = {}

    @contextmanager
    def hear(self, report: Report | None) -> Iterator[dict[str, Any]]:
        """Pass the reports of a call on. Yields the `_meta` of its request."""
        if report is None:
            yield {}
            return
        token = f"p{next(self._numbers)}"
        self._calls[token] = report
        try:
            yield {"progressToken": token}
        finally:
            del self._calls[token]

    def note(self, params: Mapping[str, Any] | None) -> None:
        """Handle a notification; one of no call has no effect."""
        if params and isinstance(token := params.get("progressToken"), str) and (report := self._calls.get(token)):
            report(params)


class ProgressLine:
    """Shows the reports of one call to people: the first at once, then the latest, once in a while.

    It is made in the turn of the call, whose language and place the texts have.
    """

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show
        self._context = copy_context()
        self._latest: Mapping[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._shown = ""
        self._ended = False

    def note(self, params: Mapping[str, Any]) -> None:
        """Take a report."""
        if self._ended:
            return
        self._latest = params
        if self._timer is None:
            self._show_latest()

    def end(self) -> None:
        """Show nothing more."""
        self._ended = True
        if self._timer:
            self._timer.cancel()

    def _show_latest(self) -> None:
        self._timer = None
        if (latest := self._latest) is None:
            return
        self._latest = None
        text = self._context.run(progress_text, latest)
        if text and text != self._shown:
            self._shown = text
            self._context.run(self._show, text)
        self._timer = asyncio.get_running_loop().call_later(SHOW_SECONDS, self._show_latest)


def progress_text(params: Mapping[str, Any]) -> str:
    """Return a report in a few words: how much of what is done, and what the server says about it; "" for nothing."""
    message = clean_text(" ".join(str(params.get("message") or "")[: 4 * MAX_TEXT_CHARS].split()), MAX_TEXT_CHARS)
    done, total = _number(params.get("progress")), _number(params.get("total"))
    if done is None or not total or total < 0:
        return message
    amount = _("{done:g} of {total:g}", done=done, total=total)
    return f"{amount}: {message}" if message else amount


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        return None
    return float(value) if math.isfinite(value) else None
