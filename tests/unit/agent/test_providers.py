"""Every preset against a strict double of its provider: one contract for all dialects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agent.blocks import Failed, Notice, Step
from agent.messages import UploadedFile
from agent.models.loader import LoadedModel, load_model
from agent.models.presets import PRESETS, complete_entry
from agent.setting import Secret
from agent.settings.models import AgentConfigError, Effort, ModelSettings, PresetName
from tests.fakes.model import Answer, FakeModel
from tests.fakes.model_anthropic import FakeAnthropic
from tests.fakes.model_dialects import DIALECTS
from tests.fakes.model_responses import FakeResponses
from tests.fakes.server import Json
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_pictures import STORED, picture
from tests.unit.agent.test_resume import call, end, script

LOOK = script([call("look", text="a"), call("look", text="b")], [call("look", text="c")], text="seen it all")
NAMES = {"anthropic": "claude-opus-5", "openai": "gpt-5-mini", "openai-responses": "gpt-5-mini", "kimi": "kimi-k3"}
THINKING = [name for name in sorted(PRESETS) if name not in ("openai", "gemini")]
"""Presets whose servers send the text of the reasoning."""
DEMANDS = ("reasoning_content", "thought_signature")  # then the request is sent again, with an empty one


@dataclass
class Provider:
    """A double of a provider, and the settings that reach it."""

    name: PresetName
    server: FakeModel

    def settings(self, name: str = "", **more: Any) -> ModelSettings:
        entry: dict[str, Any] = {"preset": self.name, "model": NAMES.get(self.name, "some-model"), **more}
        complete_entry(entry)
        path = "" if self.name == "anthropic" else "/v1"
        entry |= {"base_url": f"{self.server.base_url}{path}", "api_key": Secret("k"), "retries": 1}
        return ModelSettings(name or self.name, **{**entry, **more})


def double(name: str) -> FakeModel:
    match name:
        case "anthropic":
            return FakeAnthropic()
        case "openai-responses":
            return FakeResponses()
    return FakeModel(dialect=DIALECTS[name]())


@pytest.fixture(params=sorted(PRESETS))
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    async with double(request.param) as server:
        yield Provider(request.param, server)


@pytest.fixture
async def bench(provider: Provider, make: Workshop) -> Bench:
    return await make(settings=(provider.settings(),))


def rejections(provider: Provider, *but: str) -> list[str]:
    """Return why the double refused requests, without those reasons that contain one of these words."""
    reasons = [request.rejected for request in provider.server.requests() if request.rejected]
    return [reason for reason in reasons if not any(word in reason for word in but)]


async def test_text_and_usage_with_cached_tokens(provider: Provider, bench: Bench) -> None:
    first = await bench.run(say('::{"text": "one two  three"}', "m1"))
    assert view(first).text == "one two  three"
    context = await bench.context()
    await bench.run(say('::{"tokens": 7}', "m2"), context=context)
    total = context.meter.total
    assert total.calls == 1
    assert total.input > total.cached > 0
    assert total.output >= 7
    assert rejections(provider) == []


async def test_a_double_keeps_bodies_only_if_they_are_wanted(provider: Provider, bench: Bench) -> None:
    provider.server.forget(keep_bodies=False)
    await bench.run(say("hello"))
    [request] = provider.server.requests()
    assert (request.messages, request.tools, request.body, request.headers) == ([], [], {}, {})


async def test_tool_calls_with_their_reasoning_in_this_turn_and_after_a_restart(
    provider: Provider, bench: Bench, make: Workshop
) -> None:
    blocks = await bench.run(say(LOOK, "m1"))
    assert view(blocks).text == "seen it all"
    assert [block.state for block in blocks if isinstance(block, Step) and block.state != "running"] == ["done"] * 3
    restarted = await make(settings=(provider.settings(),))
    assert end(await restarted.run(say(LOOK, "m2"))) == "done"
    assert rejections(provider) == []


async def test_a_model_that_is_busy_is_asked_again_after_the_time_it_names(provider: Provider, bench: Bench) -> None:
    blocks = await bench.run(say('::{"errors": [429], "retry_after": 0.01, "text": "at last"}'))
    assert view(blocks).text == "at last"
    assert [request.status for request in provider.server.requests()] == [429, 200]


async def test_an_overlong_conversation_is_shortened(provider: Provider, bench: Bench) -> None:
    if provider.name == "ollama":
        return  # it cuts the conversation and says nothing
    provider.server.window_bytes = 1000
    blocks = await bench.run(say("long " * 1000))
    assert "too long" in "".join(block.what for block in blocks if isinstance(block, Failed))


@pytest.mark.parametrize("fault", ["abort_at", "cut_at", "garbage_at"])
async def test_a_stream_that_breaks_is_asked_again(provider: Provider, bench: Bench, fault: str) -> None:
    blocks = await bench.run(say("::" + json.dumps({"text": "one two three four", fault: 2})))
    assert view(blocks).text == "one two three four"
    assert len(provider.server.requests()) == 2


async def test_a_server_that_is_away_is_named_so(provider: Provider, make: Workshop) -> None:
    settings = replace(provider.settings(), base_url="http://127.0.0.1:9/v1", retries=0)
    blocks = await (await make(settings=(settings,))).run(say("hello"))
    assert [block.what for block in blocks if isinstance(block, Failed)] == ["My model's server can't be reached."]


async def test_a_picture(provider: Provider, make: Workshop) -> None:
    bench = await make(settings=(provider.settings(vision=True),))
    await bench.context()
    await bench.machine.sandbox.write(STORED, picture())
    upload = UploadedFile("a.png", "/mnt/user-data/uploads/a.png", 90, about="picture, 40×20", picture=STORED)
    assert end(await bench.run(say('what? ::{"text": "a gradient"}', uploads=[upload]))) == "done"
    content = provider.server.requests()[-1].messages[-1]["content"]
    assert any("image" in part["type"] for part in content)
    assert rejections(provider) == []


async def test_each_effort_reaches_the_model_in_its_own_words(provider: Provider, make: Workshop) -> None:
    model = LoadedModel(provider.settings(), load_model(provider.settings()))
    bodies: list[Json] = []
    for effort in PRESETS[provider.name].efforts:
        bench = await make(settings=(provider.settings(effort=effort),))
        state = end(await bench.run(say(LOOK, effort), conversation=effort))
        assert (state, rejections(provider)) == ("done", [])
        configured = provider.server.requests()[-1].body
        answer = await model.with_effort(effort).model.ainvoke("hello")
        assert answer.text == "You said: hello"
        chosen = provider.server.requests()[-1].body
        both = configured.keys() & chosen.keys() - {"stream", "stream_options"}
        assert {name: configured[name] for name in both} == {name: chosen[name] for name in both}
        assert configured not in bodies
        bodies.append(configured)
    assert (provider.name == "minimax") == (bodies == [])
    assert rejections(provider) == []
    await model.close()


async def test_thinking_is_shown_as_one_step_an_answer_if_wanted(provider: Provider, make: Workshop) -> None:
    effort: Effort = "high" if "high" in PRESETS[provider.name].efforts else ""
    for wanted in (False, True):
        bench = await make(settings=(provider.settings(show_thinking=wanted, effort=effort),))
        blocks = await bench.run(say(LOOK, f"m{wanted}"), conversation=f"c{wanted}")
        ended = [block for block in blocks if isinstance(block, Step) and block.state == "done"]
        shown = [step for step in ended if step.title == "Thinking"]
        assert len(shown) == (3 if wanted and provider.name in THINKING else 0)
        for step in shown:
            assert step.detail.startswith("thought ")
            assert step.detail.endswith("step 49, done")
    assert rejections(provider) == []


async def test_any_model_goes_on_where_another_one_failed(provider: Provider, make: Workshop) -> None:
    """In the middle of a turn, with the reasoning of the other provider in the conversation; and back."""
    effort: Effort = "low" if "low" in PRESETS[provider.name].efforts else ""
    for name in ("deepseek", "anthropic", "openai-responses", "gemini", "openrouter"):
        async with double(name) as server:
            other = Provider(name, server)
            settings = (other.settings("first"), provider.settings("second", effort=effort))
            bench = await make(settings=settings, fallback=("second",))
            server.script = lambda body: Answer(status=401) if body["messages"][-1]["role"] == "tool" else None
            blocks = await bench.run(say(LOOK, "m1"), conversation=name)
            assert rejections(provider, *DEMANDS) == []
            assert view(blocks).text == "seen it all"
            assert [block.kind for block in blocks if isinstance(block, Notice)] == ["fallback"]
            server.script = None
            assert end(await bench.run(say(LOOK, "m2"), conversation=name)) == "done"
            assert rejections(other, *DEMANDS) == []
            assert rejections(provider, *DEMANDS) == []
            assert end(await bench.run(say(LOOK, "m3"), conversation=name, model="second")) == "done"
    assert rejections(provider, *DEMANDS) == []


async def test_an_effort_that_a_model_does_not_take_is_a_fault(provider: Provider) -> None:
    settings = provider.settings(effort="max" if provider.name == "qwen" else "minimal")
    if settings.effort in PRESETS[provider.name].efforts:
        load_model(settings)
        return
    with pytest.raises(AgentConfigError, match="does not take the effort"):
        load_model(settings)


async def test_older_claude_models_think_within_a_budget(make: Workshop) -> None:
    async with FakeAnthropic() as server:
        claude = Provider("anthropic", server)
        settings = claude.settings(model="claude-opus-4-5", effort="low", show_thinking=True)
        bench = await make(settings=(settings,))
        blocks = await bench.run(say(LOOK))
        assert view(blocks).text == "seen it all"
        assert len([block for block in blocks if isinstance(block, Step) and block.title == "Thinking"]) == 6
        assert server.requests()[-1].body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
        assert rejections(claude) == []
