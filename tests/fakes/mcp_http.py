"""An MCP server of the protocol 2025-06-18 over streamable HTTP with OAuth client credentials (RFC 9728, 8414)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.fakes.server import LocalServer

CLIENT, SECRET = "fawn", "client-secret"


def _error(message: Any, status: int, code: int, words: str, *, id: Any = None) -> web.Response:
    error = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": words}}
    return web.json_response(error, status=status)


UNKNOWN_SESSION: dict[str, Callable[[Any], web.Response]] = {  # what servers answer where they do not know a session
    "official, empty": lambda message: web.Response(status=404),
    "Python SDK": lambda message: _error(message, 404, -32600, "Session not found", id="server-error"),
    "TypeScript SDK": lambda message: _error(message, 404, -32001, "Session not found"),
    "with the id": lambda message: _error(message, 404, -32001, "Session not found", id=message.get("id")),
    "as an answer": lambda message: _error(message, 200, -32001, "Session expired", id=message.get("id")),
    "older Python SDK": lambda message: web.Response(status=400, text="Bad Request: No valid session ID provided"),
    "TypeScript examples": lambda message: _error(message, 400, -32000, "Bad Request: No valid session ID provided"),
    "a new transport": lambda message: web.Response(  # of the TypeScript SDK, which names no type
        status=400,
        body=b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}',
    ),
    "JSON-RPC": lambda message: _error(message, 400, -32600, "Call initialize first"),
    "a proxy": lambda message: web.Response(status=404, text="<html>404</html>", content_type="text/html"),
    "other words": lambda message: web.json_response({"detail": "unknown mcp-session-id"}, status=400),
    "JSON": lambda message: web.json_response({"error": "gone"}, status=404),
}


class McpHttpServer(LocalServer):
    """`tokens` are those that it has issued, `sessions` those that it knows. One tool: `whoami`, and where it `offers`
    them, one resource and one prompt."""

    def __init__(self, *, oauth: bool = False, offers: bool = False) -> None:
        super().__init__()
        self.oauth = oauth
        self.offers = offers
        self.tokens: list[str] = []
        self.sessions: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.unknown = UNKNOWN_SESSION["official, empty"]
        self.calls: list[dict[str, Any]] = []  # parameters of each `tools/call`

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/mcp", self._call)
        app.router.add_route("*", "/moved", self._move)
        app.router.add_get("/mcp", self._refuse)
        app.router.add_delete("/mcp", self._refuse)
        app.router.add_get("/.well-known/oauth-protected-resource/mcp", self._resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self._issuer)
        app.router.add_post("/token", self._token)

    async def _refuse(self, request: web.Request) -> web.Response:
        return web.Response(status=405)

    async def _move(self, request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/mcp"})  # as Starlette does for a slash at the end

    async def _resource(self, request: web.Request) -> web.Response:
        return web.json_response({"resource": f"{self.base_url}/mcp", "authorization_servers": [self.base_url]})

    async def _issuer(self, request: web.Request) -> web.Response:
        ends = {f"{name}_endpoint": f"{self.base_url}/{name}" for name in ("authorization", "token")}
        kinds = {"response_types_supported": ["code"], "grant_types_supported": ["client_credentials"]}
        return web.json_response({"issuer": self.base_url, **ends, **kinds})

    async def _token(self, request: web.Request) -> web.Response:
        known = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        form = await request.post()
        if request.headers.get("Authorization") != known or form.get("grant_type") != "client_credentials":
            return web.json_response({"error": "invalid_client"}, status=401)
        self.tokens.append(f"token-{len(self.tokens)}")
        return web.json_response({"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": 3600})

    async def _call(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if self.oauth and request.headers.get("Authorization") not in {f"Bearer {token}" for token in self.tokens}:
            where = f'Bearer resource_metadata="{self.base_url}/.well-known/oauth-protected-resource/mcp"'
            return web.Response(status=401, headers={"WWW-Authenticate": where})
        message = await request.json()
        method, session = message.get("method"), request.headers.get("Mcp-Session-Id")
        if method == "initialize":
            self.sessions.append(f"s{len(self.sessions)}")
            about = {"name": "http", "version": "1"}
            result: Any = {"protocolVersion": "2025-06-18", "capabilities": self._capabilities(), "serverInfo": about}
            return self._answer(message, result, {"Mcp-Session-Id": self.sessions[-1]})
        if method == "server/discover":
            error = {"code": -32601, "message": "no such method"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        if session not in self.sessions:
            return self.unknown(message)
        if "id" not in message:
            return web.Response(status=202)
        if self.offers and method in (made := self._offered(message.get("params") or {})):
            return self._answer(message, made[method])
        if method == "tools/list":
            return self._answer(message, {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]})
        self.calls.append(message.get("params") or {})
        return self._answer(message, {"content": [{"type": "text", "text": request.headers.get("Authorization", "")}]})

    def _capabilities(self) -> dict[str, Any]:
        return {"tools": {}} | ({"resources": {}, "prompts": {}} if self.offers else {})

    def _offered(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the results of the methods for resources and prompts."""
        note = {"uri": "note://far", "name": "far", "mimeType": "text/plain"}
        arguments = [{"name": "repo", "required": True}]
        words = f"Review {params.get('arguments', {}).get('repo', '')} from afar."
        return {
            "resources/list": {"resources": [note]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": [{**note, "text": "a note from afar"}]},
            "prompts/list": {"prompts": [{"name": "review", "arguments": arguments}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]},
        }

    def _answer(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)
