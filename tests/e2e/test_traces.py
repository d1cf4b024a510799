"""What a collector gets of a real journey, by the schema of OTLP, and what servers are told of the trace."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Start
from tests.e2e.test_mcp import calls
from tests.e2e.test_subagents import task
from tests.fakes.mcp_http import McpHttpServer
from tests.fakes.model import FakeModel
from tests.fakes.otlp import (
    BinaryCollector,
    FakeCollector,
    FakeLangfuse,
    FakeLangSmith,
    ListeningCollector,
    attributes,
)
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.rotel import rotel
from tests.support.service_process import Service, ask, bash

ROOT = Path(__file__).parents[2]
PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")


@pytest.fixture
async def collector() -> AsyncIterator[FakeCollector]:
    async with FakeCollector() as server:
        yield server


def traces(collector: FakeCollector, **more: Any) -> dict[str, Any]:
    return {"traces": {"endpoint": f"{collector.base_url}/v1/traces", **more}}


async def finished(service: Service, collector: FakeCollector, runs: int = 1) -> None:
    """Wait until the spans of so many runs have come."""
    await service.quiet()
    await until(lambda: len(collector.named("message ")) >= runs, what="the traces")
    assert not collector.refused


@pytest.mark.usefixtures("bubblewrap")
async def test_a_journey_is_one_trace_and_names_nobody(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector
) -> None:
    collector.busy = 1
    service = await start(**traces(collector, headers={"X-Key": "trace-key-1234"}))
    steps = [bash("echo secret-word"), {"calls": [task("look", text="seen")]}]
    telegram.send(ask(steps=steps, text="the answer"))
    await telegram.wait(JANE, "the answer")
    await finished(service, collector)

    [message] = collector.named("message telegram")
    [turn] = collector.named("invoke_agent fawn")
    [tool] = collector.named("execute_tool bash")
    [delegated] = collector.named("execute_tool task")
    [worker] = collector.named("invoke_agent general-purpose")
    [delivery] = collector.named("deliver telegram")
    of_lead = [each for each in collector.named("chat any") if each.parent_span_id == turn.span_id]
    of_worker = [each for each in collector.named("chat any") if each.parent_span_id == worker.span_id]
    assert (len(of_lead), len(of_worker)) == (3, 1)
    inside = {turn.span_id: message, tool.span_id: turn, delegated.span_id: turn, worker.span_id: delegated}
    for span in (turn, tool, delegated, worker):
        assert span.parent_span_id == inside[span.span_id].span_id
        assert inside[span.span_id].start_time_unix_nano <= span.start_time_unix_nano
    assert delivery.parent_span_id == message.span_id
    assert not message.parent_span_id
    ours = [message, turn, tool, worker, delivery, *of_lead, *of_worker]
    assert {span.trace_id for span in ours} == {message.trace_id}
    calls_of_platform = [each for each in collector.named("POST telegram") if each.trace_id == message.trace_id]
    assert calls_of_platform, "the platform's calls of this run"

    facts = attributes(of_lead[0])
    assert facts["gen_ai.operation.name"] == "chat"
    assert facts["gen_ai.request.model"] == "any"
    assert facts["gen_ai.provider.name"] == "openai"
    tokens = sum(attributes(each)["gen_ai.usage.input_tokens"] for each in [*of_lead, *of_worker])
    assert [(tokens,)] == service.rows("SELECT sum(input) FROM usage WHERE kind='turn'")
    assert attributes(message)["fawn.run"] == service.rows("SELECT id FROM runs")[0][0]
    assert collector.headers[-1]["X-Key"] == "trace-key-1234"
    assert collector.resources[-1]["service.name"] == "fawn"

    names = [name for row in service.rows("SELECT conversation, requester FROM runs") for name in row]
    told = {str(value) for span in collector.spans for value in [span.name, *attributes(span).values()]}
    assert not told & {*names, str(JANE)}
    assert not [
        text for text in told if any(word in text for word in ("secret-word", "the answer", "Jane", "telegram/"))
    ]
    assert attributes(turn)["user.id"]
    assert "trace-key-1234" not in service.log()


@pytest.mark.usefixtures("bubblewrap")
async def test_a_run_has_one_trace_across_a_kill(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector
) -> None:
    service = await start(**traces(collector))
    telegram.send(ask(steps=[bash("echo 1"), bash("sleep 30")], text="never"))
    await until(lambda: collector.named("execute_tool bash"), what="the first tool")
    await service.kill()
    telegram.send("/stop")
    await service.start()
    await finished(service, collector)
    [message] = collector.named("message ")
    assert {each.trace_id for each in collector.named("execute_tool")} == {message.trace_id}


@pytest.mark.usefixtures("bubblewrap")
async def test_contents_go_along_only_by_the_switch(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector
) -> None:
    service = await start(**traces(collector, contents=True))
    telegram.send(ask(steps=[bash("echo secret-word")], text="the answer"))
    await telegram.wait(JANE, "the answer")
    await finished(service, collector)
    tool, last = collector.named("execute_tool bash")[0], collector.named("chat any")[-1]
    assert "echo secret-word" in attributes(tool)["gen_ai.tool.call.arguments"]
    assert "secret-word" in attributes(tool)["gen_ai.tool.call.result"]
    assert '"role":"user"' in attributes(last)["gen_ai.input.messages"]
    assert "the answer" in attributes(last)["gen_ai.output.messages"]
    assert attributes(collector.named("invoke_agent fawn")[0])["user.id"] == str(JANE)


@pytest.mark.parametrize("propagate", [True, False])
async def test_servers_of_models_and_mcp_are_told_the_trace(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector, propagate: bool
) -> None:
    async with McpHttpServer() as server:
        service = await start(
            **traces(collector, propagate=propagate),
            mcp={"servers": [{"name": "web", "url": f"{server.base_url}/mcp"}]},
            permissions={"allow": ["mcp__web__*"], "outward": "allow"},
        )
        telegram.send(ask(steps=[calls("mcp__web__whoami")], text="the answer"))
        await telegram.wait(JANE, "the answer")
        await finished(service, collector)
        told = [model.requests()[0].headers.get("traceparent"), server.calls[0].get("_meta", {}).get("traceparent")]
    if not propagate:
        assert told == [None, None]
        return
    [tool] = collector.named("execute_tool mcp__web__whoami")
    chat = collector.named("chat any")[0]
    for parent, span in zip(told, (chat, tool), strict=True):
        assert parent
        assert PARENT.fullmatch(parent)
        assert parent == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


async def test_a_collector_that_refuses_or_is_away_costs_only_its_traces(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector
) -> None:
    await collector.stop()
    service = await start(**traces(collector))
    telegram.send(ask(text="one"))
    await telegram.wait(JANE, "one")
    await until(lambda: "traces.later" in service.log(), what="the warning")
    await collector.start()
    await finished(service, collector)
    collector.rejects = 2
    telegram.send(ask(text="two"))
    await telegram.wait(JANE, "two")
    await until(lambda: "2 spans were rejected" in service.log(), what="the warning of rejected spans")
    assert await service.stop() == 0


@pytest.mark.usefixtures("bubblewrap")
async def test_one_id_finds_the_spans_the_rows_the_reply_and_the_log(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector
) -> None:
    service = await start(**traces(collector))
    telegram.send(ask(steps=[bash("echo 1"), {"calls": [task("look", text="seen")]}], text="the answer"))
    shown = await telegram.wait(JANE, "the answer")
    await finished(service, collector)
    trace = collector.named("message ")[0].trace_id.hex()
    code, text = await service.fawn("trace", trace)
    assert code == 0
    [(run, key)] = service.rows("SELECT r.id, i.key FROM runs r JOIN inbox i ON i.run=r.id")
    assert f"run={run}" in service.log()
    for other in (str(run), key):
        assert await service.fawn("trace", other) == (0, text)
    assert f"trace={trace} " in text
    assert f"message {key}" in text
    assert f"message {shown.id}\n" in text
    lines = text.splitlines()
    [delegated] = [number for number, line in enumerate(lines) if "look — general-purpose (done)" in line]
    assert "│  │  └─ model main (general-purpose, turn)" in lines[delegated + 1]
    assert [line for line in lines if "bash: echo 1 (done)" in line]
    assert text.count("model main (lead, turn)") == 3
    code, export = await service.fawn("export", "telegram/", "--format", "jsonl")
    steps = {e["text"]: e["step_title"] for e in map(json.loads, export.splitlines()) if e["kind"] == "step"}
    assert steps["general-purpose"] == "Task: look", "a task has both: what it does, and the kind of its sub-agent"
    assert "- Task: look — general-purpose (done" in (await service.fawn("export", "telegram/"))[1]
    await service.stop()
    assert await service.fawn("trace", trace) == (0, text)  # without a service
    code, text = await service.fawn("trace", "0" * 32)
    assert code == 1
    assert "there is no run" in text


@pytest.mark.usefixtures("bubblewrap")
async def test_a_collector_of_others_sends_on_what_we_meant(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    """Rotel takes every request, and what comes out of it as protobuf is span by span what the schema reads in ours."""
    async with (
        BinaryCollector() as behind,
        rotel(tmp_path, behind.base_url) as address,
        ListeningCollector(address) as before,
    ):
        service = await start(**traces(before, contents=True))
        assert "takes them" in (await service.fawn("check"))[1]
        steps = [bash("echo 'ä ✓'"), bash("exit 3"), {"calls": [task("look", text="seen")]}]
        telegram.send(ask(steps=steps, text="the answer"))
        await telegram.wait(JANE, "the answer")
        await finished(service, before)
        assert await service.stop() == 0
        await until(lambda: len(behind.spans) >= len(before.spans), what="what Rotel sends on")
    assert (before.refused, behind.refused) == ([], [])
    sent, passed = ({each.span_id: each for each in place.spans} for place in (before, behind))
    assert len(sent) >= 10
    assert passed == sent
    assert all(each in behind.resources for each in before.resources)
    assert "ERROR" not in (tmp_path / "rotel.log").read_text()


async def test_the_check_asks_the_collector(start: Start, collector: FakeCollector) -> None:
    service = await start(**traces(collector))
    code, text = await service.fawn("check")
    assert f"traces: {collector.base_url}/v1/traces takes them" in text
    collector.busy = 9
    code, text = await service.fawn("check")
    assert code == 2
    assert f"FAULT traces: {collector.base_url}/v1/traces: HTTP 503" in text
    service.configure({"traces": {"endpoint": collector.base_url}})
    code, text = await service.fawn("check")
    assert code == 2
    assert f"traces.endpoint: names no path → collectors take traces at {collector.base_url}/v1/traces" in text


async def test_what_is_left_is_sent_at_a_shutdown(
    telegram: FakeTelegram, model: FakeModel, start: Start, collector: FakeCollector
) -> None:
    service = await start(**traces(collector))
    telegram.send(ask(text="one"))
    await telegram.wait(JANE, "one")
    await service.quiet()
    assert await service.stop() == 0
    assert collector.named("message telegram")


async def test_without_traces_nobody_is_told_of_one(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    await start()
    telegram.send(ask(text="one"))
    await telegram.wait(JANE, "one")
    assert "traceparent" not in model.requests()[0].headers


def test_the_service_does_not_load_the_exporter() -> None:
    program = "import sys, bot.main.app, agent.turn.factory; sys.exit('bot.telemetry.traces' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def written_settings(place: str, base_url: str) -> dict[str, Any]:
    """Return what docs/operations.md says to write for a place, with the address of a fake."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    [row] = re.findall(rf"\| {place} \| (.*) \|", page)
    endpoint, headers = re.findall(r"`endpoint: (\S+)`, `headers: (\{.*?\})`", row)[0]
    found: dict[str, Any] = {"endpoint": re.sub(r"https://[^/]+", base_url, endpoint)}
    return found | {"headers": yaml.safe_load(headers)}


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("kind", [FakeLangfuse, FakeLangSmith])
async def test_langfuse_and_langsmith_take_traces_with_the_settings_of_the_docs(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path, kind: type[FakeCollector]
) -> None:
    async with kind() as place:
        secret = place.authorization if isinstance(place, FakeLangfuse) else FakeLangSmith.key
        name = "Langfuse" if isinstance(place, FakeLangfuse) else "LangSmith"
        (tmp_path / ".env").write_text(f"LANGFUSE_AUTH={secret}\nLANGSMITH_API_KEY={secret}\n")
        service = await start(traces=written_settings(name, place.base_url))
        assert f"{place.path} takes them" in (await service.fawn("check"))[1]
        telegram.send(ask(steps=[bash("echo 1")], text="the answer"))
        await telegram.wait(JANE, "the answer")
        await finished(service, place)
        await service.stop()
    assert not place.refused
    [message] = place.named("message telegram")
    assert not message.parent_span_id, "the trace begins with it"
    calls = [attributes(each) for each in place.named("chat any")]
    for facts in calls:  # by these, both make a generation of a span, and count its tokens
        assert facts["gen_ai.operation.name"] == "chat"
        assert facts["gen_ai.request.model"] == "any"
        assert facts["gen_ai.usage.input_tokens"] > 0
        assert facts["gen_ai.usage.output_tokens"] > 0
    [turn] = place.named("invoke_agent fawn")
    facts = attributes(turn)
    assert facts["session.id"] == facts["gen_ai.conversation.id"], "Langfuse groups by it"
    assert facts["user.id"]
