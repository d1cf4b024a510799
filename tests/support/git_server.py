"""A real git server (`git http-backend`) over HTTPS, for the repositories below a folder."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.support.proxies import signed


@asynccontextmanager
async def serve_git(root: Path, certificates: Path) -> AsyncIterator[tuple[str, Path]]:
    """Serve the repositories. Yields the address, and the file of the certificate that a client has to trust."""

    async def answer(request: web.Request) -> web.Response:
        environment = {
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        pipe = asyncio.subprocess.PIPE
        backend = await asyncio.create_subprocess_exec("git", "http-backend", env=environment, stdin=pipe, stdout=pipe)
        out, _ = await backend.communicate(await request.read())
        head, _, body = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=headers, body=body)

    certificate = signed(certificates)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}", certificate
    finally:
        await runner.cleanup()
