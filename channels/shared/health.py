"""Connection health of a channel."""

from __future__ import annotations

import logging
import time

from channels.base import Health, Readiness


class ConnectionHealth:
    """The health of a connection. Each change is logged once, under the channel's `name`."""

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
        """Record the health, with the account if it is READY, else with a sentence.

        A `usual` interruption logs no warning.
        """
        if (health, detail) == (self._now.health, self._now.detail):
            return
        self._now = Readiness(health, time.time(), detail)
        if usual:
            self._log.info("%s.reconnecting", self._name)
        elif health is Health.DOWN:
            self._log.warning("%s.down reason=%s", self._name, detail)
        else:
            self._log.info("%s.%s", self._name, health)
