"""Report the state of the service to systemd: the protocol of sd_notify(3)."""

from __future__ import annotations

import asyncio
import logging
import socket

from bot.config.schema import SystemdConfig

log = logging.getLogger(__name__)


class SystemdNotifier:
    """Sends states to the socket that systemd named; without one, it does nothing."""

    def __init__(self, config: SystemdConfig) -> None:
        self._config = config

    def send(self, state: str) -> None:
        """Send `READY=1`, `STOPPING=1` or `WATCHDOG=1`."""
        if not self._config.socket:
            return
        address = self._config.socket
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            log.warning("systemd.unreachable state=%s reason=%s", state, error)

    async def feed_watchdog(self) -> None:
        """Wait half the watchdog's time, then report that the event loop works."""
        await asyncio.sleep(self._config.watchdog_seconds / 2)
        self.send("WATCHDOG=1")
