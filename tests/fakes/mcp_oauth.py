"""An MCP server behind OAuth with a browser, on the SDK's own server and authorization server, in a thread.

Refresh tokens rotate. A second use of one is counted in `reuses` and revokes everything, as RFC 9700 asks for.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from typing import Any, Self

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class PersonConsents(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server. The person consents at once, unless `denies`; tokens live for `seconds`. With a `gate`,
    the answer to a renewal waits until it is set; `renewed` says that the tokens are replaced."""

    def __init__(self) -> None:
        self.seconds, self.denies = 3600, False
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.used: set[str] = set()
        self.renewals = self.reuses = 0
        self.gate: threading.Event | None = None
        self.renewed = threading.Event()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        target = str(params.redirect_uri)
        if self.denies:
            return construct_redirect_uri(target, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            **params.model_dump(include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"}),
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(target, code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        if refresh_token in self.used:
            self.reuses += 1
            self.revoke()
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.renewals += 1
        del self.refresh[refresh_token.token]
        self.used.add(refresh_token.token)
        tokens = self._issue(client, scopes, refresh_token.resource)
        self.renewed.set()
        if self.gate:
            await asyncio.to_thread(self.gate.wait, 20)
        return tokens

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoke()

    def revoke(self) -> None:
        """Forget all tokens."""
        self.access.clear()
        self.refresh.clear()

    def _issue(self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        more: Any = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        self.access[access] = AccessToken(token=access, **more, expires_at=int(time.time()) + self.seconds)
        self.refresh[refresh] = RefreshToken(token=refresh, **more)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.seconds)


class OAuthMcpServer:
    """The server at `url`, with one tool, `note`, that only those who are signed in may use."""

    def __init__(self, *, registers: bool = True) -> None:
        self.people = PersonConsents()
        self.notes: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"{self.base_url}/mcp"
        auth = AuthSettings(
            issuer_url=self.base_url,  # type: ignore[arg-type]  # pydantic parses it
            resource_server_url=self.url,  # type: ignore[arg-type]  # pydantic parses it
            client_registration_options=ClientRegistrationOptions(enabled=registers),
            validate_token_resource=True,
        )
        server = MCPServer("guarded", auth=auth, auth_server_provider=self.people)

        @server.tool()
        async def note(text: str) -> str:
            """Note a text."""
            self.notes.append(text)
            return f"noted {text}"

        config = uvicorn.Config(server.streamable_http_app(), log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="mcp oauth")

    def __enter__(self) -> Self:
        self._thread.start()  # the socket listens already: requests wait until it answers
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()
