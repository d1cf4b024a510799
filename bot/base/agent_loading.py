"""Load the agent's packages beside the event loop, and tune garbage collection afterwards."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from agent.settings.network import make_trust


def import_channels(channels: Iterable[str]) -> None:
    """Load the SDKs of these channels in a thread, so that they listen before anything else is loaded."""
    for name in channels:  # each loads in a thread of its own, which would share the interpreter with another one
        with suppress(Exception):  # which the channel reports
            importlib.import_module(f"channels.{name}.channel")


def import_agent() -> None:
    """Load the agent's packages in a thread, while the channels listen; and the authorities that its clients trust."""
    importlib.import_module("agent.turn.factory")
    with suppress(OSError):  # which the first connection reports
        make_trust()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage while modules load: it found next to none, and took a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def freeze_heap() -> None:
    """Exclude loaded modules from garbage collection, where a full round took 100 to 300 ms, and collect young objects,
    most of which a turn frees itself, less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
