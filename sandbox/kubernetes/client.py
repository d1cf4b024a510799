"""The calls of the Kubernetes API that sandboxes need, over aiohttp.

The known client libraries cost 120 to 410 ms of CPU at import, and none carries both directions of an exec at once
(decision 165). Answers are foreign: their size is bounded, and what a field may be is checked where it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from catalogue import N_
from sandbox.base import SandboxError
from sandbox.kubernetes.access import ClusterAccess
from sandbox.wire.connection import sanitize_text

Json = dict[str, Any]  # an object of the API
JSON_TYPE = "application/json"
CALL_SECONDS = 30.0
WATCH_SECONDS = 240  # the server ends a watch then, and it is asked for again
MAX_ANSWER_BYTES = 16 << 20
MAX_EVENT_BYTES = 1 << 20
PAGE = 200  # objects of a list at once
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")  # before Kubernetes 1.30 only the second
PING_SECONDS = 20.0


class ClusterRefused(SandboxError):
    """The API server refused a call. `code` is its status, `reason` what it said."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.reason = code, sanitize_text(reason)[:600]
        super().__init__(N_("The Kubernetes cluster refused: {reason}"), reason=self.reason)


class KubernetesClient:
    """Calls for the pods of one namespace."""

    def __init__(self, access: ClusterAccess) -> None:
        import aiohttp

        self.access = access
        self._pods = f"/api/v1/namespaces/{access.namespace}/pods"
        connector = aiohttp.TCPConnector(limit=0)  # each exec holds a connection
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=10)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def close(self) -> None:
        await self._session.close()

    async def create_pod(self, pod: Json) -> Json:
        return await self.call("POST", self._pods, {"fieldValidation": "Strict"}, pod)

    async def get_pod(self, name: str) -> Json:
        return await self.call("GET", f"{self._pods}/{name}")

    async def delete_pod(self, name: str, uid: str, seconds: int) -> None:
        """Stop a pod; without `uid` the one that has the name. One that is gone is no error."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": seconds}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.call("DELETE", f"{self._pods}/{name}", {}, body)
        except ClusterRefused as error:
            if error.code != 404 and not (uid and error.code == 409):  # 409: another pod has the name now
                raise

    async def patch_pod(self, name: str, patch: Sequence[Json]) -> bool:
        """Apply a JSON patch. Returns False if a test of it fails, or the pod is gone."""
        try:
            await self.call("PATCH", f"{self._pods}/{name}", {}, list(patch), content="application/json-patch+json")
        except ClusterRefused as error:
            if error.code in (404, 409, 422):
                return False
            raise
        return True

    async def list_pods(self, selector: str) -> tuple[list[Json], str]:
        """Return the pods with these labels, and the version from which to watch them."""
        found: list[Json] = []
        query = {"labelSelector": selector, "limit": str(PAGE)}
        while True:
            answer = await self.call("GET", self._pods, query)
            found += [item for item in answer.get("items") or () if isinstance(item, dict)]
            facts = answer.get("metadata") or {}
            if not facts.get("continue") or len(found) > 50 * PAGE:
                return found, str(facts.get("resourceVersion", ""))
            query["continue"] = str(facts["continue"])

    async def watch_pods(self, selector: str, version: str) -> AsyncIterator[tuple[str, Json]]:
        """Yield the kind and the object of each event after `version`. Raises ClusterRefused, SandboxError."""
        import aiohttp

        query = {"watch": "true", "labelSelector": selector, "resourceVersion": version}
        query |= {"allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SECONDS + 30)
        async with self._answer("GET", self._pods, query, None, timeout) as answer:
            waiting = bytearray()
            async for data in answer.content.iter_any():
                waiting += data
                while (end := waiting.find(b"\n")) >= 0:
                    event = _parse_object(bytes(waiting[:end]))
                    del waiting[: end + 1]
                    yield str(event.get("type", "")), event.get("object") or {}
                if len(waiting) > MAX_EVENT_BYTES:
                    raise SandboxError(N_("The Kubernetes API did not answer: try again."))

    async def open_exec(self, pod: str, container: str, command: Sequence[str]) -> Any:
        """Start a program in the pod. Returns the WebSocket with its streams."""
        import aiohttp

        flags = [(name, "true") for name in ("stdin", "stdout", "stderr")]
        query = [("container", container), *flags, *(("command", word) for word in command)]
        with _map_errors():
            for again in (False, True):
                headers, tls = await self._sign_in(again=again)
                try:
                    return await self._session.ws_connect(
                        f"{self.access.server}{self._pods}/{pod}/exec",
                        params=query,
                        protocols=PROTOCOLS,
                        headers=headers,
                        ssl=tls,
                        heartbeat=PING_SECONDS,
                        max_msg_size=4 << 20,
                        timeout=aiohttp.ClientWSTimeout(ws_close=5.0),
                    )
                except aiohttp.ClientConnectorCertificateError:
                    if again:
                        raise
                except aiohttp.WSServerHandshakeError as error:
                    if error.status != 401 or again:
                        raise ClusterRefused(error.status, f"exec: HTTP {error.status} {error.message}") from error
        raise AssertionError("the second try returns or raises")

    async def allowed(self, verb: str, resource: str, name: str = "") -> bool:
        """Ask whether this identity may do that in the namespace, with `name` to that one object."""
        kind, _, part = resource.partition("/")
        wanted = {"namespace": self.access.namespace, "verb": verb, "resource": kind, "subresource": part, "name": name}
        body: Json = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {name: value for name, value in wanted.items() if value}},
        }
        answer = await self.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}, body)
        return (answer.get("status") or {}).get("allowed") is True

    async def find_address(self) -> tuple[str, int]:
        """Return the API server's address and port. Raises SandboxError."""
        url = urlsplit(self.access.server)
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise SandboxError(N_("The Kubernetes API did not answer: try again.")) from error
        return str(found[0][4][0]), port

    async def get_claim(self, name: str) -> Json:
        return await self.call("GET", f"/api/v1/namespaces/{self.access.namespace}/persistentvolumeclaims/{name}")

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | list[Json] | None = None,
        content: str = JSON_TYPE,
    ) -> Json:
        """Call the API. Raises ClusterRefused with its reason, SandboxError if it does not answer."""
        async with self._answer(method, path, query or {}, body, content=content) as answer:
            return _parse_object(await _read_bounded(answer))

    @contextlib.asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | list[Json] | None,
        timeout: Any = None,
        content: str = JSON_TYPE,
    ) -> AsyncIterator[Any]:
        """Yield a response whose status is good."""
        data = None if body is None else orjson.dumps(body)
        more: Json = {"content": content} | ({"timeout": timeout} if timeout else {})
        with _map_errors():
            async with await self._request(
                method, f"{self.access.server}{path}", params=query, data=data, **more
            ) as answer:
                if answer.status >= 300:
                    raise _refusal(answer.status, await _read_bounded(answer))
                yield answer

    async def _request(self, method: str, url: str, content: str, **more: Any) -> Any:
        """Ask. Where the token or the server's certificate is refused, sign in anew once: the old ones may be over."""
        import aiohttp

        for again in (False, True):
            headers, tls = await self._sign_in(again=again)
            headers["Content-Type"] = content
            try:
                answer = await self._session.request(method, url, headers=headers, ssl=tls, **more)
            except aiohttp.ClientConnectorCertificateError:
                if again:
                    raise
                continue
            if answer.status != 401 or again:
                return answer
            answer.release()
        raise AssertionError("the second try returns or raises")

    async def _sign_in(self, *, again: bool) -> tuple[dict[str, str], ssl.SSLContext | bool]:
        """Return the headers and the TLS of a call."""
        token, tls = await asyncio.to_thread(self.access.read, again=again)
        kind = {"Accept": JSON_TYPE, "User-Agent": "fawn"}
        return {**kind, "Authorization": f"Bearer {token}"} if token else kind, tls or True


@contextlib.contextmanager
def _map_errors() -> Iterator[None]:
    """Map what aiohttp raises to SandboxError."""
    import aiohttp

    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        text = N_("The certificate of the Kubernetes API is not trusted: {error}")
        raise SandboxError(text, error=str(error.certificate_error)) from error
    except (aiohttp.ClientError, TimeoutError, ssl.SSLError, OSError) as error:
        raise SandboxError(N_("The Kubernetes API did not answer: try again.")) from error


async def _read_bounded(answer: Any) -> bytes:
    data = bytearray()
    async for part in answer.content.iter_any():
        data += part
        if len(data) > MAX_ANSWER_BYTES:
            raise SandboxError(N_("The Kubernetes API did not answer: try again."))
    return bytes(data)


def _refusal(code: int, data: bytes) -> ClusterRefused:
    try:
        reason = _parse_object(data).get("message") or ""
    except SandboxError:
        reason = data[:300].decode("utf-8", "replace")  # of a proxy in front of it
    return ClusterRefused(code, f"{reason or 'no reason given'} (HTTP {code})")


def _parse_object(data: bytes) -> Json:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise SandboxError(N_("The Kubernetes API did not answer: try again.")) from error
    if not isinstance(found, dict):
        raise SandboxError(N_("The Kubernetes API did not answer: try again."))
    return found
