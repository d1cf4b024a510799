"""`fawn skills`: list and change the skills. It works on the files, which a running service reads again by itself."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from agent.skills import changes
from agent.skills.archive import unpack_archive
from agent.skills.changes import SkillChange
from agent.skills.git_source import CloneBounds, clone_skill
from agent.skills.library import SkillLibrary, SkillState
from agent.skills.skill import SkillError
from agent.skills.tree import copy_tree
from bot.base.exit_codes import CONFIG, FAULT, OK, fail
from bot.base.skill_library import clone_bounds, open_library
from bot.cli.command import Command, ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from bot.database.audit import digest
from bot.service.store import has_store
from catalogue import N_, _, localized
from channels.shared.texts import shorten

MAX_DESCRIPTION_CHARS = 80


class SkillCommandFailed(Exception):
    """The command failed with this exit code; the text says why."""

    def __init__(self, text: str, code: int = FAULT) -> None:
        super().__init__(text)
        self.code = code


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ("list", "install", "enable", "disable", "diff", "accept", "decline", "rollback")
    parser.add_argument("action", choices=actions)
    words = _("the skill; to install: its archive, folder or git address")
    parser.add_argument("word", nargs="?", default="", metavar="NAME | SOURCE", help=words)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.action != "list" or config.data_dir.exists():
        return _run_on(arguments, config)
    with tempfile.TemporaryDirectory(prefix="fawn-skills-") as folder:  # a list leaves no data_dir where none was
        return _run_on(arguments, replace(config, data_dir=Path(folder)))


def _run_on(arguments: argparse.Namespace, config: Config) -> int:
    library, action, word = open_library(config), arguments.action, arguments.word
    code, result = OK, "done"
    try:
        asyncio.run(_share(config))
        text = _run_action(library, action, word, clone_bounds(config))
    except OperationFailed as error:
        return fail(_("the skills of the other services are not known: {error}", error=localized(error)), FAULT)
    except SkillCommandFailed as error:
        code, result = fail(error, error.code), "failed"
    else:
        print(text)
        code = _share_change(config) if changes_skills(action, word) else OK
    if changes_skills(action, word):
        skill = word if library.current.find(word) else digest(word)
        try:
            asyncio.run(_note_change(config, action, skill, result))
        except OperationFailed as error:
            return fail(_("the audit has no row of this: {error}", error=localized(error)), FAULT)
    return code


def _share_change(config: Config) -> int:
    """Give a change to the other services, say so where they do not have it, and return the exit code."""
    try:
        if not asyncio.run(_share(config)):
            print(_("The other services have this once the service of this machine runs."))
    except OperationFailed as error:
        return fail(_("the other services do not have this yet: {error}", error=localized(error)), FAULT)
    return OK


async def _share(config: Config) -> bool:
    """Have the skills of this machine and those of the other services the same, and return whether they are.

    They are not while no service works here. Raises OperationFailed.
    """
    if not config.database.replicas or not await asyncio.to_thread(has_store, config):
        return True
    answer = await ask_service(config, "skills.share", {})
    return bool(answer["shared"])


async def _note_change(config: Config, action: str, skill: str, result: str) -> None:
    """Record a change of the skills in the audit, which begins with the first start. Raises OperationFailed."""
    if await asyncio.to_thread(has_store, config):
        await ask_service(config, "skills.note", {"action": action, "skill": skill, "result": result})


def _run_action(library: SkillLibrary, action: str, word: str, bounds: CloneBounds) -> str:
    if bool(word) is (action == "list"):
        raise SkillCommandFailed(_("usage: fawn skills list | ACTION NAME | install FILE-OR-URL"), CONFIG)
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
    state = changes.set_enabled(library, word, enabled=enabled)
    if state is SkillState.CHANGED:
        return _(STILL_UNUSED, name=word)
    return _("Enabled {name}.", name=word) if enabled else _("Disabled {name}.", name=word)


def _roll_back(library: SkillLibrary, word: str) -> str:
    installed = changes.roll_back(library, word)
    return _("{word} is back at its earlier version.", word=word) if installed else _("Removed {word}.", word=word)


STILL_UNUSED = N_(
    "{name} is not disabled any more, but its files have changed: look at them with `fawn skills diff {name}`, then "
    "accept them with `fawn skills accept {name}`."
)
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


COMMANDS: Mapping[str, Command] = {"skills": ConfiguredCommand(_run, _add_arguments)}
