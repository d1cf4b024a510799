"""Load the agent's packages beside the event loop, and tune garbage collection afterwards."""

from __future__ import annotations

import gc
import importlib
import sys


def import_agent() -> None:
    """Load the agent's packages in a thread: the channels listen meanwhile."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.001)  # the loop stays responsive while this thread imports
    importlib.import_module("agent.factory")
    sys.setswitchinterval(before)


def freeze_heap() -> None:
    """Exclude loaded modules from garbage collection, where a full round took 100 to 300 ms, and collect young objects,
    most of which a turn frees itself, less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
