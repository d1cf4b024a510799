"""Bad configurations and what is said about each: `bad_configurations.txt`, which this module reads and writes.

An entry is a configuration without its version, and behind it the faults, each after `!! `. Lines before it prepare:
`@env NAME=VALUE` sets a variable, `@file NAME TEXT` and `@folder NAME` make what stands beside the configuration.
`python -m tests.support.bad_configurations` writes the faults as they are now: read the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.settings.models import AgentConfigError
from bot.config.loader import ConfigError, load_config
from bot.config.schema import Config
from bot.service.agent_builder import try_agent

TABLE = Path(__file__).with_suffix(".txt")
GOOD = TABLE.with_name("good_configurations.txt")
SEPARATOR, FAULT = "----\n", "!! "


@dataclass(frozen=True, slots=True)
class BadConfiguration:
    """One entry of the table."""

    text: str
    faults: Sequence[str]
    environment: Sequence[tuple[str, str]] = ()
    files: Sequence[tuple[str, str | None]] = ()  # name and text; None: a folder

    def write(self, folder: Path) -> Path:
        """Write the configuration and what stands beside it into a folder; return its file."""
        for name, text in self.files:
            if text is None:
                (folder / name).mkdir(parents=True)
            else:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text.replace("\\n", "\n") + "\n", "utf-8")
        file = folder / "config.yaml"
        file.write_text(f"config_version: 1\n{self.text}\n", "utf-8")
        return file

    def render(self) -> str:
        """Return the entry as it stands in the table."""
        lines = [f"@env {name}={value}" for name, value in self.environment]
        lines += [f"@folder {name}" if text is None else f"@file {name} {text}" for name, text in self.files]
        return "\n".join([*lines, self.text, *(f"{FAULT}{fault}" for fault in self.faults)]) + "\n"


def read_table() -> list[BadConfiguration]:
    """Return all entries."""
    return [_parse(entry) for entry in TABLE.read_text("utf-8").split(SEPARATOR)]


def _parse(entry: str) -> BadConfiguration:
    environment, files, text, faults = [], [], [], []
    for line in entry.removesuffix("\n").split("\n"):
        word, _blank, rest = line.partition(" ")
        name, _blank, content = rest.partition(" ")
        if word == "@env":
            environment.append((rest.partition("=")[0], rest.partition("=")[2]))
        elif word in ("@file", "@folder"):
            files.append((name, content if word == "@file" else None))
        elif line.startswith(FAULT):
            faults.append(line.removeprefix(FAULT))
        else:
            text.append(line)
    return BadConfiguration("\n".join(text), faults, environment, files)


def as_written(faults: Sequence[object], folder: Path) -> list[str]:
    """Return faults as the table has them: without the folder of the configuration."""
    return [str(fault).replace(f"{folder}/", "") for fault in faults]


async def find_faults(entry: BadConfiguration) -> list[str]:
    """Return what is said about a configuration, first when it is read, else when its agent is built."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = [*sys.path]
        try:
            config: Config = load_config(entry.write(folder), dict(entry.environment))
            await try_agent(config, runs_commands=False)
        except ConfigError as error:
            return as_written(error.faults, folder)
        except AgentConfigError as error:
            return as_written(config.faults_of(error), folder)
        finally:
            sys.path[:] = path
        return []


def name_of(entry: BadConfiguration | str) -> str:
    """Return a short name of an entry, for the list of tests."""
    return entry if isinstance(entry, str) else re.sub(r"\s+", " ", entry.text)[:70]


if __name__ == "__main__":
    found = [replace(each, faults=asyncio.run(find_faults(each))) for each in read_table()]
    TABLE.write_text(SEPARATOR.join(each.render() for each in found), "utf-8")
    print(*(each.text for each in found if not each.faults), sep="\n")
