"""A `.env` with a line that is no variable: it is named, not dropped without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.config.loader import load_config


def test_a_line_that_is_no_variable_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text('GOOD=1\n\n# a note\nOPENAI_API_KEY="sk-abc\nOTHER=2\nexport MORE=3\n')
    hints = " ".join(load_config(None, {}).hints)
    assert ".env has no NAME=value in line 4, where a quote may be open" in hints
    Path(".env").write_text("GOOD=1\n\n# a note\nexport MORE='3'\nEMPTY=\nBARE\n")
    assert "NAME=value" not in " ".join(load_config(None, {}).hints)
    Path(".env").write_text("=x\n" * 100)
    assert sum("NAME=value" in hint for hint in load_config(None, {}).hints) == 5
