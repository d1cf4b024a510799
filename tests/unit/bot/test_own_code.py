"""Code of the operator: tools, channels and sandbox providers by `use:`, found beside the configuration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.context import ToolServices
from agent.messages import Author, Message, Origin, Thread
from agent.settings.models import AgentConfigError
from agent.settings.sections import AgentSettings, ToolSettings
from agent.turn.tool_list import all_tool_names, make_tools
from bot.admin.doctor import check_channel
from bot.config.loader import ConfigError, load_config
from bot.config.schema import Config
from bot.service.agent_builder import try_agent
from sandbox.named_code import PATIENCE, CodePatience

TOOLS = '''
from typing import Annotated
from agent.core.tool import ToolTraits, make_tool

@make_tool(ToolTraits(permission="allow", effect="none", read_only=True))
async def own_quiet(word: Annotated[str, "a word"]) -> str:
    """Do something without a question."""
    return word

@make_tool(ToolTraits(permission="allow", way_out="none", brings="nothing"))
async def own_inner(word: Annotated[str, "a word"]) -> str:
    """Stay inside."""
    return word

@make_tool(ToolTraits())
async def bash(word: Annotated[str, "a word"]) -> str:
    """Take the name of a tool of Fawn."""
    return word

async def own_plain(word: str) -> str:
    """Say something."""
    return word

async def own_mute(word: str) -> str:
    return word

@make_tool(ToolTraits(permission="perhaps"))
async def own_odd(word: str) -> str:
    """Do something."""
    return word

def make(settings, services, loud=False):
    return own_quiet if loud else None

def broken(settings, services):
    raise ValueError("no key")

nothing = "not a tool"
'''
CHANNEL = '''
from contextlib import asynccontextmanager
from dataclasses import dataclass
from agent.setting import setting

@dataclass(frozen=True, slots=True)
class Settings:
    """`channels.own` in config.yaml."""

    depth: int = setting(1, "how deep", ge=1)

@asynccontextmanager
async def connect(settings):
    yield None

async def probe(settings):
    return f"depth {settings.depth}"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a configuration with code beside it; its modules are forgotten afterwards."""
    before = [*sys.path]
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("own_code_")]:
        del sys.modules[name]


def read(folder: Path, text: str) -> Config:
    (folder / "config.yaml").write_text(f"config_version: 1\n{text}\n")
    return load_config(folder / "config.yaml", {})


def faults(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return str(caught.value)


# ---------------------------------------------------------------- tools


def tool_settings(folder: Path, *uses: str, **options: object) -> tuple[ToolSettings, ...]:
    (folder / "own_code_tools.py").write_text(TOOLS)
    entries = ", ".join(f"{{use: 'own_code_tools:{use}', options: {options}}}" for use in uses)
    return read(folder, f"tools: [{entries}]").tools


def test_own_tools_come_after_those_of_fawn(folder: Path) -> None:
    settings = AgentSettings(tools=tool_settings(folder, "own_inner", "make"))
    names = [tool.name for tool in make_tools(settings, ToolServices(runs_commands=True))]
    assert names[-1] == "own_inner"
    assert "bash" in names
    assert {"own_inner", "own_code_tools"} <= all_tool_names(settings.tools)
    loud = AgentSettings(tools=tool_settings(folder, "make", loud=True))
    assert make_tools(loud, ToolServices(runs_commands=True))[-1].name == "own_quiet"


def test_an_own_tool_carries_data_out_unless_it_says_otherwise(folder: Path) -> None:
    settings = AgentSettings(tools=tool_settings(folder, "own_quiet", "own_inner"))
    quiet, inner = make_tools(settings, ToolServices(runs_commands=True))[-2:]
    assert (quiet.traits.outward, quiet.traits.exposes) == ("arguments", "everything")
    assert (inner.traits.outward, inner.traits.exposes) == ("none", "nothing")


def test_a_plain_async_function_is_a_tool_with_the_most_careful_traits(folder: Path) -> None:
    settings = AgentSettings(tools=tool_settings(folder, "own_plain"))
    plain = make_tools(settings, ToolServices(runs_commands=True))[-1]
    assert (plain.name, plain.description) == ("own_plain", "Say something.")
    assert (plain.traits.permission, plain.traits.effect, plain.traits.read_only) == ("ask", "once", False)
    assert (plain.traits.outward, plain.traits.exposes) == ("arguments", "everything")


@pytest.mark.parametrize(
    ("use", "wrong"),
    [
        ("own_code_nowhere:make", "there is no module 'own_code_nowhere'"),
        ("own_code_tools:missing", "own_code_tools has no 'missing'"),
        ("own_code_tools:broken", "ValueError: no key"),
        ("own_code_tools:nothing", "is no function and no class"),
        ("own_code_tools:bash", "another tool is called 'bash'"),
        ("own_code_tools:own_mute", "has no docstring, which the model reads"),
        ("own_code_tools:own_odd", "has traits whose `permission` is 'perhaps' → choose one of"),
    ],
)
async def test_a_tool_that_cannot_be_made_is_a_fault_at_its_line(folder: Path, use: str, wrong: str) -> None:
    (folder / "own_code_tools.py").write_text(TOOLS)
    config = read(folder, f"tools:\n  - {{use: '{use}'}}")
    with pytest.raises(AgentConfigError) as caught:
        await try_agent(config)
    [fault] = config.faults_of(caught.value)
    assert wrong in str(fault)
    assert fault.line == 3


async def test_rules_may_name_own_tools(folder: Path) -> None:
    (folder / "own_code_tools.py").write_text(TOOLS)
    await try_agent(read(folder, "tools: [{use: 'own_code_tools:own_inner'}]\npermissions: {deny: [own_inner]}"))
    with pytest.raises(AgentConfigError):
        await try_agent(read(folder, "tools: [{use: 'own_code_tools:own_inner'}]\npermissions: {deny: [own_outer]}"))


# ---------------------------------------------------------------- the import path


def test_a_file_beside_the_configuration_replaces_no_module(folder: Path) -> None:
    (folder / "json.py").write_text("raise RuntimeError('not this one')")
    (folder / "agent").mkdir()
    tool_settings(folder, "own_inner")
    assert sys.path[-1] == str(folder)


def test_without_own_code_the_folder_is_not_on_the_path(folder: Path) -> None:
    read(folder, "keep_days: 3")
    assert str(folder) not in sys.path


def test_code_in_a_folder_that_everybody_can_write_is_not_used(folder: Path) -> None:
    folder.chmod(0o1777)
    assert "everybody can write" in faults(folder, "tools: [{use: 'own_code_tools:own_inner'}]")
    assert str(folder) not in sys.path


# ---------------------------------------------------------------- channels


def test_a_channel_of_the_operator_is_configured_as_others(folder: Path) -> None:
    (folder / "own_code_channel.py").write_text(CHANNEL)
    [entry] = read(folder, "channels: {nest: {use: own_code_channel, depth: 3, access: {allow: ['7']}}}").channels
    assert (entry.name, entry.module, entry.settings.depth) == ("nest", "own_code_channel", 3)
    assert entry.access.allow == ("7",)


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("nest: {use: own_code_channel, depth: 0}", "channels.nest.depth: must be at least 1"),
        ("nest: {use: own_code_channel, deepth: 2}", "did you mean 'depth'?"),
        ("nest: {use: own_code_nowhere}", "channels.nest.use: there is no module 'own_code_nowhere'"),
        ("nest: {use: own_code_empty}", "channels.nest.use: has no `Settings`"),
        ("slack: {use: own_code_channel}", "channels.slack.use: Fawn has a channel called slack"),
        ("web: {use: own_code_channel}", "channels.web.use: Fawn has a channel called web"),
        ("N/est: {use: own_code_channel}", "is no name of a channel"),
        ("nest: {depth: 1}", "there is no such channel"),
    ],
)
def test_a_channel_that_cannot_be_used_is_a_fault(folder: Path, section: str, wrong: str) -> None:
    (folder / "own_code_channel.py").write_text(CHANNEL)
    (folder / "own_code_empty.py").write_text("")
    assert wrong in faults(folder, f"channels: {{{section}}}")


OLD_CHANNEL = (
    CHANNEL.replace("yield None", "yield Old()")
    + """
class Old:
    name, limits, window = "nest", None, 1.0
    async def listen(self, receive, catch_up): ...
    def readiness(self): ...
    def reply(self, thread, posts, *, to="", asker=""): ...
    async def send_files(self, thread, files, posts): ...
    def fetch(self, attachment): ...
    async def enrich(self, message, earlier, since=0.0): return message
    def spell_command(self, thread, command): return command
    async def announce(self, commands): ...
"""
)


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ("", "", ""),
        ("earlier, since=0.0", "earlier", "has a `enrich` that cannot be called as `enrich(message, earlier, since)`"),
        ("def announce", "def announce_before", "has no `announce`, which Channel has"),
        ('"nest"', '"nests"', "calls itself nests"),
        ("yield Old()", "yield Old(7)", "cannot be made: TypeError"),
    ],
)
async def test_check_names_what_a_channel_for_another_state_of_fawn_lacks(
    folder: Path, before: str, after: str, wrong: str
) -> None:
    (folder / "own_code_old.py").write_text(OLD_CHANNEL.replace(before, after) if before else OLD_CHANNEL)
    [entry] = read(folder, "channels: {nest: {use: own_code_old, access: {allow: ['7']}}}").channels
    found = await check_channel(entry)
    assert (found.state, wrong in found.text) == ("fault" if wrong else "ok", True), found


def test_a_message_without_an_origin_has_that_of_its_author(folder: Path) -> None:
    """Channels that are older than the field make such messages."""
    for author, origin in ((Author("7", "Jane"), Origin.PERSON), (Author("8", "Bot", bot=True), Origin.BOT)):
        parts: dict[str, Any] = {"thread": Thread("nest", "", "7"), "key": "k", "id": "1", "author": author}
        assert Message(**parts, text="hello", time=1.0).origin is origin


@pytest.mark.parametrize("section", ["tools", "policies", "channels", "sandbox"])
async def test_code_for_another_version_of_the_extension_api_is_refused(folder: Path, section: str) -> None:
    module = f"own_code_later_{section}"
    (folder / f"{module}.py").write_text("FAWN_API = 2\ndef make(*args, **options): ...\n")
    with pytest.raises((ConfigError, AgentConfigError), match="written for version 2 of the extension API"):
        await try_agent(read(folder, USES[section].replace("MODULE", module)))


# ---------------------------------------------------------------- code that never returns

HANGS = "import threading\nthreading.Event().wait()\n"
HANGS_WHEN_MADE = f"def make(*args, **options):\n    {HANGS.strip().replace(chr(10), '; ')}\n"
USES = {
    "tools": "tools: [{use: 'MODULE:make'}]",
    "policies": "policies: [{use: 'MODULE:make'}]",
    "models": "models: [{name: main, use: 'MODULE:make', model: m}]",
    "channels": "channels: {nest: {use: MODULE}}",
    "sandbox": "sandbox: {use: 'MODULE:make'}",
}


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is said while code is waited for; it gets a moment."""
    said: list[str] = []
    token = PATIENCE.set(CodePatience(say_seconds=0.05, limit_seconds=0.5, say=said.append))
    yield said
    PATIENCE.reset(token)


@pytest.mark.parametrize("section", USES)
async def test_code_that_hangs_at_import_is_named_and_then_a_fault(folder: Path, said: list[str], section: str) -> None:
    module = f"own_code_hangs_{section}"
    (folder / f"{module}.py").write_text(HANGS)
    with pytest.raises((ConfigError, AgentConfigError), match=r"is not imported or made after 0\.5 seconds"):
        await try_agent(read(folder, USES[section].replace("MODULE", module)))
    assert any(each.startswith(module) for each in said)


@pytest.mark.parametrize("section", ["tools", "policies"])
async def test_code_that_hangs_when_it_is_called_is_named_and_then_a_fault(
    folder: Path, said: list[str], section: str
) -> None:
    (folder / "own_code_hangs_later.py").write_text(HANGS_WHEN_MADE)
    with pytest.raises(AgentConfigError, match=r"is not imported or made after 0\.5 seconds"):
        await try_agent(read(folder, USES[section].replace("MODULE", "own_code_hangs_later")))
    assert "own_code_hangs_later:make" in said


def test_a_command_names_the_code_it_waits_for_on_stderr(folder: Path) -> None:
    warns = "import logging\nlogging.getLogger('own').warning('a raw line')\n"
    (folder / "own_code_hangs.py").write_text(warns + HANGS)
    (folder / "config.yaml").write_text("config_version: 1\nsandbox: {use: 'own_code_hangs:make'}\n")
    program = (
        "import sys; from bot.__main__ import main; from sandbox.named_code import PATIENCE, CodePatience; "
        "PATIENCE.set(CodePatience(0.05, 0.5)); sys.exit(main(['check']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 2
    assert "Still waiting for `own_code_hangs`" in done.stderr
    assert "a raw line" not in done.stderr  # of a log that nobody set up
    assert "config.yaml:2: sandbox.use: is not imported or made after 0.5 seconds → mend that code" in done.stderr
