"""Read a YAML document into plain values that know their lines; collect its faults.

A value `$NAME` or `${NAME}` comes from the environment, `$file:PATH` from a file, `$exec:COMMAND` from a program, and
`$$` at its start stands for a plain dollar sign. Names have a meaning: a `*_file` is a file that exists, a `url`, a
`*_url` or a `proxy` is a URL of a scheme that works there.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bot.config.excerpt import (
    HIDDEN,
    VARIABLE,
    Location,
    Mark,
    explain_syntax_error,
    may_be_shown,
    render_excerpt,
    split_lines,
)
from bot.config.outside import FILE, NotFetched, fetch, is_outside
from catalogue import N_, LazyText, _, list_items, localized

URL_FIX = N_("write it with its scheme, such as https://host:port/path")
MAX_VALUES = 20_000  # aliases of aliases would be read without end
_HTTP = ("http", "https")
_SCHEMES = {"gateway_url": ("ws", "wss")}  # by the name of the setting; all others are HTTP
URL_NAMES = ("url", "proxy", "issuer", "endpoint")
_CALLS = re.compile(r"/(?:chat/completions|completions|responses|messages|embeddings|audio/transcriptions)/?$")
_ODD_NUMBER = re.compile(r":|^[-+]?0\d")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HOME = re.compile(r"~[\w.-]*(?:/|$)")
_FREE_NAMES = {"options", "env", "headers"}  # sections in which somebody else defines the names


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One fault of the configuration: where it is (file, line, setting), what is wrong, how to fix it.

    `mark` is its place in the line, `excerpt` that line with a caret below the place.
    """

    file: str
    line: int  # 0 where there is none
    place: str
    wrong: LazyText | str
    fix: LazyText | str = ""
    mark: Mark | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        head = ": ".join(part for part in (where, self.place) if part) or _("configuration")
        return f"{head}: {localized(self.wrong)}" + (f" → {localized(self.fix)}" if self.fix else "")

    def render(self) -> str:
        """Return the fault with its excerpt."""
        return f"{self}\n{self.excerpt}" if self.excerpt else str(self)


class Document:
    """One configuration file and its environment. All faults are collected, so that one start reports them all."""

    def __init__(self, file: str, folder: Path, environ: Mapping[str, str]) -> None:
        self.file, self.folder, self.environ = file, folder, environ
        self.faults: list[ConfigFault] = []
        self.faulty: set[Location] = set()
        self.variables: dict[Location, str] = {}  # texts that came from the environment, which may be secrets
        self.origins: dict[str, tuple[str, int]] = {}  # of variables: file and line, where they come from a file
        self._named: dict[Location, str] = {}  # the variables of those texts
        self._nodes: dict[Location, yaml.Node] = {}
        self._keys: dict[Location, Mark] = {}  # where each setting or item of a list begins
        self._lines: list[str] = []
        self._spans: dict[int, dict[int, tuple[int, str]]] = {}  # the scalars of each line, as they may be shown
        self._parsed = False
        self.digest = ""  # SHA-256 of the text
        self.settings: Collection[str] = ()  # the names of all settings and sections, such as `sandbox.preview`
        self.left_out: Collection[str] = ()  # sections whose values nobody reads
        self.paths: set[Path] = set()  # files that were read and may hold secrets
        self.network: Mapping[str, str] = {}  # variables of proxies and authorities that only files set
        self.unread: list[tuple[str, int]] = []  # file and line of what is no variable in a `.env`
        self.fetched: dict[str, str] = {}  # what files and programs gave, by what names them
        self.locked = False  # the key of what is stored is not known here
        self.has_accounts = True  # models and channels were not left out
        self._local: Document | None = None  # whose settings win

    @property
    def files(self) -> list[str]:
        """The names of the files that were read."""
        return [name for name in (self.file, *(self._local.files if self._local else ())) if name]

    def add(self, local: Document) -> None:
        """Add the document whose settings were merged over those of this one."""
        if self._local:
            self._local.add(local)
        else:
            self._local = local
        self.paths |= local.paths
        self.faults += local.faults
        self.faulty |= local.faulty
        self.variables = {at: text for at, text in self.variables.items() if not local.owns(at)} | local.variables
        self.digest = hashlib.sha256(f"{self.digest}{local.digest}".encode()).hexdigest()

    def owns(self, at: Location) -> bool:
        """Return whether a setting comes from this document: it, or the list or value around it, is written there."""
        if at in self._keys or (self._local and self._local.owns(at)):
            return True
        around = next((at[:end] for end in range(len(at) - 1, 0, -1) if at[:end] in self._nodes), ())
        return bool(around) and not isinstance(self._nodes[around], yaml.MappingNode)

    def fault(self, at: Location, wrong: str, fix: str = "", *, on_key: bool = False) -> None:
        """Record a fault at a setting, or at the section that lacks it. `on_key`: its name is wrong, not its value."""
        self.faults.append(self.locate(at, wrong, fix, on_key=on_key))
        self.faulty.add(at)

    def refuse_weak(self, at: Location, secret: str, least: int, fix: str = "") -> None:
        """Record a fault where a secret that Fawn's owner makes up has fewer than so many characters."""
        if len(secret) < least:
            wrong = _("is shorter than {n} characters", n=least) if secret else _("is empty")
            self.fault(at, wrong, fix or _("make one with `openssl rand -base64 32`, and set it in both places"))

    def fault_of_variable(self, name: str, wrong: str, fix: str) -> None:
        """Record a fault of a variable, where it is set."""
        self.faults.append(ConfigFault(*self.origins.get(name, ("environment", 0)), name, wrong, fix))

    def locate(self, at: Location, wrong: str, fix: str = "", *, on_key: bool = False) -> ConfigFault:
        """Return a fault at a setting without recording it."""
        if self._local and at and self._local.owns(at):
            return self._local.locate(at, wrong, fix, on_key=on_key)
        if at not in self._keys and at in self._named:
            return ConfigFault(*self.origins.get(self._named[at], ("environment", 0)), self._named[at], wrong, fix)
        mark = self._keys.get(at) or self._keys.get(at[:-1])
        value = self._nodes.get(at)
        if isinstance(value, yaml.ScalarNode) and mark and not on_key and value.start_mark.line == mark.line:
            mark = self._mark(value)
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in at).lstrip(".")
        return ConfigFault(self.file, mark.line + 1 if mark else 0, place, wrong, fix, mark)

    def with_excerpt(self, fault: ConfigFault) -> ConfigFault:
        """Return the fault with its line and a caret. Needs the whole document, to hide what may be a secret."""
        if self._local and fault.file == self._local.file:
            return self._local.with_excerpt(fault)
        if not fault.mark or fault.mark.line >= len(self._lines):
            return fault
        line, spans = self._lines[fault.mark.line], self._spans.get(fault.mark.line, {})
        return replace(fault, excerpt=render_excerpt(line, fault.mark, spans, parsed=self._parsed))

    def locations(self, *names: str) -> list[Location]:
        """Return every place below these sections."""
        more = self._local.locations(*names) if self._local else []
        return [*(at for at in self._keys if at and at[0] in names), *more]

    def written(self, at: Location) -> str:
        """Return a scalar as it stands in the file."""
        if self._local and self._local.owns(at):
            return self._local.written(at)
        return str(self._nodes[at].value)

    def read(self, text: str) -> Any:
        """Return the values of a YAML text; None where it has none, or where it is broken, which is a fault."""
        mark, fix = None, ""
        self._lines = split_lines(text)
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        try:
            node = yaml.compose(text, yaml.SafeLoader)
            self._parsed = True
            if node and _written_out(node, {}) > MAX_VALUES:
                wrong = _("more than {n} values, with every alias written out", n=MAX_VALUES)
                self.fault((), wrong, _("write less: an alias counts each time with all that it stands for"))
                return None
            return self._value(node, ()) if node else None
        except yaml.MarkedYAMLError as error:
            mark, problem, fix = explain_syntax_error(error, self._lines)
        except yaml.reader.ReaderError as error:
            line = len(split_lines(text[: error.position])) - 1
            mark = Mark(line, 0, 1)
            problem, fix = _("a character that YAML does not allow"), _("remove it")
        except RecursionError:
            problem, fix = _("nested too deeply"), _("write it again, simpler")
        line = mark.line + 1 if mark else 0
        self.faults.append(ConfigFault(self.file, line, "", _("YAML syntax: {problem}", problem=problem), fix, mark))
        return None

    def _value(self, node: yaml.Node, at: Location) -> Any:
        if any(self._nodes[at[:end]] is node for end in range(len(at))):
            self.fault(at, _("contains itself"), _("remove the alias"))
            return None
        self._nodes[at] = node
        self._keys.setdefault(at, self._mark(node))
        if isinstance(node, yaml.MappingNode):
            return self._section(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*at, i)) for i, item in enumerate(node.value)]
        kind = str(node.tag).rpartition(":")[2]
        readable = may_be_shown(at, str(node.value), number=kind in ("int", "float"))
        self._remember(node, None if readable else HIDDEN)
        match kind:
            case "str":
                return self._checked(self.substitute(node.value, at), at)
            case "int" | "float" if _ODD_NUMBER.search(node.value):
                return node.value  # to base 60 or 8, which nobody means
            case "int" | "float" | "bool" | "null":
                try:
                    return yaml.SafeLoader("").construct_object(node)
                except (ValueError, LookupError):
                    self.fault(at, _("not a valid number or word"), _("write it again; a text belongs in quotes"))
                    return None
        return node.value  # a date, say: the text as it is written

    def _section(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        names: set[str] = set()
        for key, _value in node.value:
            name = _key_text(key)
            before = self._keys.get((*at, name))
            self._keys[*at, name] = self._mark(key)
            self._remember(key, shown(name))
            if name in names and before:
                wrong = _("duplicate key, also in line {n}", n=before.line + 1)
                self.fault((*at, name), wrong, _("remove one"), on_key=True)
            names.add(name)
        try:
            yaml.SafeLoader("").flatten_mapping(node)  # "<<: *anchor": merged keys come first, own keys win
        except (yaml.YAMLError, RecursionError):
            self.fault(at, _("'<<' can only merge sections"), _("remove it, or name sections: `<<: *NAME`"))
        pairs = {_key_text(key): (key, value) for key, value in node.value}
        node.value = list(pairs.values())  # an alias reads it again
        return {name: self._value(value, (*at, name)) for name, (_key, value) in pairs.items()}

    def _remember(self, node: yaml.Node, text: str | None) -> None:
        """Note how a scalar may be shown in its line: as `text`, or (None) as it is written."""
        mark = self._mark(node)
        spans = self._spans.setdefault(mark.line, {})
        if spans.get(mark.start, ("", ""))[1] != HIDDEN:  # an alias can use it as a secret and as something else
            spans[mark.start] = (mark.end, self._lines[mark.line][mark.start : mark.end] if text is None else text)

    def _mark(self, node: yaml.Node) -> Mark:
        """Return the first line of a scalar, or the first character of a section or list."""
        start, end = node.start_mark, node.end_mark
        if not isinstance(node, yaml.ScalarNode):
            return Mark(start.line, start.column, start.column + 1)
        column = end.column if end.line == start.line else len(self._lines[start.line])
        return Mark(start.line, start.column, column)

    def substitute(self, text: str, at: Location) -> str | None:
        """Return `text`, or the value of the variable that it names; one that is not set is a fault."""
        if text.startswith("$$"):
            return text[1:]
        if is_outside(text):
            return self._fetch(text, at)
        named = VARIABLE.fullmatch(text)
        if not named:
            inner = VARIABLE.search(text)
            if inner and not re.search(r"\s", text) and self.environ.get(inner[1] or inner[2]):
                wrong = _("{variable} is not replaced inside a longer value", variable=inner[0])
                self.fault(at, wrong, _("make it the whole value: put the whole text into the variable"))
                return None
            return text
        name = named[1] or named[2]
        if not self.environ.get(name):
            self.fault(at, _("${name} is not set", name=name), _("export it or put it into .env"))
            return None
        self.variables[at], self._named[at] = self.environ[name], name
        return self.environ[name]

    def _fetch(self, text: str, at: Location) -> str | None:
        """Return what a file or a program has, once a reading; sections that are left out need no secrets."""
        if at and at[0] in self.left_out:
            return text
        try:
            if text not in self.fetched:
                self.fetched[text] = fetch(text, self.folder, self.environ)
                self.paths |= {self.folder / text.removeprefix(FILE)} if text.startswith(FILE) else set()
        except NotFetched as error:
            self.fault(at, error.wrong, error.fix)
            return None
        self.variables[at] = self.fetched[text]
        return self.fetched[text]

    def _checked(self, text: str | None, at: Location) -> str | None:
        """Check what the name of a setting promises."""
        if text and _SURROGATE.search(text):
            self.fault(at, _("contains a character that is not valid text"), _(r"write it again, without `\u`"))
            return ""
        name = str(at[-1]) if at and _FREE_NAMES.isdisjoint(at) else ""
        is_address = at[:1] != ("database",) and (name in URL_NAMES or name.endswith("_url"))  # that is not HTTP
        if text and is_address and (found := explain_url(text, name)):
            self.fault(at, *found)
        elif text and (name == "relay_url" or at == ("relay", "url")) and is_open(text):
            self.fault(at, _("sends its key unencrypted"), _("write it with https://"))
        if text and name and _HOME.match(text) and os.path.expanduser(text) == text:
            self.fault(at, _("names the home of a user that there is not"), _("write the whole path, from /"))
        elif text and name.endswith("_file") and not (self.folder / os.path.expanduser(text)).is_file():
            self.fault(
                at, _("the file does not exist"), _("check the path; it starts at the folder of the config file")
            )
        return text


def shown(name: str) -> str:
    """Return a key as a fault may repeat it: a mistyped line can carry a secret into its key."""
    plain = re.sub(r"(?s)[^\w-].*", "…", name)
    return (plain or '""') if len(plain) <= 40 else plain[:40] + "…"


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node has when its aliases are written out. An alias to what contains it counts once."""
    if id(node) not in known:
        known[id(node)] = 1
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inside = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inside = node.value
        known[id(node)] = 1 + sum(_written_out(each, known) for each in inside)
    return known[id(node)]


def _key_text(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "?"


def is_open(url: str) -> bool:
    """Return whether everybody on the way can read what is sent there: without TLS, to no private network."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    try:
        return parts.scheme == "http" and not ipaddress.ip_address(host).is_private
    except ValueError:  # a name: one without a dot is of this machine, or of a cluster
        inside = host.endswith((".internal", ".local", ".localhost", ".svc"))
        return parts.scheme == "http" and "." in host and not inside


def explain_url(text: str, setting: str = "url") -> tuple[str, str] | None:
    """Return what is wrong with the URL of this setting, and how to mend it; None if it can be used."""
    schemes = _SCHEMES.get(setting, _HTTP)
    try:
        parts = urlsplit(text)
        if re.search(r"\s", text) or not parts.hostname or (parts.port is not None and parts.port <= 0):
            return _("not a URL"), _(URL_FIX)
    except ValueError:
        return _("not a URL"), _(URL_FIX)
    if parts.scheme in schemes:
        call = _CALLS.search(parts.path) if setting == "base_url" else None
        return (_("is the address of one call"), _("write it without {path}", path=call[0])) if call else None
    wrong = _("an address with {scheme}:// cannot be used here", scheme=parts.scheme)
    if setting == "proxy":
        return wrong, _("name an HTTP proxy, such as http://proxy.example:3128")
    return wrong, _("write it with {schemes}", schemes=list_items([f"{each}://" for each in schemes]))
