"""A turn entered twice, interrupted, or with an answer to an old question."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.blocks import Approve, Ask, Block, Done, File, Notice, Text
from agent.core.context import Answer, Turn
from agent.core.tool import Runtime, ToolTraits, ask_person, make_tool
from agent.messages import Quote, UploadedFile, UserInput
from agent.turn.resume import UNANSWERED_RESULT
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.support.agent_tools import gated
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, steps, view


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def script(*turns: list[dict[str, Any]], **more: Any) -> str:
    return "::" + json.dumps({"steps": [{"calls": calls} for calls in turns], **more})


ASKING = script([call("look", text="a"), call("ask_clarification", question="Which?", options=["x", "y"])], tokens=3)


def asks(blocks: list[Block]) -> list[Ask]:
    return [block for block in blocks if isinstance(block, Ask)]


def end(blocks: list[Block]) -> str:
    assert isinstance(blocks[-1], Done)
    return blocks[-1].state


async def cancelled(bench: Bench, model: FakeModel, text: str, ready: Any) -> list[Block]:
    """Run a turn, stop it when `ready(blocks)`, and return the blocks so far."""
    shown: list[Block] = []
    turn = Turn("c", (say(text),), merge_window_seconds=0.0)
    context = await bench.context()

    async def work() -> None:
        async for block in bench.agent.run(turn, context):
            shown.append(block)

    task = asyncio.create_task(work(), name="turn")
    await until(lambda: ready(shown), what="the moment to stop")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    return shown


async def test_entering_a_finished_turn_again_returns_the_stored_answer(bench: Bench, model: FakeModel) -> None:
    first = await bench.run(say("hello"))
    again = await bench.run(say("hello"))
    assert view(first).final() == view(again).final()
    assert len(model.requests()) == 1
    assert len(await bench.state()) == 2


async def test_a_fresh_turn_does_not_read_the_state(bench: Bench) -> None:
    await bench.run(say("a", "m1"), fresh=True)
    before = bench.database.commits
    await bench.run(say("b", "m2"), fresh=True)
    looked = bench.database.commits - before
    before = bench.database.commits
    await bench.run(say("c", "m3"))
    assert bench.database.commits - before == looked + 1
    assert [m.type for m in await bench.state()] == ["human", "ai"] * 3


async def test_a_question_waits_and_its_answer_resumes_the_turn(bench: Bench, model: FakeModel, make: Workshop) -> None:
    blocks = await bench.run(say(ASKING))
    [ask] = asks(blocks)
    assert (ask.question, ask.options, end(blocks)) == ("Which?", ("x", "y"), "waiting")
    assert ("look: a", "done") in steps(blocks)
    assert not any("ask" in title for title, _ in steps(blocks))
    restarted = await make()
    blocks = await restarted.run(say("y", "m2"), answers=(Answer(ask.id, "y", "m2"),))
    assert end(blocks) == "done"
    results = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert results == ["seen a", "y"]
    assert len(model.requests()) == 2


async def test_a_call_that_ended_before_a_question_keeps_its_step(bench: Bench) -> None:
    first = await bench.run(say(ASKING))
    blocks = await bench.run(say("x", "m2"), answers=(Answer(asks(first)[0].id, "x", "m2"),))
    assert [step.detail for step in view(blocks).steps.values()] == ["look: a"]
    assert view(blocks).steps == view(first).steps


async def test_a_message_that_answers_nothing_closes_the_question(bench: Bench, model: FakeModel) -> None:
    await bench.run(say(ASKING))
    blocks = await bench.run(say("something else, please", "m2"))
    assert end(blocks) == "done"
    assert UNANSWERED_RESULT in [m["content"] for m in model.requests()[-1].messages]
    assert model.requests()[-1].messages[-1]["content"].endswith("something else, please")


GATED = script([call("gated", text="a"), call("gated", text="b")], tokens=3)


def approvals(blocks: list[Block]) -> list[Approve]:
    return [block for block in blocks if isinstance(block, Approve)]


async def test_an_approval_shows_and_names_the_exact_call(make: Workshop, model: FakeModel) -> None:
    bench = await make(tools=[gated])
    blocks = await bench.run(say(script([call("gated", text="a ``` \u202eb")], tokens=3)))
    [approve] = approvals(blocks)
    assert approve.call == 'gated\n{\n  "text": "a \\u0060\\u0060\\u0060 \\u202eb"\n}'
    assert approve.id.endswith(f"-{approve.call_hash[:16]}")
    final = view(blocks).final()
    assert f"```\n{approve.call}\n```" in final.text
    assert (final.asks[0].options, final.asks[0].free_text) == (("Approve", "Deny"), False)


async def test_each_approval_gets_its_exact_answer(make: Workshop, model: FakeModel) -> None:
    bench = await make(tools=[gated])
    one, two = approvals(await bench.run(say(GATED)))
    quoted = say("2: deny", "m2", quotes=(Quote("Ann", "this one"),), uploads=[UploadedFile("a", "/mnt/a")])
    blocks = await bench.run(quoted, answers=(Answer(two.id, "Deny", "m2"),))
    assert [ask.id for ask in approvals(blocks)] == [one.id]
    blocks = await bench.run(say("", "m3"), answers=(Answer(one.id, "Approve", "m3"),))
    assert end(blocks) == "done"
    assert [m["content"] for m in model.requests()[-1].messages[-2:]] == ["Approve", "Deny"]


async def test_an_approval_of_another_call_is_refused(make: Workshop, model: FakeModel) -> None:
    bench = await make(tools=[gated])
    one, two = approvals(await bench.run(say(GATED)))
    shown = one.id.partition("-")[0] + "-" + two.id.partition("-")[2]
    blocks = await bench.run(answers=(Answer(shown, "Approve", "m2"),))
    assert [ask.id for ask in approvals(blocks)] == [one.id, two.id]
    assert (end(blocks), len(model.requests())) == ("waiting", 1)


async def test_an_answer_entered_twice_counts_once(bench: Bench, model: FakeModel) -> None:
    [ask] = asks(await bench.run(say(ASKING)))
    first = await bench.run(say("x", "m2"), answers=(Answer(ask.id, "x", "m2"),))
    again = await bench.run(say("x", "m2"), answers=(Answer(ask.id, "x", "m2"),))
    assert view(first).final().text == view(again).final().text
    assert len(model.requests()) == 2


async def test_two_questions_are_answered_by_id_one_by_one(bench: Bench, model: FakeModel) -> None:
    both = [call("ask_clarification", question=f"q{n}?") for n in (1, 2)]
    one, two = asks(await bench.run(say(script(both, tokens=3))))
    blocks = await bench.run(say("to q2", "m2"), answers=(Answer(two.id, "to q2", "m2"),))
    assert end(blocks) == "waiting"
    assert [ask.id for ask in asks(blocks)] == [one.id]
    blocks = await bench.run(say("to q1", "m3"), answers=(Answer(one.id, "to q1", "m3"),))
    assert end(blocks) == "done"
    assert [m["content"] for m in model.requests()[-1].messages[-2:]] == ["to q1", "to q2"]


async def test_a_late_click_does_not_answer_another_question(bench: Bench) -> None:
    [old] = asks(await bench.run(say(ASKING)))
    await bench.run(say("x", "m2"), answers=(Answer(old.id, "x", "m2"),))
    [new] = asks(await bench.run(say(ASKING, "m3")))
    blocks = await bench.run(say("y", "m4"), answers=(Answer(old.id, "y", "m4"),))
    assert [ask.id for ask in asks(blocks)] == [new.id]
    assert any(isinstance(block, Notice) for block in blocks)
    assert end(blocks) == "waiting"


async def test_an_answer_without_an_open_question_is_a_message(bench: Bench, model: FakeModel) -> None:
    await bench.run(say("hello"))
    blocks = await bench.run(say("yes", "m2"), answers=(Answer("0" * 32, "yes", "m2"),))
    assert end(blocks) == "done"
    assert model.requests()[-1].messages[-1]["content"].endswith("· Jane]\nyes")
    await bench.run(answers=(Answer("1" * 32, "no", ""),))
    assert model.requests()[-1].messages[-1]["content"] == "no"


async def test_stopped_during_a_tool_call(bench: Bench, model: FakeModel) -> None:
    text = script([call("look", text="a"), call("slow", seconds=60)], tokens=3)
    shown = await cancelled(bench, model, text, lambda blocks: ("look: a", "done") in steps(blocks))
    await bench.agent.repair("c", "")
    assert not await bench.tasks()
    assert shown
    blocks = await bench.run(say("go on", "m2"), fresh=True)
    assert end(blocks) == "done"
    request = model.requests()[-1]
    assert not request.rejected
    tools = [m["content"] for m in request.messages if m["role"] == "tool"]
    assert tools == ["seen a", "This call was interrupted; its outcome is unknown."]


async def test_stopped_during_an_answer(bench: Bench, model: FakeModel) -> None:
    shown = await cancelled(
        bench, model, '::{"tokens": 500, "tok_ms": 10}', lambda blocks: sum(isinstance(b, Text) for b in blocks) > 5
    )
    await until(lambda: model.requests()[0].gone, what="the connection to close")
    partial = "".join(block.delta for block in shown if isinstance(block, Text))
    await bench.agent.repair("c", partial)
    state = await bench.state()
    assert state[-1].text == f"{partial.rstrip()}\n\n[interrupted here]"
    assert not await bench.tasks()
    assert end(await bench.run(say("go on", "m2"), fresh=True)) == "done"


async def test_repair_of_an_intact_conversation_changes_nothing(bench: Bench) -> None:
    await bench.agent.repair("nobody")
    await bench.run(say("hello"))
    before = await bench.state()
    await bench.agent.repair("c", "partial")
    assert await bench.state() == before


async def test_a_new_message_after_an_interrupted_turn_repairs_it(bench: Bench, model: FakeModel) -> None:
    text = script([call("look", text="a"), call("slow", seconds=60)], tokens=3)
    await cancelled(bench, model, text, lambda blocks: ("look: a", "done") in steps(blocks))
    assert end(await bench.run(say("something else", "m2"))) == "done"
    request = model.requests()[-1]
    assert not request.rejected
    assert request.messages[-1]["content"].endswith("something else")


async def test_the_same_message_resumes_an_interrupted_turn(bench: Bench, model: FakeModel) -> None:
    text = script([call("look", text="a"), call("slow", seconds=0.4)], tokens=3)
    await cancelled(bench, model, text, lambda blocks: ("look: a", "done") in steps(blocks))
    asked = len(model.requests())
    blocks = await bench.run(say(text))
    assert end(blocks) == "done"
    assert steps(blocks)[:2] == [("look: a", "done"), ("slow", "running")]  # they are shown again
    assert [(step.detail, step.state) for step in view(blocks).steps.values()] == [
        ("look: a", "done"),
        ("slow", "failed"),
    ]
    assert len(model.requests()) == asked + 1  # the first call is not made again


async def test_closing_the_iterator_stops_the_work(bench: Bench, model: FakeModel) -> None:
    blocks = bench.agent.run(
        Turn("c", (say('::{"tokens": 500, "tok_ms": 10}'),), merge_window_seconds=0.0), await bench.context()
    )
    async for block in blocks:
        if isinstance(block, Text):
            break
    await blocks.aclose()
    await until(lambda: model.requests()[0].gone, what="the connection to close")
    await bench.agent.repair("c", "w0")
    assert not await bench.tasks()


async def test_after_a_failure_the_next_message_is_answered(make: Workshop, model: FakeModel) -> None:
    bench = await make(retries=0)
    blocks = await bench.run(say('::{"errors": [401]}'), fresh=True)
    assert end(blocks) == "failed"
    assert not await bench.tasks()
    assert end(await bench.run(say("again", "m2"), fresh=True)) == "done"
    assert not model.requests()[-1].rejected


async def test_entering_a_failed_turn_again_retries_it(make: Workshop, model: FakeModel) -> None:
    bench = await make(retries=0)
    text = '::{"errors": [500], "text": "now it works"}'
    assert end(await bench.run(say(text))) == "failed"
    blocks = await bench.run(say(text))
    assert view(blocks).final().text == "now it works"
    assert [m.type for m in await bench.state()] == ["human", "ai"]


async def test_an_answer_includes_its_quotes_files_and_accompanying_messages(bench: Bench, model: FakeModel) -> None:
    [ask] = asks(await bench.run(say(ASKING)))
    quoted = say(
        "this one", "m2", quotes=(Quote("Ann", "use the blue one"),), uploads=[UploadedFile("a.csv", "/mnt/a.csv")]
    )
    await bench.run(quoted, say("and quickly", "m3"), answers=(Answer(ask.id, "this one", "m2"),))
    result = model.requests()[-1].messages[-1]["content"]
    order = ["> use the blue one", "this one", "/mnt/a.csv", "and quickly"]
    assert sorted(order, key=result.index) == order


@make_tool(ToolTraits(effect="resumable", asks=True, permission="allow"))
async def choose(runtime: Runtime) -> str:
    """Ask for one of two words, which the program compares."""
    return await ask_person(runtime.context, {"kind": "ask", "question": "Which?", "options": ["Go", "Stop"]})


@pytest.mark.parametrize(
    "sent",
    [
        say("go", "m2", quotes=(Quote("Ann", "I think Monday is fine", "earlier"),)),
        say("go", "m2", quotes=(Quote("Fawn", "Which?"),)),
        say("go", "m2", quotes=(Quote("Jane", "begin", "earlier"),), uploads=[UploadedFile("a.csv", "/mnt/a.csv")]),
        say("", "m2", uploads=[UploadedFile("a.ogg", "/mnt/a.ogg", transcript="go")]),
    ],
    ids=["talk above", "a reply", "the root of a thread, and a file", "a voice message"],
)
async def test_an_answer_that_is_compared_is_the_words_of_the_person(
    make: Workshop, model: FakeModel, sent: UserInput
) -> None:
    bench = await make(tools=[choose])
    [ask] = asks(await bench.run(say(script([call("choose")], text="done"))))
    blocks = await bench.run(sent, answers=(Answer(ask.id, sent.message.text, "m2"),))
    assert end(blocks) == "done"
    assert model.requests()[-1].messages[-1]["content"] == "go"


async def test_two_questions_are_answered_at_once(bench: Bench, model: FakeModel) -> None:
    both = [call("ask_clarification", question=f"q{n}?") for n in (1, 2)]
    one, two = asks(await bench.run(say(script(both, tokens=3))))
    numbered = say("2: b\n1: a", "m2")
    blocks = await bench.run(numbered, answers=(Answer(two.id, "b", "m2"), Answer(one.id, "a", "m2")))
    assert end(blocks) == "done"
    assert [m["content"] for m in model.requests()[-1].messages[-2:]] == ["a", "b"]


async def test_the_reply_names_answered_and_open_questions(bench: Bench) -> None:
    both = [call("ask_clarification", question=f"q{n}?") for n in (1, 2)]
    blocks = await bench.run(say(script(both, tokens=3)))
    one, two = asks(blocks)
    final = view(blocks).final()
    assert final.asks == (one, two)
    assert [ask for _, ask in final.messages()] == [None, one, two]
    blocks = await bench.run(say("b", "m2"), answers=(Answer(two.id, "b", "m2"),))
    final = view(blocks).final()
    assert final.text == "✓ q2? → b\n\nStill open:\n\nq1?"
    assert final.asks == (one,)


async def test_files_keep_order_and_captions_across_a_crash(bench: Bench, model: FakeModel, make: Workshop) -> None:
    files = [File("/o/b", "caption"), File("/o/a", "caption")]
    await bench.run(say(script([call("present_files", paths=["/o/old"])]), "m0"))
    presenting = script([call("present_files", paths=["/o/b", "/o/a"])], [call("slow", seconds=0.5)], tokens=3)
    await cancelled(bench, model, presenting, lambda blocks: ("slow", "running") in steps(blocks))
    restarted = await make()  # no repair ran: the process was killed
    blocks = await restarted.run(say(presenting))
    assert view(blocks).files == files
    again = await restarted.run(say(presenting))  # the process was killed before it recorded the end
    assert view(again).files == files


async def test_files_keep_their_captions_when_a_parallel_call_was_interrupted(
    bench: Bench, model: FakeModel, make: Workshop
) -> None:
    both = [call("present_files", paths=["/o/b"]), call("slow", seconds=0.5)]
    text = script(both, tokens=3)
    await cancelled(bench, model, text, lambda blocks: File("/o/b", "caption") in blocks)
    blocks = await (await make()).run(say(text))
    assert view(blocks).files == [File("/o/b", "caption")]
