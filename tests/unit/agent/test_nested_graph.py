"""A graph that a tool runs: its usage counts, its questions and steps are shown, its texts are the caller's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime

from agent.blocks import Approve, Block, Done, Step, Text
from agent.core.context import Answer as HumanAnswer
from agent.core.context import Turn
from agent.core.graphs import build_graph
from agent.models.loader import LoadedModel, load_model
from agent.permissions.rules import Grant, Judgement, Rule, RulePermissions, ToolUse, parse_rules
from agent.settings.models import ModelSettings
from agent.settings.sections import AgentSettings
from agent.spending import ModelCall
from agent.turn.chains import worker_policies
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.support.agent_tools import TOOLS, tool_with
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop, steps
from tests.unit.agent.test_resume import asks, end


@pytest.fixture
async def task(model: FakeModel) -> AsyncIterator[BaseTool]:
    """A tool that delegates to a worker's graph."""
    settings = ModelSettings("small", model="worker", base_url=f"{model.base_url}/v1")
    small = LoadedModel(settings, load_model(settings))
    worker = build_graph(TOOLS, worker_policies(AgentSettings(), None, "worker"))

    @tool_with(effect="resumable")
    async def task(text: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Delegate to another graph."""
        context = replace(runtime.context, brief="You are a worker.", route=[small])
        result = await worker.ainvoke({"messages": [HumanMessage(text)]}, context=context)
        return str(result["messages"][-1].text)

    yield task
    await small.close()


def answers(lead: list[Answer], worker: list[Answer]) -> Any:
    """Return a script that answers each model in order."""
    left = {"scripted": iter(lead), "worker": iter(worker)}
    return lambda body: next(left[body["model"]])


def lead_text(blocks: list[Block]) -> str:
    return "".join(block.delta for block in blocks if isinstance(block, Text))


# The call ids of both graphs are the same, as with servers that restart them with every message.
DELEGATE = Answer("I delegate. ", calls=(ToolCall("task", '{"text": "dig"}', id="call_0"),))
LOOK = Answer("draft of the worker", calls=(ToolCall("look", '{"text": "a"}', id="call_0"),))
ASK = Answer(calls=(ToolCall("ask_clarification", '{"question": "Which?", "options": ["x", "y"]}', id="call_0"),))


async def test_the_calls_of_a_nested_graph_are_counted_under_its_agent_and_model(
    make: Workshop, model: FakeModel, task: BaseTool
) -> None:
    model.script = answers([DELEGATE, Answer("done")], [LOOK, Answer("found it")])
    bench = await make(tools=[task])
    context = await bench.context()
    blocks = await bench.run(say("go"), context=context)
    calls: list[ModelCall] = context.meter.take_unrecorded()
    assert [(each.agent, each.model, each.kind) for each in calls] == [
        ("lead", "main", "turn"),
        ("worker", "small", "turn"),
        ("worker", "small", "turn"),
        ("lead", "main", "turn"),
    ]
    assert all(each.input and each.output and each.seconds > 0 for each in calls)
    done = blocks[-1]
    assert isinstance(done, Done)
    assert done.usage.calls == 4
    assert done.usage.input == sum(request.bytes // 4 for request in model.requests())


async def test_texts_and_steps_of_a_nested_graph_do_not_touch_the_leads(
    make: Workshop, model: FakeModel, task: BaseTool
) -> None:
    """Its empty answer is taken back after the lead's text was shown."""
    model.script = answers([DELEGATE, Answer("All done.")], [LOOK, Answer(""), Answer("result of the worker")])
    bench = await make(tools=[task])
    blocks = await bench.run(say("go"))
    assert lead_text(blocks) == "I delegate. All done."
    assert not any(isinstance(block, Text) and block.replace for block in blocks)
    assert steps(blocks) == [
        ("", "running"),  # the title of a task says what it is
        ("look: a", "running"),
        ("look: a", "done"),
        ("", "done"),
    ]
    assert len({block.id for block in blocks if isinstance(block, Step)}) == 2
    assert "result of the worker" in str(model.requests()[-1].messages)


async def test_a_question_of_a_nested_graph_reaches_the_person_and_its_answer_the_graph(
    make: Workshop, model: FakeModel, task: BaseTool
) -> None:
    model.script = answers([DELEGATE, Answer("All done.")], [LOOK, ASK, Answer("it is x")])
    bench = await make(tools=[task])
    blocks = await bench.run(say("go"))
    assert end(blocks) == "waiting"
    [ask] = asks(blocks)
    assert (ask.question, ask.options) == ("Which?", ("x", "y"))
    answer = HumanAnswer(ask.id, "x", "m2")
    blocks = await bench.run(say("x", "m2"), answers=(answer,))
    assert lead_text(blocks) == "All done."
    worker = [request for request in model.requests() if request.messages[0]["content"] == "You are a worker."]
    assert len(worker) == 3, "the worker continued where it asked"
    assert "x" in worker[-1].messages[-1]["content"]


async def test_messages_that_arrive_meanwhile_reach_the_lead_only(
    make: Workshop, model: FakeModel, task: BaseTool
) -> None:
    model.script = answers([DELEGATE, Answer("All done.")], [LOOK, Answer("found it")])
    bench = await make(tools=[task])
    context = await bench.context()
    turn = bench.agent.run(Turn("c", (say("go"),), merge_window_seconds=0.0), context)
    async for block in turn:
        if isinstance(block, Step) and block.detail == "look: a" and block.state == "running":
            bench.waiting.inputs.append(say("and hurry", "m2"))
    informed = [request.messages[0]["content"] for request in model.requests() if "hurry" in str(request.messages)]
    assert informed == [bench.agent.prompt]


ASK_FIRST = parse_rules(ask=["effect"])
EFFECT = Answer(calls=(ToolCall("effect", '{"text": "x"}', id="call_0"),))


@pytest.mark.parametrize("rules", [ASK_FIRST, parse_rules(allow=["effect"]), parse_rules(deny=["effect(never)"])])
@pytest.mark.parametrize(("decision", "result"), [("Approve", "did x"), ("Deny", "did not approve this call: Deny")])
async def test_an_approval_inside_a_nested_graph_decides_about_its_call(
    make: Workshop, model: FakeModel, task: BaseTool, decision: str, result: str, rules: tuple[Rule, ...]
) -> None:
    """The rules of the second turn are others: the answer alone decides."""
    model.script = answers([DELEGATE, Answer("All done.")], [LOOK, EFFECT, Answer("it is done")])
    bench = await make(tools=[task])
    context = await bench.context()
    context.permissions = RulePermissions(ASK_FIRST)
    blocks = await bench.run(say("go"), context=context)
    [approve] = [block for block in blocks if isinstance(block, Approve)]
    assert approve.grant == Grant("effect")
    assert "effect: x" not in dict(steps(blocks)), "it waits: it neither runs nor has it ended"
    context = await bench.context()
    context.permissions = RulePermissions(rules)
    answer = HumanAnswer(approve.id, decision, "m2")
    blocks = await bench.run(say(decision, "m2"), answers=(answer,), context=context)
    assert lead_text(blocks) == "All done."
    states = ["running", "done"] if decision == "Approve" else ["denied"]
    assert [state for call, state in steps(blocks) if "effect" in call] == states
    worker = [request for request in model.requests() if request.messages[0]["content"] == "You are a worker."]
    assert len(worker) == 3
    assert result in worker[-1].messages[-1]["content"]
    assert (bench.folder / "workspace/effects").exists() == (decision == "Approve")


class BrokenGate:
    """A gate that cannot judge."""

    async def judge(self, use: ToolUse) -> Judgement:
        raise OSError("the database is gone")

    def hides(self, tool: str) -> bool:
        return False

    def compares(self, tool: str) -> bool:
        return True


async def test_a_call_that_cannot_be_judged_does_not_run(
    make: Workshop, model: FakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.script = answers([EFFECT, Answer("without it")], [])
    bench = await make()
    context = await bench.context()
    context.permissions = BrokenGate()
    blocks = await bench.run(say("go"), context=context)
    assert lead_text(blocks) == "without it"
    assert "This call did not run" in model.requests()[-1].messages[-1]["content"]
    assert "permission.not_judged tool=effect" in caplog.text
    assert not (bench.folder / "workspace/effects").exists()
