"""Make a preview link to a server in the sandbox."""

from __future__ import annotations

from typing import Annotated

from langchain_core.tools import BaseTool

from agent.context import MakePreviewLink
from agent.tools.tool import Runtime, make_tool
from sandbox.base import SandboxError


def make_expose_tool(show: MakePreviewLink) -> BaseTool:
    """Make the tool `expose`, for `sandbox.network.preview.enabled`."""

    @make_tool
    async def expose(
        port: Annotated[int, "The port on which your server listens in the sandbox, on 127.0.0.1 or all addresses."],
        runtime: Runtime,
    ) -> str:
        """Make a link that opens a server of your sandbox in the person's browser. It works for a limited time and ends
        with the sandbox. Start the server first, in the background; give the person the link unchanged."""
        if not 0 < port < 65536:
            raise SandboxError(f"{port} is not a valid port.")
        return await show(await runtime.context.sandbox.get(), port)

    return expose
