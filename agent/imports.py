"""Import modules that take long beside the event loop."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any


async def import_in_thread(module: str) -> Any:
    """Import a module, such as an SDK that takes half a second the first time, and return it. Raises ImportError."""
    return await asyncio.to_thread(importlib.import_module, module)
