"""A turn from message to blocks."""

from __future__ import annotations

from agent.conversation import Done, File
from tests.agent.conftest import Bench, steps, texts, view
from tests.agent.surroundings import say
from tests.fakes.model import FakeModel, words


async def test_an_answer_streams_and_ends(bench: Bench, model: FakeModel) -> None:
    blocks = await bench.run(say('go ::{"tokens": 30, "tok_ms": 1}'))
    assert view(blocks).final().text == words(30)
    assert len(texts(blocks)) > 3
    assert len({text.part for text in texts(blocks)}) == 1
    done = blocks[-1]
    assert isinstance(done, Done)
    assert done.state == "done"
    assert done.usage.calls == 1
    assert done.usage.output == 30
    assert done.usage.input > 0
    assert [m.type for m in await bench.state()] == ["human", "ai"]
    [request] = model.requests()
    assert request.messages[-1]["content"].startswith("[Sat 2026-11-22 ") is False
    assert "Europe/Berlin · Jane]\ngo" in request.messages[-1]["content"]


async def test_a_tool_call_is_a_step_and_its_result_stays_inside(bench: Bench) -> None:
    script = '::{"steps": [{"text": "let me see", "calls": [{"name": "look", "args": {"text": "a  b"}}]}], "tokens": 3}'
    blocks = await bench.run(say(script))
    assert steps(blocks) == [("look: a b", "running"), ("look: a b", "done")]
    assert view(blocks).final().text == words(3)
    assert not any("seen" in text.delta for text in texts(blocks))
    assert list(view(blocks).texts.values()) == ["let me see", words(3)]


async def test_files_are_handed_over_in_order_at_the_end(bench: Bench) -> None:
    script = '::{"steps": [{"calls": [{"name": "present_files", "args": {"paths": ["/o/b", "/o/a"]}}]}], "tokens": 2}'
    blocks = await bench.run(say(script))
    assert blocks[-3:-1] == [File("/o/b", "caption"), File("/o/a", "caption")]
