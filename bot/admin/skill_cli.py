"""`fawn skills`: list and change the skills. It works on the files, which a running service reads again by itself."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.skills import changes
from agent.skills.archive import unpack_archive
from agent.skills.changes import SkillChange
from agent.skills.errors import SkillError
from agent.skills.git_source import CloneBounds, clone_skill
from agent.skills.library import SkillLibrary
from agent.skills.tree import copy_tree
from catalogue import _, localized
from channels.shared.texts import shorten

MAX_DESCRIPTION_CHARS = 80


class SkillCommandFailed(Exception):
    """The command failed; the text says why."""


def run_skill_command(library: SkillLibrary, action: str, word: str, bounds: CloneBounds) -> str:
    """Run one command and return what to print. Raises SkillCommandFailed and OSError."""
    if bool(word) is (action == "list"):
        raise SkillCommandFailed(_("usage: fawn skills list | ACTION NAME | install FILE-OR-URL"))
    try:
        library.reload()
        return _install_skill(library, word, bounds) if action == "install" else ACTIONS[action](library, word)
    except SkillError as error:
        raise SkillCommandFailed(localized(error)) from error


def changes_skills(action: str, word: str) -> bool:
    """Return whether an action, as it was written, changes something or is refused to."""
    return action not in READING and bool(word)


def _list_skills(library: SkillLibrary, word: str) -> str:
    current = library.current
    lines = []
    for name, each in current.skills.items():
        lines.append(f"{name}\t{each.state}\t{each.origin}\t{shorten(each.skill.description, MAX_DESCRIPTION_CHARS)}")
        lines += ["\t" + _("warning: {text}", text=warning) for warning in each.skill.warnings]
    lines += [f"{place}\t" + _("unusable: {text}", text=fault) for place, fault in current.faults.items()]
    return "\n".join(lines)


def _install_skill(library: SkillLibrary, word: str, bounds: CloneBounds) -> str:
    with tempfile.TemporaryDirectory(prefix="fawn-skill-") as scratch:
        place = Path(scratch)
        if word.startswith("https://"):
            folder = asyncio.run(clone_skill(word, place, bounds))
        elif Path(word).is_dir():
            folder = place / Path(word).resolve().name
            copy_tree(Path(word), folder)
        else:
            folder = unpack_archive(Path(word).read_bytes(), place)
        change = changes.stage_skill(library, folder, word)
    if change.is_new:
        return _("Installed {name}.", name=changes.accept_change(library, change.hash))
    installed = _("{name} is installed already. `fawn skills accept {name}` installs this version.", name=change.name)
    return f"{change.diff}\n\n{installed}"


def _accept_change(library: SkillLibrary, word: str) -> str:
    return _("Installed {name}.", name=changes.accept_change(library, _waiting(library, word).hash))


def _decline_change(library: SkillLibrary, word: str) -> str:
    return _("Declined: {name} stays as it was.", name=changes.decline_change(library, _waiting(library, word).hash))


def _waiting(library: SkillLibrary, word: str) -> SkillChange:
    return changes.stage_waiting(library, word)


def _set_enabled(library: SkillLibrary, word: str, *, enabled: bool) -> str:
    changes.set_enabled(library, word, enabled=enabled)
    return _("Enabled {name}.", name=word) if enabled else _("Disabled {name}.", name=word)


def _roll_back(library: SkillLibrary, word: str) -> str:
    installed = changes.roll_back(library, word)
    return _("{word} is back at its earlier version.", word=word) if installed else _("Removed {word}.", word=word)


READING = frozenset(("list", "diff"))
ACTIONS: Mapping[str, Callable[[SkillLibrary, str], str]] = {
    "list": _list_skills,
    "enable": lambda library, word: _set_enabled(library, word, enabled=True),
    "disable": lambda library, word: _set_enabled(library, word, enabled=False),
    "diff": lambda library, word: _waiting(library, word).diff,
    "accept": _accept_change,
    "decline": _decline_change,
    "rollback": _roll_back,
}
