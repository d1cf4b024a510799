"""Find out whether any server of a model can be connected to, while no turn would show it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bot.config.schema import Config
from bot.status.egress import list_destinations
from catalogue import _, list_items

log = logging.getLogger(__name__)

CHECK_SECONDS = 10.0  # between two looks, however often the probes ask
CONNECT_SECONDS = 5.0
Address = tuple[str, int]


@dataclass(slots=True)
class ModelReach:
    """Connects to the servers of models, or to their proxies, and sends nothing."""

    _addresses: tuple[Config, Sequence[Address]] | None = None
    _checked: float = float("-inf")
    _trouble: str = ""
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find_trouble(self, config: Config) -> str:
        """Return the sentence that no server can be reached, "" where one can, or where it is not known which."""
        async with self._checking:
            if self._addresses is None or self._addresses[0] is not config:
                self._addresses, self._checked = (config, await asyncio.to_thread(_addresses_of, config)), float("-inf")
            if time.monotonic() - self._checked > CHECK_SECONDS:
                self._trouble = await _connect_to_any(self._addresses[1])
                self._checked = time.monotonic()
            return self._trouble


def _addresses_of(config: Config) -> list[Address]:
    """Return where the models are reached; none if that of any model is not known."""
    found = {each.what.partition("]")[0]: each for each in list_destinations(config)[0] if _is_of_model(each.what)}
    if any(f"models[{model.name}" not in found for model in config.models):
        return []
    ways = [urlsplit(each.through or f"tcp://{each.host}:{each.port}") for each in found.values()]
    return sorted({(way.hostname or "", way.port or 80) for way in ways})


def _is_of_model(what: str) -> bool:
    return what.startswith("models[")


async def _connect_to_any(addresses: Sequence[Address]) -> str:
    reasons = await asyncio.gather(*(_connect(*address) for address in addresses))
    if not all(reasons) or not reasons:
        return ""
    log.warning("models.unreachable reasons=%s", "; ".join(reasons))
    return _("No server of a model can be reached: {reasons}.", reasons=list_items(reasons))


async def _connect(host: str, port: int) -> str:
    """Return why there is no connection; "" for one."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _reader, writer = await asyncio.open_connection(host, port)
    except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
        return f"{host}:{port} ({getattr(error, 'strerror', '') or type(error).__name__})"
    writer.transport.abort()
    return ""
