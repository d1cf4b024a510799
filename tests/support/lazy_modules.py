"""Import what only a few tests use when they use it: every worker collects all test files."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A module that is imported when one of its public names is read.

    pytest reads private names of whatever a test file has at its top (`_mock_name`, `__wrapped__`), so they do not
    count. `importlib.util.LazyLoader` would load the module for them.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def lazy_module(name: str) -> Any:
    """Return a module that is imported with its first use."""
    return LazyModule(name)
