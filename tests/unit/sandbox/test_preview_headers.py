"""Headers between a browser and a hostile server: the bytes on the wire."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from yarl import URL

from sandbox.base import WORKSPACE, Sandbox, ShellCommand
from sandbox.network.preview import PreviewServer
from tests.unit.sandbox.test_preview import SETTINGS, disk, sandbox

__all__ = ["disk", "sandbox"]  # the fixtures

STAR = "https://*.preview.example.test"
# Answers each request with the file `response`, and records its head.
RAW = """
import socket
listener = socket.create_server(("127.0.0.1", 8001))
while True:
    client = listener.accept()[0]
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        piece = client.recv(65536)
        if not piece:
            break
        head += piece
    else:
        open("request", "wb").write(head)
        client.sendall(open("response", "rb").read())
    client.close()
"""
PERSON = """Cookie: session=intranet; other=1
Authorization: Bearer person
Proxy-Authorization: Basic person
X-Forwarded-For: 10.1.1.1
X-Forwarded-User: jane
X-Forwarded-Email: jane@example.test
Forwarded: for=10.1.1.1
X-Real-IP: 10.1.1.1
X-Auth-Request-Access-Token: person
Remote-User: jane
X-Remote-User: jane
X-WebAuth-User: jane
Cf-Access-Jwt-Assertion: person
Cf-Connecting-IP: 10.1.1.1
X-Amzn-Oidc-Data: person
X-Goog-Iap-Jwt-Assertion: person
X-MS-Client-Principal: person
Tailscale-User-Login: jane
Ssl-Client-Cert: person
Via: 1.1 proxy.example.test
From: jane@example.test
X-Whatever-Comes-Next: person
"""
PLAIN = """User-Agent: browser
Accept: */*
Accept-Language: en
If-None-Match: "1"
Range: bytes=0-1
Content-Type: text/plain
Sec-Fetch-Site: same-origin
X-Requested-With: fetch
X-CSRFToken: token
HX-Request: true
"""
WIDE = """NEL: {"report_to": "x", "max_age": 99999}
Report-To: {"group": "x"}
Reporting-Endpoints: x="https://evil.test/"
Strict-Transport-Security: max-age=99999; includeSubDomains
Clear-Site-Data: "*"
Alt-Svc: h3=":443"
Service-Worker-Allowed: /
Accept-CH: Sec-CH-UA
Origin-Agent-Cluster: ?0
WWW-Authenticate: Basic realm="Sign in to example.test"
X-Accel-Redirect: /etc/passwd
X-Sendfile: /etc/passwd
Link: </x>; rel=preload
X-Whatever-Comes-Next: 1
"""
NARROW = """Content-Type: text/html
Content-Language: en
Content-Security-Policy: default-src 'self'
Cache-Control: no-store
ETag: "1"
Vary: Accept
Access-Control-Allow-Origin: *
X-Frame-Options: DENY
HX-Trigger: x
"""
BODY = "Content-Length: 2\n\nok"


async def raw(sandbox: Sandbox) -> None:
    """Start RAW in the sandbox."""
    await sandbox.write(f"{WORKSPACE}/raw.py", RAW.encode())
    wait = "python3 raw.py & until (exec 3<>/dev/tcp/127.0.0.1/8001) 2>/dev/null; do sleep 0.05; done"
    assert (await sandbox.run(ShellCommand(wait, timeout_seconds=20))).exit_code == 0


class Browser:
    """Requests pages of a link as raw bytes, and returns the bytes that arrived on both ends."""

    def __init__(self, preview: PreviewServer, sandbox: Sandbox, link: str) -> None:
        self.url, self._sandbox = URL(link), sandbox
        self._port = preview._server.sockets[0].getsockname()[1]

    async def ask(self, headers: str = "", response: str = BODY, status: str = "200 OK") -> tuple[str, str]:
        """Return what the server got and what the browser got; header names in lower case."""
        head = f"HTTP/1.1 {status}\n{response}".replace("\n", "\r\n")
        await self._sandbox.write(f"{WORKSPACE}/response", head.encode("latin-1"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        lines = f"GET {self.url.path} HTTP/1.1\nHost: {self.url.authority}\n{headers}\n".replace("\n", "\r\n")
        writer.write(lines.encode("latin-1"))
        answer = (await asyncio.wait_for(reader.read(), 60)).decode("latin-1")
        writer.close()
        return (await self._sandbox.read(f"{WORKSPACE}/request")).decode("latin-1"), answer

    async def cookies(self, *lines: str) -> list[str]:
        """Return what becomes of cookies that the server sets."""
        _, answer = await self.ask(response="".join(f"Set-Cookie: {line}\n" for line in lines) + BODY)
        return [line.partition(": ")[2] for line in answer.split("\r\n") if line.startswith("Set-Cookie: ")]


@pytest.mark.parametrize("public", ["", STAR])
async def test_only_listed_headers_are_forwarded(sandbox: Sandbox, public: str) -> None:
    await raw(sandbox)
    async with PreviewServer(replace(SETTINGS, public_url=public)) as preview:
        browser = Browser(preview, sandbox, await preview.make_link(sandbox, 8001))
        got, answer = await browser.ask(PERSON + PLAIN, WIDE + NARROW + BODY)
        names = [line.partition(":")[0] for line in got.split("\r\n")[1:-2]]
        allowed = [line.partition(":")[0] for line in PLAIN.splitlines()]
        assert names == ["Host", *allowed, "Connection"]
        assert all(f"{line}\r\n" in got for line in PLAIN.splitlines())
        head, _, body = answer.partition("\r\n\r\n")
        names = [line.partition(":")[0] for line in head.split("\r\n")[1:]]
        allowed = [line.partition(":")[0] for line in NARROW.splitlines()]
        assert names == [*allowed, "Content-Length", "Referrer-Policy", "Connection"]
        assert body == "ok"


async def test_nothing_is_sent_before_or_after_the_response(sandbox: Sandbox) -> None:
    await raw(sandbox)
    async with PreviewServer(SETTINGS) as preview:
        browser = Browser(preview, sandbox, await preview.make_link(sandbox, 8001))
        final = f"HTTP/1.1 200 OK\n{BODY}HTTP/1.1 200 OK\nSet-Cookie: late=1\n{BODY}"
        _, answer = await browser.ask(
            response=f"Set-Cookie: early=1; Domain=example.test\n\n{final}", status="103 Early"
        )
        assert answer.startswith("HTTP/1.1 200 OK\r\n")
        assert answer.endswith("\r\n\r\nok")
        assert "ookie" not in answer
        _, answer = await browser.ask(response="Upgrade: websocket\nConnection: Upgrade\n\n", status="101 Surprise")
        assert answer.startswith("HTTP/1.1 502 ")


@pytest.mark.parametrize("public", ["", STAR])
async def test_a_link_receives_only_its_own_cookies(sandbox: Sandbox, public: str) -> None:
    await raw(sandbox)
    async with PreviewServer(replace(SETTINGS, public_url=public)) as preview:
        browser = Browser(preview, sandbox, await preview.make_link(sandbox, 8001))
        other = Browser(preview, sandbox, await preview.make_link(sandbox, 8001))
        [cookie] = await browser.cookies("session=mine; HttpOnly")
        pair = cookie.partition(";")[0]
        assert pair.startswith("fawn-")
        assert pair.endswith("-session=mine")
        [foreign] = await other.cookies("session=theirs")
        got, _ = await browser.ask(f"Cookie: session=company; {pair}; a=b;{foreign}\nCookie: {pair}2; x\n")
        assert got.count("\r\nCookie: ") == 1
        assert "\r\nCookie: session=mine; session=mine2\r\n" in got
        got, _ = await browser.ask("Cookie: session=company; a=b\n")
        assert "ookie" not in got


@pytest.mark.parametrize("public", ["", STAR])
async def test_a_cookie_is_bound_to_its_link(sandbox: Sandbox, public: str) -> None:
    await raw(sandbox)
    async with PreviewServer(replace(SETTINGS, public_url=public)) as preview:
        link = await preview.make_link(sandbox, 8001)
        browser = Browser(preview, sandbox, link)
        prefix = "" if public else browser.url.path.rstrip("/")
        domains = ("Domain=example.test", "DOMAIN = example.test", "domain\t=example.test", " \t doMain =.example.test")
        found = await browser.cookies(*(f"a=b;{domain}; Secure" for domain in domains))
        assert [cookie.partition("; ")[2] for cookie in found] == [f"Secure; Path={prefix}/"] * len(domains)
        kept = "Expires=Wed, 01 Jan 2031 00:00:00 GMT; max-age=9; SameSite=Lax; HttpOnly; Partitioned"
        found = await browser.cookies(f"a=b; {kept}; Path=/x", "a=b; PATH = /y;path=z", 'a=b; Unknown=1; Path="/x"')
        ends = [f"{kept}; Path={prefix}/x", f"Path={prefix}/", f"Path={prefix}/"]
        assert [cookie.partition("; ")[2] for cookie in found] == ends
        # A cookie without a name could imitate one of another link.
        found = await browser.cookies("fawn-0-a=b", "=fawn-0-a=b", "fawn-0-a", " spaced = out ", "bell=\x07; Path=/")
        names = [cookie.partition("; ")[0].split("-", 2)[2] for cookie in found]
        assert names == ["fawn-0-a=b", "=fawn-0-a=b", "=fawn-0-a", "spaced=out"]


async def test_a_server_sees_only_its_own_addresses(sandbox: Sandbox) -> None:
    """Where links are paths of one origin, a server must not see another link's path."""
    await raw(sandbox)
    async with PreviewServer(SETTINGS) as preview:
        link, other = await preview.make_link(sandbox, 8001), await preview.make_link(sandbox, 8001)
        browser = Browser(preview, sandbox, link)
        got, _ = await browser.ask(f"Referer: {link}page?x=1\n")
        assert "\r\nReferer: http://localhost:8001/page?x=1\r\n" in got
        for foreign in (other, "https://intranet.example.test/secret", link.replace("127.0.0.1", "evil.test")):
            got, _ = await browser.ask(f"Referer: {foreign}\n")
            assert "Referer" not in got, foreign
