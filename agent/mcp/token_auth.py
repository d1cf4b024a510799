"""Send the tokens of a sign-in with each request, and renew them. Imports the MCP SDK: import it in a thread.

The HTTP client of a server: its headers, its token, OAuth with client credentials, and stored sign-ins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import anyio
import httpx2
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import ValidationError

from agent.late_imports import import_in_thread
from agent.mcp.bounded_http import ChosenWay, bound_messages, bounded_client
from agent.settings.mcp import McpServerSettings
from agent.settings.mcp_tokens import StoredTokens, TokenFile, TokenFolder
from catalogue import N_, LazyText

log = logging.getLogger(__name__)

RENEW_SECONDS = 20.0
UNAUTHORIZED = 401
MAX_TRIES = 3  # of a request, with different tokens
REFUSALS = {"invalid_grant", "invalid_client", "unauthorized_client", "bad_refresh_token"}  # the last one: GitHub's
SIGN_IN = N_("it needs a sign-in: run `fawn mcp login {server}` where the service runs")
LEFT_TO_SERVICES = N_("its token is no longer valid; a service renews it when somebody uses the server")
NOT_RENEWED = N_("its token could not be renewed, because {url} did not answer with one")


class StoredTokenAuth(httpx2.Auth):
    """Authorizes requests with the tokens of a file, which each request reads: a new sign-in counts at once.

    `problem` says why the latest request was refused; `needs_sign_in` that only a person can change that.
    """

    def __init__(self, server: McpServerSettings, file: TokenFile) -> None:
        self.problem: LazyText | None = None
        self.needs_sign_in = False
        self._server = server
        self._file = file
        self._renewed = ""  # the access token that it got last

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with a token, and once more with a renewed one if the server refuses it.

        One that another process has renewed may be refused by now, too: then this one renews it.
        """
        token, tries = await self._current_token(), 1
        _authorize(request, token)
        response = yield request
        while response.status_code == UNAUTHORIZED and token and tries < MAX_TRIES:
            token = await self._current_token(refused=token)
            if token:
                tries = MAX_TRIES if token == self._renewed else tries + 1
                _authorize(request, token)
                response = yield request
        if response.status_code != UNAUTHORIZED:
            self.problem, self.needs_sign_in = None, False
        elif not self.problem:
            self._ask_for_sign_in()

    async def _current_token(self, refused: str = "") -> str:
        """Return an access token other than the refused one, "" if there is none."""
        tokens = await asyncio.to_thread(self._file.read)
        if tokens is None or (tokens.is_fresh and tokens.access_token != refused):
            return tokens.access_token if tokens else ""
        if tokens.refresh_token and not self._file.renews:
            self.problem, self.needs_sign_in = LazyText(LEFT_TO_SERVICES), False
            return ""
        # The server has replaced the refresh token when it answers: no stopped turn may get between that and the file.
        with anyio.CancelScope(shield=True):
            async with self._file.locked():
                tokens = await asyncio.to_thread(self._file.read)  # another request may have renewed them meanwhile
                if tokens and not (tokens.is_fresh and tokens.access_token != refused):
                    tokens = await self._renew(tokens)
                    if tokens:
                        await asyncio.to_thread(self._file.write, tokens)
        return tokens.access_token if tokens else ""

    async def _renew(self, tokens: StoredTokens) -> StoredTokens | None:
        """Return renewed tokens, ended ones if they were refused, and None if that is unknown."""
        if not tokens.refresh_token:
            self._ask_for_sign_in()
            return None
        try:
            async with asyncio.timeout(RENEW_SECONDS), bounded_client(RENEW_SECONDS) as http:
                data, headers = self._refresh_request(tokens)
                response = await http.post(tokens.token_endpoint, data=data, headers=headers)
            body = response.json()
            error = body.get("error") if isinstance(body, dict) else None
            if error in REFUSALS:
                log.warning("mcp.sign_in_ended server=%s error=%s", self._server.name, error)
                self._ask_for_sign_in()
                return tokens.ended()
            response.raise_for_status()
            renewed = OAuthToken.model_validate(body)
        except (httpx2.HTTPError, TimeoutError, ValidationError, ValueError) as error:
            log.warning("mcp.token_not_renewed server=%s problem=%s", self._server.name, type(error).__name__)
            self.needs_sign_in = False
            self.problem = LazyText(NOT_RENEWED, url=tokens.token_endpoint)
            return None
        self._renewed = renewed.access_token
        return replace(
            tokens,
            access_token=renewed.access_token,
            refresh_token=renewed.refresh_token or tokens.refresh_token,
            expires_at=time.time() + renewed.expires_in if renewed.expires_in else 0.0,
        )

    def _refresh_request(self, tokens: StoredTokens) -> tuple[dict[str, str], dict[str, str]]:
        """Return the form and the headers."""
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token, "client_id": tokens.client_id}
        if tokens.resource:
            form["resource"] = tokens.resource
        oauth = self._server.oauth
        secret = tokens.client_secret
        if oauth.client_secret and oauth.client_id == tokens.client_id:
            secret = oauth.client_secret.reveal()
        client = OAuthClientInformationFull(
            client_id=tokens.client_id, client_secret=secret or None, token_endpoint_auth_method=tokens.auth_method
        )
        metadata = OAuthClientMetadata(redirect_uris=None)
        context = OAuthContext(tokens.url, metadata, MemoryTokens(), None, None, client_info=client)
        return context.prepare_token_auth(form, {"Accept": "application/json"})

    def _ask_for_sign_in(self) -> None:
        self.problem, self.needs_sign_in = LazyText(SIGN_IN, server=self._server.name), True


class MemoryTokens:
    """Keeps tokens as long as the process runs, which is all that the SDK's own flows need here."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens."""
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what is known about the client."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what is known about the client."""
        self._client = client_info


def _authorize(request: httpx2.Request, token: str) -> None:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"


CONNECT_SECONDS = 10.0
READ_SECONDS = 300.0  # of a stream between two events; each call has its own timeout


def stored_token_auth(settings: McpServerSettings, tokens: TokenFolder | None) -> StoredTokenAuth | None:
    """Return what sends the tokens of a person's sign-in, which are in `tokens`, if the server allows one."""
    if tokens is None or not settings.allows_sign_in:
        return None
    return StoredTokenAuth(settings, TokenFile(tokens, settings))


async def http_client(
    settings: McpServerSettings, auth: httpx2.Auth | None, note: Callable[[LazyText], None]
) -> httpx2.AsyncClient:
    """Return the HTTP client for the requests to a server. `note` gets what is wrong with a message of it."""
    headers = dict(settings.headers)
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token.reveal()}"
    if settings.oauth.client_id and not settings.allows_sign_in:
        sdk = await import_in_thread("mcp.client.auth.extensions.client_credentials")
        auth = sdk.ClientCredentialsOAuthProvider(
            server_url=settings.url,
            storage=MemoryTokens(),
            client_id=settings.oauth.client_id,
            client_secret=settings.oauth.client_secret.reveal() if settings.oauth.client_secret else "",
            scope=settings.oauth.scope or None,
            issuer=settings.oauth.issuer,
        )
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
    bound = bound_messages(note)
    client = httpx2.AsyncClient(
        headers=headers, timeout=timeout, auth=auth, event_hooks={"response": [bound]}, transport=ChosenWay()
    )
    client.headers["Accept-Encoding"] = "identity"
    return client
