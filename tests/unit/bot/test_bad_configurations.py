"""Bad configurations are refused with their place, the reason and a fix, alike by `check`, `run` and `reload`.

All of them are in tests/support/bad_configurations.txt, and odd ones that are right in good_configurations.txt.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.settings.models import AgentConfigError
from bot.__main__ import main
from bot.admin.doctor import run_checks
from bot.base.exit_codes import CONFIG
from bot.base.skill_library import open_library
from bot.base.tool_names import check_tool_names
from bot.config.loader import ConfigError, load_config
from bot.config.schema import Config
from bot.config.source import ConfigSource
from bot.database.database import Database
from bot.fleet.reload import ConfigReloader
from bot.main.features import gather_checks
from bot.rights.current import Current
from bot.service.agent_builder import AgentBuilder
from tests.support.bad_configurations import GOOD, SEPARATOR, BadConfiguration, as_written, name_of, read_table
from tests.support.forked_services import program

ROOT = Path(__file__).parents[3]
ENTRIES = read_table()
COMMANDS = itertools.cycle(("check", "run", "ask"))  # the same function reads the configuration for all
USABLE = GOOD.read_text("utf-8").split(SEPARATOR)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no variable of this machine configure anything, and forget code beside a configuration."""
    for name in [name for name in os.environ if name.endswith(("_KEY", "_TOKEN", "_URL", "_ID", "_SECRET"))]:
        monkeypatch.delenv(name)
    path = [*sys.path]
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def written(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(f"config_version: 1\n{text}\n")
    return file


def test_the_table_holds_each_configuration_once() -> None:
    keys = [(each.text, each.environment, each.files) for each in ENTRIES]
    assert len(keys) > 350
    assert [key for key in keys if keys.count(key) > 1] == []


@pytest.mark.parametrize(("entry", "command"), [*zip(ENTRIES, COMMANDS, strict=False)], ids=name_of)
def test_a_bad_configuration_is_refused_alike_by_check_run_and_reload(
    entry: BadConfiguration,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in entry.environment:
        monkeypatch.setenv(name, value)
    file = entry.write(tmp_path)
    assert entry.faults
    assert all(" → " in fault for fault in entry.faults)
    try:
        load_config(file)
    except ConfigError:
        assert main([command, "--config", str(file)]) == CONFIG
        printed = capsys.readouterr().err.replace(f"{tmp_path}/", "")
        assert [line for line in printed.splitlines() if " → " in line] == entry.faults
        return
    asyncio.run(_refuse_what_is_built(entry, file))


async def _refuse_what_is_built(entry: BadConfiguration, file: Path) -> None:
    config = load_config(file)
    folder = file.parent
    found = [
        each for each in await run_checks(config, gather_checks) if each.text.startswith(f"{file}:")
    ]  # no model answers here
    heads = [each.text.splitlines()[0].partition(" → ")[0] for each in found]  # before the excerpt
    said = [f"{head} → {each.fix}" for head, each in zip(heads, found, strict=True)]
    assert as_written(said, folder) == entry.faults
    async with Database(folder / "fawn.db") as store:
        with pytest.raises(AgentConfigError) as refused:  # `run` begins with what `reload` does
            await _begin(store, config, file)
        assert as_written(config.faults_of(refused.value), folder) == entry.faults
        running = await _begin(store, Config(data_dir=folder / "data"), file)
        outcome = await running.reload_for_command_line()
    assert [as_written([fault], folder)[0].split("\n")[0] for fault in outcome["faults"]] == entry.faults


async def _begin(store: Database, config: Config, file: Path) -> ConfigReloader:
    reloader = ConfigReloader(
        store, Current(config), ConfigSource(file, None), print, gather_checks, lambda _name, _connect: None
    )
    await reloader.begin(AgentBuilder(store, open_library(config), None, runs_commands=False))
    return reloader


@pytest.mark.parametrize("text", USABLE)
def test_what_can_be_meant_is_accepted(tmp_path: Path, text: str) -> None:
    check_tool_names(load_config(written(tmp_path, text), {"KEY": "a b"}))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["permissions: {deny: ['shell(rm *)']}", "sandbox: {use: 'nowhere_x:Room'}"])
def test_the_program_itself_ends_with_the_code_of_a_faulty_configuration(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    for command in ("check", "run"):
        done = subprocess.run(
            [*program(), command],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            input="hello\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == CONFIG, (command, done.stdout, done.stderr)
