"""Record the decisions of operators about skills in a JSON file.

It has the disabled skills, the accepted hashes, and the changes that wait for a decision.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agent.skills.tree import stamp
from agent.stored_json import Damaged, build_dataclass, raise_damaged

RECORDS_FILE = "skills.json"
MAX_VERSIONS = 10  # kept of each skill
MAX_ADDRESSES = 20  # of repositories with several skills, among which an operator was asked to choose
MAX_STAGED, MAX_STAGED_BYTES = 20, 100 << 20  # that wait for a decision; the oldest make room


@dataclass(frozen=True, slots=True)
class Pin:
    """The accepted state of a skill in the custom folder; `versions` are the accepted hashes, the latest last."""

    hash: str
    source: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """A new or changed skill that waits for a decision. `base` is the hash of what it replaces; "": nothing."""

    name: str
    source: str
    base: str


@dataclass(slots=True)
class SkillRecords:
    """The content of the file: disabled names, pins by name, what waits by hash, in order, addresses by their hash."""

    disabled: set[str] = field(default_factory=set)
    pins: dict[str, Pin] = field(default_factory=dict)
    staged: dict[str, Staged] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)


def read_records(data: Path, watched: dict[str, tuple[int, ...]] | None = None) -> SkillRecords:
    """Read the file; nothing was decided where there is none. Raises OSError, also if it is damaged."""
    path = data / RECORDS_FILE
    try:
        status, content = path.lstat(), path.read_bytes()
    except FileNotFoundError:
        status, content = None, b"{}"
    if watched is not None:
        watched[str(path)] = stamp(status) if status else ()
    try:
        with raise_damaged():
            return load_records(orjson.loads(content))
    except Damaged as error:
        raise OSError(f"{path} is damaged: {error}") from error


def load_records(raw: Mapping[str, Any]) -> SkillRecords:
    """Return the records of what `dump_records` returned. Raises the errors that `raise_damaged` translates."""
    return SkillRecords(
        set(raw.get("disabled", ())),
        {
            name: build_dataclass(Pin, each, versions=tuple(each["versions"]))
            for name, each in raw.get("pins", {}).items()
        },
        {key: build_dataclass(Staged, each) for key, each in raw.get("staged", {}).items()},
        {str(key): str(each) for key, each in raw.get("addresses", {}).items()},
    )


def dump_records(records: SkillRecords) -> dict[str, Any]:
    """Return the records as JSON has them."""
    return {
        "disabled": sorted(records.disabled),
        "pins": records.pins,
        "staged": records.staged,
        "addresses": records.addresses,
    }


def write_records(data: Path, records: SkillRecords) -> None:
    """Replace the file. Raises OSError."""
    data.mkdir(parents=True, exist_ok=True)
    new = data / f".{RECORDS_FILE}.new"
    with new.open("wb") as file:
        file.write(orjson.dumps(dump_records(records), option=orjson.OPT_INDENT_2))
        file.flush()
        os.fsync(file.fileno())
    new.replace(data / RECORDS_FILE)
