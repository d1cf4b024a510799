"""The HTTP client of a server: its headers, its token, and OAuth with client credentials."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AbstractAsyncContextManager
from typing import Any

from agent.mcp.settings import McpServerSettings

CONNECT_SECONDS = 10.0
READ_SECONDS = 300.0  # of a stream between two events; each call has its own timeout


class MemoryTokens:
    """Keeps a token as long as the service runs: with client credentials it gets another one at any time."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        """Return the token."""
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        """Keep a token."""
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        """Return what is known about the client."""
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        """Keep what is known about the client."""
        self._client = client_info


async def http_client(settings: McpServerSettings) -> AbstractAsyncContextManager[Any]:
    """Return the HTTP client for the requests to a server."""
    import httpx2

    headers = dict(settings.headers)
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token.reveal()}"
    auth = None
    if settings.oauth.client_id:
        sdk = await asyncio.to_thread(importlib.import_module, "mcp.client.auth.extensions.client_credentials")
        auth = sdk.ClientCredentialsOAuthProvider(
            server_url=settings.url,
            storage=MemoryTokens(),
            client_id=settings.oauth.client_id,
            client_secret=settings.oauth.client_secret.reveal() if settings.oauth.client_secret else "",
            scope=settings.oauth.scope or None,
            issuer=settings.oauth.issuer,
        )
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth)
