"""The .env file keeps what it has, and is closed to others."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from dotenv import dotenv_values

from bot.admin.first_files import set_variables

BEFORE = "# a comment\nOPENAI_API_KEY=sk-1 # mine\nexport TOKEN = old\nOTHER='a b'\n TOKEN=older"


@pytest.mark.parametrize("value", ["123:AA-b_c", "xoxb-1", "with space # and 'quotes' \\ \"too\" $HOME"])
def test_a_line_is_replaced_and_the_rest_stays(tmp_path: Path, value: str) -> None:
    file = tmp_path / ".env"
    file.write_text(BEFORE)
    file.chmod(0o644)
    set_variables(file, {"TOKEN": value, "NEW": value})
    assert dotenv_values(file, interpolate=False) == {
        "OPENAI_API_KEY": "sk-1",
        "TOKEN": value,
        "OTHER": "a b",
        "NEW": value,
    }
    assert file.read_text().startswith("# a comment\nOPENAI_API_KEY=sk-1 # mine\nTOKEN=")
    assert file.read_text().count("TOKEN=") == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_new_file_and_one_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to(tmp_path / "secrets")
    set_variables(tmp_path / ".env", {"A": "1"})
    set_variables(tmp_path / ".env", {"A": "2", "B": "3"})
    assert (tmp_path / ".env").is_symlink()
    assert (tmp_path / "secrets").read_text() == "A=2\nB=3\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", "secrets"]
