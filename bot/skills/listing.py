"""List the skills for people: their state, and what they lack in the sandboxes of this installation, with the fix.

The first list asks a sandbox, and so does the first one after a change of the skills.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.blocks import command_hint
from agent.messages import Message
from agent.skills.library import InstalledSkill, SkillLibrary, SkillSet, SkillState
from agent.skills.readiness import COMMANDS, NETWORK, Lacks, find_lacks, lacks_without_commands
from bot.base.background import Effect
from bot.base.findings import Check, Finding
from bot.base.skill_library import open_library
from bot.commands.call import CommandCall
from bot.config.schema import Config
from bot.database.database import Execute
from bot.rights import deeds
from bot.service.sandbox_setup import folders, sandbox_settings
from bot.storage import languages, outbox
from bot.storage.jobs import BackgroundJob, enqueue_job
from catalogue import N_, _, list_items, localized, ngettext
from channels.shared.texts import shorten
from sandbox.base import SandboxError, SandboxProvider
from sandbox.disk.folders import remove_tree
from sandbox.engines.select import select_provider
from sandbox.inside.skill_probe import PROGRAM

log = logging.getLogger(__name__)

LIST_JOB = "skills-list"
PROBE_KEY = "skills probe"  # of its sandbox
PROBE_SECONDS = 60.0  # with the start of the sandbox
MAX_DESCRIPTION_CHARS = 120
LINES = {
    SkillState.ENABLED: N_("- `{name}`: {description}"),
    SkillState.DISABLED: N_("- `{name}` (installed but disabled): {description}"),
    SkillState.CHANGED: N_("- `{name}` (disabled, because its files changed): {description}"),
}
NOT_READY = N_("- `{name}` (not ready, it needs {lacks}): {description}")
PARTLY_READY = N_("- `{name}` (without {lacks}): {description}")
IN_IMAGES = ("docker", "kubernetes")  # providers whose image has the packages


class SkillReadiness:
    """What the skills of a service lack in its sandboxes."""

    def __init__(self, provider: SandboxProvider, library: SkillLibrary, config: Config) -> None:
        self._provider = provider
        self._library = library
        self._config = config
        self._lock = asyncio.Lock()
        self._known: tuple[SkillSet, Mapping[str, Lacks]] | None = None

    async def look(self) -> Mapping[str, Lacks]:
        """Return what the skills lack, by name; nothing where a sandbox cannot say it now."""
        async with self._lock:
            current = await self._library.refresh()
            if self._known is None or self._known[0] is not current:
                try:
                    async with asyncio.timeout(PROBE_SECONDS):
                        found = await find_missing(
                            self._provider, [*current.skills.values()], self._config, self._library.data / ".probe"
                        )
                except (SandboxError, OSError, TimeoutError) as error:
                    log.warning("skills.not_tried reason=%s", error or "no answer in time")
                    return {}
                self._known = current, found
            return self._known[1]


async def find_missing(
    provider: SandboxProvider, skills: Sequence[InstalledSkill], config: Config, folder: Path
) -> Mapping[str, Lacks]:
    """Return what skills lack in a sandbox of their own, below `folder`. Raises SandboxError and OSError."""
    if not provider.runs_commands:
        return lacks_without_commands(skills)
    try:
        async with provider.acquire(PROBE_KEY, folder) as sandbox:
            return await find_lacks(sandbox, skills, has_network=config.sandbox.network.mode != "off")
    finally:
        await provider.destroy(PROBE_KEY)
        await asyncio.to_thread(remove_tree, folder)


def enqueue_list(call: CommandCall, names: Iterable[str]) -> None:
    """Have the skills of these names listed after the commit."""
    payload = {"message": call.message.dump().decode(), "names": [*names], "changes": call.may(deeds.CHANGE_SKILLS)}
    enqueue_job(call.execute, key=f"{LIST_JOB}:{call.message.key}", kind=LIST_JOB, payload=payload)


async def list_skills(readiness: SkillReadiness, library: SkillLibrary, provider: str, job: BackgroundJob) -> Effect:
    """Handle the job of a list."""
    given, lacks = job.arguments, await readiness.look()
    message, current = Message.load(given["message"]), library.current

    def post(execute: Execute) -> None:
        with languages.speak_to(execute, message.thread, message.author):
            text = describe_list(current, given["names"], lacks, provider if given["changes"] else "")
            outbox.enqueue_notice(execute, message.thread, text, key=job.key, now=time.time(), reply_to=message.id)

    return post


def describe_list(current: SkillSet, names: Collection[str], lacks: Mapping[str, Lacks], provider: str) -> str:
    """List the skills of these names; for who may change them (`provider` is named) with problems and fixes."""
    shown = [each for name, each in current.skills.items() if name in names]
    lines = [_("Skills:"), *(_describe_skill(each, lacks.get(each.skill.name)) for each in shown)]
    if not shown and not (provider and current.faults):
        return _("I have no skills.")
    if shown:
        lines += ["", _("`{command}` uses one.", command=command_hint(f"{shown[0].skill.name} REQUEST"))]
    if provider:
        missing = [each for name in names if (each := lacks.get(name))]
        lines += ["", *_describe_problems(shown, current), *(f"→ {fix}" for fix in describe_fixes(missing, provider))]
    return "\n".join(lines).strip()


def _describe_skill(each: InstalledSkill, lacks: Lacks | None) -> str:
    description = shorten(each.skill.description, MAX_DESCRIPTION_CHARS)
    line, missing = LINES[each.state], ""
    if lacks:
        line = NOT_READY if lacks.needs else PARTLY_READY
        missing = list_items(map(_call, lacks.needs or lacks.uses))
    return _(line, name=each.skill.name, description=description, lacks=missing)


def _describe_problems(shown: Sequence[InstalledSkill], current: SkillSet) -> list[str]:
    """Return a line for each skill with warnings, and for each folder that cannot be used."""
    lines = [
        _("- `{folder}` cannot be used: {reason}.", folder=folder, reason=fault)
        for folder, fault in current.faults.items()
    ]
    for each in shown:
        if each.skill.warnings:
            warnings = _("; ").join(map(localized, each.skill.warnings))
            lines.append(_("- `{name}` has a warning: {warnings}.", name=each.skill.name, warnings=warnings))
    return lines


def _call(word: str) -> str:
    """Return how people call what a skill lacks."""
    known = {NETWORK: _("a network"), COMMANDS: _("a sandbox that runs commands")}
    return known.get(word) or f"`{word.removeprefix(PROGRAM)}`"


def describe_fixes(missing: Iterable[Lacks], provider: str) -> list[str]:
    """Return what an operator can do so that nothing is missing."""
    words = dict.fromkeys(word for each in missing for word in (*each.needs, *each.uses))
    programs = [word.removeprefix(PROGRAM) for word in words if word.startswith(PROGRAM)]
    packages = [word for word in words if not word.startswith(PROGRAM) and word not in (NETWORK, COMMANDS)]
    fixes = []
    if COMMANDS in words:
        fixes.append(_("configure a sandbox that runs commands (docs/sandbox.md)"))
    if packages and provider in IN_IMAGES:
        fixes.append(_("build the image of the sandbox again: `fawn sandbox build` (docs/skills-shipped.md)"))
    elif packages:
        fixes.append(_("install the packages for sandboxes: `make skills` (docs/skills-shipped.md)"))
    if programs:
        fixes.append(_("install {names} where sandboxes find it (docs/skills-shipped.md)", names=list_items(programs)))
    if NETWORK in words:
        fixes.append(_("allow the hosts below `sandbox.network` (docs/sandbox.md)"))
    return fixes


def list_checks(config: Config) -> Iterable[Check]:
    """Yield the check of the skills, for `fawn check`."""
    yield Check(_("skills"), partial(_check_skills, config))


async def _check_skills(config: Config) -> list[Finding]:
    """Try the skills in a sandbox. A data_dir without skills stays as it is."""
    with tempfile.TemporaryDirectory(prefix="fawn-check-") as scratch:
        library = open_library(config)
        if not library.data.is_dir():
            library = SkillLibrary(library.folders, Path(scratch))
        current, allow = await library.refresh(), config.skills.allow
        skills = [each for name, each in current.skills.items() if not allow or name in allow]
        settings = replace(sandbox_settings(config), skills=library.view)
        try:
            chosen = await select_provider(config.sandbox.provider, settings, folders(config))
            provider = chosen[0]
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    lacks = await find_missing(provider, skills, config, Path(scratch) / "probe")
            finally:
                await provider.close()
        except (SandboxError, OSError, TimeoutError) as error:
            why = localized(error) if isinstance(error, SandboxError) else f"{error or type(error).__name__}"
            return [Finding("note", _("skills"), why, _("see the finding about the sandbox"))]
    ready = sum(each.state is SkillState.ENABLED and each.skill.name not in lacks for each in skills)
    found = [Finding("ok", _("skills"), ngettext("{n} is ready", "{n} are ready", ready))]
    for sentence, names in _lacking(lacks):
        fix = _("; ").join(describe_fixes([lacks[name] for name in names], provider.name))
        found.append(Finding("note", _("skills"), sentence, fix))
    return found


def _lacking(lacks: Mapping[str, Lacks]) -> Iterable[tuple[str, list[str]]]:
    """Yield a sentence for the skills that cannot work, and one for those that can in part, with their names."""
    for text, is_needed in ((N_("not ready: {skills}"), True), (N_("ready in part: {skills}"), False)):
        chosen = {name: each for name, each in lacks.items() if bool(each.needs) == is_needed}
        shown = [f"{name} ({list_items(map(_call, each.needs or each.uses))})" for name, each in chosen.items()]
        if shown:
            yield _(text, skills=list_items(shown)), [*chosen]
