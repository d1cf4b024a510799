"""Ask a sandbox what skills lack there: packages, programs and a network that they need or use.

The `metadata` of a SKILL.md says it: `needs` what it cannot work without, `uses` what a part of its work takes, in
words such as `python-pptx`, `program:ffmpeg` and `network`. Of a skill that says neither, the scripts are read there.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from agent.skills.library import InstalledSkill, SkillState
from sandbox.base import Sandbox, SandboxFileError, ShellCommand
from sandbox.inside import skill_probe
from sandbox.inside.skill_probe import PROGRAM

COMMANDS, NETWORK, PYTHON = "commands", "network", f"{PROGRAM}python3"
PROBE_SECONDS = 30.0
MAX_NAMES, MAX_NAME_CHARS = 20, 60  # of what one skill lacks
SCRIPT_SUFFIXES = (".py", ".sh", ".js", ".mjs", ".rb", ".pl")
END_MARK = "__END_OF_PROBE__"


@dataclass(frozen=True, slots=True)
class Lacks:
    """What a skill lacks here: what it cannot work without, and what a part of its work takes."""

    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


async def find_lacks(sandbox: Sandbox, skills: Sequence[InstalledSkill], *, has_network: bool) -> dict[str, Lacks]:
    """Return what enabled skills lack in this sandbox, by name. Raises SandboxError."""
    enabled = [each.skill for each in skills if each.state is SkillState.ENABLED]
    asked = {
        skill.name: {
            "words": [word for word in (*skill.needs, *skill.uses) if word != NETWORK],
            "reads": not (skill.needs or skill.uses),
        }
        for skill in enabled
    }
    missing = await _probe(sandbox, asked)
    found = {}
    for skill in enabled:
        lacking = {*missing.get(skill.name, ()), *(() if has_network else (NETWORK,))}
        read = () if skill.needs or skill.uses else sorted(lacking - {NETWORK})  # its requirements or its imports
        needs = tuple(word for word in (*skill.needs, *read) if word in lacking)
        uses = tuple(word for word in skill.uses if word in lacking)
        if needs or uses:
            found[skill.name] = Lacks(needs, uses)
    return found


def lacks_without_commands(skills: Iterable[InstalledSkill]) -> dict[str, Lacks]:
    """Return what skills with scripts lack where no commands run."""
    scripted = (each for each in skills if any(path.endswith(SCRIPT_SUFFIXES) for path in each.tree))
    return {each.skill.name: Lacks((COMMANDS,)) for each in scripted if each.state is SkillState.ENABLED}


async def _probe(sandbox: Sandbox, asked: Mapping[str, object]) -> dict[str, list[str]]:
    """Return which words are missing. The answer comes from the sandbox, so nothing in it is trusted."""
    program = f"python3 - {shlex.quote(orjson.dumps(asked).decode())}"
    source = inspect.getsource(skill_probe)
    call = f"(cd / && exec {program}) 2>/dev/null <<'{END_MARK}'\n{source}\n{END_MARK}"
    result = await sandbox.run(ShellCommand(call, timeout_seconds=PROBE_SECONDS, max_output_bytes=1 << 20))
    if result.exit_code == 127:  # no Python
        return {name: [PYTHON] for name in asked}
    try:
        found = orjson.loads(result.output)
        return {str(name): [str(word)[:MAX_NAME_CHARS] for word in words][:MAX_NAMES] for name, words in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise SandboxFileError("the skills could not be tried in the sandbox") from error
