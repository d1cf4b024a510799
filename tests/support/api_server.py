"""A real Kubernetes API server with etcd, where both are installed: `FAWN_KUBE_APISERVER` names its program.

No package has the program; docs/kubernetes.md says how it was built. There is no kubelet: pods stay as they are.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.certificates import make_certificate
from tests.support.ports import free_port

ADMIN, SERVICE = "admin-token", "fawn-token"
TOKENS = f"""{ADMIN},admin,1,"system:masters"
{SERVICE},system:serviceaccount:fawn:fawn,2,"system:serviceaccounts,system:serviceaccounts:fawn,system:authenticated"
"""
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Its address and its certificate, and calls as its administrator."""

    url: str
    authority: Path
    session: aiohttp.ClientSession

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, f"{self.url}{path}", data=data, headers=headers) as answer:
            found = await answer.json(content_type=None)
            assert answer.status < 300, found
            return found


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[ApiServer]:
    """Start both, and end them."""
    program = os.environ.get("FAWN_KUBE_APISERVER", "")
    etcd = shutil.which(os.environ.get("FAWN_ETCD", "etcd"))
    if not program or not etcd:
        pytest.skip("no Kubernetes API server: set FAWN_KUBE_APISERVER, and install etcd-server")
    store, peers, port = (free_port() for _ in range(3))
    certificate, key = make_certificate(folder)
    signing = folder / "signing.key"
    made_key = rsa.generate_private_key(65537, 2048)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    signing.write_bytes(made_key.private_bytes(pem, form, serialization.NoEncryption()))
    (folder / "tokens.csv").write_text(TOKENS)
    at, between = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
    commands = [
        [etcd, "--data-dir", str(folder / "etcd"), "--listen-client-urls", at, "--advertise-client-urls", at],
        [program, "--etcd-servers", at, "--secure-port", str(port), "--bind-address", "127.0.0.1"],
    ]
    commands[0] += ["--listen-peer-urls", between, "--initial-advertise-peer-urls", between]
    commands[0] += ["--initial-cluster", f"default={between}"]
    commands[1] += ["--tls-cert-file", str(certificate), "--tls-private-key-file", str(key)]
    commands[1] += ["--cert-dir", str(folder / "certs"), "--token-auth-file", str(folder / "tokens.csv")]
    commands[1] += ["--authorization-mode", "RBAC", "--service-account-issuer", "https://fawn.example"]
    commands[1] += ["--service-account-signing-key-file", str(signing), "--service-account-key-file", str(signing)]
    commands[1] += ["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"]
    processes = []
    tls = ssl.create_default_context(cafile=str(certificate))
    try:
        for command in commands:
            with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
                processes.append(await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            made = ApiServer(f"https://127.0.0.1:{port}", certificate, session)
            async with asyncio.timeout(START_SECONDS):
                while not await is_ready(made):
                    assert processes[1].returncode is None, (folder / f"{Path(program).name}.log").read_text()[-2000:]
                    await asyncio.sleep(0.5)
            yield made
    finally:
        for process in reversed(processes):
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def is_ready(server: ApiServer) -> bool:
    try:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with server.session.get(f"{server.url}/readyz", headers=headers) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
