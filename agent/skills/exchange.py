"""Exchange decisions about skills with other processes: spell and check them, merge both sides, apply the result.

What comes from elsewhere is not trusted: names, hashes and sizes have bounds, and a version is only taken if its files
have the hash that an operator accepted.
"""

from __future__ import annotations

import io
import logging
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import orjson

from agent.skills.archive import unpack_archive
from agent.skills.library import SkillLibrary, SkillOrigin
from agent.skills.records import (
    SkillRecords,
    delete_unnamed,
    dump_records,
    load_records,
    named_versions,
    version_folder,
    write_records,
)
from agent.skills.skill import SkillError, is_folder_name, read_skill
from agent.skills.tree import MAX_TREE_BYTES, check_path, copy_tree, hash_tree, list_tree
from agent.stored_json import Damaged, raise_damaged
from catalogue import N_, LazyText

log = logging.getLogger(__name__)
T = TypeVar("T")

KNOWN_FILE = "shared.json"  # in the library's folder: which decisions the processes had in common last
MAX_RECORDS_BYTES = 1 << 20
MAX_ARCHIVE_BYTES = MAX_TREE_BYTES + (4 << 20)  # of a version, with the names of its files
MAX_SHARED_SKILLS = 500
HASH_CHARS = 64
NOT_HERE = N_("the version that an operator accepted elsewhere has not reached this machine")


@dataclass(frozen=True, slots=True)
class CommonDecisions:
    """The decisions that all processes had when this one looked last, and the number of their row."""

    version: int
    records: SkillRecords


def read_known(data: Path) -> CommonDecisions | None:
    """Return what was common last; None before the first time, or if the file is damaged."""
    try:
        with raise_damaged():
            raw = orjson.loads((data / KNOWN_FILE).read_bytes())
            return CommonDecisions(int(raw["version"]), load_records(raw["records"]))
    except FileNotFoundError:
        return None
    except (OSError, Damaged) as error:
        log.warning("skills.shared_unreadable problem=%s", error)
        return None


def write_known(data: Path, known: CommonDecisions) -> None:
    """Replace the file. Raises OSError."""
    data.mkdir(parents=True, exist_ok=True)
    new = data / f".{KNOWN_FILE}.new"
    new.write_bytes(orjson.dumps({"version": known.version, "records": dump_records(known.records)}))
    new.replace(data / KNOWN_FILE)


def spell_records(records: SkillRecords) -> bytes:
    """Return the content of the row. Raises SkillError if it would be too large to be read."""
    content = orjson.dumps(dump_records(records))
    if len(content) > MAX_RECORDS_BYTES:
        raise SkillError(N_("there are more decisions about skills than processes can share"))
    return content


def read_row(content: bytes) -> SkillRecords:
    """Return the decisions of a row. Raises Damaged, also for a name or a hash that could be another path."""
    if len(content) > MAX_RECORDS_BYTES:
        raise Damaged("the decisions about skills are too large")
    with raise_damaged():
        records = load_records(orjson.loads(content))
    names = {*records.disabled, *records.pins, *(staged.name for staged in records.staged.values())}
    hashes = {*records.staged, *(staged.base for staged in records.staged.values() if staged.base)}
    hashes |= {digest for pin in records.pins.values() for digest in (pin.hash, *pin.versions)}
    texts = [each.source for group in (records.pins, records.staged) for each in group.values()]
    if len(names) > MAX_SHARED_SKILLS or not all(isinstance(name, str) and is_folder_name(name) for name in names):
        raise Damaged("the decisions about skills have a name that no skill has, or too many")
    if not all(_is_whole_hash(digest) for digest in hashes) or not all(isinstance(text, str) for text in texts):
        raise Damaged("the decisions about skills have a hash or a source that is none")
    return records


def _is_whole_hash(digest: object) -> bool:
    return isinstance(digest, str) and len(digest) == HASH_CHARS and not set(digest) - set("0123456789abcdef")


def merge_records(known: SkillRecords | None, mine: SkillRecords, theirs: SkillRecords) -> SkillRecords:
    """Return their decisions with those that were made here since `known`; None: this process never had theirs.

    Then what both have decided is as they have it, and what only this one has is added.
    """
    base = known or SkillRecords()

    def merged(before: Mapping[str, T], here: Mapping[str, T], there: Mapping[str, T]) -> dict[str, T]:
        result = dict(there)
        for key in [*before, *(key for key in here if key not in before)]:
            if here.get(key) == before.get(key) or (known is None and key in there):
                continue
            result.pop(key, None)
            if key in here:
                result[key] = here[key]
        return result

    disabled = merged(*(dict.fromkeys(sorted(each.disabled), True) for each in (base, mine, theirs)))
    return SkillRecords(
        set(disabled),
        merged(base.pins, mine.pins, theirs.pins),
        merged(base.staged, mine.staged, theirs.staged),
        merged(base.addresses, mine.addresses, theirs.addresses),
    )


def has_version(data: Path, name: str, digest: str) -> bool:
    """Return whether a version's files are here. Blocks."""
    return version_folder(data, name, digest).is_dir()


def missing_versions(data: Path, records: SkillRecords) -> list[tuple[str, str]]:
    """Return (name, hash) of the versions that the records name and this folder lacks. Blocks."""
    return [each for each in sorted(named_versions(records)) if not has_version(data, *each)]


def find_lacking(library: SkillLibrary, records: SkillRecords) -> list[tuple[str, str]]:
    """Return (name, hash) of the versions that are missing, and of accepted skills without a folder. Blocks."""
    removed = {(name, pin.hash) for name, pin in records.pins.items() if not library.custom_folder(name).is_dir()}
    return sorted({*missing_versions(library.data, records), *removed})


def pack_version(data: Path, name: str, digest: str) -> bytes:
    """Return a version as an archive. Raises SkillError for paths that are unsafe elsewhere, and OSError. Blocks."""
    folder, out = version_folder(data, name, digest), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, file in sorted(list_tree(folder).items()):
            check_path(path)
            entry = zipfile.ZipInfo(f"{name}/{path}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if file.executable else 0o100644) << 16
            archive.writestr(entry, (folder / path).read_bytes())
    return out.getvalue()


def keep_version(data: Path, name: str, digest: str, archive: bytes) -> None:
    """Keep a version that another process has packed. Raises SkillError for other files than those. Blocks."""
    with tempfile.TemporaryDirectory(prefix="skill-") as scratch:
        folder = unpack_archive(archive, Path(scratch))
        if hash_tree(folder) != digest or read_skill(folder).name != name:
            raise SkillError(N_("its files are not those that an operator accepted"))
        copy_tree(folder, version_folder(data, name, digest))


def apply_records(library: SkillLibrary, expected: SkillRecords, wanted: SkillRecords) -> bool:
    """Install, replace and remove what other decisions ask for. Blocks. Raises OSError.

    Returns False, and does nothing, if the decisions of this process are not the `expected` ones any more.
    """
    with library.exclusive():
        library.reload()
        mine = library.records()
        if mine != expected:
            return False
        for name in mine.pins.keys() - wanted.pins.keys():
            shutil.rmtree(library.custom_folder(name), ignore_errors=True)
            log.info("skill.removed_elsewhere name=%s", name)
        missing = dict(_install_all(library, mine, wanted))
        write_records(library.data, wanted)
        delete_unnamed(library.data, wanted)
        library.set_missing(missing)
        library.reload()
        return True


def _install_all(library: SkillLibrary, mine: SkillRecords, wanted: SkillRecords) -> Iterator[tuple[str, LazyText]]:
    """Install the accepted versions. Yields the folders of those that are not here, with a sentence.

    Files that somebody changed by hand stay: their skill is disabled, because they have another hash.
    """
    for name, pin in wanted.pins.items():
        folder = library.custom_folder(name)
        present = hash_tree(folder) if folder.is_dir() else ""
        old = mine.pins.get(name)
        accepted = {"", *pin.versions, *((old.hash, *old.versions) if old else ())}
        if present == pin.hash:
            continue
        if not has_version(library.data, name, pin.hash):
            yield f"{SkillOrigin.CUSTOM}/{name}", LazyText(NOT_HERE)
        elif present in accepted:
            copy_tree(version_folder(library.data, name, pin.hash), folder)
            log.info("skill.installed_elsewhere name=%s hash=%s", name, pin.hash[:12])
        else:
            log.warning("skill.not_replaced name=%s — its files were changed on this machine", name)
