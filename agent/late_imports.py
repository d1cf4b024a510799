"""Import packages late: off the event loop, in place of those that a service hardly ever uses, or from an extra.

The deferred packages import some hundred modules in their `__init__`, for types that generated code names in
annotations only. Their modules that are imported by name load as ever; the rest of such a package loads with the first
use of another of its names. `importlib.util.LazyLoader` would load all of a package as soon as one of its modules is
imported. A library may ask for a name while it is imported: it gets a stand-in, whose first use loads the module.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from catalogue import N_, LazyText


async def import_in_thread(module: str) -> Any:
    """Import a module, such as an SDK that takes half a second the first time, and return it. Raises ImportError."""
    return await asyncio.to_thread(importlib.import_module, module)


log = logging.getLogger(__name__)

DEFERRED: Mapping[str, Sequence[str]] = {  # name → classes that libraries import at their start, and use later or never
    "langgraph_sdk": (),  # LangGraph's client of a server: langgraph itself needs its `auth.types`
    "langsmith.client": ("Client",),  # LangSmith traces where the operator says so (bot/config/section_checks.py)
    "langsmith.run_trees": ("RunTree", "WriteReplica"),
    "langsmith.schemas": (),
    "langsmith.types": (),  # of its API
    "openai.types": (),  # of the whole API
    "openai.types.responses": (),
    "tiktoken": (),  # langchain_openai counts tokens with it when asked
}
# Variables of a deferred module that libraries take at their start: the module has the same ones when it is loaded.
VARIABLES: Mapping[str, Sequence[str]] = {"langsmith.run_trees": ("_REPLICAS", "_DISTRIBUTED_PARENT_ID")}
ABSENT = ("httpx._main",)  # its command line, which brings rich, pygments and click; httpx does without it
# Module → what it imports for something that nobody uses, and does without: the guess of a text's encoding, and the
# decryption of Telegram Passport. It is absent for that import only.
WITHOUT: Mapping[str, str] = {
    "requests": "charset_normalizer",
    "telegram._bot": "cryptography",
    "telegram._passport.credentials": "cryptography",
}


def defer_packages() -> None:
    """Defer them in this process, before any of them is imported."""
    sys.meta_path.insert(0, _Finder())
    for name in ABSENT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # the import statement raises ImportError then
    warnings.filterwarnings("ignore", "Unable.to.find.acceptable.character.detection")  # of requests


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == getattr(_importing, "without", ""):
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)
        if fullname not in DEFERRED and fullname not in WITHOUT:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            spec.loader_state = (spec.loader, threading.RLock())
            spec.loader = _LaterLoader() if fullname in DEFERRED else _LoaderWithout()
        return spec


_importing = threading.local()  # `without`: what the import in this thread finds absent; others may need it meanwhile


class _LoaderWithout(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # as usual

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__  # noqa: S101 — it was made from one
        loader: Loader = module.__spec__.loader_state[0]
        module.__spec__.loader = module.__loader__ = loader
        outer, _importing.without = getattr(_importing, "without", ""), WITHOUT[module.__name__]
        try:
            loader.exec_module(module)
        finally:
            _importing.without = outer


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
            if name in VARIABLES.get(self.__name__, ()):
                return self.__dict__.setdefault(name, ContextVar(name, default=None))
            if name in DEFERRED[self.__name__]:
                return _StandIn(self, name)
            self.load(name)
        return getattr(self, name)

    def load(self, name: str) -> None:
        """Run its `__init__`, once."""
        spec = self.__spec__
        assert spec  # noqa: S101 — it was made from one
        loader, lock = spec.loader_state
        with lock:
            if spec.loader is loader:
                return
            spec.loader = loader
            log.info("packages.loaded name=%s for=%s", self.__name__, name)
            taken = {key: self.__dict__[key] for key in VARIABLES.get(self.__name__, ()) if key in self.__dict__}
            loader.exec_module(self)
            self.__dict__.update(taken)
            self.__class__ = ModuleType  # type: ignore[assignment]  # from now on, it is an ordinary one


class _StandIn:
    """Stands for a class of a deferred module that a library imported at its start, and loads it when it is used."""

    def __init__(self, module: _DeferredPackage, name: str) -> None:
        self._module, self._name = module, name

    def _load(self) -> Any:
        _DeferredPackage.load(self._module, self._name)
        return self._module.__dict__[self._name]

    def __call__(self, *args: object, **named: object) -> object:
        return self._load()(*args, **named)

    def __getattr__(self, name: str) -> object:
        return getattr(self._load(), name)

    def model_dump(self, instance: object, **named: object) -> object:  # langchain_core asks for it at its start
        return self._load().model_dump(instance, **named)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._load())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._load())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (self._load(),)

    def __or__(self, other: object) -> object:
        return self._load() | other

    def __ror__(self, other: object) -> object:
        return other | self._load()


EXTRAS: Mapping[str, tuple[str, ...]] = {  # what `make setup EXTRAS=NAME` installs → the modules that it brings
    "anthropic": ("langchain_anthropic", "anthropic"),
    "ddgs": ("ddgs",),
    "postgres": ("psycopg",),
}
CHANNELS: Mapping[str, tuple[str, ...]] = {  # the modules of a channel's SDK; `make setup` installs all of them
    "discord": ("discord",),
    "feishu": ("lark_oapi",),
    "matrix": ("pyromark", "vodozemac"),
    "slack": ("slack_bolt", "slack_sdk"),
    "telegram": ("telegram", "pyromark"),
}
INSTALL_CHANNEL = N_(
    "`pip install 'fawn[{name}]'`; in a checkout `make setup CHANNELS=\"{name} …\"`, for an image `docker build"
    " --build-arg CHANNELS=…`, each with all channels that you use"
)
INSTALL_EXTRA = N_("`make setup EXTRAS={extra}`, for an image `docker build --build-arg EXTRAS={extra}`")
INSTALL_PACKAGE = N_("`.venv/bin/pip install {package}`, with the Python that runs Fawn")


def describe_install(module: str) -> LazyText:
    """Return how to install the package of a module: from a lock if an extra brings it."""
    extra = next((name for name, modules in EXTRAS.items() if module in modules), "")
    if extra:
        return LazyText(INSTALL_EXTRA, extra=extra)
    return LazyText(INSTALL_PACKAGE, package=module.replace("_", "-"))


def lacks_sdk(channel: str) -> bool:
    """Return whether a channel of ours cannot work, because a package that it needs was left out."""
    return any(importlib.util.find_spec(module) is None for module in CHANNELS.get(channel, ()))


def describe_channel_install(channel: str) -> LazyText:
    """Return how to install the SDK of a channel."""
    return LazyText(INSTALL_CHANNEL, name=channel)
