"""Names as people write them."""

from __future__ import annotations

import pytest

from agent.near_misses import split_name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("main", ("main", [])),
        ("Main high", ("main", ["high"])),
        ("big model", ("Big Model", [])),
        ("BIG model max", ("Big Model", ["max"])),
        ("big", ("big", [])),
        ("mian high", ("mian", ["high"])),
    ],
)
def test_a_name_is_found_in_any_case_with_the_words_behind_it(words: str, expected: tuple[str, list[str]]) -> None:
    assert split_name(words.split(), ("main", "Big Model")) == expected
