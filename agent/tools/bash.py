"""Run a command in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from agent.tools.tool import Runtime, make_tool
from sandbox.base import ShellCommand

FLUSH_SECONDS = 0.25  # seconds between two pieces of live output
MAX_SHOWN_CHARS = 2000  # characters in one piece


class LiveOutput:
    """Passes output on while the command runs, a few times a second at most."""

    def __init__(self, write: Callable[[object], None], call: str) -> None:
        self._write, self._call = write, call
        self._text = ""
        self._next = asyncio.get_running_loop().time() + FLUSH_SECONDS  # a quick command needs no live output
        self._timer: asyncio.TimerHandle | None = None

    async def add(self, text: str) -> None:
        """More output."""
        self._text = (self._text + text)[-MAX_SHOWN_CHARS:]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._next, self._flush)

    def stop(self) -> None:
        """The command is over: its result says the rest."""
        if self._timer:
            self._timer.cancel()

    def _flush(self) -> None:
        self._timer, text, self._text = None, self._text, ""
        self._next = asyncio.get_running_loop().time() + FLUSH_SECONDS
        self._write({"type": "output", "call": self._call, "text": text})


@make_tool
async def bash(
    command: Annotated[str, "The bash command or script."],
    runtime: Runtime,
    timeout: Annotated[float, "Seconds until it is stopped with everything it started; usually 600 at most."] = 120,
) -> str:
    """Run a bash command in your sandbox: a Linux machine with Python, yours alone in this conversation.

    What `pip install` and `npm install` bring stays with the conversation. The network is what an operator allows: when
    it refuses something, tell the person what and why, as the output says it, and do not look for a way around.
    The working directory is kept between commands, variables are not. stdin is empty. Long output is cut in the middle.
    A process put into the background with & lives on between commands; give it a log file. Leave files for the
    person in /mnt/user-data/outputs."""
    sandbox = await runtime.context.machine.get()
    live = LiveOutput(runtime.stream_writer, runtime.tool_call_id or "")
    try:
        result = await sandbox.run(ShellCommand(command, timeout_seconds=max(timeout, 0.1), on_output=live.add))
    finally:
        live.stop()
    output = result.output.rstrip("\n")
    if result.timed_out:
        end = f"[stopped after {result.seconds:.0f} s, with everything it started]"
    elif result.exit_code:
        end = f"[exit code {result.exit_code}]"
    else:
        end = "" if output else "[exit code 0, no output]"
    return "\n".join(part for part in (output, end) if part)
