"""YAML into frozen dataclasses: every fault is collected with its line, its place and its fix.

Driven by the dataclasses alone: annotations are the types, defaults the defaults, and `metadata` may carry `help`
(a sentence for the docs), `least` (the smallest number allowed, 0 if absent), `internal` (no setting) and `path`
(relative paths belong to the folder of the file; fields called `*_file` are paths anyway). A field called `*_url` or
`proxy` must be a URL.
A value `$NAME` or `${NAME}` comes from the environment, `$$` at its start stands for a plain dollar sign.
"""

from __future__ import annotations

import difflib
import math
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin
from urllib.parse import urlsplit

import yaml

from agent.secret import Secret

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SCALAR = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing"}
_WANTED = {str: "text", Secret: "text", Path: "a path", int: "a whole number", float: "a number", bool: "true or false"}
_URL_SCHEMES = ("http", "https", "ws", "wss", "socks5")


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong: where (file:line), at which setting, what, and how to mend it."""

    file: str
    line: int  # 0 where there is none
    place: str
    wrong: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        head = ": ".join(part for part in (where, self.place) if part) or "configuration"
        return f"{head}: {self.wrong}" + (f" → {self.fix}" if self.fix else "")


class EnvString(str):
    """Text that came from the environment: usable as text, hidden in repr because it may be a secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class InvalidValue(Exception):
    """A value that cannot be used; becomes a Fault at the place where it stands. Never carries the value itself."""

    def __init__(self, wrong: str, fix: str = "") -> None:
        super().__init__(wrong)
        self.wrong, self.fix = wrong, fix


@cache
def hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields, resolved."""
    return typing.get_type_hints(kind)


def suggest(name: str, known: Iterable[str]) -> str:
    """ "did you mean …?", or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, 1, 0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"one of: {', '.join(names)}" if names and len(names) <= 30 else ""


def is_path(field: Field[Any]) -> bool:
    return bool(field.metadata.get("path")) or field.name.endswith("_file") or field.type in (Path, "Path")


class Parser:
    """Reads one file; what is wrong gathers in `faults`, so that a person sees all of it at once."""

    def __init__(self, file: str, folder: Path, environ: Mapping[str, str]) -> None:
        self.file, self.folder, self.environ = file, folder, environ
        self.faults: list[ConfigFault] = []
        self._open: list[int] = []  # mappings and lists being read, against anchors that contain themselves

    def compose(self, text: str) -> yaml.Node | None:
        """The tree of a YAML document, None when there is none (or when it is broken, which is a fault)."""
        loader = yaml.SafeLoader("")
        try:
            loader = yaml.SafeLoader(text)
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or error.context or "not valid YAML"
            if isinstance(error, yaml.composer.ComposerError):  # its text repeats what was written
                problem = re.sub(r" '.*", "", problem)
            line = mark.line + 1 if mark else 0
            self.faults.append(
                ConfigFault(self.file, line, "", f"YAML syntax: {problem}", "check quotes, colons and indentation")
            )
        except (yaml.YAMLError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else "a character YAML does not allow"
            self.faults.append(ConfigFault(self.file, 0, "", f"YAML syntax: {problem}"))
        finally:
            loader.dispose()
        return None

    # ------------------------------------------------------------ faults

    def fault(self, node: yaml.Node | None, place: str, wrong: str, fix: str = "") -> None:
        line = node.start_mark.line + 1 if node is not None and node.start_mark else 0
        self.faults.append(ConfigFault(self.file, line, place, wrong, fix))

    def check(self, node: yaml.Node | None, place: str, kind: Any, field: Field[Any] | None = None) -> Any:
        """`value`, with a fault recorded and None given when it cannot be used."""
        try:
            return self._refine(self.value(node, place, kind), field)
        except InvalidValue as error:
            self.fault(node, place, error.wrong, error.fix)
            return None

    # ------------------------------------------------------------ sections

    def pairs(self, node: yaml.Node | None, place: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """name → (key, value) of a mapping; twice the same name is a fault. Raises Wrong when it is no mapping."""
        if node is None or is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise InvalidValue(f"expected a section (name: value), found {found(node)}")
        own: set[str] = set()
        for key, _ in node.value:
            if (name := key_of(key)) in own:
                self.fault(key, join(place, shown(name)), "duplicate key", "remove one")
            own.add(name)
        try:
            yaml.SafeLoader("").flatten_mapping(node)  # "<<: *anchor": what is merged comes first, what is said wins
        except (yaml.YAMLError, RecursionError):
            raise InvalidValue("'<<' can only merge sections") from None
        known = {key_of(key): (key, value) for key, value in node.value}
        node.value = list(known.values())
        return known

    def section(self, node: yaml.Node | None, place: str, kind: type, extra: Sequence[str] = ()) -> Any:
        """An instance of the dataclass `kind`, or None when something in it is at fault. `extra` names keys that
        somebody else reads."""
        known = {f.name: f for f in fields(kind) if f.name not in extra and not f.metadata.get("internal")}
        pairs = self.pairs(node, place)
        before = len(self.faults)
        for name, (key, _) in pairs.items():
            if name not in known and name not in extra:
                hint = "put a space after the colon" if ":" in name else suggest(name, [*known, *extra])
                self.fault(key, join(place, shown(name)), "unknown setting", hint)
        values: dict[str, Any] = {}
        for name, field in known.items():
            if name in pairs:
                values[name] = self.check(pairs[name][1], join(place, name), hints(kind)[name], field)
            elif field.default is MISSING and field.default_factory is MISSING:
                self.fault(node, join(place, name), "is missing", f"add `{name}: …`")
            elif is_dataclass(hints(kind)[name]):
                values[name] = self.section(None, join(place, name), hints(kind)[name])
            elif is_path(field) and field.default is not MISSING:
                values[name] = self._refine(field.default, field)
        return kind(**values) if len(self.faults) == before else None

    # ------------------------------------------------------------ values

    def value(self, node: yaml.Node | None, place: str, kind: Any) -> Any:
        """The value of a node as `kind`. Raises Wrong."""
        origin = get_origin(kind)
        if kind is Any:
            return self._plain(node)
        if origin in (Union, UnionType):
            options = [option for option in get_args(kind) if option is not NoneType]
            return None if is_null(node) else self.value(node, place, options[0])
        if origin is Literal:
            return self._choice(node, get_args(kind))
        if origin is tuple:
            return self._list(node, place, get_args(kind)[0])
        if origin is not None and issubclass(origin, Mapping):
            item = get_args(kind)[1]
            return {name: self.check(v, join(place, name), item) for name, (_, v) in self.pairs(node, place).items()}
        if is_dataclass(kind):
            return self.section(node, place, cast("type", kind))
        return self._scalar(node, kind)

    def _list(self, node: yaml.Node | None, place: str, kind: Any) -> tuple[Any, ...]:
        if is_null(node):
            return ()
        if not isinstance(node, yaml.SequenceNode):
            raise InvalidValue(f"expected a list, found {found(node)}", "write it as [first, second]")
        if kind is str:  # ids are often written as numbers: take them as they are written
            return tuple(self.check(as_text(item), f"{place}[{i}]", str) for i, item in enumerate(node.value))
        return tuple(self.check(item, f"{place}[{i}]", kind) for i, item in enumerate(node.value))

    def _choice(self, node: yaml.Node | None, options: tuple[str, ...]) -> str:
        if isinstance(node, yaml.ScalarNode) and tag(node) == "bool" and node.value.lower() in options:
            return str(node.value.lower())  # YAML takes the words on and off for true and false
        text = self._scalar(node, str)
        if text not in options:
            written = repr(text) if not isinstance(text, EnvString) and re.fullmatch(r"[\w-]{1,20}", text) else "this"
            raise InvalidValue(f"{written} is not a valid value", suggest(text, options))
        return str(text)

    def _scalar(self, node: yaml.Node | None, kind: type) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise InvalidValue(f"expected {_WANTED[kind]}, found {found(node)}")
        if tag(node) == "str":
            text = self.variable(node.value)
            if kind in (str, Secret, Path):
                return text if kind is str else kind(str(text).strip())  # a secret copied from a file ends in a newline
            if not isinstance(text, EnvString):
                raise InvalidValue(f"expected {_WANTED[kind]}, found text")
            node = plain(str(text))
        if kind in (str, Secret, Path):
            raise InvalidValue(f"expected {_WANTED[kind]}, found {found(node)}", "put it in quotes")
        value = construct(node)
        if kind is float and type(value) is int:
            value = float(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidValue("must be a finite number")
        if type(value) is not kind:
            raise InvalidValue(f"expected {_WANTED[kind]}, found {found(node)}")
        return value

    def _plain(self, node: yaml.Node | None) -> Any:
        """Any YAML value as Python sees it, with variables replaced."""
        if node is None:
            return None
        if id(node) in self._open:
            raise InvalidValue("contains itself")
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return {name: self._plain(value) for name, (_, value) in self.pairs(node, "").items()}
            if isinstance(node, yaml.SequenceNode):
                return [self._plain(item) for item in node.value]
            return self.variable(node.value) if tag(node) == "str" else construct(node)
        finally:
            self._open.pop()

    def variable(self, text: str) -> str:
        """`text`, or what the environment has for "$NAME". Raises Wrong when that is not set."""
        if text.startswith("$$"):
            return text[1:]
        named = _VARIABLE.fullmatch(text)
        if not named:
            return text
        name = named[1] or named[2]
        if not self.environ.get(name):
            raise InvalidValue(f"${name} is not set", "export it or put it into .env")
        return EnvString(self.environ[name])

    def _refine(self, value: Any, field: Field[Any] | None) -> Any:
        """What types do not say: bounds, URLs, paths."""
        if field is None or value is None or value == "":
            return value
        if type(value) in (int, float) and value < field.metadata.get("least", 0):
            raise InvalidValue(f"must be at least {field.metadata.get('least', 0)}")
        if field.name.endswith("_url") or field.name == "proxy":
            check_url(value)
        if is_path(field):
            path = self.folder / Path(value).expanduser()
            if field.name.endswith("_file") and not path.is_file():
                raise InvalidValue(
                    "there is no such file", "check the path: it is relative to the folder of the config"
                )
            return path if isinstance(value, Path) else str(path)
        return value


# ---------------------------------------------------------------- nodes


def join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def shown(name: str) -> str:
    """A key as it may be repeated: a mistyped line can carry a secret into its key."""
    head = re.match(r"[\w-]{0,40}", name)
    return name if head and head[0] == name else (head[0] if head else "") + "…"


def tag(node: yaml.Node) -> str:
    return str(node.tag).rpartition(":")[2]


def plain(text: str) -> yaml.ScalarNode:
    """The node of an unquoted word: a number when it looks like one."""
    return yaml.ScalarNode(yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False)), text)  # type: ignore[no-untyped-call]  # the stubs leave it out


def is_null(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and tag(node) == "null")


def key_of(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "?"


def as_text(node: yaml.Node) -> yaml.Node:
    """A number as the text it was written as; anything else as it is."""
    return yaml.ScalarNode("tag:yaml.org,2002:str", node.value, node.start_mark) if tag(node) == "int" else node


def found(node: yaml.Node | None) -> str:
    """What a node is, in words that do not repeat it."""
    if isinstance(node, yaml.MappingNode):
        return "a section"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return _SCALAR.get(tag(node), "something else") if node is not None else "nothing"


def construct(node: yaml.Node) -> Any:
    """The Python value of a scalar. Raises Wrong for a tag or a text that has none."""
    if tag(node) not in ("str", "int", "float", "bool", "null"):
        return node.value
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError, LookupError):
        raise InvalidValue("not a valid number or word") from None


def check_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in _URL_SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise InvalidValue("not a URL", "write it with its scheme, such as https://host:port/path")
