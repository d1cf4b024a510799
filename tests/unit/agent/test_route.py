"""The models of a turn: which one answers, and what happens when it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool

from agent.blocks import Block, Done, Failed, Notice
from agent.core.graphs import build_graph
from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse
from agent.core.tool import AgentTool
from agent.models.loader import LoadedModel, load_model
from agent.settings.models import ModelSettings
from agent.settings.sections import AgentSettings
from agent.turn.chains import worker_policies
from tests.fakes.model import Answer, FakeModel, ToolCall, words
from tests.fakes.server import Json
from tests.support.agent_tools import TOOLS
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_resume import call, script


@pytest.fixture
async def backup() -> AsyncIterator[FakeModel]:
    async with FakeModel(script=lambda body: Answer("from the backup")) as server:
        yield server


@pytest.fixture
def entries(model: FakeModel, backup: FakeModel) -> tuple[ModelSettings, ...]:
    return (
        ModelSettings("main", base_url=f"{model.base_url}/v1", retries=1),
        ModelSettings("backup", base_url=f"{backup.base_url}/v1", display_name="Backup", retries=1),
    )


@pytest.fixture
async def bench(make: Workshop, entries: tuple[ModelSettings, ...]) -> Bench:
    return await make(settings=entries, fallback=("backup",))


def told(blocks: list[Block]) -> list[str]:
    """Return the notices about another model."""
    return [block.text for block in blocks if isinstance(block, Notice) and block.kind == "fallback"]


@pytest.mark.parametrize(
    ("status", "calls", "what"),
    [
        (500, 2, "My model's server has a problem (500). Backup answers instead."),
        (401, 1, "My model refused its key (401), so I can't think right now. Backup answers instead."),
    ],
)
async def test_the_next_model_answers_when_the_first_fails(
    bench: Bench, model: FakeModel, backup: FakeModel, status: int, calls: int, what: str
) -> None:
    model.script = lambda body: Answer(status=status)
    blocks = await bench.run(say("hello"))
    assert told(blocks) == [what]
    assert view(blocks).final().text == f"from the backup\n\n_{what}_", "the person sees it also afterwards"
    assert (len(model.requests()), len(backup.requests())) == (calls, 1)
    first, second = model.requests()[0], backup.requests()[0]
    assert (first.messages, first.tools) == (second.messages, second.tools)
    done = blocks[-1]
    assert isinstance(done, Done)
    assert (done.state, done.usage.calls) == ("done", 1)


async def test_a_model_that_failed_is_not_tried_again_in_the_same_turn(
    bench: Bench, model: FakeModel, backup: FakeModel
) -> None:
    model.script = lambda body: Answer(status=401)
    answers = iter([Answer(calls=(ToolCall("look", '{"text": "a"}'),)), Answer("done")])
    backup.script = lambda body: next(answers)
    blocks = await bench.run(say("hello"))
    assert len(told(blocks)) == 1
    assert (len(model.requests()), len(backup.requests())) == (1, 2)
    model.script = None
    assert "hello again" in view(await bench.run(say("hello again", "m2"))).final().text
    assert len(model.requests()) == 2, "the next turn begins with the first model"


async def test_text_that_was_streamed_before_the_fallback_is_retracted(bench: Bench, model: FakeModel) -> None:
    model.script = lambda body: Answer(words(6), cut_at=3)
    blocks = await bench.run(say("hello"))
    assert [text for text in view(blocks).texts.values() if text] == ["from the backup"]
    assert [message.text for message in await bench.state() if message.type == "ai"] == ["from the backup"]


async def test_the_last_model_to_fail_explains_the_failure(bench: Bench, model: FakeModel, backup: FakeModel) -> None:
    model.script = lambda body: Answer(status=500)
    backup.script = lambda body: Answer(status=403)
    blocks = await bench.run(say("hello"))
    [failed] = [block for block in blocks if isinstance(block, Failed)]
    assert failed.what == "My model refused its key (403), so I can't think right now."
    assert len(told(blocks)) == 1


async def test_the_model_of_the_conversation_comes_first(bench: Bench, model: FakeModel, backup: FakeModel) -> None:
    blocks = await bench.run(say("hello"), model="backup")
    assert (view(blocks).final().text, told(blocks)) == ("from the backup", [])
    backup.script = lambda body: Answer(status=401)
    blocks = await bench.run(say("hello", "m2"), model="backup")
    assert [type(block) for block in blocks[-2:]] == [Failed, Done], "it is its own only fallback"
    assert not model.requests()
    blocks = await bench.run(say("hello", "m3"), model="gone")
    assert [block.text for block in blocks if isinstance(block, Notice)] == [
        "The model gone is no longer configured; main answers instead."
    ]


@pytest.mark.parametrize(("window", "answered"), [(0, False), (40, False), (100_000, True)])
async def test_a_conversation_too_long_continues_only_with_a_model_that_has_room(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel, backup: FakeModel, window: int, answered: bool
) -> None:
    bench = await make(settings=(entries[0], replace(entries[1], context_tokens=window)), fallback=("backup",))
    model.script = lambda body: Answer(status=413)
    blocks = await bench.run(say("word " * 200))
    if answered:
        assert told(blocks) == ["The conversation is too long for my model. Backup answers instead."]
        assert view(blocks).final().text.startswith("from the backup")
    else:
        assert told(blocks) == []
        [failed] = [block for block in blocks if isinstance(block, Failed)]
        assert failed.what == "The conversation is too long for my model."
        assert not backup.requests()


async def test_the_model_in_use_writes_the_summary(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel, backup: FakeModel
) -> None:
    bench = await make(settings=entries, fallback=("backup",), trigger_messages=4, keep_messages=2)
    for number in range(3):
        await bench.run(say("hello", f"m{number}"), model="backup")
    assert [len(request.tools) > 0 for request in backup.requests()] == [True, True, False, True]
    assert not model.requests()


class OnlyLook:
    """A policy that offers one of the tools."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        looking = [tool for tool in request.tools if isinstance(tool, BaseTool) and tool.name == "look"]
        return await handler(request.override(tools=[*looking]))


async def test_a_policy_chooses_the_tools_of_each_call(
    bench: Bench, entries: tuple[ModelSettings, ...], model: FakeModel
) -> None:
    chain = worker_policies(AgentSettings(), None, "worker")
    worker = LoadedModel(entries[0], load_model(entries[0]))
    graph = build_graph(TOOLS, replace(chain, model=(OnlyLook(), *chain.model)))
    context = replace(await bench.context(), brief="You look.", route=[worker])
    await graph.ainvoke({"messages": [HumanMessage(script([call("look", text="a")], tokens=2))]}, context=context)
    await worker.close()
    offered = [[tool["function"]["name"] for tool in request.tools] for request in model.requests()]
    assert offered == [["look"], ["look"]]
    look = next(tool for tool in TOOLS if tool.name == "look")
    assert isinstance(look, AgentTool)
    assert look.json_schema is look.json_schema, "a schema is made once"


async def test_the_effort_belongs_to_the_model_that_people_chose(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel, backup: FakeModel
) -> None:
    bench = await make(settings=entries, fallback=("main",))
    efforts: list[object] = []

    def script(body: Json) -> Answer:
        efforts.append(body.get("reasoning_effort"))
        return Answer("done", status=401 if len(efforts) == 2 else 200)

    model.script = backup.script = script
    await bench.run(say("hello"), model="backup", effort="high")
    await bench.run(say("hello", "m2"), model="backup", effort="low")
    await bench.run(say("hello", "m3"), model="backup", effort="loud")
    await bench.run(say("hello", "m4"), model="backup")
    assert efforts == ["high", "low", None, None, None]
