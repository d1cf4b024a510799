"""Show a server that runs in the sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from langchain_core.tools import BaseTool

from agent.tools.tool import Runtime, make_tool
from sandbox.base import SandboxError

Show = Callable[[object, int], Awaitable[str]]
"""Makes a link to a port of a sandbox. Raises SandboxError."""


def make_expose_tool(show: Show) -> BaseTool:
    """The tool `expose`, which only an operator's `sandbox.network.preview.enabled` brings."""

    @make_tool
    async def expose(
        port: Annotated[int, "The port on which your server listens in the sandbox, on 127.0.0.1 or all addresses."],
        runtime: Runtime,
    ) -> str:
        """Make a link by which the person can open, in a browser, a server that you run in the sandbox. It works for a
        limited time and ends with the sandbox. Start the server first, in the background; give the person the link
        exactly as it is."""
        if not 0 < port < 65536:
            raise SandboxError(f"{port} is no port.")
        return await show(await runtime.context.sandbox.get(), port)

    return expose
