"""Titles of conversations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.spending import Meter
from agent.turn.title import TitleMaker, first_words
from tests.fakes.model import Answer, FakeModel
from tests.unit.agent.conftest import Workshop


@given(st.text())
def test_a_title_is_one_short_line(text: str) -> None:
    title = first_words(text)
    assert 0 < len(title) <= 60
    assert "\n" not in title


def test_a_title_does_not_cut_words() -> None:
    assert first_words("  **Fix** the\n`build`, please ") == "Fix the build , please"
    assert first_words("# Deploy #s=deploy > log_1 | tail") == "Deploy #s=deploy > log_1 | tail"
    long = "please look at the quarterly report and tell me what changed since the last one"
    assert first_words(long) == "please look at the quarterly report and tell me what…"
    assert len(first_words("谢" * 200)) == 60
    assert first_words(" \n ") == "Conversation"


async def test_a_model_title_is_cleaned(make: Workshop, model: FakeModel) -> None:
    bench = await make(title="main")
    model.script = lambda body: Answer('**"Report of\n the quarter."**')
    assert await bench.agent.make_title("tell me about the report", Meter()) == "Report of the quarter"


async def test_without_a_model_answer_the_first_words_are_the_title(make: Workshop, model: FakeModel) -> None:
    bench = await make(title="main")
    for answer in (Answer(status=500), Answer("  ")):
        model.script = lambda body, answer=answer: answer
        assert await bench.agent.make_title("tell me about the report", Meter()) == "tell me about the report"
    model.script = lambda body: Answer("late", delay=5)
    slow = TitleMaker(bench.agent._titles._model, seconds=0.05)
    assert await slow.make_title("tell me", Meter()) == "tell me"
    asked = len(model.requests())
    assert await TitleMaker().make_title("tell me", Meter()) == "tell me"
    assert len(model.requests()) == asked
