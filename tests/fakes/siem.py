"""Receivers of a SIEM: syslog over TLS (RFC 5425 frames of RFC 5424 messages), and HTTPS that takes JSON lines."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# RFC 5424, section 6: PRI VERSION SP TIMESTAMP SP HOSTNAME SP APP-NAME SP PROCID SP MSGID SP STRUCTURED-DATA SP MSG
MESSAGE = re.compile(
    rb"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}(?:Z|[+-]\d\d:\d\d)) ([!-~]{1,255}) ([!-~]{1,48})"
    rb" ([!-~]{1,128}) ([!-~]{1,32}) - (.*)",
    re.DOTALL,
)


class SiemReceiver:
    """Both receivers on loopback with a certificate of their own; `events` is what came, in order."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.posts = 0
        self.refusals = 0  # POSTs that are answered by 503
        self.seconds_a_row = 0.0  # that a POST takes
        self.redirects = 0  # the status by which POSTs are sent on to /elsewhere, with the same certificate
        self.strayed = 0  # requests that came there
        self.syslog_port = self.https_port = 0
        self.ca_file = ""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def sequences(self) -> list[int]:
        """The numbers of the rows in the order in which they came."""
        return [event["event.sequence"] for event in self.events if "event.sequence" in event]

    def cut(self) -> None:
        """Abort all connections of syslog."""
        for writer in self._writers:
            writer.transport.abort()

    async def take_syslog(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read frames until the end."""
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = (await reader.readuntil(b" ")).strip()
                assert re.fullmatch(rb"[1-9]\d*", length), f"RFC 5425, section 4.3: {length!r} is no length"
                frame = await reader.readexactly(int(length))
                found = MESSAGE.fullmatch(frame)
                assert found, f"no message of RFC 5424: {frame[:100]!r}"
                assert found[1] == b"110", "facility log audit (13), severity informational (6)"
                self.events.append(json.loads(found[7]))
        self._writers.discard(writer)
        writer.close()

    async def take_post(self, request: web.Request) -> web.Response:
        """Take JSON lines, with the right header only."""
        self.posts += 1
        if request.headers.get("Authorization") != "Bearer right":
            return web.Response(status=401)
        if self.refusals:
            self.refusals -= 1
            return web.Response(status=503)
        if self.redirects:
            return web.Response(status=self.redirects, headers={"Location": "/elsewhere"})
        assert request.content_type == "application/x-ndjson"
        found = [*map(json.loads, (await request.text()).splitlines())]
        await asyncio.sleep(self.seconds_a_row * len(found))
        self.events += found
        return web.Response(status=204)

    async def take_strayed(self, _request: web.Request) -> web.Response:
        """Count what followed a redirect."""
        self.strayed += 1
        return web.Response(status=204)


@asynccontextmanager
async def serve_siem(folder: Path) -> AsyncIterator[SiemReceiver]:
    """Serve both until the end of the context; `folder` gets the certificate."""
    receiver = SiemReceiver()
    certificate, key = make_certificate(folder)
    receiver.ca_file = str(certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/audit", receiver.take_post)
    app.router.add_route("*", "/elsewhere", receiver.take_strayed)
    runner = web.AppRunner(app)
    await runner.setup()
    https = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await https.start()
    syslog = await asyncio.start_server(receiver.take_syslog, "127.0.0.1", 0, ssl=context)
    receiver.syslog_port = syslog.sockets[0].getsockname()[1]
    receiver.https_port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        syslog.close()
        receiver.cut()
        await runner.cleanup()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and its key; return both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "siem")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "siem.pem", folder / "siem.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    no_password = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(pem, form, no_password))
    return certificate, secret
