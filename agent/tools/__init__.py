"""The agent's tools, one per file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool

from agent.context import MakePreviewLink
from agent.tools.ask_clarification import ask_clarification
from agent.tools.bash import bash
from agent.tools.expose import make_expose_tool
from agent.tools.glob import glob
from agent.tools.grep import grep
from agent.tools.ls import ls
from agent.tools.present_files import present_files
from agent.tools.read_file import read_file
from agent.tools.str_replace import str_replace
from agent.tools.write_file import write_file

FILE_TOOLS = (read_file, write_file, str_replace, ls, glob, grep, present_files)
SANDBOX_TOOLS = frozenset(tool.name for tool in (bash, *FILE_TOOLS)) | {"expose"}
IDEMPOTENT_TOOLS = frozenset(tool.name for tool in (read_file, ls, glob, grep, present_files, ask_clarification))


def make_tools(commands: bool, show: MakePreviewLink | None = None) -> list[BaseTool]:
    """Make the tools for the model; `bash` and `expose` (if `show` is given) only if the sandbox runs `commands`."""
    command_tools = [bash, *([make_expose_tool(show)] if show else [])] if commands else []
    return [*command_tools, *FILE_TOOLS, ask_clarification]


def is_idempotent(name: str, args: Mapping[str, Any]) -> bool:
    """Return whether a call may run again after a crash left its outcome unknown."""
    return name in IDEMPOTENT_TOOLS or (name == "write_file" and not args.get("append", False))


__all__ = ["IDEMPOTENT_TOOLS", "SANDBOX_TOOLS", "is_idempotent", "make_tools"]
