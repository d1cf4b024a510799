"""The copies of skills that were accepted or wait for a decision. What no record names is deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent.skills.records import MAX_STAGED, MAX_STAGED_BYTES, SkillRecords
from agent.skills.tree import list_tree


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
