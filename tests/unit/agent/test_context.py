"""The context on the wire: its size, its stable prefix, and what a summary keeps."""

from __future__ import annotations

import itertools
import random
from typing import Any

import orjson
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata

from agent.core.context import read_prompt
from agent.policies.kept_words import lost_values
from agent.policies.summarization import cut_index
from agent.settings.sections import AgentSettings, ContextConfig, PromptConfig
from agent.token_estimates import counted_tokens, messages_tokens
from agent.tools.write_todos import write_todos
from agent.turn.tool_list import make_tools
from tests.fakes.model import Answer, FakeModel, Request, ToolCall
from tests.support.agent_tools import tool_with
from tests.support.current_config import SERVICES
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop
from tests.unit.agent.test_plan_mode import todos, update
from tests.unit.agent.test_resume import call, script

BYTES_PER_TOKEN = 3.5  # careful: o200k and its like have 4.0 to 4.5 for English prose and JSON, and 3 for numbers


def tokens(value: object) -> int:
    """Estimate the tokens of a text or of JSON."""
    data = value.encode() if isinstance(value, str) else orjson.dumps(value)
    return round(len(data) / BYTES_PER_TOKEN)


def sent(request: Request) -> int:
    return tokens(request.messages) + tokens(request.tools)


def broken_prefixes(requests: list[Request]) -> list[str]:
    """Say where consecutive requests of a thread differ before the end of the first one."""
    found = []
    for number, (before, after) in enumerate(itertools.pairwise(requests)):
        if orjson.dumps(before.tools) != orjson.dumps(after.tools):
            found.append(f"{number}: tools")
        pairs = zip(before.messages, after.messages, strict=False)
        found += [f"{number}: message {n}" for n, (a, b) in enumerate(pairs) if orjson.dumps(a) != orjson.dumps(b)]
    return found


def test_an_empty_conversation_costs_at_most_four_thousand_tokens() -> None:
    prompt = read_prompt(PromptConfig())
    schemas = [tool.json_schema for tool in make_tools(AgentSettings(), SERVICES)]
    assert tokens(prompt) + tokens(schemas) <= 4000


async def test_the_prefix_is_the_same_bytes_over_all_calls_of_a_thread(make: Workshop, model: FakeModel) -> None:
    bench = await make(tools=[write_todos])
    await bench.run(say(script([todos("in_progress", "pending")], [call("look", text="a")], text="one")))
    blocks = await bench.run(say(script([update(1, "completed")], text="the plan"), "m2", mode="plan"))
    assert blocks
    await bench.run(say(script([call("fails", line=1)], text="two"), "m3"))
    requests = model.requests()
    assert len(requests) >= 7
    assert broken_prefixes(requests) == []


async def test_plan_and_modes_write_no_more_checkpoints(make: Workshop, model: FakeModel) -> None:
    """A superstep of two calls is one checkpoint, whatever the calls are; so is the beginning of a turn with a mode."""
    bench = await make(tools=[write_todos])

    async def commits(*calls: dict[str, Any], key: str, **more: Any) -> int:
        before = bench.database.commits
        await bench.run(say(script([*calls], text="done"), key, **more), conversation=key, fresh=True)
        return bench.database.commits - before

    plain = await commits(call("look", text="a"), call("look", text="b"), key="m1")
    assert await commits(call("look", text="a"), todos("in_progress"), key="m2") == plain
    model.script = lambda body: None if body.get("tools") else Answer("MET: yes")
    assert await commits(call("look", text="a"), todos("in_progress"), key="m3", mode="goal") == plain


# ---------------------------------------------------------------- summaries

FILLER = (
    "The committee discussed the matter at length and heard several opinions on how the work should continue, and"
    " nobody objected to the proposal, although some members would have liked more time to read the report. "
)


@pytest.fixture
def planted() -> list[str]:
    dice = random.Random(7)
    return [
        *(f"{dice.randint(1000, 99999)}.{dice.randint(10, 99)}" for _ in range(40)),
        *(f"{dice.randint(2, 99)}.{dice.randint(1, 9)}%" for _ in range(20)),
        *(f"INV-{dice.randint(10_000, 99_999)}" for _ in range(30)),
        *(f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(10, 23)}:{n:02}" for n in range(10)),
        *(f"/mnt/user-data/workspace/report_{n}.csv" for n in range(10)),
        *(f"https://example.org/study/{n}?id={dice.randint(100, 999)}" for n in range(10)),
        *(f"{dice.getrandbits(64):016x}" for _ in range(10)),
        *(f"v{n}.{dice.randint(0, 20)}.{dice.randint(0, 20)}" for n in range(10)),
        *(f"user{n}@example.org" for n in range(5)),
        "retry_limit_seconds",
        "/mnt/skills/public/deep-research/SKILL.md",
    ]


async def test_a_long_research_leaves_a_short_request_with_every_value(
    make: Workshop, model: FakeModel, planted: list[str]
) -> None:
    pages = 16
    texts = [
        "".join(f"{FILLER}The value was {value} as noted. {FILLER * 5}" for value in planted[page::pages])
        for page in range(pages)
    ]

    @tool_with(effect="none")
    async def fetch(page: int) -> str:
        """Return a page."""
        return texts[page]

    assert 45_000 <= sum(map(len, texts)) / 4 <= 55_000  # as the service estimates

    def play(body: dict[str, Any]) -> Answer:
        if not body.get("tools"):
            return Answer("The person wants a report. " + FILLER * 8)
        page = sum(m["role"] == "assistant" for m in body["messages"])
        if "Summary of the conversation" in str(body["messages"]):
            return Answer("the report")
        plan = ToolCall("write_todos", '{"todos": [{"content": "Read all pages", "status": "in_progress"}]}')
        fetch = ToolCall("fetch", orjson.dumps({"page": page % pages}).decode())
        return Answer(calls=(fetch,) if page else (plan, fetch))

    model.script = play
    bench = await make(tools=[write_todos, fetch], output_chars=20_000, **CONTEXT)
    await bench.run(say("Research it, please."))
    last = model.requests()[-1]
    whole = str(last.messages)
    read = [text for number, text in enumerate(texts) if number < len(model.requests()) - 2]
    assert sum(map(len, read)) / 4 >= 36_000
    expected = [value for value in planted if any(value in text for text in read)]
    assert len(expected) >= 100
    assert [value for value in expected if value not in whole] == []
    assert "1. [>] Read all pages" in whole
    assert "Research it, please." in whole
    assert sent(last) <= 16_000, sent(last)  # a quarter of the trigger stays as it is


CONTEXT: dict[str, Any] = {"trigger_tokens": ContextConfig().trigger_tokens, "keep_tokens": ContextConfig().keep_tokens}


def test_lost_values_are_exact_and_bounded() -> None:
    messages = [
        HumanMessage("The margin was 41.7% on 2026-11-22, see /mnt/skills/public/chart/SKILL.md and (AB-077)."),
        AIMessage("", tool_calls=[{"name": "bash", "args": {"command": "python3 run_all.py --seed 4711"}, "id": "1"}]),
        ToolMessage("利润为41.7亿元, step 3", tool_call_id="1"),
    ]
    lost = lost_values(messages, "The margin is known: 2026-11-22.", 1000)
    assert "margin was 41.7%" in lost
    for value in ("/mnt/skills/public/chart/SKILL.md", "AB-077", "4711", "41.7", "run_all.py"):
        assert value in lost
    assert "2026-11-22" not in lost
    assert lost.startswith("/mnt/skills/")
    assert lost_values(messages, "", 40).startswith("/mnt/skills/public/chart/SKILL.md")
    assert len(lost_values(messages, "", 60)) <= 60


@pytest.mark.parametrize(("sent", "made"), [(0, 2), (0, 0), (0, 900), (7000, 0), (7000, 2)])
def test_input_that_a_provider_does_not_count_is_estimated_at_each_call(sent: int, made: int) -> None:
    """One that answers from its cache counts none: what is estimated then is all that came before, not the rest."""
    usage = UsageMetadata(input_tokens=sent, output_tokens=made, total_tokens=sent + made)
    messages: list[AnyMessage] = [HumanMessage("数" * 6000)]
    for _ in range(3):
        messages += [AIMessage("ok", usage_metadata=usage), HumanMessage("go on")]
        assert messages_tokens(messages) >= 6000
        assert bool(counted_tokens(messages[-2])) is bool(sent)


def test_a_conversation_counts_the_tokens_that_budgets_reserve() -> None:
    messages = [HumanMessage("数" * 600, id=str(number)) for number in range(10)]
    assert messages_tokens(messages) >= 6000
    assert cut_index(messages, keep_messages=10, keep_tokens=2000) == 7  # three messages have 1,812 tokens


async def test_the_text_to_summarize_fits_the_limit_in_any_language(make: Workshop, model: FakeModel) -> None:
    bench = await make(trigger_tokens=2000, trigger_messages=4, keep_messages=2)
    for number in range(3):
        await bench.run(say("数" * 1500, f"m{number}"))
    prompts = [str(each.messages) for each in model.requests() if "Summarize the conversation" in str(each.messages)]
    assert prompts
    assert all(500 <= prompt.count("数") <= 2000 for prompt in prompts)
