"""Completion and manual page, made from the program's own parser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bot.cli.completion import completion_script, manual_page
from bot.cli.program import command_line_parser
from tests.support.forked_services import program

ROOT = Path(__file__).parents[3]
COMPLETE = """
{script}
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMP_LINE="{words}" COMP_POINT=${{#COMP_LINE}}
_shtab_fawn 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("fawn st", {"status"}),
        ("fawn pair l", {"list"}),
        ("fawn export --for", {"--format"}),
        ("fawn completion ''", {"bash", "zsh", "man"}),
    ],
)
def test_bash_completes_commands_and_options(words: str, found: set[str]) -> None:
    program = COMPLETE.format(script=completion_script(command_line_parser(), "bash"), words=words)
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} == found


def test_every_shell_completes_files() -> None:
    assert "_shtab_fawn_run___config_COMPGEN=_shtab_compgen_files" in completion_script(command_line_parser(), "bash")
    assert "_files" in completion_script(command_line_parser(), "zsh")


def test_the_manual_page_describes_every_command_and_option() -> None:
    words = [*program(), "completion", "man"]  # the program sets the umask of its process
    page = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert page == manual_page(command_line_parser())
    for line in (".SS fawn backup FILE", ".SS fawn sandbox (build)", ".B \\-\\-config FILE", ".SH EXIT STATUS"):
        assert line in page.splitlines()
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", "-"], input=page, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "fawn export THREAD" in done.stdout
