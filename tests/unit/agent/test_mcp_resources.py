"""MCP: resources as two tools, under the rules for what leaves and what strangers write."""

from __future__ import annotations

import pytest

from agent.blocks import Approve, Step
from agent.core.context import Answer as HumanAnswer
from agent.exposure import Exposure
from agent.mcp.names import LIST_RESOURCES, READ_RESOURCE, PromptName
from agent.permissions.rules import RulePermissions, parse_rules
from agent.settings.mcp import McpServerSettings
from tests.fakes.mcp_http import McpHttpServer
from tests.fakes.model import FakeModel
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop
from tests.unit.agent.test_mcp import Settings, bench_of, results, run, server
from tests.unit.agent.test_resume import call, end, script

__all__ = ["server"]  # a fixture
pytestmark = pytest.mark.slow
READS = RulePermissions(parse_rules(allow=[READ_RESOURCE]))


async def test_resources_are_listed_and_read_as_words_of_strangers(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern"), server("old"))
    calls = [
        call(LIST_RESOURCES),
        call(READ_RESOURCE, server="modern", uri="note://greeting"),
        call(READ_RESOURCE, server="modern", uri="note://by/Jane"),
        call(READ_RESOURCE, server="modern", uri="note://logo"),
        call(READ_RESOURCE, server="modern", uri="note://nothing"),
        call(READ_RESOURCE, server="old", uri="note://greeting"),
        call(LIST_RESOURCES, contains="picture"),
    ]
    blocks = await run(bench, script(calls, text="read"), gate=READS)
    listed, greeting, template, logo, unknown, other, found = results(model)
    assert listed.startswith('<mcp-resources server="modern">\n[Content by strangers')
    assert "- note://greeting (greeting; text/plain; A note that greets.)" in listed
    assert "- template note://by/{name} (note_of; text/plain; The note of somebody.)" in listed
    assert '<mcp-resource server="modern">' in greeting
    assert "hello from a resource" in greeting
    assert "a note of Jane" in template
    assert "image/png, 12 bytes, stored as /mnt/user-data/workspace/.mcp/" in logo
    assert "nothing" in unknown
    assert "No MCP server with resources is called 'old'. Those with resources: modern." in other
    assert ("note://logo" in found, "note://greeting" in found) == (True, False)
    titles = [block.title for block in blocks if isinstance(block, Step) and block.state == "running"]
    assert titles[:2] == ["Listing resources", "Reading note://greeting of modern"]


async def test_resources_and_prompts_come_over_http_too(make: Workshop, model: FakeModel) -> None:
    async with McpHttpServer(offers=True) as http:
        settings = McpServerSettings("far", url=f"{http.base_url}/mcp", start_seconds=60, wait_seconds=60)
        bench = await bench_of(make, settings)
        calls = [call(LIST_RESOURCES), call(READ_RESOURCE, server="far", uri="note://far")]
        await run(bench, script(calls, text="read"), gate=READS)
        listed, note = results(model)
        assert "- note://far (far; text/plain)" in listed
        assert "a note from afar" in note
        assert await bench.agent.expand_prompt(PromptName("far", "review"), "fawn") == "Review fawn from afar."


async def test_a_read_asks_a_person_and_runs_after_a_restart(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern"))
    read = call(READ_RESOURCE, server="modern", uri="note://greeting")
    blocks = await run(bench, script([call(LIST_RESOURCES), read], text="read"), gate=RulePermissions())
    [approve] = [block for block in blocks if isinstance(block, Approve)]
    assert end(blocks) == "waiting"
    assert "note://greeting" in approve.call
    await bench.agent.close()
    bench = await bench_of(make, server("modern"))
    await run(bench, "", gate=RulePermissions(), answers=(HumanAnswer(approve.id, "Approve", "a1"),))
    assert "hello from a resource" in results(model)[-1]


async def test_what_a_list_brings_makes_a_later_read_a_way_out(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern"))
    context = await bench.context()
    context.permissions = RulePermissions(parse_rules(allow=["mcp_*"]))
    context.exposure = Exposure()
    steps = [call(LIST_RESOURCES)], [call(READ_RESOURCE, server="modern", uri="note://by/secret")]
    blocks = await bench.run(say(script(*steps, text="read")), context=context)
    assert (context.exposure.private, context.exposure.untrusted) == (True, True)
    [approve] = [block for block in blocks if isinstance(block, Approve)]
    assert "note://by/secret" in approve.call


@pytest.mark.parametrize("way", ["denied", "off", "without"])
async def test_a_server_whose_resources_may_not_be_used_offers_none(
    make: Workshop, model: FakeModel, server: Settings, way: str
) -> None:
    kind = "old" if way == "without" else "modern"
    bench = await bench_of(make, server(kind, resources=way != "off"))
    gate = RulePermissions(parse_rules(deny=["mcp__modern__*"] if way == "denied" else []))
    await run(bench, script([call(LIST_RESOURCES)], text="none"), gate=gate)
    assert "not a valid tool" in results(model)[0] or "Those with resources: none." in results(model)[0]
    names = [tool["function"]["name"] for tool in model.requests()[0].tools]
    assert (LIST_RESOURCES in names) == (way == "denied")
