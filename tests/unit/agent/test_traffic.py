"""Calls at once, shared pauses, and servers that are down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from agent.blocks import Block, Failed, Notice
from agent.models.answers import ask_model
from agent.settings.models import CallLimits, ModelSettings, PresetName
from agent.spending import Meter
from tests.fakes.model import Answer, FakeModel
from tests.fakes.server import Json, until
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_providers import Provider, double

SKIP_SECONDS = 600.0  # longer than any test takes; `let_time_pass` ends it


@pytest.fixture
async def backup() -> AsyncIterator[FakeModel]:
    async with FakeModel(script=lambda body: Answer("from the backup")) as server:
        yield server


@pytest.fixture
def entries(model: FakeModel, backup: FakeModel) -> tuple[ModelSettings, ...]:
    return (
        ModelSettings("main", base_url=f"{model.base_url}/v1", retries=1, display_name="Main"),
        ModelSettings("backup", base_url=f"{backup.base_url}/v1", display_name="Backup", retries=1),
    )


def limits(model_calls: int = 0, failures: int = 2, seconds: float = SKIP_SECONDS) -> CallLimits:
    return CallLimits(model_calls, failures, seconds)


def let_time_pass(bench: Bench) -> None:
    """End the time in which calls skip the main server."""
    bench.agent.models["main"].endpoint._skipped_until = time.monotonic()


def told(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, Notice) and block.kind == "fallback"]


@pytest.fixture
async def bench(make: Workshop, entries: tuple[ModelSettings, ...]) -> Bench:
    return await make(settings=entries, fallback=("backup",), calls=limits())


async def test_a_server_that_is_down_is_skipped_and_tried_again(
    bench: Bench, model: FakeModel, backup: FakeModel
) -> None:
    model.script = lambda body: Answer(status=500)
    await bench.run(say("one"))
    await bench.run(say("one", "m1"), conversation="second")
    assert len(model.requests()) == 3, "failures of two conversations: it is down now"
    blocks = await bench.run(say("two", "m2"), conversation="other")
    assert told(blocks) == ["The server of Main is failing. Backup answers instead."]
    assert len(model.requests()) == 3, "skipped without a call"
    [state, healthy] = bench.agent.traffic.states(entry.settings for entry in bench.agent.models.values())
    assert (state.models, state.down, state.failures) == (("Main",), True, 3)
    assert 0 < state.retry_in <= SKIP_SECONDS
    assert (healthy.models, healthy.down) == (("Backup",), False)
    let_time_pass(bench)
    blocks = await bench.run(say("three", "m3"))
    assert len(model.requests()) == 4, "one try without retries, because another server works"
    assert told(blocks) == ["My model's server has a problem (500). Backup answers instead."]
    let_time_pass(bench)
    model.script = None
    assert "You said" in view(await bench.run(say("four", "m4"))).final().text
    assert not bench.agent.models["main"].endpoint.failures
    assert "You said" in view(await bench.run(say("five", "m5"))).final().text


async def test_one_call_finds_out_whether_a_server_has_recovered(
    bench: Bench, model: FakeModel, backup: FakeModel
) -> None:
    model.script = lambda body: Answer(status=500)
    for name in ("first", "second"):
        await bench.run(say("one", name), conversation=name)
    let_time_pass(bench)
    asked = len(backup.requests())
    model.script = lambda body: Answer("recovered", held=lambda: len(backup.requests()) < asked + 4)
    runs = [bench.run(say("hello", f"m{n}"), conversation=f"c{n}") for n in range(5)]
    texts = [view(blocks).final().text for blocks in await asyncio.gather(*runs)]
    assert sorted(text.partition("\n")[0] for text in texts) == [*["from the backup"] * 4, "recovered"]


@pytest.mark.parametrize("turns", [1, 5])
async def test_one_conversation_takes_the_model_from_no_other(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel, turns: int
) -> None:
    bench = await make(settings=(replace(entries[0], retries=4), entries[1]), fallback=("backup",), calls=limits(0, 5))
    model.script = lambda body: Answer(status=500) if "hurts" in str(body["messages"][-1]) else None
    for number in range(turns):
        await bench.run(say("this hurts", f"m{number}"))
    failed = len(model.requests())
    assert failed >= 5, "as many failures as open the breaker"
    await bench.run(say("this hurts", "again"))
    assert len(model.requests()) == failed, "for itself, the server is down"
    blocks = await bench.run(say("hello", "innocent"), conversation="other")
    assert "You said" in view(blocks).final().text
    assert not told(blocks)


@pytest.mark.parametrize("name", ["openai", "anthropic", "openai-responses"])
@pytest.mark.parametrize("fault", [{"cut_at": 1}, {"abort_at": 1}])
async def test_streams_that_break_are_no_outage(make: Workshop, backup: FakeModel, name: str, fault: Json) -> None:
    async with double(name) as server:
        settings = (
            Provider(cast(PresetName, name), server).settings(),
            ModelSettings("backup", base_url=f"{backup.base_url}/v1"),
        )
        bench = await make(settings=settings, fallback=("backup",), calls=limits())
        server.script = lambda body: Answer("one two three", **fault)
        for number in range(3):
            blocks = await bench.run(say("hello", f"m{number}"), conversation=f"c{number}")
            assert view(blocks).final().text.startswith("from the backup")
        assert len(server.requests()) == 6
        assert not bench.agent.models[name].endpoint.failures


async def test_the_only_model_is_called_however_its_server_is(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel
) -> None:
    bench = await make(settings=entries[:1], calls=limits())
    model.script = lambda body: Answer(status=500)
    for number in range(2):
        blocks = await bench.run(say("hello", f"m{number}"))
        [failed] = [block for block in blocks if isinstance(block, Failed)]
        assert failed.what == "My model's server has a problem (500). I tried 2 times."
    model.script = None
    assert "You said" in view(await bench.run(say("hello", "m3"))).final().text


@pytest.mark.parametrize("status", [400, 401, 429])
async def test_refused_requests_do_not_count_as_failures_of_the_server(
    bench: Bench, model: FakeModel, status: int
) -> None:
    model.script = lambda body: Answer(status=status)
    for number in range(3):
        await bench.run(say("hello", f"m{number}"))
    assert not bench.agent.models["main"].endpoint.is_down


async def test_a_pause_of_one_provider_delays_all_its_calls_and_no_others(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel, backup: FakeModel
) -> None:
    bench = await make(settings=entries, calls=limits(model_calls=2))
    refused = asyncio.Event()

    def script(body: Json) -> Answer | None:
        if refused.is_set():
            return None
        refused.set()
        return Answer(status=429, retry_after=1.0)

    model.script = script
    began = time.monotonic()
    slow = [asyncio.create_task(bench.run(say("hello", "m0"), conversation="c0"))]
    await refused.wait()
    await until(lambda: bench.agent.models["main"].endpoint.pause_seconds > 0)
    slow += [asyncio.create_task(bench.run(say("hello", f"m{n}"), conversation=f"c{n}")) for n in (1, 2, 3)]
    await bench.run(say("quick", "q"), conversation="q", model="backup")
    assert len(model.requests()) == 1, "nobody has asked again when the other provider has answered"
    assert not any(task.done() for task in slow)
    await asyncio.gather(*slow)
    assert all(request.at - began >= 1.0 for request in model.requests()[1:])
    assert [request.status for request in model.requests()] == [429, 200, 200, 200, 200]


async def test_a_conversation_with_many_calls_does_not_starve_others(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel
) -> None:
    bench = await make(settings=(replace(entries[0], calls=1),))
    entry, meter, answered = bench.agent.models["main"], Meter(), list[str]()
    model.script = lambda body: Answer("said", delay=0.03)

    async def ask(name: str, owner: Meter, background: bool = False) -> None:
        await ask_model(entry, name, owner, "task", background=background)
        answered.append(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(ask("a", Meter(whole=meter)))  # as sub-agents of one turn
        await until(lambda: bench.agent.traffic.slots.waiting == 7)
        group.create_task(ask("title", Meter(), background=True))
        group.create_task(ask("b", Meter()))
    assert answered.index("b") <= 2
    assert answered[-1] == "title"
    assert max(_at_once(model), default=0) == 1


def _at_once(model: FakeModel) -> list[int]:
    requests = model.requests()
    return [sum(other.at <= one.at < other.end for other in requests) for one in requests]


async def test_the_cap_counts_calls_of_all_models_and_a_stop_frees_the_place(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel, backup: FakeModel
) -> None:
    bench = await make(settings=entries, calls=limits(model_calls=1))
    model.script = lambda body: Answer("w0 w1", hang_at=1)
    hanging = asyncio.create_task(bench.run(say("hello"), conversation="c0"))
    await until(lambda: bool(model.requests()))
    waiting = asyncio.create_task(bench.run(say("hello", "m1"), conversation="c1", model="backup"))
    await until(lambda: bench.agent.traffic.slots.waiting == 1)
    assert not backup.requests()
    hanging.cancel()
    assert view(await waiting).final().text == "from the backup"
    assert (bench.agent.traffic.slots.used, bench.agent.traffic.slots.waiting) == (0, 0)


async def test_a_call_that_waits_for_long_says_so(
    make: Workshop, entries: tuple[ModelSettings, ...], model: FakeModel
) -> None:
    bench = await make(settings=(replace(entries[0], calls=1),))
    model.script = lambda body: Answer("said", delay=2.5)
    both = [bench.run(say("hello", f"m{n}"), conversation=f"c{n}") for n in range(2)]
    notices = [[b.text for b in blocks if isinstance(b, Notice)] for blocks in await asyncio.gather(*both)]
    assert sorted(notices) == [[], ["All places for model calls are in use. I continue when one is free."]]
