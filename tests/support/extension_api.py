"""The extension API as text: each name of the table in docs/extend.md, with its parts.

`make docs` writes it into contracts/api.txt. It refuses to write what breaks code of others, unless
`EXTENSION_API` was raised before.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from sandbox.named_code import EXTENSION_API

ROOT = Path(__file__).parents[2]
FILE = ROOT / "contracts" / "api.txt"
ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)
PASSED = {"SentMessages", "CatchUpSource", "StateStore", "ToolServices"}  # protocols of what Fawn passes: they may grow
LINE = re.compile(r"(?P<key>[\w.]+(?:\(\w*\))?)(?P<rest>.*)")


def public_names() -> dict[str, list[str]]:
    """Return the names of each module in the table."""
    page = (ROOT / "docs" / "extend.md").read_text("utf-8")
    return {module: re.findall(r"`(\w+)`", names) for module, names in ROW.findall(page)}


def render_api() -> str:
    """Return the extension API, a line for each part."""
    lines = [f"api: {EXTENSION_API}"]
    for module, names in public_names().items():
        for name in names:
            lines += _lines(f"{module}.{name}", getattr(importlib.import_module(module), name))
    return "\n".join(lines) + "\n"


def _lines(path: str, found: Any) -> Iterator[str]:
    if not inspect.isclass(found):
        yield from _call_lines(path, found) if inspect.isfunction(found) else [path]
        return
    is_protocol = getattr(found, "_is_protocol", False)
    yield f"{path}: implemented" if is_protocol and found.__name__ not in PASSED else path
    if issubclass(found, Enum):
        yield from (f"{path}.{member}" for member in found.__members__)
        return
    if not is_protocol:
        yield from _parameter_lines(path, found)
    for name, kind in inspect.get_annotations(found).items() if is_protocol else ():
        yield f"{path}.{name}: {kind}"
    for name, part in vars(found).items():
        if name.startswith(("_", "test_")):
            continue
        part = getattr(part, "__func__", part)
        if inspect.isfunction(part):
            yield from _call_lines(f"{path}.{name}", part)
        elif isinstance(part, property):
            yield f"{path}.{name}"


def _call_lines(path: str, function: Any) -> Iterator[str]:
    yield f"{path}()"
    yield from _parameter_lines(path, function)


def _parameter_lines(path: str, found: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:  # of a class of Python's own
        return
    for each in parameters:
        if each.name not in ("self", "cls", "args", "kwargs") and not each.name.startswith("_"):
            kind = "" if each.annotation is each.empty else f": {each.annotation}"
            yield f"{path}({each.name}){kind}" + ("" if each.default is each.empty else " = …")


def find_breaks(before: str, after: str) -> list[str]:
    """Return what code of others used before and lacks now, and what it must have now and lacks."""
    old, new = _parts(before), _parts(after)
    breaks = [f"{key} is gone" for key in old if key not in new]
    for key, rest in new.items():
        head, _paren, parameter = key.rstrip(")").partition("(")
        is_required = bool(parameter) and not rest.endswith(" = …")
        owner = head if parameter else head.rpartition(".")[0]
        if key in old:
            breaks += [f"{key} is required now"] if is_required and old[key].endswith(" = …") else []
        elif is_required and (owner in old or f"{owner}()" in old):
            breaks.append(f"{key} is new and required")
        elif any(old.get(each) == ": implemented" for each in (owner, owner.rpartition(".")[0])):
            breaks.append(f"{key} is new, and code of others lacks it")
    return breaks


def _parts(text: str) -> dict[str, str]:
    return {found["key"]: found["rest"] for line in text.splitlines()[1:] if (found := LINE.fullmatch(line))}


def main() -> int:
    """Write the file, unless that breaks code of others within one version."""
    before, after = FILE.read_text("utf-8") if FILE.exists() else "", render_api()
    if before.split("\n", 1)[0] == after.split("\n", 1)[0] and (breaks := find_breaks(before, after)):
        sys.stderr.write("\n".join([*breaks, "raise EXTENSION_API, or keep what was: docs/extend.md"]) + "\n")
        return 1
    FILE.write_text(after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
