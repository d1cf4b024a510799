"""The command line: where `--config` may stand."""

from __future__ import annotations

import pytest

from bot.__main__ import main


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--config", "nowhere.yaml"],
        ["--config", "nowhere.yaml", "check"],
        ["--config=nowhere.yaml", "check"],
        ["--config", "nowhere.yaml", "ask", "hello", "there"],
    ],
)
def test_the_configuration_may_be_named_before_the_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().err


def test_a_command_line_without_a_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--config"], ["--config", "nowhere.yaml"], ["--config="]):
        with pytest.raises(SystemExit):
            main(words)
        assert "usage: fawn" in capsys.readouterr().err
