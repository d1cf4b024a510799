"""The docs match the code: settings, commands, tools, make targets, links, and samples."""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import shlex
from pathlib import Path

import pytest

from agent.core.context import ToolServices
from agent.settings.sections import AgentSettings
from agent.turn.tool_list import make_tools
from agent.web.fetcher import WebFetcher
from bot.base.version import VERSION
from bot.cli.program import command_line_parser
from bot.config.loader import channel_modules, environment_names, load_config
from bot.config.reference import settings_page, settings_table
from bot.main.features import gather_commands
from tests.support.current_config import current_of
from tests.support.decision_index import INDEX, decision_index
from tests.support.extension_api import FILE, find_breaks, public_names, render_api

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOT_OURS = {
    "quit",
    "steps",
    "fawn",
    "invite",
    "newbot",
    "setprivacy",
    "mybots",
    "revoke",
    "bot",
    "usr",
    "etc",
    "tmp",
    "mnt",
    "proc",
}  # BotFather's, and paths
MODEL_VARIABLES = {"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"}
ENVIRONMENT = MODEL_VARIABLES.union(*(environment_names(module).values() for module in channel_modules().values()))


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@functools.cache
def programs() -> dict[str, argparse.ArgumentParser]:
    """Return the program's commands by name."""
    for action in command_line_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("the program has no commands")


def test_the_settings_page_is_generated_from_the_code() -> None:
    assert text("docs/configuration.md") == settings_page(), "run `make docs`"


def test_the_index_of_the_decisions_is_generated_from_the_pages() -> None:
    assert INDEX.read_text("utf-8") == decision_index(), "run `make docs`"


def test_the_extension_api_is_written_down_and_breaks_no_code_of_its_version() -> None:
    before, after = FILE.read_text("utf-8"), render_api()
    if before.split("\n", 1)[0] == after.split("\n", 1)[0]:
        assert find_breaks(before, after) == [], "keep what was, or raise EXTENSION_API: docs/extend.md"
    assert before == after, "run `make docs`"


@pytest.mark.parametrize(
    ("before", "after", "breaks"),
    [
        ("a.C\na.C(x): int", "a.C\na.C(x): int\na.C(y): int = …\na.C.m()\na.D\na.D(z): int", []),
        ("a.C\na.C(x): int = …", "a.C\na.C(x): int", ["a.C(x) is required now"]),
        ("a.C\na.C(x): int", "a.C\na.C(x): int\na.C(y): int", ["a.C(y) is new and required"]),
        ("a.f()\na.f(x): int", "a.f()", ["a.f(x) is gone"]),
        ("a.P: implemented", "a.P: implemented\na.P.m()", ["a.P.m() is new, and code of others lacks it"]),
        (
            "a.P: implemented\na.P.m()",
            "a.P: implemented\na.P.m()\na.P.m(x): int = …",
            ["a.P.m(x) is new, and code of others lacks it"],
        ),
    ],
)
def test_a_break_of_the_extension_api_is_named(before: str, after: str, breaks: list[str]) -> None:
    assert find_breaks(f"api: 1\n{before}", f"api: 1\n{after}") == breaks


def test_the_examples_of_own_code_use_only_the_extension_api() -> None:
    names = public_names()
    used = re.findall(
        r"^from ((?:agent|bot|channels|contracts|sandbox)[\w.]*) import (.+)$", text("docs/extend.md"), re.M
    )
    assert used
    assert [
        (module, name) for module, found in used for name in found.split(", ") if name not in names.get(module, ())
    ] == []


def test_every_setting_has_a_help_text() -> None:
    assert [row.name for row in settings_table() if not row.help] == []


def test_the_readme_lists_every_chat_command_and_no_page_an_unknown_one() -> None:
    pages = [each for each in PAGES if each.name != "CONTRIBUTING.md"]  # its feature is an example
    named = {name for page_ in pages for name in re.findall(r"`[/!]([a-z]+)[` ]", page_.read_text("utf-8"))}
    assert named - NOT_OURS <= gather_commands(current_of()).known.keys()
    readme = set(re.findall(r"`/([a-z]+)[` ]", text("README.md")))
    assert readme >= {command.name for command in gather_commands(current_of()).ranked()}


def test_the_docs_list_every_program_command_and_no_unknown_one() -> None:
    known = programs()
    for page_ in PAGES:
        for command, action in re.findall(
            r"(?<![/@\w-])(?<!from )fawn ([a-z]+)(?: ([a-z]+))?", page_.read_text("utf-8")
        ):
            if command in known:
                actions = next((a.choices for a in known[command]._actions if a.dest == "action" and a.choices), None)
                assert not (actions and action) or action in [*actions], f"{page_.name}: fawn {command} {action}"
            else:
                pytest.fail(f"{page_.name}: there is no `fawn {command}`")
    operations = text("docs/operations.md")
    assert [name for name in known if f"`fawn {name}" not in operations] == []


BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"(?:[A-Z_]+=\S+ )*(?:sudo )?(?:\.venv/bin/)?fawn ([a-z]+)\b(.*)")
MENTION = ("are required", "expected one argument")  # of a command or an option that is only named


@pytest.mark.parametrize("page_", PAGES, ids=lambda each: each.name)
def test_the_program_understands_every_example(page_: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, known = page_.read_text("utf-8"), programs()
    blocks = [line for block in BLOCK.findall(content) for line in block.splitlines()]
    for line in [*blocks, *re.findall(r"`([^`\n]+)`", BLOCK.sub("", content))]:
        found = EXAMPLE.fullmatch(line.strip().removeprefix("$ "))
        if found is None:
            continue
        words = re.split(r"\s(?:#|\||&&|[0-9]?>|<|;)|…|\[", found[2].replace('"…"', "TEXT"))[0]
        with contextlib.suppress(SystemExit):
            known[found[1]].parse_args(shlex.split(words))
        error = capsys.readouterr().err
        assert not error or (line not in blocks and any(each in error for each in MENTION)), f"{line}: {error}"


def test_the_architecture_lists_exactly_the_tools() -> None:
    section = text("ARCHITECTURE.md").partition("## The agent's tools")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    tools = {
        tool.name
        for tool in make_tools(
            AgentSettings(),
            ToolServices(runs_commands=True, remembers=True, fetcher=WebFetcher(), schedules=True, background=True),
        )
    }
    assert rows == tools, f"the table in ARCHITECTURE.md: add {tools - rows}, remove {rows - tools}"


def test_the_image_is_labelled_with_the_version() -> None:
    assert f"org.opencontainers.image.version={VERSION} " in text("Dockerfile")


def test_the_readme_is_short_and_starts_with_a_command() -> None:
    readme = text("README.md")
    assert 100 <= len(readme.splitlines()) <= 170
    assert len(re.sub(r"```.*?```", "", readme, flags=re.DOTALL).split()) <= 1300
    assert "make run" in "\n".join(readme.splitlines()[:40])


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    section = text("README.md").partition("## Why Fawn\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("- ")]
    assert len(lines) == 5
    measured = text("docs/benchmarks.md")
    for line in lines:
        [command] = re.findall(r"\(`(python -m bench \w+)(?: --full)?`\)", line)
        figures = re.findall(r"[\d.,]+ (?:messages|lost|doubled|ms|MB)|\d+ of \d+ exact|of \d+ and \d+", line)
        assert command in measured
        assert figures
        assert [figure for figure in figures if figure not in measured] == [], line


def test_the_pictures_of_the_readme_are_there_and_not_large() -> None:
    readme = text("README.md")
    pictures = {*re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme), *re.findall(r'<img src="([^"]+)"', readme)}
    assert {ROOT / name for name in pictures} <= {*(ROOT / "docs/pictures").iterdir()}
    assert all((ROOT / name).stat().st_size <= 300_000 for name in pictures)
    assert "docs/pictures/console.svg" in readme.partition("\n## ")[0], "the README opens with the recording"


@pytest.mark.parametrize("page_", PAGES, ids=lambda path: path.name)
def test_links_point_to_existing_files(page_: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page_.read_text("utf-8")):
        if "://" not in target:
            assert (page_.parent / target).exists(), f"{page_.name} links to {target}"


def test_modules_that_pages_name_exist() -> None:
    """A name with a folder is a path of the tree, or the end of one; NAME stands for any."""
    folders = ("fawn", "bot", "channels", "agent", "sandbox", "catalogue", "tests", "bench", "skills", "contracts")
    tree = {f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")}
    elsewhere = {"sentry_apps/api/serializers/app_platform_event.py", "bot/dice/feature.py"}  # Sentry's; the example's
    pages = [page_ for page_ in PAGES if "decisions" not in page_.parts and page_.name != "CHANGELOG.md"]
    named = {
        (page_.name, name) for page_ in pages for name in re.findall(r"`([\w/.-]+\.py)`", page_.read_text("utf-8"))
    }
    wrong = [
        (page_, name)
        for page_, name in sorted(named)
        if "NAME" not in name and name not in elsewhere and not any(path.endswith(f"/{name}") for path in tree)
    ]
    assert wrong == []


def test_make_targets_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    named = {
        target for page_ in PAGES for target in re.findall(r"(?:`|^)make ([a-z]+)", page_.read_text("utf-8"), re.M)
    }
    assert named <= targets
    assert {"run", "setup", "check", "test", "bench"} <= named


def test_the_sample_environment_lists_exactly_the_variables_that_are_read() -> None:
    names = set(re.findall(r"^([A-Z_]+)=", text(".env.example"), re.MULTILINE))
    assert names == ENVIRONMENT, f".env.example: add {ENVIRONMENT - names}, remove {names - ENVIRONMENT}"
    assert [name for name in names if name not in text("docs/configuration.md")] == [], "run `make docs`"


def test_the_sample_config_works_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(ROOT / "config.yaml", {})
    assert config.models == ()
    assert config.channels == ()


SHAPED = {
    "SLACK_BOT_TOKEN": "xoxb-x",
    "SLACK_APP_TOKEN": "xapp-x",
    "DISCORD_BOT_TOKEN": "MTIzNDU2.Gabcde.made-up-value",
    "FEISHU_APP_ID": "cli_1",
    "WECHAT_PERSON": "jane@im.wechat",
    "WHATSAPP_RELAY_KEY": "made-up-value-of-32-characters-or-more",
}


def test_the_sample_config_works_with_every_line_uncommented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    setting = re.compile(r"# (?=(?: *(?:- )?[a-z_]+:(?: |$)))")
    lines = [
        setting.sub("", line, count=1) if line.startswith("# ") else line for line in text("config.yaml").splitlines()
    ]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    values = {name: "1234567:made-up-value" for name in ENVIRONMENT if name != "OPENAI_BASE_URL"}
    config = load_config(None, values | SHAPED)
    assert [model.name for model in config.models] == ["main", "local"]
    platforms = channel_modules().keys() - {"console"}
    samples = {channel.name for channel in config.channels}
    assert samples == platforms, f"config.yaml: add a commented section for {platforms - samples}"
    assert config.channels[0].access.operators == ("22222222",)
    assert config.roles.summary == "local"
    assert config.time_zone == "Europe/Berlin"


def test_the_proof_of_threads_names_tests_that_exist() -> None:
    """A cell names tests, or says after a dash why there can be none. No cell is empty."""
    proof = text("docs/threads.md").partition("## Proof")[2]
    table, listed = proof.partition("\n- [")[::2]
    named = dict(re.findall(r"(?m)^- \[(\w+)\] (`test_.+`)$", f"- [{listed}"))
    rows = re.findall(r"(?m)^\|(.+)\|$", table)[2:]
    cells = [cell.strip() for row in rows for cell in row.split("|")[1:]]
    assert {mark for cell in cells for mark in re.findall(r"\[(\w+)\]", cell)} == {*named}, "each mark has its tests"
    written = "".join(path.read_text() for path in (ROOT / "tests/e2e").glob("test_*.py"))
    for name in re.findall(r"test_\w+", " ".join(named.values())):
        assert f"def {name}(" in written, name
    for cell in cells:
        assert re.fullmatch(r"– .+|(?:\[\w+\](?:, )?)+", cell), f"{cell!r} names no test"


def test_the_first_test_of_the_guide_is_one_of_ours() -> None:
    block = text("CONTRIBUTING.md").partition("## Your first test")[2].partition("```python\n")[2].partition("```")[0]
    assert block.startswith("async def test_")
    assert block in text("tests/e2e/test_files.py")
