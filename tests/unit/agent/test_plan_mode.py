"""The todo tool and plan mode: the live plan, the question about it, and what may run before the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.blocks import Ask, Block, Plan, PlanItem, Step
from agent.core.context import NO_ANSWER
from agent.core.context import Answer as HumanAnswer
from agent.settings.sections import AgentSettings, SearchSettings
from agent.tools.write_todos import write_todos
from agent.turn.tool_list import make_tools
from agent.web.fetcher import WebFetcher
from agent.web.search import make_search
from catalogue import use_language
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.support.current_config import SERVICES
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, steps, view
from tests.unit.agent.test_resume import asks, call, cancelled, end, script


@pytest.fixture
async def bench(make: Workshop) -> Bench:
    return await make(tools=[write_todos])


def todos(*states: str, **more: Any) -> dict[str, Any]:
    items = [{"content": f"Step {n}", "status": state} for n, state in enumerate(states, 1)]
    return call("write_todos", todos=items, **more)


def update(number: int, status: str) -> dict[str, Any]:
    return call("write_todos", todos=[{"content": str(number), "status": status}], merge=True)


def plans(blocks: list[Block]) -> list[str]:
    """Return the states of each shown plan, a letter each."""
    return ["".join(item.state[0] for item in block.items) for block in blocks if isinstance(block, Plan)]


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


# ---------------------------------------------------------------- the plan


async def test_the_plan_is_shown_live_and_folded_with_the_answer(bench: Bench, model: FakeModel) -> None:
    work = script([todos("in_progress", "pending")], [update(1, "completed"), update(2, "completed")], text="all done")
    blocks = await bench.run(say(work))
    assert plans(blocks) == ["rp", "dp", "dd"]  # two changes at once are merged
    assert steps(blocks) == []
    assert view(blocks).final().plan == (PlanItem("Step 1", "done"), PlanItem("Step 2", "done"))
    assert results(model)[0] == "0 of 2 done; in progress: 1"


async def test_a_plan_has_at_most_twenty_steps(bench: Bench, model: FakeModel) -> None:
    blocks = await bench.run(say(script([todos(*["pending"] * 21)], text="hm")))
    assert plans(blocks) == []
    assert "at most 20 steps" in results(model)[0]


async def test_the_plan_survives_a_stop_and_a_summary(make: Workshop, model: FakeModel) -> None:
    bench = await make(tools=[write_todos], trigger_messages=6, keep_messages=2)
    await cancelled(
        bench, model, script([todos("in_progress", "pending"), call("slow", seconds=60)]), lambda shown: plans(shown)
    )
    await bench.agent.repair("c", "so far")
    for number in range(4):
        await bench.run(say(f"hello {number}", f"h{number}"))
    state = await bench.state()
    assert state[0].additional_kwargs.get("summary")
    assert "1. [>] Step 1\n2. [ ] Step 2" in state[0].text
    summary = next(request for request in model.requests() if request.helper)
    assert "1. [>] Step 1" in str(summary.messages)
    blocks = await bench.run(say(script([update(1, "completed")], text="on"), "m9"))
    assert plans(blocks) == ["dp"]


# ---------------------------------------------------------------- plan mode


async def plan(bench: Bench, text: str, key: str = "m1") -> list[Block]:
    return await bench.run(say(text, key, mode="plan"))


async def answer(bench: Bench, blocks: list[Block], text: str, key: str) -> list[Block]:
    [ask] = asks(blocks)
    return await bench.run(say(text, key), answers=(HumanAnswer(ask.id, text, key),))


WORK = script([todos("pending", "pending"), call("look", text="a"), call("effect", text="early")], text="my plan")


async def test_a_plan_waits_for_go_and_nothing_has_an_effect_before(bench: Bench, model: FakeModel) -> None:
    blocks = await plan(bench, WORK)
    assert end(blocks) == "waiting"
    [ask] = asks(blocks)
    assert ask.question == "1. Step 1\n2. Step 2\n\nShall I work by this plan?"
    assert ask.options == ("Go", "Change", "Cancel")
    assert view(blocks).final().text.startswith("my plan")
    assert "Plan mode:" in results(model)[2]
    assert not (bench.folder / "workspace" / "effects").exists()
    model.script = lambda body: _then(body, ToolCall("effect", '{"text": "late"}'))
    blocks = await answer(bench, blocks, "go", "m2")
    assert end(blocks) == "done"
    assert plans(blocks)[0] == "pp"  # the new reply shows it, too
    assert (bench.folder / "workspace" / "effects").read_text() == "late\n"
    assert any("The person agreed" in text for text in results(model))
    assert {tool["function"]["name"] for tool in model.requests()[-1].tools} >= {"write_todos", "effect"}
    assert "submit_plan" not in {tool["function"]["name"] for tool in model.requests()[-1].tools}
    assert not any(request.rejected for request in model.requests())


def _then(body: dict[str, Any], once: ToolCall) -> Answer:
    done = any(m.get("name") == once.name or "did late" in str(m.get("content")) for m in body["messages"])
    return Answer("worked") if done else Answer(calls=(once,))


async def test_free_text_changes_the_plan(bench: Bench, model: FakeModel) -> None:
    first = await plan(bench, WORK)
    model.script = lambda body: Answer("a better plan")
    second = await answer(bench, first, "without step 2", "m2")
    assert end(second) == "waiting"
    assert "Their words:\nwithout step 2" in results(model)[-1]
    third = await answer(bench, second, "Change", "m3")  # asks at once what to change, without the model
    assert [ask.question for ask in asks(third)] == ["What should I change in the plan?"]
    calls = len(model.requests())
    fourth = await answer(bench, third, "shorter", "m4")
    assert end(fourth) == "waiting"
    assert len(model.requests()) == calls + 1
    assert "Their words:\nshorter" in results(model)[-1]


@pytest.mark.parametrize("word", ["Cancel", "取消", NO_ANSWER])
async def test_a_cancelled_plan_ends_the_turn_without_the_model(bench: Bench, model: FakeModel, word: str) -> None:
    first = await plan(bench, WORK)
    calls = len(model.requests())
    last = await answer(bench, first, word, "m2")
    assert end(last) == "done"
    assert view(last).final().text == "Cancelled. I haven't changed anything."
    assert len(model.requests()) == calls
    blocks = await bench.run(say(script([call("effect", text="now")], text="done"), "m3"))  # planning is over
    assert [block.state for block in blocks if isinstance(block, Step)][-1] == "done"


async def test_the_question_is_in_the_language_of_the_person(bench: Bench) -> None:
    with use_language("zh"):
        first = await plan(bench, WORK)
        [ask] = [block for block in first if isinstance(block, Ask)]
        assert "Go" not in ask.options
        assert end(await answer(bench, first, ask.options[0], "m2")) == "done"


async def test_only_the_turn_that_plans_is_bound(bench: Bench, model: FakeModel) -> None:
    """A stop ends planning: the next turn works."""
    await cancelled(bench, model, script([call("slow", seconds=60)]), steps)
    await bench.agent.repair("c")
    blocks = await bench.run(say(script([call("effect", text="now")], text="done"), "m2"))
    assert end(blocks) == "done"
    assert (bench.folder / "workspace" / "effects").read_text() == "now\n"


def test_every_tool_that_may_run_while_planning_only_reads() -> None:
    services = replace(
        SERVICES, fetcher=WebFetcher(), search=make_search([SearchSettings("searxng", url="http://127.0.0.1:1")])
    )
    tools = make_tools(AgentSettings(), services)
    files = {"read_file", "ls", "glob", "grep", "view_image"}
    web = {"web_search", "web_fetch", "check_citations"}
    assert {tool.name for tool in tools if tool.traits.read_only} == {*files, *web, "write_todos"}


@pytest.mark.parametrize(
    "words", ["yes", "OK", "ok!", "Go ahead.", "looks good", "👍", "👍🏽", "好的", "可以", "没问题！", "Yes, please"]
)
async def test_the_usual_words_agree_to_a_plan(bench: Bench, model: FakeModel, words: str) -> None:
    first = await plan(bench, WORK)
    model.script = lambda body: Answer("worked")
    assert end(await answer(bench, first, words, "m2")) == "done"
    assert any("The person agreed" in text for text in results(model))


@pytest.mark.parametrize(
    "words", ["ok, but without step 2", "yes, change step 1", "go to step 3", "不好", "可以，但先别删"]
)
async def test_words_with_a_condition_change_the_plan(bench: Bench, model: FakeModel, words: str) -> None:
    first = await plan(bench, WORK)
    model.script = lambda body: Answer("a better plan")
    assert end(await answer(bench, first, words, "m2")) == "waiting"
    assert words in results(model)[-1]
