"""Connection health of a channel, and the backoff between attempts."""

from __future__ import annotations

import logging
import random
import time

from channels.base import Health, Readiness


class ConnectionHealth:
    """The state of a connection; each change is logged once, by `log`, under the channel's `name`."""

    def __init__(self, name: str, log: logging.Logger) -> None:
        self._name = name
        self._log = log
        self._now = Readiness(Health.STARTING, time.time())

    @property
    def now(self) -> Readiness:
        return self._now

    @property
    def is_ready(self) -> bool:
        return self._now.health is Health.READY

    def set_health(self, health: Health, detail: str = "", *, usual: bool = False) -> None:
        """Take note of how it is. A `usual` interruption is nothing to warn of."""
        if (health, detail) == (self._now.health, self._now.detail):
            return
        self._now = Readiness(health, time.time(), detail)
        if usual:
            self._log.info("%s.reconnecting", self._name)
        elif health is Health.DOWN:
            self._log.warning("%s.down reason=%s", self._name, detail)
        else:
            self._log.info("%s.%s", self._name, health)


def backoff_seconds(tries: int, most: float) -> float:
    """Seconds until the next try, with jitter, so that many bots do not come back in the same moment."""
    return min(most, 0.25 * 2.0 ** min(tries, 10)) * random.uniform(0.7, 1.3)  # noqa: S311 — no secret
