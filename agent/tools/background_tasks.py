"""List and cancel background tasks of the person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Effect, Runtime, ToolTraits, make_tool, require_background
from agent.settings.sections import AgentSettings
from catalogue import N_, _

CANCELLING = N_("Cancelling background task {number}")
LISTING = N_("Looking at the background tasks")


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where background tasks are enabled."""
    return background_tasks if services.background else None


def _describe(args: Mapping[str, Any]) -> str:
    title = CANCELLING if args.get("action") == "cancel" else LISTING
    return _(title, number=args.get("number", ""))


def _effect(args: Mapping[str, Any]) -> Effect:
    return "once" if args.get("action") == "cancel" else "none"


@make_tool(ToolTraits(describe=_describe, effect=_effect, permission="allow", brings="commands"))
async def background_tasks(
    action: Annotated[Literal["list", "cancel"], "What to do."],
    runtime: Runtime,
    number: Annotated[int, "cancel: the number of the task."] = 0,
) -> str:
    """List the person's background tasks with their states, or cancel one. Their output is in the file that `list`
    names: read that to see how far a command is. The person is told of each end; do not wait for it."""
    background = require_background(runtime)
    return await background.cancel(number) if action == "cancel" else await background.list_tasks()
