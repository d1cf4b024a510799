"""Plan mode and goals in a chat: the live plan, the buttons, kill -9, and the final."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_budgets import priced
from tests.e2e.test_console import Terminals, answers, shows, terminals
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.all_platforms import AllPlatforms
from tests.support.service_process import ask, said
from tests.support.thread_talk import ThreadTalk

__all__ = ["terminals"]

TODOS = {
    "name": "write_todos",
    "args": {
        "todos": [{"content": "Read it", "status": "in_progress"}, {"content": "Write it", "status": "pending"}],
    },
}
EVE, GROUP = 78, -1001
WRITE = {"name": "write_file", "args": {"path": "/mnt/user-data/outputs/made.txt", "content": "made"}}


def results(model: FakeModel) -> str:
    return str([m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"])


async def test_a_plan_waits_for_go_also_after_a_kill(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    model.script = lambda body: Answer("made it") if "agreed to the plan" in str(body) else None
    telegram.send("/plan " + ask(steps=[{"calls": [TODOS, WRITE]}], text="I would write it."))
    shown = await telegram.wait(JANE, "Shall I work by this plan?")
    await service.quiet()
    assert "Plan mode:" in results(model)
    assert "1. Read it" in telegram.visible(JANE)[-1].text
    assert [label for label, _ in telegram.visible(JANE)[-1].buttons] == ["Go", "Change", "Cancel"]
    telegram.send("/plan something else")
    await telegram.wait(JANE, "I'm waiting for your answer to")
    await service.restart()
    calls = len(model.requests())
    telegram.click(shown.buttons[1][1], shown.id)  # Change: asks at once
    asked = await telegram.wait(JANE, "What should I change in the plan?")
    await service.quiet()
    assert len(model.requests()) == calls
    telegram.send("call it made2")
    await until(lambda: "call it made2" in str(model.requests()[-1].messages), what="the change")
    await service.quiet()
    again = telegram.visible(JANE)[-1]
    assert "Shall I work by this plan?" in again.text
    assert asked.id != again.id
    telegram.click(again.buttons[0][1], again.id)
    await telegram.wait(JANE, "made it")
    await service.quiet()


@pytest.mark.parametrize(("words", "answer"), [("go", "made it"), ("cancel", "Cancelled. I haven't changed anything.")])
@pytest.mark.parametrize("name", ["slack", "discord"])
async def test_in_a_thread_what_others_say_meanwhile_is_no_part_of_the_answer(
    tmp_path: Path, name: str, words: str, answer: str
) -> None:
    """The thread's talk, and on Slack its root, come with each message."""
    async with ThreadTalk.open(tmp_path, name) as talk:
        talk.model.script = lambda body: Answer("made it") if "agreed to the plan" in str(body) else None
        await talk.say_and_read("hello")
        talk.say(f"{'!' if name == 'slack' else '/'}plan " + ask(steps=[{"calls": [TODOS]}], text="I would write it."))
        await talk.shows("Shall I work by this plan?")
        await talk.service.quiet()
        talk.say("I think Monday is fine", by=talk.other)
        await talk.shows("I think Monday is fine")
        talk.say(words)
        await talk.shows(answer)


@pytest.mark.parametrize(("words", "answer"), [("go", "made it"), ("cancel", "Cancelled. I haven't changed anything.")])
async def test_what_others_say_meanwhile_is_no_part_of_the_answer(
    telegram: FakeTelegram, model: FakeModel, start: Start, words: str, answer: str
) -> None:
    model.script = lambda body: Answer("made it") if "agreed to the plan" in str(body) else None
    service = await start()
    telegram.send("/plan@fawn_bot " + ask(steps=[{"calls": [TODOS]}], text="I would write it."), chat=GROUP)
    await telegram.wait(GROUP, "Shall I work by this plan?")
    await service.quiet()
    telegram.send("hello", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "I keep what is written in this group")
    telegram.send("I think Monday is fine", chat=GROUP, user=EVE)
    telegram.send(f"@fawn_bot {words}", chat=GROUP)
    await telegram.wait(GROUP, answer)


async def test_a_goal_continues_with_the_right_round_after_a_kill(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    verdicts = iter(["NOT MET: one test fails", "NOT MET: still one", "MET: all pass"])

    def play(body: dict[str, Any]) -> Answer:
        if not body.get("tools"):
            return Answer(next(verdicts))
        messages = body["messages"]
        number = sum("begins: the goal is not met" in str(m["content"]) for m in messages)
        if number == 1 and messages[-1]["role"] == "tool" and "begins" in str(messages[-1]["content"]):
            return Answer("", calls=(ToolCall("ls", "{}"),), delay=3.0)
        return Answer(f"work {number}", delay=3.0 if number == 1 else 0.0)

    model.script = play
    telegram.send("/goal make the tests pass")
    await telegram.wait(JANE, "Round 1 of 10: not met yet. one test fails")
    await until(lambda: len(model.requests()) == 4, what="the second round")  # its last call hangs for a moment
    await service.restart()
    await telegram.wait(JANE, "_Goal met in round 3 of 10: all pass_".strip("_"))
    await service.quiet()
    assert len(said(telegram, JANE)) == 1
    assert ("evaluation",) in service.rows("SELECT DISTINCT kind FROM usage")


async def test_stop_ends_a_goal(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    model.script = lambda body: Answer("work", delay=2.0) if body.get("tools") else Answer("NOT MET: no")
    telegram.send("/goal never")
    await telegram.wait(JANE, "Round 1 of 10")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped.")
    await service.quiet()
    model.script = None
    telegram.send(ask(text="a new turn"))
    await telegram.wait(JANE, "a new turn")
    await service.quiet()
    assert not any("Goal" in text for text in said(telegram, JANE)[1:])


async def test_a_plan_on_the_console(start: Start, model: FakeModel, terminals: Terminals) -> None:
    service = await start()
    window = await terminals.open(service, "chat")
    model.script = lambda body: Answer("made it") if "agreed to the plan" in str(body) else None
    window.type("/plan " + ask(steps=[{"calls": [TODOS]}], text="I would write it.") + "\r")
    await shows(window, "Shall I work by this plan?")
    await service.quiet()
    window.type("go\r")
    await answers(window, "made it")


async def test_plans_and_goals_on_the_other_platforms(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path) as service:

        def play(body: dict[str, Any]) -> Answer | None:
            if not body.get("tools"):
                return Answer("MET: all pass")
            return Answer("made it") if "agreed to the plan" in str(body["messages"][-1]) else None

        async def plan(name: str) -> None:
            rig = service.rigs[name]
            rig.mutter("!plan " + ask(steps=[{"calls": [TODOS, WRITE]}], text="I would write it.", id=f"p-{name}"))
            await service.shows(name, "Shall I work by this plan?")
            assert "Read it" in "\n".join(rig.visible())
            rig.mutter("go")
            await service.shows(name, "made it")

        async def reach_goal(name: str) -> None:
            service.rigs[name].mutter("!goal " + ask(text=f"worked on {name}", id=f"g-{name}"))
            await service.shows(name, f"worked on {name}")
            await service.shows(name, "Goal met in round 1 of 10: all pass")

        service.model.script = play
        for visit in (plan, reach_goal):  # a streamed answer shows before its turn has ended, and /goal needs the end
            await asyncio.gather(*map(visit, ("slack", "discord", "feishu", "dingtalk")))
            await service.quiet()
        assert not [*service.data.glob("threads/*/outputs/made.txt")], "a plan changes nothing"


SHOWN = "The work of earlier plans cost $"
EXCESS = "that I expected. Go on?"


def work(body: dict[str, Any]) -> Answer | None:
    """Cost cents with the first step after "go", and end after the second; everything before costs less."""
    messages = body["messages"]
    if not body.get("tools") or "agreed to the plan" not in str(messages):
        return None
    if "agreed to go on" in str(messages):
        return Answer("made it")
    size = 200_000 if "a plan to Stop" in str(messages) else 40_000  # the run before is history then
    arguments = json.dumps({"path": "/mnt/user-data/workspace/made.txt", "content": "x" * size})
    return Answer("", calls=(ToolCall("write_file", arguments),))


async def test_a_plan_asks_when_it_passes_its_expected_cost(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**priced(model))
    for number in range(5):
        telegram.send(ask(text=f"of another kind {number}"))
        await telegram.wait(JANE, f"of another kind {number}")
        await service.quiet()
    for number in range(5):
        telegram.send("/plan " + ask(text=f"unknown yet {number}"))
        shown = await telegram.wait(JANE, f"unknown yet {number}")
        await service.quiet()
        shown = await telegram.wait(JANE, f"unknown yet {number}")
        assert "Planning has cost $" in shown.text
        assert "fewer than 5 plans were carried out here in the last 30 days" in shown.text
        assert "Shall I work by this plan?" in shown.text
        assert "$" not in shown.text.partition("I can't say")[2]
        telegram.click(shown.buttons[0][1], shown.id)
        await until(lambda: "agreed to the plan" in str(model.requests()[-1].messages[-1]), what="the work")
        await service.quiet()
    model.script = work
    for answer, end in (("Go on", "made it"), ("Stop", "What is done so far is kept.")):
        telegram.send("/new")
        await until(lambda: "A fresh start" in telegram.visible(JANE)[-1].text, what="a new conversation")
        await service.quiet()
        telegram.send("/plan " + ask(text=f"a plan to {answer}"))
        await until(lambda: SHOWN in telegram.visible(JANE)[-1].text, what="the plan")
        await service.quiet()
        shown = telegram.visible(JANE)[-1]
        bound = shown.text.partition("if this one passes ")[2].partition(" in all.")[0]
        telegram.click(shown.buttons[0][1], shown.id)
        await until(lambda: EXCESS in telegram.visible(JANE)[-1].text, what="the question")
        await service.quiet()
        asked = telegram.visible(JANE)[-1]
        assert f"of the {bound} {EXCESS}" in asked.text, "exactly the amount that was shown"
        assert [label for label, _ in asked.buttons] == ["Go on", "Stop"]
        calls = len(model.requests())
        await service.restart()
        assert EXCESS in telegram.visible(JANE)[-1].text
        assert len(model.requests()) == calls
        telegram.click(asked.buttons[["Go on", "Stop"].index(answer)][1], asked.id)
        await telegram.wait(JANE, end)
        await service.quiet()
        assert len(model.requests()) == calls + (answer == "Go on")


async def test_so_it_does_on_another_platform(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path) as service:
        rig = service.rigs["slack"]
        for number in range(5):
            rig.mutter(f"!plan {ask(text=f'cheap {number}')}")
            await service.shows("slack", f"cheap {number}")
            await service.quiet()
            rig.mutter("go")
            await until(lambda: "agreed to the plan" in str(service.model.requests()[-1].messages[-1]), what="the work")
            await service.quiet()
        service.model.script = work
        rig.mutter("!plan " + ask(text="my plan"))
        await service.shows("slack", "The work of earlier plans cost ")
        await service.quiet()
        rig.mutter("go")
        await service.shows("slack", "tokens " + EXCESS)  # its model has no price
        await service.quiet()
        rig.mutter("only if it is quick")
        await service.shows("slack", "I have noted that. Go on, or stop here?")
        await service.quiet()
        rig.mutter("go on")
        await service.shows("slack", "made it")
        assert "only if it is quick" in str(service.model.requests()[-1].messages)
