"""Change the installed skills: install, accept, roll back, enable. Every function is an operator's decision.

A new or changed skill is first staged: its files are checked and copied to `versions`, under their hash. Accepting
one names this hash, so that what is installed is what the operator has seen.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.permissions.invisible import PROSE, show_invisible
from agent.skills.library import InstalledSkill, SkillLibrary, SkillOrigin, SkillState
from agent.skills.records import (
    MAX_ADDRESSES,
    MAX_VERSIONS,
    Pin,
    SkillRecords,
    Staged,
    delete_unnamed,
    drop_oldest,
    version_folder,
    write_records,
)
from agent.skills.skill import SKILL_FILES, SkillError, read_skill
from agent.skills.tree import check_path, check_tree, copy_tree, diff_trees, hash_tree
from catalogue import N_

log = logging.getLogger(__name__)

ADDRESS_HASH_CHARS = 32


@dataclass(frozen=True, slots=True)
class SkillChange:
    """A staged change: the skill's name, its hash, the difference to what is installed, and whether it is new."""

    name: str
    hash: str
    diff: str
    is_new: bool


def stage_skill(library: SkillLibrary, folder: Path, source: str) -> SkillChange:
    """Check the skill in `folder` and keep it for a decision. Raises SkillError and OSError."""
    check_tree(folder)
    skill = read_skill(folder)
    with library.exclusive():
        library.reload()
        digest = hash_tree(folder)
        _keep_version(library, skill.name, digest, folder)
        old = library.current.skills.get(skill.name)
        base = ""
        if old:
            base = hash_tree(old.folder)
            _keep_version(library, skill.name, base, old.folder)
        records = library.records()
        records.staged.pop(digest, None)
        records.staged[digest] = Staged(skill.name, source, base)
        drop_oldest(library.data, records)
        _write(library, records)
        return describe_change(library, digest)


def describe_change(library: SkillLibrary, digest: str) -> SkillChange:
    """Return a staged change; of files that changed, the difference to the accepted ones. Raises SkillError.

    What a reader cannot see is escaped: it would reach the model all the same.
    """
    records = library.records()
    digest, staged = _find_staged(records, digest)
    pin = records.pins.get(staged.name)
    base = pin.hash if pin and staged.base == digest else staged.base
    old = version_folder(library.data, staged.name, base) if base else None
    diff = diff_trees(old if old and old.is_dir() else None, version_folder(library.data, staged.name, digest))
    return SkillChange(staged.name, digest, show_invisible(diff, PROSE), not base)


def stage_waiting(library: SkillLibrary, name: str) -> SkillChange:
    """Stage the present files of a skill that waits for a decision: a changed or a proposed one. Raises SkillError."""
    with library.exclusive():
        library.reload()
        found = library.current.skills.get(name)
        if found and found.state is SkillState.CHANGED:
            return stage_skill(library, found.folder, "files")
        waiting = [digest for digest, staged in library.records().staged.items() if staged.name == name]
        if not waiting:
            raise SkillError(N_("nothing of the skill {name} waits for a decision"), name=name)
        return describe_change(library, waiting[-1])


def stage_files(library: SkillLibrary, name: str, files: Mapping[str, str], source: str) -> SkillChange:
    """Stage a skill from texts by path. Those of an installed skill that are not named stay; "" removes one.

    Raises SkillError and OSError.
    """
    with library.exclusive(), tempfile.TemporaryDirectory(prefix="skill-") as scratch:
        library.reload()
        place = Path(scratch) / str(check_path(name))
        place.mkdir(parents=True)
        if old := library.current.skills.get(name):
            copy_tree(old.folder, place)
        for path, text in files.items():
            _write_file(place / check_path(path), path, text)
        if not any((place / file).is_file() for file in SKILL_FILES):
            raise SkillError(N_("it has no SKILL.md"))
        if read_skill(place).name != name:
            raise SkillError(N_("its SKILL.md names another skill than {name}"), name=name)
        change = stage_skill(library, place, source)
        if old and not change.diff:
            raise SkillError(N_("the files are the same as those of the installed skill {name}"), name=name)
        return change


def _write_file(target: Path, path: str, text: str) -> None:
    try:
        if text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        else:
            target.unlink(missing_ok=True)
    except OSError as error:  # a folder with this name, say
        sentence = N_("its file {path} cannot be written: {reason}")
        raise SkillError(sentence, path=repr(path[:200]), reason=error.strerror) from error


def accept_change(library: SkillLibrary, digest: str) -> str:
    """Install what was staged under this hash, enabled; return the skill's name. Raises SkillError and OSError."""
    with library.exclusive():
        library.reload()
        records = library.records()
        done = next((name for name, pin in records.pins.items() if pin.hash.startswith(digest)), "")
        if done and not any(each.startswith(digest) for each in records.staged):  # accepted before a crash
            return done
        digest, staged = _find_staged(records, digest)
        now = _installed_hash(library.current.skills.get(staged.name))
        if now not in (digest, staged.base):
            raise SkillError(N_("the skill {name} has changed since then; look at it again"), name=staged.name)
        _install_version(library, staged.name, digest)
        old = library.current.skills.get(staged.name)
        earlier = (staged.base,) if old and old.origin is SkillOrigin.CUSTOM and staged.base != digest else ()
        pin = records.pins.get(staged.name, Pin("", "", earlier))
        versions = tuple(each for each in pin.versions if each != digest)
        records.pins[staged.name] = Pin(digest, staged.source, (*versions, digest)[-MAX_VERSIONS:])
        records.disabled.discard(staged.name)
        del records.staged[digest]
        _save(library, records)
        log.info("skill.accepted name=%s hash=%s source=%s", staged.name, digest[:12], staged.source)
        return staged.name


def decline_change(library: SkillLibrary, digest: str) -> str:
    """Forget what was staged under this hash; return the skill's name. Raises SkillError and OSError."""
    with library.exclusive():
        records = library.records()
        digest, staged = _find_staged(records, digest)
        del records.staged[digest]
        _save(library, records)
        return staged.name


@dataclass(frozen=True, slots=True)
class RollBack:
    """A step back from the hash `before` to `after` ("": not installed), as an operator asked for it.

    `is_repeated`: it may have been made before, by a job that did not end.
    """

    before: str
    after: str
    is_repeated: bool


def plan_roll_back(records: SkillRecords, name: str) -> tuple[str, str]:
    """Return the hash of a skill's version, and that of its earlier one ("": there is none)."""
    pin = records.pins.get(name)
    return (pin.hash, ("", *_earlier(pin))[-1]) if pin else ("", "")


def _earlier(pin: Pin) -> tuple[str, ...]:
    """Return the hashes of the earlier versions, the latest last."""
    return tuple(each for each in pin.versions if each != pin.hash)


def roll_back(library: SkillLibrary, name: str, wanted: RollBack | None = None) -> bool:
    """Return a skill to its earlier version, or remove its first one; return whether it is still installed.

    Raises SkillError where its version is not the one that `wanted` begins with.
    """
    with library.exclusive():
        library.reload()
        records = library.records()
        pin = records.pins.get(name)
        now = pin.hash if pin else ""
        if wanted and now != wanted.before:
            if wanted.is_repeated and now == wanted.after:
                return name in library.current.skills
            raise SkillError(N_("the skill {name} has changed since then; look at it again"), name=name)
        if pin is None:
            raise SkillError(N_("there is no earlier version of the skill {name}"), name=name)
        versions = _earlier(pin)
        if versions:
            _install_version(library, name, versions[-1])
            records.pins[name] = replace(pin, hash=versions[-1], versions=versions)
        else:
            shutil.rmtree(library.custom_folder(name))
            del records.pins[name]
        _save(library, records)
        log.info("skill.rolled_back name=%s versions=%d", name, len(versions))
        return name in library.current.skills


def set_enabled(library: SkillLibrary, name: str, *, enabled: bool) -> SkillState:
    """Enable or disable a skill. Returns its state: CHANGED if its files wait to be accepted first.

    Raises SkillError and OSError.
    """
    with library.exclusive():
        library.reload()
        if name not in library.current.skills:
            raise SkillError(N_("there is no skill {name}"), name=name)
        records = library.records()
        (records.disabled.discard if enabled else records.disabled.add)(name)
        _save(library, records)
        return library.current.skills[name].state


def keep_address(library: SkillLibrary, address: str) -> str:
    """Keep the address of a repository until an operator has chosen one of its skills. Returns its hash."""
    digest = hashlib.sha256(address.encode()).hexdigest()[:ADDRESS_HASH_CHARS]
    with library.exclusive():
        records = library.records()
        records.addresses.pop(digest, None)
        records.addresses[digest] = address
        for old in [*records.addresses][:-MAX_ADDRESSES]:
            del records.addresses[old]
        write_records(library.data, records)
    return digest


def kept_address(library: SkillLibrary, digest: str) -> str:
    """Return the address with this hash. Raises SkillError."""
    if address := library.records().addresses.get(digest):
        return address
    raise SkillError(N_("that choice is too old; send the address again"))


def is_hash(word: str) -> bool:
    """Return whether this is the hash of a change, or the beginning of it, and not the name of a skill."""
    return re.fullmatch(r"[0-9a-f]{32,64}", word) is not None


def _find_staged(records: SkillRecords, word: str) -> tuple[str, Staged]:
    """Return a staged change, by its hash or the beginning of it. Raises SkillError."""
    for digest, staged in records.staged.items():
        if is_hash(word) and digest.startswith(word):
            return digest, staged
    raise SkillError(N_("this change was decided before, or a newer one replaced it"))


def _save(library: SkillLibrary, records: SkillRecords) -> None:
    _write(library, records)
    library.reload()


def _write(library: SkillLibrary, records: SkillRecords) -> None:
    """Write the records, then delete the versions that none of them names any more."""
    write_records(library.data, records)
    delete_unnamed(library.data, records)


def _installed_hash(found: InstalledSkill | None) -> str:
    return hash_tree(found.folder) if found else ""


def _keep_version(library: SkillLibrary, name: str, digest: str, folder: Path) -> None:
    if not version_folder(library.data, name, digest).is_dir():
        copy_tree(folder, version_folder(library.data, name, digest))


def _install_version(library: SkillLibrary, name: str, digest: str) -> None:
    copy_tree(version_folder(library.data, name, digest), library.custom_folder(name))
