"""Make a preview link to a server in the sandbox."""

from __future__ import annotations

from typing import Annotated

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Runtime, ToolTraits, describe_as, make_tool
from agent.settings.sections import AgentSettings
from catalogue import N_
from sandbox.base import SandboxError


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where previews are enabled and the sandbox runs commands."""
    make_link = services.make_preview_link
    if make_link is None or not services.runs_commands:
        return None

    @make_tool(
        ToolTraits(
            describe=describe_as(N_("Starting a preview of port {port}")),
            needs_sandbox=True,
            permission="allow",
            way_out="arguments",
        )
    )
    async def expose(
        port: Annotated[int, "The port on which your server listens in the sandbox, on 127.0.0.1 or all addresses."],
        runtime: Runtime,
    ) -> str:
        """Make a link that opens a server of your sandbox in the person's browser. It works for a limited time and ends
        with the sandbox. Start the server first, in the background; give the person the link unchanged."""
        if not 0 < port < 65536:
            raise SandboxError(f"{port} is not a valid port.")
        return await make_link(await runtime.context.sandbox.get(), port)

    return expose
