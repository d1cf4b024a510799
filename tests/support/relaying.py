"""A relay in the loop of the test, at an address of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from agent.setting import Secret
from bot.config.hooks import RelayConfig, RelaySource
from bot.config.http import HttpConfig
from bot.http.listener import listening
from bot.relay.server import Relay, Spool

KEY = "relay-key-" * 4


@asynccontextmanager
async def relaying(folder: Path, sources: Mapping[str, RelaySource]) -> AsyncIterator[str]:
    """Run a relay with these sources; yields its address."""
    config = RelayConfig(key=Secret(KEY), sources=sources, per_minute=100_000)
    spool = Spool(folder / "relay", config.max_mb << 20)
    spool.load_waiting()
    async with listening(HttpConfig(listen="127.0.0.1:0"), Relay(config, spool).routes()) as address:
        yield address
