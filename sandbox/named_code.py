"""Import the code of an operator that a configuration names by `use: package.module:name`, and call it.

That code may raise anything, also what would end the process. Each fault names the setting that is wrong.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from catalogue import N_, LazyText

MAX_ERROR_CHARS = 300
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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
        return importlib.import_module(module)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            known = [*_neighbours(module)]
            raise NamedCodeError(
                ("use",), LazyText(N_("there is no module {module!r}"), module=module), module, known
            ) from None
        wrong = LazyText(N_("cannot be imported: {error}"), error=describe_error(error))
        raise NamedCodeError(("use",), wrong, is_name=False) from None


def find_code(use: str) -> Any:
    """Return what `package.module:name` means. Raises NamedCodeError."""
    path, colon, name = use.partition(":")
    if not colon or not name.isidentifier():
        raise NamedCodeError(("use",), LazyText(N_("does not name what to take from its module")))
    module = import_code(path)
    try:
        return getattr(module, name)
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
    """Return what the function or class makes of these arguments. Raises NamedCodeError."""
    check_code(use, found, len(arguments), options)
    try:
        return found(*arguments, **options)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        wrong = LazyText(N_("{use} cannot be made: {error}"), use=use, error=describe_error(error))
        raise NamedCodeError(("use",), wrong, is_name=False) from error


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
