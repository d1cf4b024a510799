"""Load packages that libraries import, and a service hardly ever uses, when something uses them.

Each imports some hundred modules in its `__init__`, for types that generated code names in annotations only: together
21 MB. Their modules that are imported by name load as ever; the rest of such a package loads with the first use of
another of its names. `importlib.util.LazyLoader` would load all of a package as soon as one of its modules is imported.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

log = logging.getLogger(__name__)

DEFERRED = frozenset(
    {
        "langgraph_sdk",  # LangGraph's client of a server: langgraph itself needs its `auth.types`
        "langsmith.types",  # of its API: nobody sends anything there (bot/config/library_switches.py)
        "openai.types",  # of the whole API
        "openai.types.responses",
    }
)
ABSENT = ("httpx._main",)  # its command line, which brings rich, pygments and click; httpx does without it


def defer_packages() -> None:
    """Defer them in this process, before any of them is imported."""
    sys.meta_path.insert(0, _Finder())
    for name in ABSENT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # the import statement raises ImportError then


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in DEFERRED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            spec.loader_state = (spec.loader, threading.RLock())
            spec.loader = _LaterLoader()
        return spec


class _LaterLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _DeferredPackage(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass  # the first use does it


class _DeferredPackage(ModuleType):
    """A package whose `__init__` runs when a name is asked for that it does not have yet."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system and inspection look for these
            raise AttributeError(name)
        spec = self.__spec__
        if spec is None:
            raise AttributeError(name)
        loader, lock = spec.loader_state
        with lock:
            if name in self.__dict__:  # another thread was first
                return self.__dict__[name]
            if spec.loader is loader:  # its `__init__` runs, or has run without that name
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            spec.loader = loader
            log.info("packages.loaded name=%s for=%s", self.__name__, name)
            loader.exec_module(self)
            self.__class__ = ModuleType  # type: ignore[assignment]  # from now on, it is an ordinary one
        return getattr(self, name)
