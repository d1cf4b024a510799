"""Run a command in the sandbox."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any

from agent.core.context import ToolServices
from agent.core.policy import call_key
from agent.core.tool import FAILED_KEY, AgentTool, Runtime, ToolTraits, make_tool, require_background
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from catalogue import N_, _, list_items
from sandbox.base import ShellCommand

RUNNING, RUNNING_COMMAND, RUNNING_PYTHON = N_("Running {program}"), N_("Running a command"), N_("Running Python code")
RUNNING_SCRIPT = N_("Running a shell script")
INSTALLING, INSTALLING_PACKAGES = N_("Installing {packages}"), N_("Installing packages")
MAX_NAMED_PACKAGES = 3
MAX_READ_CHARS = 2000  # of a script: its first command is at the beginning

_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PROGRAM = re.compile(r"[A-Za-z_][\w.+-]*")
_PREPARING = frozenset({"cd", "set", "export", "source", ".", "mkdir", "echo", "true", "umask", "ulimit", "pushd"})
_KEYWORDS = frozenset({"for", "while", "until", "if", "case", "select", "function", "{", "(", "[[", "!"})
_WRAPPERS = frozenset({"sudo", "timeout", "time", "nohup", "exec", "env", "command", "nice", "stdbuf", "xvfb-run"})
_INSTALLERS = frozenset({"pip", "pip3", "uv", "npm", "pnpm", "yarn", "apt", "apt-get", "cargo", "gem", "conda", "apk"})
_WITH_SUBCOMMAND = frozenset({"git", "make", "npm", "pnpm", "yarn", "cargo", "go", "docker", "uv"})


def describe_command(args: Mapping[str, Any]) -> str:
    """Describe a call of `bash` by the first program that does more than prepare."""
    script = str(args.get("command") or "")[:MAX_READ_CHARS]
    commands = [words for line in _SEPARATOR.split(script) if (words := _program_words(line))]
    if any(words[0] in _KEYWORDS or words[0].startswith("(") for words in commands):
        return _(RUNNING_SCRIPT)
    working = [words for words in commands if words[0] not in _PREPARING and not words[0].startswith("#")]
    return _describe_words((working or commands or [[""]])[0])


def _program_words(line: str) -> list[str]:
    """Return the words of a command from its program on."""
    words = line.split()
    while words and (_ASSIGNMENT.match(words[0]) or PurePosixPath(words[0]).name in _WRAPPERS):
        is_timeout = words.pop(0).endswith("timeout")
        while is_timeout and words and (words[0].startswith("-") or words[0][0].isdigit()):
            words.pop(0)
    return words


def _describe_words(words: Sequence[str]) -> str:
    program, rest = PurePosixPath(words[0]).name, words[1:]
    if re.fullmatch(r"python[\d.]*", program):
        if rest[:1] == ["-m"] and len(rest) > 1:
            return _describe_words(rest[1:])
        script = next((word for word in rest if not word.startswith("-")), "")
        if not script.endswith(".py") or "-c" in rest[: rest.index(script)]:
            return _(RUNNING_PYTHON)
        program, rest = PurePosixPath(script).name, ()
    subcommand = next((word for word in rest if not word.startswith("-")), "")
    if program in _INSTALLERS and {"install", "add"} & {*rest[:3]}:
        return _describe_packages(rest)
    if not _PROGRAM.fullmatch(program):
        return _(RUNNING_COMMAND)
    if program in _WITH_SUBCOMMAND and _PROGRAM.fullmatch(subcommand):
        program = f"{program} {subcommand}"
    return _(RUNNING, program=program)


def _describe_packages(words: Sequence[str]) -> str:
    """Name the packages that follow "install" or "add"."""
    begin = next(number for number, word in enumerate(words, 1) if word in ("install", "add"))
    named = [word.strip("\"'") for word in words[begin:]]
    if any(word in ("-r", "-e", "--requirement", "--editable", ".") for word in named):
        return _(INSTALLING_PACKAGES)
    packages = [found[0] for word in named if (found := re.match(r"@?[A-Za-z0-9][\w./-]*", word))]
    if not packages or len(packages) > MAX_NAMED_PACKAGES:
        return _(INSTALLING_PACKAGES)
    return _(INSTALLING, packages=list_items(packages))


FLUSH_SECONDS = 0.25  # between two chunks of live output
MAX_CHUNK_CHARS = 2000


class LiveOutput:
    """Streams the output of a running command, at most a few times a second."""

    def __init__(self, write: Callable[[object], None], call: str) -> None:
        self._write, self._call = write, call
        self._text = ""
        self._next_flush = asyncio.get_running_loop().time() + FLUSH_SECONDS  # a quick command streams nothing
        self._timer: asyncio.TimerHandle | None = None

    async def add(self, text: str) -> None:
        """Add output; a timer flushes it."""
        self._text = (self._text + text)[-MAX_CHUNK_CHARS:]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._next_flush, self._flush)

    def stop(self) -> None:
        """Drop the rest: the command has ended, and its result contains the output."""
        if self._timer:
            self._timer.cancel()

    def _flush(self) -> None:
        self._timer, text, self._text = None, self._text, ""
        self._next_flush = asyncio.get_running_loop().time() + FLUSH_SECONDS
        self._write({"type": "output", "call": self._call, "text": text})


@make_tool(
    ToolTraits(
        describe=describe_command,
        needs_sandbox=True,
        permission="allow",
        subject=Subject("command", "shell"),
        way_out="network",
        brings="commands",
    )
)
async def bash(
    command: Annotated[str, "The bash command or script."],
    runtime: Runtime,
    timeout: Annotated[float, "Seconds until it is stopped with all its child processes; usually at most 600."] = 120,
    background: Annotated[
        bool, "For work of many minutes: it runs on when you have answered, with its output in a file."
    ] = False,
    then: Annotated[str, "background: a request to yourself for its end, complete in itself; empty: none."] = "",
) -> tuple[str, dict[str, Any]]:
    """Run a bash command in your sandbox: a Linux machine with Python that belongs to this conversation alone.

    Packages from `pip install` and `npm install` stay with the conversation. An operator restricts the network: if it
    refuses a request, tell the person what was refused and why, as the output says, and do not try to get around it.
    The working directory is kept between commands; variables are not. stdin is empty. Long output is cut in the middle.
    A background process (&) keeps running between commands; redirect its output to a log file. Put files for the person
    in /mnt/user-data/outputs."""
    if background:
        key = call_key(runtime.state["messages"], runtime.tool_call_id)
        return await require_background(runtime).start_command(key, "bash", command, command, then), {}
    sandbox = await runtime.context.sandbox.get()
    live = LiveOutput(runtime.stream_writer, runtime.tool_call_id or "")
    try:
        result = await sandbox.run(ShellCommand(command, timeout_seconds=max(timeout, 0.1), on_output=live.add))
    finally:
        live.stop()
    output = result.output.rstrip("\n")
    if result.timed_out:
        end = f"[stopped after {result.seconds:.0f} s, with all its child processes]"
    elif result.exit_code:
        end = f"[exit code {result.exit_code}]"
    else:
        end = "" if output else "[exit code 0, no output]"
    failed = {FAILED_KEY: True} if result.timed_out or result.exit_code else {}
    return "\n".join(part for part in (output, end) if part), failed


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where the sandbox runs commands."""
    return bash if services.runs_commands else None
