"""Read a YAML document into plain values that know their lines; collect its faults.

A value `$NAME` or `${NAME}` comes from the environment, `$$` at its start stands for a plain dollar sign. Names have a
meaning: a `*_file` is a file that exists, a `*_url` or a `proxy` is a URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Location = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
URL_FIX = "write it with its scheme, such as https://host:port/path"
_URL_SCHEMES = ("http", "https", "ws", "wss", "socks5")


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One fault of the configuration: where it is (file, line, setting), what is wrong, how to fix it."""

    file: str
    line: int  # 0 where there is none
    place: str
    wrong: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        head = ": ".join(part for part in (where, self.place) if part) or "configuration"
        return f"{head}: {self.wrong}" + (f" → {self.fix}" if self.fix else "")


class Document:
    """One configuration file and its environment. All faults are collected, so that one start reports them all."""

    def __init__(self, file: str, folder: Path, environ: Mapping[str, str]) -> None:
        self.file, self.folder, self.environ = file, folder, environ
        self.faults: list[ConfigFault] = []
        self.faulty: set[Location] = set()
        self.variables: dict[Location, str] = {}  # texts that came from the environment, which may be secrets
        self._nodes: dict[Location, yaml.Node] = {}
        self._lines: dict[Location, int] = {}

    def fault(self, at: Location, wrong: str, fix: str = "") -> None:
        """Record a fault at a setting, or at the section that lacks it."""
        line = self._lines.get(at) or self._lines.get(at[:-1], 0)
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in at).lstrip(".")
        self.faults.append(ConfigFault(self.file, line, place, wrong, fix))
        self.faulty.add(at)

    def written(self, at: Location) -> str:
        """Return a scalar as it stands in the file."""
        return str(self._nodes[at].value)

    def read(self, text: str) -> Any:
        """Return the values of a YAML text; None where it has none, or where it is broken, which is a fault."""
        line, fix = 0, ""
        try:
            node = yaml.compose(text, yaml.SafeLoader)
            return self._value(node, ()) if node else None
        except yaml.MarkedYAMLError as error:
            mark, problem = error.problem_mark or error.context_mark, error.problem or error.context or "not valid"
            if isinstance(error, yaml.composer.ComposerError):  # its text repeats what was written
                problem = re.sub(r" '.*", "", problem)
            line, fix = mark.line + 1 if mark else 0, "check quotes, colons and indentation"
        except yaml.YAMLError:
            problem = "a character that YAML does not allow"
        except RecursionError:
            problem = "nested too deeply"
        self.faults.append(ConfigFault(self.file, line, "", f"YAML syntax: {problem}", fix))
        return None

    def _value(self, node: yaml.Node, at: Location) -> Any:
        if any(self._nodes[at[:end]] is node for end in range(len(at))):
            self.fault(at, "contains itself")
            return None
        self._nodes[at] = node
        self._lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._section(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*at, i)) for i, item in enumerate(node.value)]
        match str(node.tag).rpartition(":")[2]:
            case "str":
                return self._checked(self.substitute(node.value, at), at)
            case "int" | "float" | "bool" | "null":
                try:
                    return yaml.SafeLoader("").construct_object(node)
                except (ValueError, LookupError):
                    self.fault(at, "not a valid number or word")
                    return None
        return node.value  # a date, say: the text as it is written

    def _section(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            self._lines[*at, name := _key_text(key)] = key.start_mark.line + 1
            if name in names:
                self.fault((*at, name), "duplicate key", "remove one")
            names.add(name)
        try:
            yaml.SafeLoader("").flatten_mapping(node)  # "<<: *anchor": merged keys come first, own keys win
        except (yaml.YAMLError, RecursionError):
            self.fault(at, "'<<' can only merge sections")
        pairs = {_key_text(key): (key, value) for key, value in node.value}
        node.value = list(pairs.values())  # an alias reads it again
        return {name: self._value(value, (*at, name)) for name, (_, value) in pairs.items()}

    def substitute(self, text: str, at: Location) -> str | None:
        """Return `text`, or the value of the variable that it names; one that is not set is a fault."""
        if text.startswith("$$"):
            return text[1:]
        named = _VARIABLE.fullmatch(text)
        if not named:
            return text
        name = named[1] or named[2]
        if not self.environ.get(name):
            self.fault(at, f"${name} is not set", "export it or put it into .env")
            return None
        self.variables[at] = self.environ[name]
        return self.environ[name]

    def _checked(self, text: str | None, at: Location) -> str | None:
        """Check what the name of a setting promises."""
        name = str(at[-1]) if at and "options" not in at else ""  # the model's class defines the names of its options
        if text and (name.endswith("_url") or name == "proxy") and not is_url(text):
            self.fault(at, "not a URL", URL_FIX)
        if text and name.endswith("_file") and not (self.folder / Path(text).expanduser()).is_file():
            self.fault(at, "the file does not exist", "check the path; it starts at the folder of the config file")
        return text


def shown(name: str) -> str:
    """Return a key as a fault may repeat it: a mistyped line can carry a secret into its key."""
    plain = re.sub(r"(?s)[^\w-].*", "…", name)
    return plain if len(plain) <= 40 else plain[:40] + "…"


def _key_text(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "?"


def is_url(text: str) -> bool:
    """Return whether `text` is a URL with a scheme and a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in _URL_SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
