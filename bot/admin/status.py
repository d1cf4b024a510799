"""Report the state of the service, as text for a chat and as data for `fawn status`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bot.current import Current
from bot.scheduler import Scheduler
from bot.storage import conversations, outbox
from bot.storage.database import Database, Execute
from bot.storage.jobs import count_jobs
from bot.storage.states import OutboxState
from bot.version import VERSION
from catalogue import _, ngettext
from channels.base import Channel, Health

SLOW_SECONDS = 30.0  # how long a message may wait while the service is healthy


class ServiceStatus:
    """The state of the service. `is_ready` and `sandbox` are set when turns can run."""

    def __init__(
        self,
        store: Database,
        scheduler: Scheduler,
        channels: Mapping[str, Channel],
        configured: Sequence[str],
        current: Current,
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._channels = channels
        self._configured = configured
        self._current = current
        self._started = time.time()
        self.is_ready = False
        self.sandbox = "Sandbox: being chosen."

    def describe(self) -> str:
        """Return a few lines for a chat."""
        live = len(self._scheduler.running_turns)
        model = next(iter(self._current.models.values()))
        up = _format_seconds(time.time() - self._started)
        running = ngettext("{n} turn running", "{n} turns running", live)
        return "\n".join(
            [
                _("Fawn {version}, up for {time}, {turns}.", version=VERSION, time=up, turns=running),
                f"{_('Model: {model}.', model=model)} {self.sandbox}",
            ]
        )

    async def report(self) -> dict[str, Any]:
        """Return everything that `fawn status` shows. `healthy` is measured now, not at the start."""
        counts = await self._store.run(_row_counts)
        channels = {name: self._channel_state(name) for name in self._configured}
        healthy = self.is_ready and all(channel["health"] == Health.READY for channel in channels.values())
        return {
            "version": VERSION,
            "healthy": healthy and counts["oldest"] < SLOW_SECONDS,
            "uptime": time.time() - self._started,
            "ready": self.is_ready,
            "model": next(iter(self._current.models.values())),
            "sandbox": self.sandbox,
            "channels": channels,
            "live": len(self._scheduler.running_turns),
            **counts,
        }

    def _channel_state(self, name: str) -> dict[str, Any]:
        channel = self._channels.get(name)
        if channel is None:
            return {"health": Health.DOWN, "since": 0.0, "detail": "not connected; the log says why"}
        readiness = channel.readiness()
        return {"health": readiness.health, "since": readiness.since, "detail": readiness.detail}


def _row_counts(execute: Execute) -> dict[str, Any]:
    now = time.time()
    ready = conversations.earliest_ready(execute)
    counts = outbox.count_unfinished(execute)
    return {
        "queued": conversations.count_unclaimed(execute),
        "oldest": max(0.0, now - ready) if ready else 0.0,
        "undelivered": counts[OutboxState.NEW] + counts[OutboxState.CLAIMED],
        "dead": counts[OutboxState.DEAD],
        "jobs": asdict(count_jobs(execute)),
    }


def _format_seconds(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 1:
        return _("less than a minute")
    if days > 1:
        return ngettext("{n} day", "{n} days", days)
    if hours > 1:
        return ngettext("{n} hour", "{n} hours", hours)
    return ngettext("{n} minute", "{n} minutes", minutes)
