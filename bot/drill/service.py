"""Make the configuration of a drill; start, kill and ask its service, a process of its own."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO, Any

import yaml

from agent.settings.models import ModelSettings
from bot.config.loader import ConfigError, load_config, read_plain_sections
from bot.config.schema import Config
from bot.drill.servers import TOKEN, DrillTelegram
from channels.telegram import TelegramSettings
from sandbox.processes import start_process

KEPT = (  # sections that decide what happens to messages, and can reach nothing outside
    *("team", "permissions", "limits", "uploads", "catch_up", "context", "keep_days", "schedules", "tasks"),
    *("time_zone", "language", "subagents", "goal"),
)
OF_THE_DRILL = frozenset(
    {"data_dir", "database", "models", "roles", "channels", "sandbox", "memory", "audit", "log", "drill"}
)
KEPT_OF_MODELS = ("name", "display_name", "connect_seconds", "read_seconds", "retries", "context_tokens", "vision")
KEPT_OF_TELEGRAM = ("per_chat", "burst", "per_group", "overall", "drafts")
MOST_POLL_SECONDS = 5.0  # else a deaf channel alone would take half a minute
FIRST_PERSON, PEOPLE = 1001, 200


def people() -> list[int]:
    """Return the people of a drill: each writes one message, so that no limit of a person is met."""
    return [*range(FIRST_PERSON, FIRST_PERSON + PEOPLE)]


def write_scratch(config: Config, folder: Path, data_dir: Path, address: str) -> list[str]:
    """Write `folder`/config.yaml; return the names of the sections that are not used.

    `address` is that of the drill's servers. Raises ConfigError where even a plain configuration has a fault.
    """
    own, written = read_plain_sections(config.file, KEPT) if config.file else ({}, frozenset())
    file = folder / "config.yaml"
    while True:
        sections = {**own, **_own_sections(config, data_dir, address)}
        file.write_text(yaml.safe_dump({"config_version": 1, **sections}, sort_keys=False))
        try:
            load_config(file, environ={})
        except ConfigError as error:
            bad = {name for fault in error.faults for name in own if fault.place.startswith(name)}
            if not bad:
                raise
            own = {name: value for name, value in own.items() if name not in bad}
        else:
            return sorted(written - own.keys() - OF_THE_DRILL)


def leave_out(folder: Path, name: str) -> bool:
    """Remove a section from a configuration that was written. Return whether it had one."""
    file = folder / "config.yaml"
    sections: dict[str, Any] = yaml.safe_load(file.read_text())
    found = sections.pop(name, None)
    file.write_text(yaml.safe_dump(sections, sort_keys=False))
    return found is not None


def _own_sections(config: Config, data_dir: Path, address: str) -> dict[str, Any]:
    telegram = next((each.settings for each in config.channels if isinstance(each.settings, TelegramSettings)), None)
    paced = {name: getattr(telegram, name) for name in KEPT_OF_TELEGRAM} if telegram else {}
    waits = min(MOST_POLL_SECONDS, telegram.poll_seconds if telegram else MOST_POLL_SECONDS)
    channel = {
        "token": TOKEN,
        "base_url": address,
        "poll_seconds": waits,
        "access": {"open": True, "operators": [*map(str, people())]},
        **paced,
    }
    return {
        "data_dir": str(data_dir),
        "models": [_model(each, address) for each in config.models or (ModelSettings("main"),)],
        "roles": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in ((field.name, getattr(config.roles, field.name)) for field in fields(config.roles))
        },
        "sandbox": {"provider": "none"},
        "memory": {"enabled": False},
        "audit": {"days": config.audit.days},
        "log": {"level": "info"},
        "channels": {"telegram": channel},
    }


def _model(settings: ModelSettings, address: str) -> Mapping[str, Any]:
    kept = {name: getattr(settings, name) for name in KEPT_OF_MODELS if getattr(settings, name) is not None}
    return kept | {"model": "drill", "base_url": f"{address}/v1"}


START_SECONDS = 120.0  # on a machine that has much else to do
COMMAND_SECONDS = 120.0
LAST_WORDS = 400  # characters of the log, of a service that ended by itself


class NotStarted(Exception):
    """The service does not start; the text has its last words."""


class DrillService:
    """The service. `ended` has the last words of those that ended by themselves."""

    def __init__(self, folder: Path, telegram: DrillTelegram, program: Sequence[str]) -> None:
        self.ended: list[str] = []
        self._folder = folder
        self._telegram = telegram
        self._program = program
        self._process: Process | None = None
        self._log: IO[bytes] = (folder / "log").open("ab")

    async def spawn(self) -> Process:
        """Start it, and wait for nothing."""
        self._process = await self._run(self._log, "run")
        return self._process

    async def start(self) -> None:
        """Start it, and wait until it listens. Raises NotStarted."""
        polls, process = self._telegram.polls, await self.spawn()
        listens = asyncio.ensure_future(self._telegram.until(lambda: self._telegram.polls > polls))
        ends = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({listens, ends}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not listens.done():
                raise NotStarted(self.last_words())
        finally:
            listens.cancel()
            ends.cancel()

    async def kill(self) -> None:
        """kill -9. A service that has ended by itself is noted."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is not None:
            self.ended.append(f"exit {process.returncode}: {self.last_words()}")
            return
        process.kill()
        await process.wait()

    def forget_ends(self) -> None:
        """Forget a service that has ended by itself: its start is tried in another way."""
        self._process = None

    async def command(self, *words: str) -> str:
        """Run a command of Fawn to its end; return what it printed. Raises NotStarted where it fails."""
        process = await self._run(PIPE, *words)
        async with asyncio.timeout(COMMAND_SECONDS):
            said, _ = await process.communicate()
        if process.returncode:
            raise NotStarted(said.decode("utf-8", "replace")[-LAST_WORDS:])
        return said.decode("utf-8", "replace")

    def last_words(self) -> str:
        """Return the end of the log."""
        self._log.flush()
        text = (self._folder / "log").read_text(errors="replace")
        return " ".join(text[-LAST_WORDS:].split())

    async def _run(self, output: object, *words: str) -> Process:
        return await start_process(
            *(*self._program, *words, "--config", "config.yaml"),
            stdin=DEVNULL, stdout=output, stderr=STDOUT, cwd=self._folder, env=_environment(),
        )  # fmt: skip


def _environment() -> dict[str, str]:
    """Return what a service of a drill gets: none of the operator's variables, which may hold accounts."""
    return {
        "PATH": os.defpath, "LANG": "C.UTF-8", "HOME": "/nonexistent", "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip
