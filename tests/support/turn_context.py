"""The dependencies of a turn for tests: ledger and steering over real SQLite, a sandbox in a folder."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.core.context import Execute, LedgerEntry, TurnContext
from agent.messages import Author, Message, Origin, Thread, UploadedFile, UserInput
from sandbox.base import ROOT, CommandResult, Entry, Match, Sandbox, SandboxFileError, ShellCommand
from tests.support.agent_database import SqliteDatabase


class SqliteLedger:
    """The ledger of one conversation."""

    def __init__(self, database: SqliteDatabase, conversation: str) -> None:
        self._database = database
        self._conversation = conversation

    async def setup(self) -> None:
        table = (
            "CREATE TABLE IF NOT EXISTS ledger (conversation TEXT, call TEXT, result TEXT, UNIQUE(conversation, call))"
        )
        await self._database.run(lambda execute: execute(table, {}))

    async def begin(self, call: str) -> LedgerEntry | None:
        def work(execute: Execute) -> LedgerEntry | None:
            at = {"conversation": self._conversation, "call": call}
            rows = execute("SELECT result FROM ledger WHERE conversation = :conversation AND call = :call", at)
            if rows:
                return LedgerEntry(rows[0]["result"])
            execute("INSERT INTO ledger VALUES (:conversation, :call, NULL)", at)
            return None

        return await self._database.run(work)

    async def end(self, call: str, result: str) -> None:
        at = {"conversation": self._conversation, "call": call, "result": result}
        statement = "UPDATE ledger SET result = :result WHERE conversation = :conversation AND call = :call"
        await self._database.run(lambda execute: execute(statement, at))


class ListSteering:
    """Steering from a list: each message is unread once."""

    def __init__(self, *inputs: UserInput) -> None:
        self.inputs = list(inputs)

    async def take_unread(self) -> tuple[UserInput, ...]:
        taken, self.inputs = tuple(self.inputs), []
        return taken


class FolderSandbox:
    """Files below a folder and bash on this machine: enough for the agent, without isolation."""

    def __init__(self, folder: Path, runs_commands: bool = True) -> None:
        self.folder = folder
        self.runs_commands = runs_commands

    @property
    def gone(self) -> bool:
        return False

    def _host(self, path: str) -> Path:
        if not path.startswith(f"{ROOT}/"):
            raise SandboxFileError(f"{path} is outside {ROOT}")
        return self.folder / path.removeprefix(f"{ROOT}/")

    async def run(self, command: ShellCommand) -> CommandResult:
        real = command.text.replace(ROOT, str(self.folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", real, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=self.folder
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        text = output.decode().replace(str(self.folder), ROOT)
        if command.on_output and text:
            await command.on_output(text)
        return CommandResult(process.returncode, text, 0, command.cwd or ROOT)

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        try:
            return self._host(path).read_bytes()[offset : offset + limit]
        except OSError as error:
            raise SandboxFileError(f"{path}: {error.strerror}") from None

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        host = self._host(path)
        host.parent.mkdir(parents=True, exist_ok=True)
        with host.open("ab" if append else "wb") as file:
            file.write(data)

    async def stat(self, path: str) -> Entry:
        host = self._host(path)
        if not host.exists():
            raise SandboxFileError(f"{path}: no such file")
        return Entry(path, host.stat().st_size, "folder" if host.is_dir() else "file")

    async def realpath(self, path: str) -> str:
        return str(self._host(path).resolve()).replace(str(self.folder.resolve()), ROOT)

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        host = self._host(path)
        if not host.is_dir():
            raise SandboxFileError(f"{path}: no such folder")
        return [await self.stat(f"{path}/{entry.name}") for entry in sorted(host.iterdir())][:limit]

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        host = self._host(path)
        return [f"{path}/{found.relative_to(host)}" for found in host.glob(pattern)][:limit]

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        lines = self._host(path).read_text().splitlines()
        return [Match(path, n, line) for n, line in enumerate(lines, 1) if re.search(regex, line)][:limit]


class FolderMachine:
    """A sandbox handle that counts how often it was warmed."""

    def __init__(self, folder: Path, runs_commands: bool = True) -> None:
        self.runs_commands = runs_commands
        self.sandbox = FolderSandbox(folder, runs_commands)
        self.warmed = 0

    def warm(self) -> None:
        self.warmed += 1

    async def get(self) -> Sandbox:
        return self.sandbox


async def make_turn_context(
    database: SqliteDatabase, folder: Path, conversation: str = "c", *steering: UserInput
) -> TurnContext:
    """Build a turn context from these."""
    ledger = SqliteLedger(database, conversation)
    await ledger.setup()
    return TurnContext(FolderMachine(folder), ledger, ListSteering(*steering))


def say(text: str, key: str = "m1", name: str = "Jane", uploads: Sequence[UploadedFile] = (), **more: Any) -> UserInput:
    """Build a message of a person."""
    message = Message(
        Thread("console", "w", "c"), key, key, Author("u1", name), text, 1795352700.0, **more, origin=Origin.PERSON
    )
    return UserInput(message, tuple(uploads))
