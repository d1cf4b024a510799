"""Names, a web server with its own authority, and package registries, all on loopback."""

from __future__ import annotations

import base64
import hashlib
import io
import ssl
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Self

import orjson
from aiohttp import web

HOST = "registry.test"
WHEEL = "deer-1.0-py3-none-any.whl"


def hosts(*ports: int) -> tuple[str, ...]:
    """Return rules that allow these ports of HOST; its address is also named, because it is on this machine."""
    return tuple(f"{name}:{port}" for port in ports for name in (HOST, "127.0.0.1"))


class Names:
    """A resolver that records its queries; a test sets the answers. Other names are unknown."""

    def __init__(self, **known: list[str]) -> None:
        self.known = {HOST: ["127.0.0.1"], **known}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self.known:
            raise OSError(-2, "Name or service not known")
        return self.known[host]


class Outside:
    """The web server. `http` and `https` are its ports, `authority` is the file of its certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = folder / "authority.pem"
        self._key = folder / "key.pem"
        self.seen: list[tuple[str, dict[str, str]]] = []  # path and headers of each request

    async def __aenter__(self) -> Self:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", self._key, "-out", self.authority, "-days", "2", "-subj", f"/CN={HOST}",
             "-addext", f"subjectAltName=DNS:{HOST}"],
            check=True, capture_output=True,
        )  # fmt: skip
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, self._key)
        for tls in (None, context):
            await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.http, self.https = (address[1] for address in self._runner.addresses)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.seen.append((request.path_qs, dict(request.headers)))
        here = f"{request.scheme}://{request.host}"
        match request.path:
            case "/echo":
                return web.Response(body=await request.read())
            case "/simple/deer/":
                return web.Response(text=f'<a href="/files/{WHEEL}">{WHEEL}</a>', content_type="text/html")
            case "/files/deer-1.0-py3-none-any.whl":
                return web.Response(body=_wheel())
            case "/fawn-greets":
                return web.json_response(_package(here), dumps=lambda data: orjson.dumps(data).decode())
            case "/files/fawn-greets-1.0.0.tgz":
                return web.Response(body=TARBALL)
            case "/hello":
                return web.Response(text="hello\n")
        return web.Response(status=404, text="nothing here\n")


def _wheel() -> bytes:
    """Build a Python package `deer` with a program of the same name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        wheel.writestr("deer.py", "def main():\n    print('a deer')\n")
        info = "deer-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: deer\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\ndeer = deer:main\n")
        names = ["deer.py", *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "RECORD"))]
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    return data.getvalue()


def _tarball() -> bytes:
    """Build an npm package `fawn-greets` with a program of the same name."""
    data = io.BytesIO()
    files = {
        "package.json": '{"name": "fawn-greets", "version": "1.0.0", "main": "index.js", "bin": "cli.js"}',
        "index.js": "module.exports = (name) => `hello ${name}`;\n",
        "cli.js": "#!/usr/bin/env node\nconsole.log(require('./index.js')('you'));\n",
    }
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


TARBALL = _tarball()


def _package(here: str) -> dict[str, Any]:
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(TARBALL).digest()).decode()
    dist = {"tarball": f"{here}/files/fawn-greets-1.0.0.tgz", "integrity": integrity}
    version = {"name": "fawn-greets", "version": "1.0.0", "main": "index.js", "bin": {"fawn-greets": "cli.js"}}
    return {"name": "fawn-greets", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**version, "dist": dist}}}
