"""A turn from message to blocks."""

from __future__ import annotations

import json
import re

from agent.blocks import Done, File, Notice, Step
from agent.settings.models import ModelSettings
from tests.fakes.model import FakeModel, words
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, steps, texts, view


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
    assert request.messages[-1]["content"].startswith("[Sun 2026-11-22 14:05 Europe/Berlin · Jane]\ngo")


async def test_a_tool_call_is_shown_as_a_step_without_its_result(bench: Bench) -> None:
    script = '::{"steps": [{"text": "let me see", "calls": [{"name": "look", "args": {"text": "a  b"}}]}], "tokens": 3}'
    blocks = await bench.run(say(script))
    assert steps(blocks) == [("look: a b", "running"), ("look: a b", "done")]
    assert {block.title for block in blocks if isinstance(block, Step)} == {"Using look"}
    assert view(blocks).final().text == words(3)
    assert not any("seen" in text.delta for text in texts(blocks))
    assert list(view(blocks).texts.values()) == ["let me see", words(3)]


async def test_files_are_presented_in_order(bench: Bench) -> None:
    script = '::{"steps": [{"calls": [{"name": "present_files", "args": {"paths": ["/o/b", "/o/a"]}}]}], "tokens": 2}'
    blocks = await bench.run(say(script))
    assert view(blocks).files == [File("/o/b", "caption"), File("/o/a", "caption")]


async def test_a_tool_that_needs_the_sandbox_warms_it_by_its_name(bench: Bench) -> None:
    await bench.run(say('::{"steps": [{"calls": [{"name": "look", "args": {"text": "a"}}]}], "tokens": 2}'))
    assert bench.machine.warmed == 0
    await bench.run(say('::{"steps": [{"calls": [{"name": "effect", "args": {"text": "a"}}]}], "tokens": 2}', "m2"))
    assert bench.machine.warmed >= 1


async def test_live_output_is_counted_not_shown(bench: Bench) -> None:
    blocks = await bench.run(
        say('::{"steps": [{"calls": [{"name": "slow", "args": {"seconds": 0.01}}]}], "tokens": 2}')
    )
    assert [(b.state, b.progress) for b in blocks if isinstance(b, Step)] == [
        ("running", ""),
        ("running", "1 line of output so far"),
        ("done", ""),
    ]


async def test_a_tool_error_is_reported_to_the_model_without_host_paths(bench: Bench, model: FakeModel) -> None:
    calls = [{"name": "broken", "args": {"kind": kind}} for kind in ("sandbox", "tool", "other")]
    calls += [{"name": "look", "args": {"nonsense": 1}}, {"name": "unknown", "args": {}}]
    blocks = await bench.run(say(f'::{{"steps": [{{"calls": {json.dumps(calls)}}}], "text": "sorry"}}'))
    assert view(blocks).final().text == "sorry"
    assert sorted(state for _, state in steps(blocks)) == ["failed"] * 5 + ["running"] * 3, (
        "two calls of no tool never begin"
    )
    told = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert told[0] == "broken failed: /mnt/user-data/workspace/x: no such file"
    assert told[1] == "broken failed: that is not a number"
    assert told[2].startswith("broken failed internally (RuntimeError)")
    assert not any("/etc" in text for text in told)


async def test_long_outputs_go_to_a_file_and_read_file_does_not(make: Workshop, model: FakeModel) -> None:
    bench = await make(output_chars=2000)
    script = '::{"steps": [{"calls": [{"name": "big", "args": {"size": 2000}}]}], "tokens": 2}'
    await bench.run(say(script))
    told = next(m["content"] for m in model.requests()[-1].messages if m["role"] == "tool")
    assert len(told) < 2200
    assert told.startswith("line 0\n")
    assert told.endswith("line 1999\n")
    path = re.search(r"/mnt/user-data/workspace/\.outputs/\S+\.txt", told)
    assert path
    kept = await bench.machine.sandbox.read(path[0])
    assert kept.decode() == "".join(f"line {n}\n" for n in range(2000))


async def test_models_are_chosen_by_name_and_a_missing_one_is_reported(make: Workshop, model: FakeModel) -> None:
    url = f"{model.base_url}/v1"
    one = ModelSettings("one", model="first", base_url=url, display_name="The First")
    bench = await make(settings=(one, ModelSettings("two", model="second", base_url=url)))
    await bench.run(say("a", "m1"), model="two")
    await bench.run(say("b", "m2"))
    blocks = await bench.run(say("c", "m3"), model="gone")
    assert [b.text for b in blocks if isinstance(b, Notice)] == [
        "The model gone is no longer configured; one answers instead."
    ]
    assert len(await bench.state()) == 6  # one conversation for all models


async def test_forgetting_a_conversation(bench: Bench) -> None:
    await bench.run(say("a", "m1"))
    await bench.run(say("b", "m2"), conversation="other")
    await bench.agent.forget("c")
    assert await bench.state() == []
    assert len(await bench.state("other")) == 2


# Case 38 of docs/cases.md
async def test_only_the_text_of_the_assistant_is_shown(make: Workshop) -> None:
    bench = await make(trigger_messages=6, keep_messages=2)
    script = ' ::{"steps": [{"calls": [{"name": "look", "args": {"text": "TOOLWORD"}}]}], "text": "fine"}'
    shown: list[str] = []
    for number in range(4):
        blocks = await bench.run(say(f"SAID{number}{script}", f"m{number}"))
        shown += [text.delta for text in texts(blocks)]
    assert any(m.additional_kwargs.get("summary") for m in await bench.state())
    assert set(shown) == {"fine"}
