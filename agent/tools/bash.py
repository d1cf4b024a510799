"""Run a command in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from agent.bash_words import describe_command
from agent.core.context import ToolServices
from agent.core.policy import call_key
from agent.core.tool import AgentTool, Runtime, ToolTraits, make_tool, require_background
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from sandbox.base import ShellCommand

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
) -> str:
    """Run a bash command in your sandbox: a Linux machine with Python that belongs to this conversation alone.

    Packages from `pip install` and `npm install` stay with the conversation. An operator restricts the network: if it
    refuses a request, tell the person what was refused and why, as the output says, and do not try to get around it.
    The working directory is kept between commands; variables are not. stdin is empty. Long output is cut in the middle.
    A background process (&) keeps running between commands; redirect its output to a log file. Put files for the person
    in /mnt/user-data/outputs."""
    if background:
        key = call_key(runtime.state["messages"], runtime.tool_call_id)
        return await require_background(runtime).start_command(key, "bash", command, command, then)
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
    return "\n".join(part for part in (output, end) if part)


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where the sandbox runs commands."""
    return bash if services.runs_commands else None
