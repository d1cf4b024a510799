"""Every regular expression of the code runs in linear time on the worst text that its own parts make."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from agent.memory.extraction import MAX_FACT_CHARS, is_unfit
from agent.policies.kept_words import lost_values
from agent.policies.outcomes import loggable_arguments
from agent.policies.tool_calls import failure_mark
from tests.support.growth import grows_in_proportion
from tests.support.patterns import FoundPattern, find_patterns, slowness

ACCEPTED = {  # the place of a pattern that is slow, or made at run time, and what bounds it
    "agent/policies/kept_words.py:_VALUE": "reads words of at most 300 characters, in a thread",
    "agent/policies/tool_calls.py:_DETAIL": "reads the last 200 characters, tested below",
    "agent/policies/outcomes.py:_SECRETS": "reads the first 400 characters, tested below",
    "agent/permissions/patterns.py:compile_pattern": "`*` and texts of the operator's rules; reads at most 8 KB",
    "bot/config/excerpt.py:_GAP": "reads one line of the configuration",
    "bot/cli/parser.py:_pattern": "made of our own sentences, reads the command line of the operator",
    "bot/config/texts.py:_check_entries": "names of variables and headers, fixed by the code; reads the configuration",
    "bot/config/texts.py:_check_shape": "shapes of settings, fixed by the code; reads the configuration",
    "bot/base/log.py:hide": "secrets, escaped: alternatives without repetition",
    "channels/shared/ids.py:is_person": "forms of ids, fixed by the channels; reads one word",
    "channels/shared/ids.py:is_place": "forms of ids, fixed by the channels; reads one word",
    "channels/discord/events.py:_text_without_mention": "ids, without repetition",
    "sandbox/docker/proxy_rules.py:_ROUTES": "one name; reads a path whose length h11 bounds",
    "sandbox/docker/proxy_rules.py:_is_text": "forms fixed by the code; reads a setting of a bounded body",
    "sandbox/inside/search.py:find_lines": "the model's own; runs in the sandbox, within its time limit",
    "sandbox/inside/search.py:translate_glob": "the model's own; runs in the sandbox, within its time limit",
}


@pytest.mark.parametrize("package", ["agent", "bot", "channels", "sandbox"])
def test_no_pattern_grows_faster_than_its_text(package: str) -> None:
    found = [*find_patterns(package)]
    assert len(found) >= 20
    slow = {each.place: grown for each in found if each.place not in ACCEPTED and (grown := slowness(each))}
    assert not slow, "\n".join(f"{place}: {grown}" for place, grown in slow.items())
    named = {place for place in ACCEPTED if place.startswith(f"{package}/")}
    assert named <= {each.place for each in found}, "remove what no longer exists"


@pytest.mark.parametrize(
    ("text", "method"),
    [
        (r"^(?:\\?[\w.+/-]+|'[^']*')+$", "match"),
        (r"<(?=\s*/?\s*tag)", "sub"),
        (r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", "match"),
        (r"(?i)token\w*\s*[=:]", "sub"),
        (r"\[([^\]\n]*)\]\(", "findall"),
        (r"^[ >]*(?:[-*+] +)*(?:[-*_=][ \t]*){3,}$", "search"),
        (r"[^\s,(]+(?:\([^)]*\))?", "findall"),
    ],
)
def test_a_slow_pattern_is_found(text: str, method: str) -> None:
    assert slowness(FoundPattern("here", text, 16, frozenset({method})))


@pytest.mark.parametrize("text", [r"\w+", r"(?:a|b)*+c", r"#{1,6} .*$", r"[a-z]++\d", r"\[[^\[\]]*\]"])
def test_a_linear_pattern_is_not_accused(text: str) -> None:
    assert not slowness(FoundPattern("here", text, 0, frozenset({"match"})))


@pytest.mark.parametrize("pump", ["token", "password is ", "a1", "A", "a.", "_", "./", "[stopped after ", "-"])
def test_what_bounds_the_accepted_patterns_holds(pump: str) -> None:
    def read(size: int) -> None:
        text = pump * (size // len(pump))
        loggable_arguments({"content": text, "more": [text]})
        failure_mark(ToolMessage(text, tool_call_id="1", status="error"))
        assert is_unfit(text)
        is_unfit(text[:MAX_FACT_CHARS])
        lost_values([HumanMessage(text)], "a summary", 1_000)

    assert grows_in_proportion(read, 50_000)
