"""Run the real service as a process against the fake platforms: start, kill, shut down."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from agent.messages import Thread
from bot.base.data_dir import conversation_folder
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.forked_services import ROOT, Running, execute, fork, run_forked
from tests.support.postgres import ENGINE, database_of
from tests.support.rehearsed_database import PAYLOAD_TEXT, change_rows, stored_rows

UNPACED = {"per_chat": 100.0, "burst": 100, "per_group": 6000.0, "overall": 1000.0}  # the fake has no limits
PACED = {"per_chat": 1.0, "burst": 2, "per_group": 20.0, "overall": 30.0}  # the defaults, for tests about live replies


class Service:
    """`fawn run` in its own folder, with one Telegram channel. `settings` are merged into the configuration by
    section. `forked` starts it from the fork server, which saves loading it.

    `async with Service(…)` starts it; its end kills it and looks at its log. The fixture `start` does both.

    A chat is not paced, because most tests would only wait for it; `PACED` are the defaults. There is no sandbox unless
    `settings` has that section, also an empty one: then it is bubblewrap, if installed.
    """

    forked = True
    sandboxed = False
    payload_text = PAYLOAD_TEXT  # the text of an event in the inbox, for `rows`

    def __init__(self, folder: Path, telegram: FakeTelegram, model: FakeModel, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.telegram = telegram
        self.model = model
        self.more_environment: Mapping[str, str] = {}
        self.process: Running | None = None
        self.configure(settings)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write config.yaml for the next start."""
        self.sandboxed |= "sandbox" in settings
        config: dict[str, Any] = {
            "config_version": 1,
            "data_dir": str(self.data),
            "models": [
                {
                    "name": "main",
                    "use": "langchain_openai:ChatOpenAI",
                    "model": "any",
                    "base_url": f"{self.model.base_url}/v1",
                    "api_key": "$OPENAI_API_KEY",
                }
            ],
            "sandbox": {"image": "not-there"} if self.sandboxed else {"provider": "none"},
            "memory": {"enabled": False},  # its extraction would be further model calls
            "limits": {"flood_messages": 1000},  # people of tests write as fast as the service answers
            "channels": self.channels(),
        }
        for section, values in settings.items():
            if isinstance(values, dict):
                merged = config.setdefault(section, {})
                for key, value in values.items():
                    merged[key] = {**merged[key], **value} if isinstance(merged.get(key), dict) else value
            else:
                assert not isinstance(config.get(section), dict), (
                    f"name the keys of {section!r}, or it is replaced whole"
                )
                config[section] = values
        for chat in re.findall(r"telegram/\d+/(-\d+)", str(settings)):
            self.telegram.chat(int(chat))  # the bot is in each group that the configuration names
        if ENGINE == "postgresql":
            config["database"] = {"url": database_of(self.database)}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def channels(self) -> dict[str, dict[str, Any]]:
        """The `channels` section."""
        token = {"token": "$TELEGRAM_BOT_TOKEN", "base_url": self.telegram.base_url}
        return {"telegram": {**token, **UNPACED, "access": {"open": True}}}

    async def start(self) -> None:
        """Start it and wait until it listens. Where it does not, no process is left."""
        polls = self.telegram.poll_count()
        await self.spawn("run", "--config", "config.yaml")
        try:
            await until(lambda: self.telegram.poll_count() > polls or self._ended(), 180, "the first getUpdates")
        except TimeoutError:
            await self.kill()
            raise TimeoutError(f"no getUpdates:\n{self.log()}") from None
        assert not self._ended(), self.log()

    async def spawn(self, *arguments: str) -> Running:
        """Start the program with these arguments; append its output to the log."""
        if self.forked:
            self.process = await fork(arguments, self.folder, self.environment(), self.folder / "log")
            return self.process
        with (self.folder / "log").open("ab") as log, Path(os.devnull).open("rb") as nothing:
            descriptors = (nothing.fileno(), log.fileno(), log.fileno())
            self.process = await execute(arguments, self.folder, self.environment(), descriptors)
        return self.process

    def environment(self) -> dict[str, str]:
        names = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "sk-test",
            "TELEGRAM_BOT_TOKEN": TOKEN,
            **self.more_environment,
        }

    async def fawn(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        """Run another command of the program with the same configuration; return its exit code and output."""
        code, out, errors = await self.run(*arguments, stdin=stdin)
        return code, out + errors

    async def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run another command; return its exit code, stdout and stderr."""
        return await run_forked([*arguments, "--config", "config.yaml"], self.folder, self.environment(), stdin)

    async def kill(self) -> None:
        """kill -9."""
        assert self.process
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self, seconds: float = 60) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), seconds)

    async def end(self) -> None:
        """Kill it, if it runs, and assert that it logged no fault."""
        if self.process:
            await self.kill()
        assert "\nTraceback" not in f"\n{self.log()}", self.log()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def restart(self) -> None:
        """kill -9 and start again."""
        await self.kill()
        await self.start()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace") if (self.folder / "log").exists() else ""

    def _ended(self) -> bool:
        return self.process is None or self.process.returncode is not None

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read from the database."""
        return stored_rows(self.database, sql)

    def change(self, sql: str, **values: Any) -> None:
        """Change the database beside the service."""
        change_rows(self.database, sql, values)

    @property
    def database(self) -> Path:
        """The file of the database, or what stands for it where the tests run on PostgreSQL."""
        return self.data / "fawn.db"

    async def quiet(self, seconds: float = 60) -> None:
        """Wait until nothing is pending or undelivered."""
        await until(
            lambda: (
                not self.rows("SELECT 1 FROM conversations WHERE pending>0 LIMIT 1")
                and not self.rows("SELECT 1 FROM inbox WHERE state=0 LIMIT 1")
                and not self.rows("SELECT 1 FROM outbox WHERE state<2 LIMIT 1")
            ),
            seconds,
            "an empty inbox and outbox",
        )

    def effect_files(self) -> Iterable[Path]:
        """Return the files `effects` in the workspaces of the conversations."""
        return self.data.glob("threads/*/workspace/effects")

    def conversation_of(self, thread: Thread) -> str:
        """Return the key of the conversation that a thread has now."""
        [[key]] = self.rows(f"SELECT conversation FROM addresses WHERE thread='{thread}'")  # noqa: S608 — it is quoted
        return str(key)

    def rows_of(self, thread: Thread, columns: str, table: str) -> list[tuple[Any, ...]]:
        """Read the rows of one conversation, where other tests have theirs in the same database."""
        return self.rows(f"SELECT {columns} FROM {table} WHERE conversation='{self.conversation_of(thread)}'")  # noqa: S608 — likewise

    def folder_of(self, thread: Thread | None = None) -> Path:
        """Return the folder of a thread's conversation, or the only one."""
        if thread:
            return conversation_folder(self.data, self.conversation_of(thread))
        folders = list((self.data / "threads").iterdir())
        assert len(folders) == 1, folders
        return folders[0]


def ask(**directive: Any) -> str:
    """Build a message that instructs the scripted model (`tests/fakes/model_script.py`)."""
    return f"please ::{json.dumps(directive)}"


def bash(command: str, **more: Any) -> dict[str, Any]:
    """Build a step of the scripted model: one bash call."""
    return {"calls": [{"name": "bash", "args": {"command": command, **more}}]}


def said(telegram: FakeTelegram, chat: int, topic: int | None = None) -> list[str]:
    """Return the texts of the bot's visible messages in a chat without the steps folded below them. Files are names."""
    return [shown.file_name or unfolded(shown) for shown in telegram.visible(chat, topic) if shown.by_bot]


def unfolded(shown: Shown) -> str:
    """Return the text above the fold, whose offset counts UTF-16 units."""
    folds = [entity["offset"] for entity in shown.entities if entity["type"] == "expandable_blockquote"]
    return shown.text.encode("utf-16-le")[: 2 * folds[0]].decode("utf-16-le").rstrip() if folds else shown.text
