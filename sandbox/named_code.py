"""Import the code of an operator that a configuration names by `use: package.module:name`, and call it.

That code may raise anything, also what would end the process, or never return: after a while the module is named, and
after `CodePatience.limit_seconds` it is a fault. Each fault names the setting that is wrong.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import pkgutil
import re
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from catalogue import N_, LazyText

log = logging.getLogger(__name__)

EXTENSION_API = 1
"""The version of the names that code of one's own may use: docs/extend.md lists them, and how they change."""
API_MARK = "FAWN_API"  # what a module calls the version that it is written for; without it, any is taken
MAX_ERROR_CHARS = 300
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def log_waiting(use: str) -> None:
    """Name code that is waited for in the log."""
    log.warning("own_code.waiting use=%s", use)


@dataclass(frozen=True, slots=True)
class CodePatience:
    """How long foreign code may take to be imported or made: seconds until it is named, by `say`, and until it is a
    fault.
    """

    say_seconds: float = 10.0
    limit_seconds: float = 120.0
    say: Callable[[str], None] = log_waiting


PATIENCE: ContextVar[CodePatience] = ContextVar("PATIENCE", default=CodePatience())  # noqa: B039  # it is frozen


class NamedCodeError(Exception):
    """Code cannot be used: the setting below its entry, and what is wrong.

    `written` is the name that does not exist, and `known` are those that do. `is_name`: the setting is wrong, not the
    code that it names.
    """

    def __init__(
        self,
        place: tuple[str, ...],
        wrong: LazyText,
        written: str = "",
        known: Collection[str] = (),
        *,
        is_name: bool = True,
    ) -> None:
        super().__init__(str(wrong))
        self.place, self.wrong, self.written, self.known = place, wrong, written, known
        self.is_name = is_name


def import_code(module: str) -> ModuleType:
    """Return the module of this name. Raises NamedCodeError."""
    if not _MODULE.fullmatch(module):
        raise NamedCodeError(("use",), LazyText(N_("{module!r} is no name of a module"), module=module[:60]))
    try:
        found: ModuleType = _call_bounded(module, lambda: importlib.import_module(module))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | NamedCodeError):
            raise
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            known = [*_neighbours(module)]
            raise NamedCodeError(
                ("use",), LazyText(N_("there is no module {module!r}"), module=module), module, known
            ) from None
        wrong = LazyText(N_("cannot be imported: {error}"), error=describe_error(error))
        raise NamedCodeError(("use",), wrong, is_name=False) from None
    if (written := vars(found).get(API_MARK, EXTENSION_API)) != EXTENSION_API:
        text = N_("is written for version {written} of the extension API (`{mark}`), and this Fawn has version {api}")
        wrong = LazyText(text, written=str(written)[:20], mark=API_MARK, api=EXTENSION_API)
        raise NamedCodeError(("use",), wrong, is_name=False)
    return found


def find_misfit(made: object, protocol: type) -> LazyText | None:
    """Return what an object lacks of a protocol: a part, or a method that takes what Fawn passes; None: nothing."""
    names = [*inspect.get_annotations(protocol), *(name for name in vars(protocol) if not name.startswith("_"))]
    for name in names:
        if not hasattr(made, name):
            return LazyText(N_("has no `{name}`, which {protocol} has"), name=name, protocol=protocol.__name__)
        declared = getattr(protocol, name, None)
        if not inspect.isfunction(declared):
            continue
        own = getattr(made, name)
        passed = [*inspect.signature(declared).parameters.values()][1:]
        by_name = {each.name: None for each in passed if each.kind is inspect.Parameter.KEYWORD_ONLY}
        try:
            inspect.signature(own).bind(*passed[: len(passed) - len(by_name)], **by_name)
        except TypeError:
            words = ", ".join(f"{each.name}=…" if each.name in by_name else each.name for each in passed)
            return LazyText(N_("has a `{name}` that cannot be called as `{call}`"), name=name, call=f"{name}({words})")
        except ValueError:
            continue  # of some callables of other languages
    return None


def find_code(use: str) -> Any:
    """Return what `package.module:name` means. Raises NamedCodeError."""
    path, colon, name = use.partition(":")
    if not colon or not name.isidentifier():
        raise NamedCodeError(("use",), LazyText(N_("does not name what to take from its module")))
    module = import_code(path)
    try:
        return _call_bounded(use, lambda: getattr(module, name))
    except NamedCodeError:
        raise
    except Exception:  # noqa: BLE001  # a module may have its own way to look names up
        known = [each for each in vars(module) if not each.startswith("_")]
        wrong = LazyText(N_("{module} has no {name!r}"), module=path, name=name)
        raise NamedCodeError(("use",), wrong, name, known) from None


def check_code(use: str, found: object, arguments: int, options: Mapping[str, Any]) -> None:
    """Check that what was found can be called with so many arguments, and has these options. Raises NamedCodeError."""
    if not callable(found):
        raise NamedCodeError(("use",), LazyText(N_("{use} is no function and no class"), use=use))
    try:
        parameters = [*inspect.signature(found).parameters.values()]
    except (ValueError, TypeError):  # of some classes of other languages
        return
    by_name = {each.name: each for each in parameters[arguments:] if each.kind in _NAMED}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    for name in options:
        if name not in by_name and not takes_any:
            wrong = LazyText(N_("{use} does not have such an option"), use=use)
            raise NamedCodeError(("options", name), wrong, name, by_name)
    for name, each in by_name.items():
        if each.default is inspect.Parameter.empty and name not in options:
            raise NamedCodeError(("options",), LazyText(N_("{use} needs the option {name!r}"), use=use, name=name))


def call_code(use: str, found: Any, *arguments: Any, options: Mapping[str, Any]) -> Any:
    """Return what the function or class makes of these arguments. Raises NamedCodeError.

    On an event loop it is called there, as what it makes may belong to that thread.
    """
    check_code(use, found, len(arguments), options)
    try:
        return _call_bounded(use, lambda: found(*arguments, **options), here=_is_on_a_loop())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | NamedCodeError):
            raise
        wrong = LazyText(N_("{use} cannot be made: {error}"), use=use, error=describe_error(error))
        raise NamedCodeError(("use",), wrong, is_name=False) from error


def _call_bounded(use: str, call: Callable[[], Any], *, here: bool = False) -> Any:
    """Return what foreign code returns; name it when it takes long. Raises NamedCodeError at the limit.

    Such code cannot be ended, so it runs in a thread that nothing waits for. With `here` it runs in this one: it is
    named, but not limited.
    """
    patience = PATIENCE.get()
    timer = threading.Timer(patience.say_seconds, copy_context().run, (patience.say, use))
    timer.daemon = True
    timer.start()
    try:
        if here:
            return call()
        result: Future[Any] = Future()
        threading.Thread(
            target=copy_context().run, args=(_settle, result, call), name=f"use {use}", daemon=True
        ).start()
        if not wait([result], patience.limit_seconds).done:
            wrong = LazyText(N_("is not imported or made after {n} seconds"), n=f"{patience.limit_seconds:g}")
            raise NamedCodeError(("use",), wrong, is_name=False)
        return result.result()
    finally:
        timer.cancel()


def _settle(result: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001  # whoever waits for it handles it
        result.set_exception(error)


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def describe_error(error: BaseException) -> str:
    """Return what an error of foreign code says, in one line, with the file and line of that code."""
    try:
        text = " ".join(str(error).split())[:MAX_ERROR_CHARS]
    except Exception:  # noqa: BLE001  # the error is of foreign code, too
        text = ""
    own = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    places = [each for each in frames if not each.filename.startswith((own, "<", sys.base_prefix))]
    if places and not isinstance(error, SyntaxError):  # which says that itself
        text = f"{text} ({Path(places[-1].filename).name}, line {places[-1].lineno})".strip()
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def _neighbours(module: str) -> Iterator[str]:
    """Yield the modules beside one that does not exist: of its package, or of the configuration's folder."""
    package, _dot, _name = module.rpartition(".")
    try:
        path = importlib.import_module(package).__path__ if package else sys.path[-1:]
    except BaseException:  # noqa: BLE001  # it has no such package, or one that cannot be imported
        return
    if not any("site-packages" in each for each in path):
        yield from (f"{package}.{each.name}".lstrip(".") for each in pkgutil.iter_modules(path))
