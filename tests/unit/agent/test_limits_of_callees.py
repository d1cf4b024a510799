"""What an agent starts may do no more than the agent itself, on every path: one intersection decides."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.context import TurnContext
from agent.core.tool import AgentTool
from agent.permissions.rules import RulePermissions, ToolUse, parse_rules
from agent.reach import OUT_OF_REACH, Reach, ReachGate
from agent.settings.mcp import McpConfig
from agent.settings.subagents import KindSettings, NamedAgentSettings, SubagentSettings
from agent.subagents.callee import callee_context
from agent.subagents.task import make_task_tool
from agent.tools.memory import memory
from tests.fakes.model import Answer, FakeModel
from tests.support.agent_tools import tool_with
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop
from tests.unit.agent.test_mcp import Settings, server
from tests.unit.agent.test_resume import call as directive
from tests.unit.agent.test_resume import script as scripted
from tests.unit.agent.test_subagents import ROLE, Cast, call, results, use

__all__ = ["server"]  # a fixture

EFFECTS = "/mnt/user-data/workspace/effects"


@tool_with()
async def schedule(action: str) -> str:
    """Make a schedule."""
    return f"did {action}"


@tool_with()
async def propose_skill(name: str) -> str:
    """Propose a skill."""
    return f"proposed {name}"


class Notes:
    """The memory of a turn: what was done with it."""

    def __init__(self) -> None:
        self.notes, self.done = "", list[str]()

    async def save(self, text: str, *more: Any) -> str:
        self.done.append(f"save {text}")
        return "saved"

    async def search(self, text: str) -> str:
        self.done.append(f"search {text}")
        return "found"

    async def forget(self, number: int, quote: str) -> str:
        self.done.append(f"forget {number}")
        return "forgotten"

    async def link(self, number: int, *more: Any) -> str:
        self.done.append(f"link {number}")
        return "linked"

    async def unlink(self, number: int, *more: Any) -> str:
        self.done.append(f"unlink {number}")
        return "unlinked"


KINDS = (
    KindSettings("auditor", "audits", tools=("look", "read_file")),
    KindSettings("writer", "writes", tools=("effect",)),
    KindSettings("keeper", "keeps", tools=("memory", "schedule", "look")),
    KindSettings("all", "has a pattern", tools=("*",)),
)


async def bench_of(make: Workshop, model: FakeModel, script: Any, *agents: NamedAgentSettings, **more: Any) -> Bench:
    config = SubagentSettings(kinds=KINDS, **more)
    model.script = script
    tools: list[AgentTool] = [make_task_tool(config.all_kinds()), memory, schedule, propose_skill]
    return await make(tools=tools, subagents=config, agents=agents)


def offered_to_workers(model: FakeModel) -> set[str]:
    workers = [each for each in model.requests() if str(each.messages[0]["content"]).startswith(ROLE)]
    return {tool["function"]["name"] for each in workers for tool in each.tools}


@pytest.mark.parametrize(
    ("caller", "kind", "offered"),
    [
        ((), "auditor", {"look", "read_file"}),
        (("look", "task"), "general-purpose", {"look"}),
        (("look", "task"), "auditor", {"look"}),
        (("look", "task"), "writer", set()),
        (("look", "effect", "task"), "writer", {"effect"}),
        (("l*", "task"), "all", {"look"}),
        (("look", "task"), "keeper", {"look"}),
        ((), "keeper", {"memory", "schedule", "look"}),
    ],
)
async def test_a_task_has_the_tools_that_both_its_kind_and_its_caller_have(
    make: Workshop, model: FakeModel, caller: tuple[str, ...], kind: str, offered: set[str]
) -> None:
    """It is offered no others, and a call of another one is denied."""
    steps = [use("effect", text="x"), use("look", "call_1", text="y"), Answer("ended")]
    cast = Cast(Answer("", (call("a", kind=kind),)), Answer("done"), a=steps)
    bench = await bench_of(make, model, cast, NamedAgentSettings("small", tools=caller))
    await bench.run(say("go"), agent="small" if caller else "")
    assert offered_to_workers(model) == offered
    effects = bench.folder / "workspace" / "effects"
    assert effects.exists() == ("effect" in offered)
    assert results(model)[0].startswith("ended")


async def test_a_task_of_the_default_agent_leaves_nothing_behind_unless_its_kind_says_so(
    make: Workshop, model: FakeModel
) -> None:
    """Sub-agents read memory. Schedules and proposals are the business of the agent that talks to people."""
    steps = [
        use("memory", action="search", text="tea"),
        use("memory", "c1", action="save", text="tea", quote="tea"),
        use("memory", "c2", action="forget", number=3, quote="tea"),
        use("schedule", "c3", action="create"),
        use("propose_skill", "c4", name="x"),
        Answer("ended"),
    ]
    for kind, done, reached in (
        ("general-purpose", ["search tea"], False),
        ("all", ["search tea"], False),
        ("keeper", ["search tea", "save tea", "forget 3"], True),
    ):
        cast = Cast(Answer("", (call("a", kind=kind),)), Answer("done"), a=steps)
        bench = await bench_of(make, model, cast)
        context = await bench.context(kind)
        context.memory = notes = Notes()
        await bench.run(say("go"), conversation=kind, context=context)
        assert notes.done == done, kind
        last = [each for each in model.requests() if str(each.messages[0]["content"]).startswith(ROLE)][-1]
        said = [str(m["content"]) for m in last.messages if m["role"] == "tool"]
        assert ("did create" in said[3], "proposed x" in said[4]) == (reached, False), said
        assert ("a sub-agent only reads memory" in said[1]) != reached


async def test_a_task_gets_the_tools_of_a_server_that_its_caller_has(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    fetch = scripted([directive("mcp__old__fetch"), directive("mcp__old__note", text="n")], text="fetched")
    kinds = SubagentSettings()
    caller = NamedAgentSettings("clerk", tools=("mcp__old__fetch", "task"))
    bench = await make(
        mcp=McpConfig((server("old"),)), tools=[make_task_tool(kinds.all_kinds())], subagents=kinds, agents=(caller,)
    )
    context = await bench.context()
    context.permissions = RulePermissions(parse_rules(allow=["mcp__*"]))
    given = directive("task", description="fetch it", prompt=fetch, kind="general-purpose")
    await bench.run(say(scripted([given], text="done")), context=context, agent="clerk")
    assert offered_to_workers(model) == {"mcp__old__fetch"}


async def test_no_path_of_callees_widens_what_its_caller_has(make: Workshop) -> None:
    """Whatever the order of callers and kinds is, a tool that one of them lacks is denied."""
    bench = await make()
    kinds = [KindSettings("k", tools=tools) for tools in ((), ("look",), ("look", "effect"), ("*",), ("e*",))]
    for first in kinds:
        for second in kinds:
            context: TurnContext = await bench.context()
            context.reach = Reach().narrowed(first.tools)
            worker = callee_context(context, second)
            for tool in ("look", "effect", "schedule", "task", "propose_skill", "bash"):
                both = context.reach.allows(tool) and Reach().narrowed(second.tools).allows(tool)
                use_of = ToolUse(tool, {}, default="allow")
                allowed = (await worker.permissions.judge(use_of)).verdict == "allow"
                assert allowed <= both, (first, second, tool)
                assert worker.permissions.hides(tool) != allowed
            assert worker.tasks is worker.background is None


async def test_what_is_out_of_reach_is_denied_whatever_the_rules_allow() -> None:
    gate = ReachGate(RulePermissions(parse_rules(allow=["bash", "look"])), Reach().narrowed(["look"]))
    judged = await gate.judge(ToolUse("bash", {}))
    assert (judged.verdict, judged.rule) == ("deny", OUT_OF_REACH)
    assert gate.hides("bash")
    assert not gate.hides("look")


async def test_the_corrections_of_a_structured_answer_count_in_the_limits_of_its_task(
    make: Workshop, model: FakeModel
) -> None:
    """A correction is not in the task's messages; each would begin the count afresh."""

    def script(body: Any) -> Answer:
        if not str(body["messages"][0]["content"]).startswith(ROLE):
            return Answer("", (call("a", kind="counter"),)) if len(body["messages"]) == 2 else Answer("done")
        asked = str(body["messages"][-1]["content"]).startswith("Your answer does not fit")
        return use("look", f"c{len(body['messages'])}", text=str(len(body["messages"]))) if asked else Answer("three")

    schema = {"type": "object"}
    for limit in ({"max_model_calls": 6}, {"max_tokens": 3000}):
        before = len(model.requests())
        config = SubagentSettings(kinds=(KindSettings("counter", "counts", output_schema=schema),), **limit)  # type: ignore[arg-type]  # numbers
        model.script = script
        bench = await make(tools=[make_task_tool(config.all_kinds())], subagents=config)
        await bench.run(say("go"), conversation=str(limit))
        workers = [each for each in model.requests()[before:] if str(each.messages[0]["content"]).startswith(ROLE)]
        assert len(workers) <= 6, limit
        assert "without finishing" in results(model)[0]


async def test_one_request_starts_so_many_tasks_and_the_model_is_told(make: Workshop, model: FakeModel) -> None:
    """In one answer, and in one after the other."""
    names = [f"t{number}" for number in range(9)]
    cast = Cast(
        Answer("", tuple(map(call, names[:3]))),
        Answer("", tuple(map(call, names[3:]))),
        Answer("done"),
        **{name: [Answer(f"{name} ended")] for name in names},
    )
    bench = await bench_of(make, model, cast, per_turn=5)
    await bench.run(say("go"))
    ended = [text.partition("\n")[0] for text in results(model)]
    assert ended[:5] == [f"{name} ended" for name in names[:5]]
    assert all("at most 5 tasks may be started for one request" in text for text in ended[5:]), ended
    assert "this is number 9" in ended[8]


async def test_a_new_request_may_start_tasks_again(make: Workshop, model: FakeModel) -> None:
    cast = Cast(
        Answer("", (call("a"), call("b"))),
        Answer("done"),
        Answer("", (call("c"),)),
        Answer("done"),
        a=[Answer("A")],
        b=[Answer("B")],
        c=[Answer("C ended")],
    )
    bench = await bench_of(make, model, cast, per_turn=2)
    await bench.run(say("go"))
    await bench.run(say("again", "m2"))
    assert results(model)[-1].startswith("C ended")
