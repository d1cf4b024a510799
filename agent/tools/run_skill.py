"""Run the program of a skill in the sandbox: JSON in, JSON out."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any

import orjson
from langchain_core.tools import ToolException

from agent.core.context import ToolServices
from agent.core.policy import call_key
from agent.core.tool import AgentTool, Runtime, ToolTraits, describe_as, make_tool, require_background
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from agent.skills.library import SkillSet, TurnSkills
from agent.skills.skill import Skill, SkillError
from catalogue import N_
from sandbox.base import SKILLS, WORKSPACE, Sandbox, SandboxFileError, ShellCommand

STATE_FOLDER = f"{WORKSPACE}/.skills"  # one folder per skill, kept with the conversation
MAX_RESULT_BYTES = 1 << 20
MAX_ERROR_CHARS = 4000
INTERPRETERS = {".py": "python3", ".sh": "bash", ".js": "node", ".mjs": "node", ".rb": "ruby", ".pl": "perl"}
# The virtual environment is made once for each content of requirements.txt; packages of the system satisfy it, too.
SCRIPT = """(
cd {folder} || exit
export SKILL_STATE={state}
if [ -f requirements.txt ]; then
  made="$SKILL_STATE/.venv/$(sha256sum < requirements.txt | cut -c1-32)"
  if [ ! -e "$made" ]; then
    {{ python3 -m venv --system-site-packages "$SKILL_STATE/.venv" &&
      "$SKILL_STATE/.venv/bin/python3" -m pip install -q --disable-pip-version-check -r requirements.txt &&
      touch "$made"; }} || {{ echo "its requirements.txt could not be installed"; exit 1; }}
  fi
  PATH="$SKILL_STATE/.venv/bin:$PATH"
fi
{program} < {input} > {output}
)"""


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Running the skill {name}")),
        needs_sandbox=True,
        permission="allow",
        subject=Subject("name", "skill"),
        way_out="network",
        brings="commands",
    )
)
async def run_skill(
    name: Annotated[str, "The skill."],
    input: Annotated[dict[str, Any], "What the program reads from stdin as JSON; the SKILL.md describes it."],
    runtime: Runtime,
    timeout: Annotated[float, "Seconds until it is stopped."] = 300,
    background: Annotated[bool, "It runs on when you have answered, with its output in a file."] = False,
) -> str:
    """Run the program of a skill whose SKILL.md says that it has one (JSON in, JSON out). Run other scripts with bash.

    Its requirements.txt is installed first, if the network allows that."""
    skills = runtime.context.skills
    try:
        skill = (skills or TurnSkills(SkillSet())).require(name)
    except SkillError as error:
        raise ToolException(str(error)) from error
    if not skill.entry:
        raise ToolException(f"The skill {name} has no program. Read {SKILLS}/{skill.name}/SKILL.md instead.")
    program = await _prepare(
        await runtime.context.sandbox.get(), skill, input, str(runtime.tool_call_id) if background else ""
    )
    if background:
        command = f"{program.script}; code=$?; cat {shlex.quote(program.output)}; exit $code"
        key = call_key(runtime.state["messages"], runtime.tool_call_id)
        return await require_background(runtime).start_command(key, "run_skill", skill.name, command, "")
    return await _run_program(await runtime.context.sandbox.get(), skill, program, timeout)


@dataclass(frozen=True, slots=True)
class _Program:
    """A skill's program with its input: the script that runs it, and the file that it writes."""

    script: str
    output: str


async def _prepare(sandbox: Sandbox, skill: Skill, input: dict[str, Any], call: str) -> _Program:
    """Write the input and return what runs the program with it. A `call` in the background has files of its own."""
    state = f"{STATE_FOLDER}/{skill.name}"
    suffix = f"-{hashlib.sha256(call.encode()).hexdigest()[:8]}" if call else ""
    given, output = f"{state}/.input{suffix}.json", f"{state}/.output{suffix}.json"
    await sandbox.write(given, orjson.dumps(input))
    interpreter = INTERPRETERS.get(PurePosixPath(skill.entry).suffix, "")
    paths = {"folder": f"{SKILLS}/{skill.name}", "state": state, "input": given, "output": output}
    program = f"{interpreter} {shlex.quote(f'./{skill.entry}')}".strip()
    return _Program(SCRIPT.format(program=program, **{name: shlex.quote(each) for name, each in paths.items()}), output)


async def _run_program(sandbox: Sandbox, skill: Skill, program: _Program, timeout: float) -> str:
    script = program.script
    result = await sandbox.run(ShellCommand(script, timeout_seconds=max(timeout, 0.1)))
    said = result.output.strip()[-MAX_ERROR_CHARS:]
    if result.exit_code != 0:
        why = f"it took longer than {timeout:g} s" if result.timed_out else f"exit code {result.exit_code}"
        raise ToolException(f"The skill {skill.name} failed: {why}.\n{said}".strip())
    try:
        output = (await sandbox.read(program.output, limit=MAX_RESULT_BYTES)).decode()
        orjson.loads(output)
    except (SandboxFileError, ValueError) as error:
        raise ToolException(
            f"The skill {skill.name} failed: it did not print JSON ({error}).\n{said}".strip()
        ) from error
    return f"{output.strip()}\n{said}".strip()


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where there are skills and the sandbox runs commands."""
    return run_skill if services.skills and services.runs_commands else None
