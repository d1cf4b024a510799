"""Find the code of an operator that a configuration names by `use: package.module:name`."""

from __future__ import annotations

import importlib
from typing import Any


def find_code(use: str) -> Any:
    """Import the module and return what the name means in it. Raises whatever that code raises."""
    module, _colon, name = use.partition(":")
    return getattr(importlib.import_module(module), name)
