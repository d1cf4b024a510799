"""Find the skills of a repository, and the one that is meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.skills.skill import SKILL_FILES, SkillError, read_skill
from agent.skills.tree import LEFT_OUT, check_tree
from catalogue import N_

MAX_FOUND = 200
MAX_SEARCHED_FOLDERS = 20_000
MAX_NAMED = 20  # in an error


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """A skill of a repository: its name, and its folder there."""

    name: str
    folder: str
    description: str


class SeveralSkills(SkillError):
    """The repository has several skills, and nothing says which one is meant."""

    def __init__(self, found: Sequence[FoundSkill]) -> None:
        names = ", ".join(each.name for each in found[:MAX_NAMED]) + (" …" if len(found) > MAX_NAMED else "")
        super().__init__(
            N_("it has {n} skills: {names}. Write the name of one behind the address, such as {example}"),
            n=len(found),
            names=names,
            example=f"#{found[0].name}",
        )
        self.found = tuple(found)


def choose_skill(place: Path, wanted: str = "") -> Path:
    """Return the folder of the skill below `place`: the only one, or the one with this name or path. Blocks.

    Raises SeveralSkills and SkillError.
    """
    folders = _skill_folders(place)
    if len(folders) > 1 and folders[0] == place:
        folders = folders[1:]  # a skill with others inside cannot be installed
    if wanted or len(folders) > 1:
        folders = _matching(place, folders, wanted)
    if not folders:
        raise SkillError(N_("it contains no folder with a SKILL.md"))
    check_tree(folders[0])
    return folders[0]


def _matching(place: Path, folders: Sequence[Path], wanted: str) -> list[Path]:
    """Return the wanted one. Raises SeveralSkills, and SkillError if there is none."""
    found = {}
    for folder in folders:
        try:
            skill = read_skill(folder)
        except (SkillError, OSError):  # the others can be installed
            continue
        found[folder] = FoundSkill(skill.name, folder.relative_to(place).as_posix(), skill.description)
    meant = [folder for folder, each in found.items() if wanted and wanted in (each.name, each.folder)]
    if wanted and not meant:
        names = ", ".join(each.name for each in list(found.values())[:MAX_NAMED])
        raise SkillError(N_("it has no skill {name}. It has: {names}"), name=wanted, names=names)
    if len(meant) == 1 or len(found) == 1:
        return meant or list(found)
    if not found:
        raise SkillError(N_("it contains no folder with a SKILL.md"))
    raise SeveralSkills([found[folder] for folder in meant or found])


def _skill_folders(place: Path) -> list[Path]:
    """Return the folders with a SKILL.md, in path order, also below dot folders. Links are not followed."""
    found: list[Path] = []
    for count, (folder, names, files) in enumerate(os.walk(place)):
        names[:] = sorted(name for name in names if name not in LEFT_OUT)
        if any(name in files and not os.path.islink(os.path.join(folder, name)) for name in SKILL_FILES):
            found.append(Path(folder))
        if len(found) >= MAX_FOUND or count >= MAX_SEARCHED_FOLDERS:
            break
    return found
