"""The HTTP client of a server: its headers, its token, OAuth with client credentials, and stored sign-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.imports import import_in_thread
from agent.settings.mcp import McpServerSettings
from agent.settings.mcp_tokens import TokenFile, TokenFolder
from catalogue import LazyText

if TYPE_CHECKING:
    import httpx2

    from agent.mcp.token_auth import StoredTokenAuth

CONNECT_SECONDS = 10.0
READ_SECONDS = 300.0  # of a stream between two events; each call has its own timeout


async def stored_token_auth(settings: McpServerSettings, tokens: TokenFolder | None) -> StoredTokenAuth | None:
    """Return what sends the tokens of a person's sign-in, which are in `tokens`, if the server allows one."""
    if tokens is None or not settings.allows_sign_in:
        return None
    auth: StoredTokenAuth = (await import_in_thread("agent.mcp.token_auth")).StoredTokenAuth(
        settings, TokenFile(tokens, settings)
    )
    return auth


async def http_client(
    settings: McpServerSettings, auth: httpx2.Auth | None, note: Callable[[LazyText], None]
) -> httpx2.AsyncClient:
    """Return the HTTP client for the requests to a server. `note` gets what is wrong with a message of it."""
    import httpx2

    headers = dict(settings.headers)
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token.reveal()}"
    if settings.oauth.client_id and not settings.allows_sign_in:
        sdk = await import_in_thread("mcp.client.auth.extensions.client_credentials")
        auth = sdk.ClientCredentialsOAuthProvider(
            server_url=settings.url,
            storage=(await import_in_thread("agent.mcp.token_auth")).MemoryTokens(),
            client_id=settings.oauth.client_id,
            client_secret=settings.oauth.client_secret.reveal() if settings.oauth.client_secret else "",
            scope=settings.oauth.scope or None,
            issuer=settings.oauth.issuer,
        )
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
    bound = (await import_in_thread("agent.mcp.bounded_http")).bound_messages(note)
    client = httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks={"response": [bound]})
    client.headers["Accept-Encoding"] = "identity"
    return client
