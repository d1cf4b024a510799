"""Say by one digest whether processes on one database have the same configuration, wherever their files are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from bot.config.schema import Config

ABOUT_THE_FILE = (
    "source",
    "file",
    "paths",
    "digest",
    "variables",
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
