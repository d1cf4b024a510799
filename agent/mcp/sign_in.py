"""The sign-in of a person at a server: authorization code with PKCE. Imports the MCP SDK: import it in a thread."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.oauth2 import OAuthClientProvider, OAuthContext
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

from agent.foreign_text import printable_line
from agent.mcp.bounded_http import bounded_client
from agent.mcp.token_auth import UNAUTHORIZED, MemoryTokens
from agent.settings.mcp import McpOAuthSettings, McpServerSettings
from agent.settings.mcp_tokens import StoredTokens
from catalogue import _

HTTP_SECONDS = 30.0
MAX_ADDRESS_CHARS = 8000
# The first request of the older protocol, which is refused without a token; its answer is not read.
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "fawn", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}

# Shows an address for the browser, and returns the parameters of the redirect that has the same `state`.
AskPerson = Callable[[str], Awaitable[Mapping[str, str]]]


class SignInFailed(Exception):
    """Nobody is signed in; the text is for the person and says what they can do."""


class SignInNotNeeded(Exception):
    """The server answers without a sign-in."""


async def sign_in(server: McpServerSettings, redirect_uri: str, ask: AskPerson) -> StoredTokens:
    """Sign a person in and return the tokens. Raises SignInFailed and SignInNotNeeded."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # its tracebacks say nothing that we do not
    flow = _Flow(server, redirect_uri, ask)
    try:
        status = await flow.request_access()
    except OAuthRegistrationError as error:
        raise SignInFailed(
            _(
                "The server does not let clients register themselves ({reason}). If it has tokens, set `token`. "
                "Otherwise, register a client with the redirect address {redirect_uri}. Set `auth: oauth`, and "
                "below `oauth:` its `client_id`, `redirect_uri` and, with a secret, `client_secret` and `issuer`.",
                reason=printable_line(error),
                redirect_uri=redirect_uri,
            )
        ) from error
    except OAuthFlowError as error:
        raise SignInFailed(
            _("The sign-in failed: {reason}. Try it again.", reason=printable_line(error).rstrip("."))
        ) from error
    except (httpx2.HTTPError, ValueError) as error:  # ValueError: an answer that the SDK cannot parse
        reason = printable_line(error) or type(error).__name__
        raise SignInFailed(
            _("{url} or its authorization server cannot be reached: {reason}.", url=server.url, reason=reason)
        ) from error
    tokens = flow.tokens()
    if tokens is None and status < 400:
        raise SignInNotNeeded
    if tokens is None or status == UNAUTHORIZED:
        raise SignInFailed(
            _("{url} answered with status {status}. Check `url`, and sign in again.", url=server.url, status=status)
        )
    return tokens


class _Flow:
    """The SDK's flow with a person, a configured client, and what the renewal of the tokens will need."""

    def __init__(self, server: McpServerSettings, redirect_uri: str, ask: AskPerson) -> None:
        self._server = server
        self._ask = ask
        self._redirect: Mapping[str, str] = {}
        metadata = OAuthClientMetadata(redirect_uris=[redirect_uri], client_name="Fawn")  # type: ignore[list-item]  # pydantic parses it
        storage = MemoryTokens(_configured_client(server.oauth, redirect_uri))
        self._provider = OAuthClientProvider(server.url, metadata, storage, self._show, self._receive)

    async def request_access(self) -> int:
        """Send a request, which starts the flow if the server refuses it. Returns the status of its answer."""
        async with (
            bounded_client(HTTP_SECONDS, headers=self._server.headers, auth=self._provider) as http,
            http.stream("POST", self._server.url, json=INITIALIZE, headers=ACCEPT) as response,
        ):
            return response.status_code

    def tokens(self) -> StoredTokens | None:
        """Return the tokens, if the flow ended with some."""
        context = self._provider.context
        tokens, client = context.current_tokens, context.client_info
        if tokens is None or client is None:
            return None
        base = context.get_authorization_base_url(self._server.url)
        endpoint = str(context.oauth_metadata.token_endpoint) if context.oauth_metadata else urljoin(base, "/token")
        configured = client.client_id == self._server.oauth.client_id
        return StoredTokens(
            url=self._server.url,
            token_endpoint=endpoint,
            resource=context.get_resource_url() if context.should_include_resource_param() else "",
            client_id=client.client_id,
            client_secret="" if configured else client.client_secret or "",
            auth_method=client.token_endpoint_auth_method or "none",
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_at=context.token_expiry_time or 0.0,
        )

    async def _show(self, address: str) -> None:
        """Take the address that the SDK made, and wait for the person."""
        oauth, context = self._server.oauth, self._provider.context
        if oauth.client_id and context.client_info:
            if context.client_info.client_id != oauth.client_id:
                values = {"url": self._server.url, "issuer": oauth.issuer}
                raise SignInFailed(
                    _(
                        "{url} does not use the authorization server {issuer}. Correct `issuer` below `oauth:`.",
                        **values,
                    )
                )
            context.client_info.token_endpoint_auth_method = _auth_method(context, has_secret=bool(oauth.client_secret))
        if oauth.scope:
            head, _mark, query = address.partition("?")
            address = f"{head}?{urlencode(dict(parse_qsl(query)) | {'scope': oauth.scope})}"
        self._redirect = await self._ask(printable_line(address, MAX_ADDRESS_CHARS))

    async def _receive(self) -> AuthorizationCodeResult:
        if error := self._redirect.get("error"):
            words = printable_line(self._redirect.get("error_description") or error)
            if error == "access_denied":
                raise SignInFailed(
                    _("The sign-in was denied in the browser ({reason}). Nothing was changed.", reason=words)
                )
            raise SignInFailed(
                _("The authorization server answered: {reason}. Check `oauth`, and try again.", reason=words)
            )
        found = self._redirect
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))


def _configured_client(oauth: McpOAuthSettings, redirect_uri: str) -> OAuthClientInformationFull | None:
    if not oauth.client_id:
        return None
    secret = oauth.client_secret.reveal() if oauth.client_secret else None
    values: dict[str, Any] = {"client_id": oauth.client_id, "client_secret": secret, "redirect_uris": [redirect_uri]}
    return OAuthClientInformationFull(**values, issuer=oauth.issuer or None)


def _auth_method(context: OAuthContext, *, has_secret: bool) -> str:
    """Return how a configured client authenticates: RFC 8414 has `client_secret_basic` as the default."""
    if not has_secret:
        return "none"
    offered = context.oauth_metadata.token_endpoint_auth_methods_supported if context.oauth_metadata else None
    return "client_secret_post" if offered and "client_secret_basic" not in offered else "client_secret_basic"


def state_of(address: str) -> str:
    """Return the `state` in an address."""
    return dict(parse_qsl(urlsplit(address).query)).get("state", "")
