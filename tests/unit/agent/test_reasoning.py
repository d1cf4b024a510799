"""Reasoning goes back with the tool calls it led to, and to no other model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import orjson
import pytest

from agent.core.context import Answer
from agent.memory.visibility import LinkKind, MemoryKind, MemoryScope
from agent.messages import UserInput
from agent.settings.models import ModelSettings
from tests.fakes.model import FakeModel
from tests.fakes.server import Json
from tests.support.chat_templates import TEMPLATES, render_prompt
from tests.support.turn_context import ListSteering, say
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


# ---------------------------------------------------------------- beside memory


@dataclass
class Notes:
    """A memory that only has notes."""

    notes: str

    async def save(self, text: str, quote: str, kind: MemoryKind, scope: MemoryScope, replaces: int) -> str:
        raise NotImplementedError

    async def search(self, text: str) -> str:
        raise NotImplementedError

    async def forget(self, number: int, quote: str) -> str:
        raise NotImplementedError

    async def link(self, number: int, kind: LinkKind, to: int) -> str:
        raise NotImplementedError

    async def unlink(self, number: int, to: int) -> str:
        raise NotImplementedError


def thoughts_in_prompt(template: str, messages: list[Json]) -> list[str]:
    """Return the thoughts that reach a model of this family."""
    return re.findall(r"thought \d+, step 0", render_prompt(template, messages))


def shared_bytes(before: list[Json], after: list[Json]) -> float:
    """Return the share of the earlier request with which the later one begins."""
    first, second = orjson.dumps(before), orjson.dumps(after)
    same = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
    return same / len(first)


@pytest.mark.parametrize("family", TEMPLATES)
async def test_a_model_sees_its_thoughts_beside_notes(bench: Bench, model: FakeModel, family: str) -> None:
    model.thinks = True
    context = await bench.context()
    context.memory = Notes("[Memory: notes\n- #1 (fact) Jane likes tea")
    await bench.run(say(LOOK), context=context)
    first, *later = [request.messages for request in model.requests()]
    assert [len(thoughts_in_prompt(TEMPLATES[family], messages)) for messages in later] == [1, 2]
    assert all("Jane likes tea" in render_prompt(TEMPLATES[family], messages) for messages in (first, *later))
    behind = [*later[-1], {"role": "user", "content": "[Memory: notes"}]
    assert thoughts_in_prompt(TEMPLATES[family], behind) == [], "where the notes must not stand"
    assert min(shared_bytes(*pair) for pair in pairwise([first, *later])) > 0.95
    assert all(str(messages).count("Jane likes tea") == 1 for messages in (first, *later))
    assert "Jane likes tea" not in str(await bench.state())


class Later(ListSteering):
    """The message comes after the first call."""

    takes = 0

    async def take_unread(self) -> tuple[UserInput, ...]:
        self.takes += 1
        return await super().take_unread() if self.takes > 1 else ()


async def test_the_notes_of_a_turn_keep_their_place(bench: Bench, model: FakeModel) -> None:
    bench.waiting = Later(say("and this", "m2"))
    context = await bench.context()
    context.memory = Notes("[Memory: notes\n- #1 (fact) Jane likes tea")
    await bench.run(say(LOOK), context=context)
    last = model.requests()[-1].messages
    assert "and this" in str(last)
    places = [[i for i, m in enumerate(r.messages) if "likes tea" in str(m)] for r in model.requests()]
    assert places == [[1]] * len(places)
