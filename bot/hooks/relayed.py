"""Fetch deliveries of hooks from a relay, and take each as if it had come here."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass

from agent.backoff import backoff_seconds
from bot.base.background import run_forever
from bot.hooks.endpoint import HookEndpoint
from bot.rights.current import Current
from channels.base import TryLater
from channels.shared.http_client import HttpClient
from channels.shared.lifecycle import opened
from channels.shared.relay_client import Delivery, RelayClient

log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 10.0  # while the relay does not answer
IDLE_SECONDS = 5.0  # between two looks whether there is a relay


@dataclass(slots=True)
class RelayedHooks:
    """Fetches for all hooks while the configuration names a relay."""

    current: Current
    endpoint: HookEndpoint

    async def serve(self) -> None:
        """Fetch until cancelled; another configuration begins a new connection."""
        await run_forever("relay", self._serve_relay)

    async def _serve_relay(self) -> None:
        relay = self.current.config.relay
        if not relay.url or not self.current.config.hooks:
            await asyncio.sleep(IDLE_SECONDS)
            return
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(opened(HttpClient("relay", relay.proxy, relay.ca_file)))
            client = RelayClient(http, relay.url, relay.key.reveal())
            failures = 0
            while self.current.config.relay == relay:
                try:
                    await client.fetch(self.current.config.hooks, self._take)
                    failures = 0
                except TryLater as error:
                    failures += 1
                    log.log(logging.WARNING if failures == 1 else logging.DEBUG, "relay.unreachable reason=%s", error)
                    await asyncio.sleep(backoff_seconds(failures, MAX_BACKOFF_SECONDS))

    async def _take(self, delivery: Delivery) -> None:
        await self.endpoint.take_relayed(delivery.source, delivery.headers, delivery.body, delivery.received)
