"""Read the configuration of a service, at its start and at each reload.

Read a configuration to be tried: a whole file, or only the sections that replace those of the one in force.

Say by one digest whether processes on one database have the same configuration, wherever their files are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from bot.config.document import Document
from bot.config.files import default_file, read_document, read_files
from bot.config.loader import checked_config, known_variables, load_config
from bot.config.schema import Config


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The file (None: ./config.yaml, if it exists), and where the log goes (None: stderr)."""

    file: Path | None = None
    log_file: Path | None = None

    def read(self) -> Config:
        """Return the configuration as it is now. Raises ConfigError."""
        return load_config(self.file)


PARTS = ("permissions", "team", "budgets", "rate_limits")


def load_variant(file: Path, base: Path | None) -> Config:
    """Return the configuration of `file`. If it has only some of PARTS, all others are those of the file `base`.

    Variables are those that `base` could use. Raises ConfigError with every fault.
    """
    environ = known_variables(base)
    document = Document(str(file), file.absolute().parent, environ)
    sections = read_document(document, file, PARTS)
    base = base or default_file()
    if not base or not sections or not set(sections) <= set(PARTS):
        return checked_config(document, sections)
    whole = Document(str(base), base.absolute().parent, environ)
    below = read_files(whole, base)
    whole.add(document)
    return checked_config(whole, below and below | sections)


ABOUT_THE_FILE = (
    "source",
    "file",
    "paths",
    "digest",
    "variables",
    "network_files",
    "hints",
    "switches",
    "encryption_locked",
    "places",
)  # fields of Config that are not settings
OF_MACHINE = ("data_dir", "database", "http", "log", "systemd")  # sections that differ from machine to machine


def shared_digest(config: Config) -> str:
    """Return a digest of the settings that processes on one database have in common."""
    names = sorted({field.name for field in fields(Config)} - {*ABOUT_THE_FILE, *OF_MACHINE})
    text = repr([(name, _canonical(getattr(config, name))) for name in names])
    for folder in (config.data_dir, config.file.parent if config.file else None):
        text = text.replace(str(folder), "") if folder and folder.is_absolute() else text
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> object:
    """Return a value whose `repr` is the same in each process."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [(each.name, _canonical(getattr(value, each.name))) for each in fields(value)]
    match value:
        case Mapping():
            return sorted((repr(name), repr(_canonical(each))) for name, each in value.items())
        case set() | frozenset():
            return sorted(repr(_canonical(each)) for each in value)
        case list() | tuple():
            return [_canonical(each) for each in value]
        case type():
            return value.__qualname__
    shown = repr(value)
    return type(value).__qualname__ if " at 0x" in shown else shown
