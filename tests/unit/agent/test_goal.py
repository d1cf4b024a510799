"""Goals: rounds, the evaluator's verdicts, the limits, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from agent.blocks import Block, Notice
from agent.core.context import Turn
from agent.policies.goal import parse_verdict
from agent.settings.models import ModelSettings
from agent.settings.sections import GoalConfig
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, steps, view
from tests.unit.agent.test_resume import end


def rounds(model: FakeModel, *verdicts: str, work: Iterator[Answer] | None = None) -> None:
    """Let the model work, and the evaluator answer with these verdicts, the last one for ever."""
    left = [*verdicts]

    def play(body: dict[str, Any]) -> Answer | None:
        if not body.get("tools"):
            return Answer(left.pop(0) if len(left) > 1 else left[0])
        return next(work) if work else Answer("I did something")

    model.script = play


def notices(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, Notice)]


async def pursue(bench: Bench, text: str = "make the tests pass") -> list[Block]:
    return await bench.run(say(text, mode="goal"))


async def test_rounds_follow_until_the_goal_is_met(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    work = iter([Answer(calls=(ToolCall("look", '{"text": "a"}'),)), Answer("first try"), Answer("second try")])
    rounds(model, "NOT MET: one test fails", "**MET**: all pass", work=work)
    blocks = await pursue(bench)
    assert end(blocks) == "done"
    assert view(blocks).final().text == "second try\n\n_Goal met in round 2 of 10: all pass_"
    assert notices(blocks) == ["Round 1 of 10: not met yet. one test fails"]
    assert len({title for title, _state in steps(blocks)}) == 1  # the rounds are notices, not steps
    told = [m["content"] for m in model.requests()[-2].messages if m["role"] == "tool"]
    assert told[-1].startswith("Round 2 of 10 begins: the goal is not met yet. The evaluator says: one test fails")
    evaluations = [request for request in model.requests() if not request.tools]
    assert "make the tests pass" in str(evaluations[0].messages)
    assert "seen a" in str(evaluations[0].messages)
    assert not any(request.rejected for request in model.requests())
    after = await bench.run(say("thanks", "m2"))  # the goal binds its own turn only
    assert "Goal" not in view(after).final().text


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (GoalConfig(rounds=3), "That was the last round."),
        (GoalConfig(tokens=1000), "The budget of 1,000 tokens is used up."),
    ],
)
async def test_rounds_and_tokens_are_bounded(make: Workshop, model: FakeModel, limits: GoalConfig, stop: str) -> None:
    bench = await make(goal=limits)
    rounds(model, "NOT MET: still red")
    text = view(await pursue(bench)).final().text
    assert "still red" in text
    assert "Goal not met in round" in text
    assert stop in text
    assert len([request for request in model.requests() if not request.tools]) <= 3


async def test_the_evaluator_may_be_a_model_of_its_own_and_is_counted(make: Workshop, model: FakeModel) -> None:
    url = f"{model.base_url}/v1"
    bench = await make(
        settings=(ModelSettings("main", base_url=url), ModelSettings("judge", base_url=url)), evaluator="judge"
    )
    rounds(model, "MET: yes")
    context = await bench.context()
    await bench.run(say("goal", mode="goal"), context=context)
    counted = [(call.kind, call.model) for call in context.meter.take_unrecorded()]
    assert counted == [("turn", "main"), ("evaluation", "judge")]


async def test_a_failing_evaluator_ends_the_goal_with_the_work_kept(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    model.script = lambda body: Answer("my work") if body.get("tools") else Answer(status=500)
    text = view(await pursue(bench)).final().text
    assert text.startswith("my work\n\n_I couldn't check whether the goal is met:")


async def test_a_crash_continues_with_the_right_round(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    rounds(model, "NOT MET: a", "NOT MET: b", "MET: c")
    turn = Turn("c", (say("goal", mode="goal"),), merge_window_seconds=0.0)
    seen: list[Block] = []
    async with aclosing(bench.agent.run(turn, await bench.context())) as running:
        async for block in running:
            seen.append(block)
            if len(notices(seen)) == 2:
                break  # as if killed: nothing is repaired
    blocks = await bench.run(say("goal", mode="goal"))
    assert "_Goal met in round " in view(blocks).final().text
    numbers = [m.text.split()[1] for m in await bench.state() if m.name == "next_round"]
    assert numbers[0] == "2"
    assert numbers == sorted(set(numbers))  # no round twice


async def test_people_steer_between_rounds(make: Workshop, model: FakeModel) -> None:
    bench = await make()

    def play(body: dict[str, Any]) -> Answer:
        if body.get("tools"):
            return Answer("worked")
        if "also B" in str(body["messages"]):
            return Answer("MET: with B")
        bench.waiting.inputs.append(say("also B", "m2"))
        return Answer("NOT MET: no")

    model.script = play
    assert "with B" in view(await pursue(bench)).final().text


@pytest.mark.parametrize(
    ("text", "met", "reason"),
    [
        ("MET: done", True, "done"),
        ("**NOT MET:** x", False, "x"),
        ("`MET`", True, "…"),
        ("I think it is fine", False, "I think it is fine"),
        ("", False, "…"),
        ("UNMET: no", False, "no"),
        ("Met: 好", True, "好"),
    ],
)
def test_only_a_clear_verdict_counts_as_met(text: str, met: bool, reason: str) -> None:
    verdict = parse_verdict(text)
    assert (verdict.met, verdict.reason) == (met, reason)
