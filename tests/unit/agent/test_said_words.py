"""What people said stays through summaries, word for word, whatever the summary model leaves out."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from agent.blocks import Notice
from agent.core.context import NO_ANSWER
from agent.core.context import Answer as Reply
from agent.policies.kept_words import (
    MAX_NAMED_CHARS,
    MAX_TEXT_CHARS,
    SAID_KEY,
    SaidWords,
    collect_said,
    lost_values,
    named_values,
)
from agent.settings.sections import ContextConfig
from agent.tools.ask_clarification import ask_clarification
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.support.agent_tools import tool_with
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop
from tests.unit.agent.test_resume import ASKING, asks

SAID = {
    "Our customer is Maria Schneider (number KD-20417), ticket OPS-881.": ["Maria Schneider", "KD-20417", "OPS-881"],
    "Mail her at m.schneider@example.org, or call +49 30 901820.": ["m.schneider@example.org", "+49 30 901820"],
    "The IBAN is DE89 3704 0044 0532 0130 00 and the amount 1.234,56 €.": ["DE89 3704 0044 0532 0130 00", "1.234,56 €"],
    "Work on branch fix/billing-rounding, we run PostgreSQL 14.": ["fix/billing-rounding", "PostgreSQL 14"],
    "The deadline is 12 March 2027, not earlier.": ["12 March 2027"],
    "请把 季度报告.xlsx 发给王小明，预算是三百万元。": ["季度报告.xlsx", "王小明", "三百万元"],
    "Lies /srv/daten/Bericht_März.docx und antworte Jörg.": ["/srv/daten/Bericht_März.docx", "Jörg"],
    "Release v2.14.0-rc1 goes to https://example.org/r/9?x=1 at 07:45.": ["v2.14.0-rc1", "https://example.org/r/9?x=1"],
    "会議は田中さんと木曜日です。": ["田中さん", "木曜日"],
    "Her birthday, by the way: 1987-05-04; size XL.": ["1987-05-04", "XL"],
}
CHATTER = "Well, I was thinking about it and maybe we should look at that again later when there is time. " * 4


async def test_everything_that_people_named_stays_through_ten_summaries(make: Workshop, model: FakeModel) -> None:
    @tool_with(effect="none")
    async def fetch(page: int) -> str:
        """Return a page."""
        return f"The value of {page} is {page * 7919}. " * 1200

    def play(body: dict[str, Any]) -> Answer:
        if not body.get("tools"):
            return Answer("They talked about various things.")
        if body["messages"][-1]["role"] == "user":
            return Answer(calls=(ToolCall("fetch", f'{{"page": {len(body["messages"])}}}'),))
        return Answer("ok")

    model.script = play
    bench = await make(tools=[fetch], output_chars=100_000, trigger_tokens=15_000)
    summaries = 0
    for number, text in enumerate([*SAID, *[""] * 30]):
        blocks = await bench.run(say(text or f"go on, please. {CHATTER}", f"m{number}"))
        summaries += sum(isinstance(block, Notice) and block.kind == "summary" for block in blocks)
    assert summaries >= 10
    sent = "\n".join(str(message["content"]) for message in model.requests()[-1].messages)
    assert [value for values in SAID.values() for value in values if value not in sent] == []
    assert len(sent) < 15_000 * 4


def test_what_people_said_is_bounded() -> None:
    texts = [f"Customer{n} pays {n} EUR to Person{n}. {CHATTER}" for n in range(3000)]
    said = collect_said([HumanMessage(text) for text in texts], [])
    assert sum(map(len, said.texts)) <= MAX_TEXT_CHARS
    assert sum(map(len, said.named)) <= MAX_NAMED_CHARS
    assert said.texts[-1] == texts[-1].strip()
    assert "2990 EUR" in said.format()
    pasted = collect_said([HumanMessage("Read this: " + "x1 " * 100_000 + "and tell Jane")], [])
    assert sum(map(len, pasted.texts)) < MAX_TEXT_CHARS
    assert "Read this" in pasted.format()
    assert "tell Jane" in pasted.format()


def test_names_without_digits_go_before_numbers_when_there_is_no_room() -> None:
    before = SaidWords((), (*(f"Name{'x' * 30}" + "abcdefghij"[n % 10] * (n + 1) for n in range(300)), "A-17"))
    said = collect_said([HumanMessage("x", additional_kwargs={"summary": True, SAID_KEY: before.dump()})], [])
    assert "A-17" in said.named


def test_messages_of_this_turn_and_answers_are_not_doubled() -> None:
    now = HumanMessage("Now do A-1")
    assert collect_said([HumanMessage("Before B-2"), AIMessage("C-3"), now], [now]).texts == ("Before B-2",)


async def test_answers_to_questions_are_what_people_said(make: Workshop) -> None:
    """The results of other tools, a question that failed and one without an answer are not."""
    bench = await make()
    [ask] = asks(await bench.run(say(ASKING)))
    await bench.run(say("KD-20417, please", "m2"), answers=(Reply(ask.id, "KD-20417, please", "m2"),))
    assert collect_said(await bench.state(), []).texts[-1] == "KD-20417, please"
    name = ask_clarification.name
    failed = ToolMessage("too long", tool_call_id="2", name=name, status="error")
    expired = ToolMessage(NO_ANSWER, tool_call_id="3", name=name)
    assert collect_said([HumanMessage("Find it"), failed, expired], []).texts == ("Find it",)


@pytest.mark.parametrize("text", SAID)
def test_what_a_message_names(text: str) -> None:
    named = "; ".join(named_values(f"[Mon 2026-11-23 14:05 Europe/Berlin · Jane]\n{text}"))
    assert [value for value in SAID[text] if value not in named] == []
    assert "Mon 2026" not in named


def test_values_in_nested_arguments_and_of_other_alphabets_are_exact() -> None:
    args = {"files": [{"path": "季度报告.xlsx", "owner": {"id": "KD-9917"}}], "limit": 4711}
    message = AIMessage("见Bericht_März.docx。", tool_calls=[{"name": "send", "args": args, "id": "1"}])
    lost = lost_values([message], "", 1000)
    for value in ("季度报告.xlsx", "KD-9917", "4711", "Bericht_März.docx"):
        assert value in lost


@pytest.mark.parametrize(("trigger", "keep", "kept"), [(40_000, 0, 10_000), (40_000, 3000, 3000), (4000, 9000, 2000)])
def test_a_quarter_of_the_trigger_stays(trigger: int, keep: int, kept: int) -> None:
    assert ContextConfig(trigger_tokens=trigger, keep_tokens=keep).kept_tokens == kept
