"""Record the decisions of operators about skills in a JSON file.

It has the disabled skills, the accepted hashes, and the changes that wait for a decision.

The copies of skills that were accepted or wait for a decision. What no record names is deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agent.skills.tree import list_tree, stamp
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


def version_folder(data: Path, name: str, digest: str) -> Path:
    """Return the folder of one version of a skill."""
    return data / "versions" / name / digest[:32] / name


def drop_oldest(data: Path, records: SkillRecords) -> None:
    """Drop the oldest waiting changes beyond the bounds of their number and size; the latest always stays."""
    room = MAX_STAGED_BYTES
    for kept, (digest, staged) in enumerate(reversed([*records.staged.items()])):
        folder = version_folder(data, staged.name, digest)
        room -= sum(file.size for file in list_tree(folder).values()) if folder.is_dir() else 0
        if kept and (room < 0 or kept >= MAX_STAGED):
            del records.staged[digest]


def named_versions(records: SkillRecords) -> set[tuple[str, str]]:
    """Return (name, hash) of the versions that are accepted or wait, and of those that a waiting change replaces."""
    named = {(name, digest) for name, pin in records.pins.items() for digest in (pin.hash, *pin.versions)}
    named |= {(each.name, digest) for key, each in records.staged.items() for digest in (key, each.base)}
    return {(name, digest) for name, digest in named if digest}


def delete_unnamed(data: Path, records: SkillRecords) -> None:
    """Delete the versions that are neither accepted nor waiting, nor what a waiting change replaces."""
    kept = {version_folder(data, name, digest).parent for name, digest in named_versions(records)}
    for folder in (data / "versions").glob("*/*"):
        if folder not in kept:
            shutil.rmtree(folder)
    for folder in (data / "versions").glob("*"):
        if not any(folder.iterdir()):
            folder.rmdir()
