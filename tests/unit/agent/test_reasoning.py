"""Reasoning goes back with the tool calls it led to, and to no other model."""

from __future__ import annotations

from agent.context import Answer
from agent.models.settings import ModelSettings
from tests.fakes.model import FakeModel
from tests.fakes.server import Json
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_resume import ASKING, asks, call, end, script

LOOK = script([call("look", text="a")], [call("look", text="b")], text="seen")


def thoughts(messages: list[Json]) -> list[str | None]:
    """Return the reasoning that was sent back with each message of the model."""
    return [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]


async def test_reasoning_is_sent_back_in_this_turn_and_in_later_ones(bench: Bench, model: FakeModel) -> None:
    model.thinks = True
    blocks = await bench.run(say(LOOK))
    assert view(blocks).final().text == "seen"
    first, second = thoughts(model.requests()[2].messages)
    assert first is not None
    assert first.startswith("thought 1, step 0, step 1, ")
    assert first.endswith("step 49, done")
    assert second is not None
    assert second.startswith("thought 2, ")
    assert end(await bench.run(say(LOOK, "m2"))) == "done"
    assert thoughts(model.requests()[-1].messages)[:3] == [first, second, None], "an answer needs none"
    assert not any(request.rejected for request in model.requests())


async def test_reasoning_survives_a_restart(bench: Bench, model: FakeModel, make: Workshop) -> None:
    model.thinks = True
    [ask] = asks(await bench.run(say(ASKING)))
    restarted = await make()
    answer = Answer(ask.id, "y", "m2")
    assert end(await restarted.run(say("y", "m2"), answers=(answer,))) == "done"
    [kept] = thoughts(model.requests()[-1].messages)
    assert kept is not None
    assert kept.startswith("thought 1, ")


async def test_reasoning_is_sent_only_to_the_model_that_produced_it(make: Workshop, model: FakeModel) -> None:
    """Another model in the same conversation gets none. The first model later gets its own, and an empty one with
    the calls of the other model."""
    url = f"{model.base_url}/v1"
    bench = await make(settings=tuple(ModelSettings(name, model=name, base_url=url) for name in ("deep", "plain")))
    model.thinks = True
    assert end(await bench.run(say(LOOK, "m1"), model="deep")) == "done"
    model.thinks = False
    assert end(await bench.run(say(LOOK, "m2"), model="plain")) == "done"
    assert thoughts(model.requests()[-1].messages) == [None] * 5
    assert not any(request.rejected for request in model.requests())
    model.thinks = True
    assert end(await bench.run(say("and now?", "m3"), model="deep")) == "done"
    sent = thoughts(model.requests()[-1].messages)
    assert [text and text[:9] for text in sent] == ["thought 1", "thought 2", None, "", "", None]


async def test_reasoning_works_without_streaming(make: Workshop, model: FakeModel) -> None:
    settings = ModelSettings("m", base_url=f"{model.base_url}/v1", options={"disable_streaming": True})
    bench = await make(settings=(settings,))
    model.thinks = True
    assert end(await bench.run(say(LOOK))) == "done"
    assert not any(request.rejected for request in model.requests())
