"""Named agents: their prompt, model, tools and kinds of sub-agents."""

from __future__ import annotations

from typing import Any

import pytest

from agent.blocks import Notice
from agent.settings.models import AgentConfigError, ModelSettings
from agent.settings.subagents import NamedAgentSettings, SubagentSettings
from agent.subagents.task import make_task_tool
from tests.fakes.model import Answer, FakeModel
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, texts

WRITER = NamedAgentSettings("writer", "Writes.", "You write novels.", "small", ("look",), ("bash",))


async def bench_of(make: Workshop, model: FakeModel, *agents: NamedAgentSettings) -> Bench:
    models = tuple(ModelSettings(name, model=name, base_url=f"{model.base_url}/v1") for name in ("main", "small"))
    return await make(settings=models, tools=[make_task_tool(SubagentSettings().all_kinds())], agents=agents)


async def test_a_named_agent_answers_with_its_prompt_model_tools_and_kinds(make: Workshop, model: FakeModel) -> None:
    seen: list[str] = []

    def script(body: Any) -> Answer:
        seen.append(body["model"])
        return Answer("ok")

    model.script = script
    bench = await bench_of(make, model, WRITER)
    context = await bench.context()
    context.brief = bench.agent.prompt_of("writer")
    await bench.run(say("hello"), context=context, agent="writer")
    [request] = model.requests()
    assert seen == ["small"]
    assert str(request.messages[0]["content"]).endswith("\n\nYou write novels.")
    assert [tool["function"]["name"] for tool in request.tools] == ["look", "task"]
    assert "- bash: " in request.tools[1]["function"]["description"]
    assert "general-purpose" not in request.tools[1]["function"]["description"]
    assert [call.agent for call in context.meter.take_unrecorded()] == ["writer"]


async def test_the_conversation_continues_when_another_agent_answers(make: Workshop, model: FakeModel) -> None:
    bench = await bench_of(make, model, WRITER)
    await bench.run(say("I am Jane"), agent="writer")
    await bench.run(say("who am I?", "m2"))
    assert "I am Jane" in str(model.requests()[-1].messages)
    assert "look" in {tool["function"]["name"] for tool in model.requests()[-1].tools}


async def test_an_agent_that_is_not_configured_any_more_gives_place_to_the_default_one(
    make: Workshop, model: FakeModel
) -> None:
    bench = await bench_of(make, model)
    blocks = await bench.run(say("hello"), agent="writer")
    [notice] = [block for block in blocks if isinstance(block, Notice)]
    assert "The agent writer is no longer configured" in notice.text
    assert texts(blocks)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (NamedAgentSettings("default"), "agents[0]: the name 'default' is taken"),
        (NamedAgentSettings("a", model="gpt"), "agents[0]: there is no model 'gpt'; configured are main, small"),
        (NamedAgentSettings("a", kinds=("chef",)), "agents[0]: there is no kind 'chef'; there are general-purpose"),
    ],
)
async def test_a_wrong_name_is_a_fault_of_the_configuration(
    make: Workshop, model: FakeModel, agent: NamedAgentSettings, words: str
) -> None:
    with pytest.raises(AgentConfigError) as fault:
        await bench_of(make, model, agent)
    assert words in str(fault.value)
