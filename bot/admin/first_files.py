"""Write what `fawn init` was told: a commented configuration and .env, shown as a difference, or nothing at all.

Write variables into a .env file and keep everything else in it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bot.config.files import CONFIG_VERSION, local_file
from catalogue import _

FILE_MODE = 0o600  # it holds secrets


def set_variables(file: Path, values: Mapping[str, str]) -> None:
    """Replace the lines of these variables, or append them, in one step. Raises OSError."""
    file = file.resolve()  # a link stays a link
    text = file.read_text("utf-8") if file.exists() else ""
    for name, value in values.items():
        line, old = f"{name}={_quote(value)}", re.compile(rf"^[ \t]*(?:export[ \t]+)?{name}[ \t]*=.*$\n?", re.MULTILINE)
        first = old.search(text)
        at = first.start() if first else len(text)
        head, rest = text[:at], old.sub("", text[at:])
        text = f"{head}{'' if not head or head.endswith(chr(10)) else chr(10)}{line}\n{rest}"
    write_whole(file, text, FILE_MODE)


def write_whole(file: Path, text: str, mode: int) -> None:
    """Replace the text of a file in one step; it gets this mode. Raises OSError."""
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


def _quote(value: str) -> str:
    if re.fullmatch(r"[\w.:/+=@%,-]*", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


_VALUE = re.compile(r"(?m)^([+-][^=\n]+=).+$")
CONFIG_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the configuration with the comment above it."""

    name: str
    value: Any
    comment: str


@dataclass(frozen=True, slots=True)
class FirstFiles:
    """The files beside the configuration `file`, which may not exist yet: what differs goes into the local one."""

    file: Path

    @property
    def target(self) -> Path:
        """The file that gets the sections: an upgrade replaces config.yaml, so its neighbour."""
        return local_file(self.file) if self.file.exists() else self.file

    @property
    def env(self) -> Path:
        """The file of the secrets."""
        return self.file.parent / ".env"

    def present(self) -> set[str]:
        """Return the sections that the target has, which are the operator's own."""
        found = yaml.safe_load(_text(self.target)) if self.target.exists() else None
        return set(found) if isinstance(found, dict) else set()

    def difference(self, sections: Sequence[Section], variables: Mapping[str, str]) -> str:
        """Return what would change, as a unified diff without the values of secrets."""
        env = _text(self.env) + "".join(f"{name}=…\n" for name in variables)
        return _difference(self.target, self._config_text(sections)) + _VALUE.sub(
            r"\1…", _difference(self.env, env) if variables else ""
        )

    def write(self, sections: Sequence[Section], variables: Mapping[str, str]) -> None:
        """Write both files. Raises OSError."""
        if variables:
            set_variables(self.env, variables)
        if sections:
            mode = self.target.stat().st_mode & 0o777 if self.target.exists() else CONFIG_MODE
            write_whole(self.target, self._config_text(sections), mode)

    def snapshot(self) -> dict[Path, str | None]:
        """Return the texts of the files, for `put_back`."""
        return {file: _text(file) if file.exists() else None for file in (self.target, self.env)}

    @staticmethod
    def put_back(before: Mapping[Path, str | None]) -> None:
        """Restore the files as they were. Raises OSError."""
        for file, text in before.items():
            if text is None:
                file.unlink(missing_ok=True)
            else:
                write_whole(file, text, FILE_MODE if file.name == ".env" else file.stat().st_mode & 0o777)

    def _config_text(self, sections: Sequence[Section]) -> str:
        if not sections:
            return _text(self.target)
        begin = _text(self.target)
        if not begin:
            page = _("`fawn init` wrote this; docs/configuration.md has every setting, `fawn check` tests it.")
            version = "" if self.target != self.file else _as_yaml({"config_version": CONFIG_VERSION})
            begin = f"# {page}\n{version}"
        parts = [f"# {each.comment}\n{_as_yaml({each.name: each.value})}" for each in sections]
        return "\n".join([begin if begin.endswith("\n") else f"{begin}\n", *parts])


def _as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)


def _text(file: Path) -> str:
    return file.read_text("utf-8") if file.exists() else ""


def _difference(file: Path, after: str) -> str:
    lines = difflib.unified_diff(
        _text(file).splitlines(keepends=True), after.splitlines(keepends=True), f"{file.name}", f"{file.name}", n=1
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
