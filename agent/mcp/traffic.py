"""Watch what passes between a server and the SDK, on any transport. Imports the MCP SDK: import it in a thread.

The SDK starts a task for each notification and each request of a server, so what nobody hears is left out here, and a
server that asks without end loses its connection.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from agent.mcp.bounds import MAX_REQUESTS, TOO_MANY_REQUESTS
from catalogue import LazyText

log = logging.getLogger(__name__)


class Traffic:
    """Say what is seen: call `changed`, with "tools" or "prompts", `progress` and `ended`, and keep in `fault` why the
    connection ended."""

    def __init__(
        self,
        changed: Callable[[str], None],
        ended: Callable[[], None],
        progress: Callable[[dict[str, Any] | None], None] = lambda params: None,
    ) -> None:
        self.changed, self.ended, self.progress = changed, ended, progress
        self.fault: LazyText | None = None
        self.requests: set[Any] = set()  # ids of the server's requests without an answer

    def note_fault(self, fault: LazyText) -> None:
        """End the connection with the next message."""
        self.fault = fault

    def lets_pass(self, item: SessionMessage | Exception) -> bool:
        """Return whether the SDK should see it."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCNotification):
            if message.method in ("notifications/tools/list_changed", "notifications/prompts/list_changed"):
                self.changed(message.method.split("/")[1])
            if message.method == "notifications/progress":
                self.progress(message.params)
            return message.method == "notifications/cancelled" and bool(self.requests)
        if isinstance(message, JSONRPCRequest):
            self.requests.add(message.id)
            if len(self.requests) > MAX_REQUESTS:
                self.fault = TOO_MANY_REQUESTS
        elif isinstance(message, JSONRPCResponse):
            _drop_output_schemas(message.result)
        return True


class _Watched:
    """A stream of a transport, closed by whoever leaves it."""

    def __init__(self, stream: Any, traffic: Traffic) -> None:
        self._stream, self._traffic = stream, traffic

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Incoming(_Watched):
    """The messages of the server, up to the end or a fault."""

    @property
    def last_context(self) -> Any:
        """The context of the sender, as the SDK's own streams have it."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            while not self._traffic.fault:
                item: SessionMessage | Exception = await self._stream.__anext__()
                if self._traffic.lets_pass(item) and not self._traffic.fault:
                    return item
        except StopAsyncIteration:
            pass
        self._traffic.ended()
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage | Exception:
        """Return the next one."""
        return await self.__anext__()


class Outgoing(_Watched):
    """The messages to the server."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send one."""
        await self._stream.send(item)
        if not isinstance(item.message, JSONRPCRequest | JSONRPCNotification):
            self._traffic.requests.discard(item.message.id)


@asynccontextmanager
async def watch_traffic(
    transport: AbstractAsyncContextManager[Any], traffic: Traffic
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Return a transport whose traffic is watched."""
    async with transport as (read, write):
        yield Incoming(read, traffic), Outgoing(write, traffic)


def _drop_output_schemas(result: dict[str, Any]) -> None:
    """Remove the schemas of results: the SDK would check results by them on the event loop, with the server's own
    regular expressions."""
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
