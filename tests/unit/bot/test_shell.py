"""Completion and manual page, made from the program's own parser."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bot.cli.help import completion_script, manual_page
from bot.cli.program import command_line_parser
from bot.config.files import file_elsewhere
from tests.support.forked_services import program, run_forked

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
        ("fawn completion ''", {"bash", "zsh", "fish", "man"}),
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


async def test_the_configuration_is_found_elsewhere_and_named(tmp_path: Path) -> None:
    """By $FAWN_CONFIG; else that of the current folder; else that of the home. What only asks leaves no data_dir."""
    home, folder, third = tmp_path / "home/.config/fawn", tmp_path / "here", tmp_path / "third"
    for place, host in ((home, "home"), (folder, "here"), (third, "third")):
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(
            f"config_version: 1\nmodels: [{{name: main, model: m, base_url: 'http://{host}.test/v1'}}]\n"
        )
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {"HOME": f"{tmp_path / 'home'}"}
    for where, more, host, file in (
        (empty, {}, "home", home),
        (folder, {}, "here", None),
        (folder, {"FAWN_CONFIG": f"{third / 'config.yaml'}"}, "third", third),
    ):
        code, said, errors = await run_forked(["egress"], where, {**environment, **more})
        assert (code, f"{host}.test" in said) == (0, True), said + errors
        assert errors == (f"Configuration: {file / 'config.yaml'}\n" if file else "")
    for words in (["check"], ["skills", "list"], ["status"], ["logs"]):
        await run_forked(words, empty, {"HOME": f"{empty}"})
        assert [*empty.iterdir()] == [], words


def test_a_home_that_is_none_or_may_not_be_read_has_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # nobody's: a container runs with any id
    monkeypatch.delenv("HOME", raising=False)
    assert file_elsewhere({}) is None
    assert file_elsewhere({"XDG_CONFIG_HOME": f"/{'x' * 5000}"}) is None  # as one that may not be read: an OSError
