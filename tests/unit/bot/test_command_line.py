"""The command line: where `--config` may stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forked_services import run_forked


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--config", "nowhere.yaml"],
        ["--config", "nowhere.yaml", "check"],
        ["--config=nowhere.yaml", "check"],
        ["--config", "nowhere.yaml", "ask", "hello", "there"],
    ],
)
async def test_the_configuration_may_be_named_before_the_command(words: list[str], tmp_path: Path) -> None:
    code, _out, errors = await run_forked(words, tmp_path, {}, b"")
    assert code == 2
    assert "nowhere.yaml: cannot be read" in errors


async def test_a_command_line_without_a_command_says_so(tmp_path: Path) -> None:
    for words in (["--config"], ["--config", "nowhere.yaml"], ["--config="]):
        code, _out, errors = await run_forked(words, tmp_path, {}, b"")
        assert code == 2
        assert "usage: fawn" in errors
