"""Rules of file tools hold for the file, however its path is written: on real sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolCall
from langgraph.prebuilt import ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.context import TurnContext
from agent.permissions.rules import RulePermissions, Subject, ToolUse, judge, parse_rules
from agent.policies.permission import PermissionPolicy
from agent.turn.tool_list import make_tools
from sandbox.base import OUTPUTS, UPLOADS, WORKSPACE, Sandbox, SandboxProvider, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.support.agent_database import SqliteDatabase
from tests.support.current_config import SERVICES, agent_settings
from tests.support.engines import docker_provider, docker_settings, need_bubblewrap
from tests.support.turn_context import make_turn_context

SECRET = "the secret of the upload"
LINKS = f"""
ln -s {UPLOADS}/s.txt {WORKSPACE}/link
ln -s link {WORKSPACE}/chain
ln -s {UPLOADS} {WORKSPACE}/folder
mkdir -p {WORKSPACE}/a/b && ln -s ../../../uploads {WORKSPACE}/a/b/up
ln -s / {WORKSPACE}/root
ln -s /proc/self/root {WORKSPACE}/magic
"""
FOLDERS = [
    UPLOADS,
    f"/{UPLOADS}",
    f"//{UPLOADS}",
    "/mnt//user-data///uploads",
    "/mnt/./user-data/uploads/.",
    f"{OUTPUTS}/../uploads",
    "../uploads",
    "./../uploads",
    f"{UPLOADS}/",
    "folder",
    f"{WORKSPACE}/folder",
    f"/{WORKSPACE}//folder/",
    "a/b/up",
    "folder/../uploads",
    "a/b/up/../uploads",
    f"root{UPLOADS}",
    f"magic{UPLOADS}",
    f"/proc/self/root{UPLOADS}",
    f"//proc/1/root{UPLOADS}",
    f"/proc/thread-self/root{UPLOADS}",
    f"/usr/../proc/self/root{UPLOADS}",
]
FILES = [*(f"{folder.rstrip('/')}/s.txt" for folder in FOLDERS), "link", "chain", "./link", f"{WORKSPACE}/a/../chain"]
PARENTS = ["/mnt/user-data", "/mnt", "/", "..", "//mnt/user-data/", "root", "root/mnt", "magic"]
TOOLS: dict[str, dict[str, Any]] = {
    "read_file": {},
    "view_image": {},
    "write_file": {"content": "x"},
    "str_replace": {"old": "secret", "new": "x"},
    "ls": {"depth": 5},
    "glob": {"pattern": "*.txt"},
    "grep": {"pattern": "secret"},
}
REFUSALS = ("A rule of this installation", "is no file that this tool may use")


class OneSandbox:
    """A handle of one real sandbox."""

    runs_commands = True

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def warm(self) -> None:
        """It has started."""

    async def get(self) -> Sandbox:
        return self._sandbox


@pytest.fixture(params=["bubblewrap", "docker"])
async def machine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OneSandbox]:
    async def prepared(provider: SandboxProvider) -> AsyncIterator[OneSandbox]:
        async with provider.acquire("c", tmp_path / "data") as sandbox:
            await sandbox.write(f"{UPLOADS}/s.txt", SECRET.encode())
            result = await sandbox.run(ShellCommand(LINKS))
            assert result.exit_code == 0, result.output
            yield OneSandbox(sandbox)

    (tmp_path / "skills").mkdir()
    if request.param == "docker":
        async with docker_provider(docker_settings(tmp_path)) as docker:
            async for each in prepared(docker):
                yield each
        return
    need_bubblewrap()
    provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
    async for each in prepared(provider):
        yield each
    await provider.close()


def calls() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for tool, args in TOOLS.items():
        is_folder = tool in ("ls", "glob", "grep")
        found += [(tool, {"path": path, **args}) for path in ([*FOLDERS, *PARENTS] if is_folder else FILES)]
    found += [("glob", TOOLS["glob"]), ("grep", TOOLS["grep"])]  # from the root
    return found + [("present_files", {"files": [{"path": path}]}) for path in FILES]


class Calls:
    """Makes calls of real tools through the policy."""

    def __init__(self, context: TurnContext, deny: list[str]) -> None:
        context.permissions = RulePermissions(parse_rules(deny=deny))
        self._context = context
        self._tools = {tool.name: tool for tool in make_tools(agent_settings(), SERVICES)}

    async def result(self, name: str, args: dict[str, Any]) -> str:
        """Return what the model gets; "ran" of a tool that is not for reading."""
        tool = self._tools[name]
        runtime: Any = ToolRuntime({}, self._context, {}, lambda _: None, "1", None)
        request = ToolCallRequest(ToolCall(name=name, args=args, id="1"), tool, {"messages": []}, runtime)

        async def handle(_: ToolCallRequest) -> ToolMessage:
            read = tool.coroutine if name in ("read_file", "grep") else None
            return ToolMessage(str(await read(**args, runtime=runtime)) if read else "ran", tool_call_id="1")

        answer = await PermissionPolicy().wrap_tool_call(request, handle)
        assert isinstance(answer, ToolMessage)
        return str(answer.content)


@pytest.fixture
async def context(database: SqliteDatabase, tmp_path: Path, machine: OneSandbox) -> TurnContext:
    made = await make_turn_context(database, tmp_path / "files")
    made.sandbox = machine
    return made


async def test_a_denied_file_is_denied_by_every_tool_under_every_path(context: TurnContext) -> None:
    through = Calls(context, [f"{tool}({UPLOADS}*)" for tool in (*TOOLS, "present_files")])
    results = {f"{name} {args}": await through.result(name, args) for name, args in calls()}
    assert {
        call: text for call, text in results.items() if not text.startswith(REFUSALS) and REFUSALS[1] not in text
    } == {}


async def test_the_paths_lead_to_the_file_and_are_readable_without_a_rule(context: TurnContext) -> None:
    through = Calls(context, [])
    read = [path for path in FILES if SECRET in await through.result("read_file", {"path": path})]
    assert read == [path for path in FILES if "/proc/" not in path]


async def test_rules_do_not_concern_other_files(context: TurnContext, machine: OneSandbox) -> None:
    await (await machine.get()).write(f"{WORKSPACE}/a/free.txt", b"free")
    through = Calls(context, [f"{tool}({UPLOADS}*)" for tool in TOOLS])
    for path in ("a/free.txt", f"/{WORKSPACE}/a/free.txt", f"{WORKSPACE}/root{WORKSPACE}/a/free.txt"):
        assert "free" in await through.result("read_file", {"path": path})
    assert "free" in await through.result("grep", {"pattern": "free", "path": WORKSPACE})


@pytest.mark.parametrize("name", ["data-analysis", "data_analysis", "data_*"])
def test_a_skill_has_one_name(name: str) -> None:
    for given in ("data-analysis", "data_analysis"):
        use = ToolUse("run_skill", {"name": given}, Subject("name", "skill"), "allow")
        assert judge(parse_rules(deny=[f"run_skill({name})"]), use).verdict == "deny"


@pytest.mark.parametrize("real", [UPLOADS, OUTPUTS])
@pytest.mark.parametrize("written", [UPLOADS, OUTPUTS])
def test_a_rule_allows_a_path_that_matches_as_it_is_written_and_where_it_leads(written: str, real: str) -> None:
    """A link out of an allowed folder, or into one, is not allowed; where either is denied or asks, the call is."""
    use = ToolUse("write_file", {"path": f"{written}/a"}, Subject("path", "path"), "ask", real=(f"{real}/a",))
    rule = [f"write_file({OUTPUTS}/*)"]
    inside = [written == OUTPUTS, real == OUTPUTS]
    assert judge(parse_rules(allow=rule), use).verdict == ("allow" if all(inside) else "ask")
    assert judge(parse_rules(deny=rule), use).verdict == ("deny" if any(inside) else "ask")
    allowed = replace(use, default="allow")
    assert judge(parse_rules(ask=rule), allowed).verdict == ("ask" if any(inside) else "allow")
