"""The network as commands see it, on each provider that runs them."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from sandbox.base import SandboxProvider, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.docker.provider import DockerProvider
from sandbox.network.service import EgressService
from sandbox.rules import NetworkRules
from sandbox.settings import SandboxSettings
from tests.support.cluster import kubernetes_provider
from tests.support.engines import docker_provider, docker_settings, need_bubblewrap, need_docker
from tests.support.outside_world import HOST, Names, Outside, hosts


class Make(Protocol):
    """Makes a provider with these rules; names resolve to loopback."""

    async def __call__(self, rules: NetworkRules) -> SandboxProvider: ...


@pytest.fixture(params=["bubblewrap", "docker", "kubernetes"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:

        async def made(rules: NetworkRules) -> SandboxProvider:
            egress = EgressService(rules, tmp_path / "egress", Names())
            if request.param == "docker":
                settings = docker_settings(tmp_path, network=rules)
                return await stack.enter_async_context(docker_provider(settings, egress))
            if request.param == "kubernetes":
                cluster = kubernetes_provider(tmp_path, egress, network=rules)
                return (await stack.enter_async_context(cluster))[0]
            need_bubblewrap()
            provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills", network=rules), egress)
            stack.push_async_callback(provider.close)
            return provider

        yield made


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with Outside(tmp_path) as made:
        yield made


ASK = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode().strip()[:300])
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print(error)
"""


def ask(*urls: str) -> str:
    """Return a command that prints the result of each URL on its own line."""
    return f"python3 - {' '.join(urls)} <<'END'\n{ASK}\nEND"


async def test_only_allowed_hosts_are_reached(make: Make, outside: Outside, tmp_path: Path) -> None:
    provider = await make(NetworkRules("allowlist", hosts(outside.http, outside.https), ca_file=str(outside.authority)))
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        urls = [
            f"http://{HOST}:{outside.http}/hello",
            f"https://{HOST}:{outside.https}/hello",  # the operator's own certificate authority
            f"http://{HOST}/hello",
            "https://evil.test/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00:ec2::254]/latest/meta-data/",
            f"http://172.17.0.1:{outside.http}/hello",
        ]
        result = await sandbox.run(ShellCommand(ask(*urls), timeout_seconds=60))
        got = result.output.splitlines()
        assert got[:2] == ["hello", "hello"]
        assert got[2] == f"403 {HOST} is not allowed for the sandbox; an operator can add it to sandbox.network.hosts."
        assert "403 evil.test is not allowed" in got[3]
        assert all("403 " in line and "operator" in line for line in got[4:]), got
        assert [path for path, _ in outside.seen] == ["/hello", "/hello"]


REUSE = """
import http.client, socket, sys
port = sys.argv[1]
client = http.client.HTTPConnection("127.0.0.1", 3128)
for n in range(2):
    client.request("GET", f"http://registry.test:{port}/hello?{n}")
    print(client.getresponse().read().decode().strip())
door = socket.create_connection(("127.0.0.1", 3128))
line = f"GET http://registry.test:{port}/hello HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
door.sendall((line + "GET /smuggled HTTP/1.1\\r\\nHost: inner.corp\\r\\n\\r\\n").encode())
said = b""
while piece := door.recv(1000):
    said += piece
print(said.count(b"HTTP/1.1"))
"""


async def test_a_connection_carries_one_request(make: Make, outside: Outside, tmp_path: Path) -> None:
    """An ordinary client opens a new connection for its next request."""
    provider = await make(NetworkRules("allowlist", hosts(outside.http)))
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        result = await sandbox.run(ShellCommand(f"python3 - {outside.http} <<'END'\n{REUSE}\nEND", timeout_seconds=60))
        assert result.output == "hello\nhello\n1\n"
        assert [path for path, _ in outside.seen] == ["/hello?0", "/hello?1", "/hello"]
        assert {headers["Host"] for _, headers in outside.seen} == {f"{HOST}:{outside.http}"}


async def test_the_proxy_cannot_be_bypassed(make: Make, outside: Outside, tmp_path: Path) -> None:
    provider = await make(NetworkRules("on"))
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104  reachable on every address of this host
        port = server.getsockname()[1]
        attempts = (
            "import socket\n"
            "for host in ('127.0.0.1', '10.0.2.2', '172.17.0.1', '169.254.169.254', '1.1.1.1', 'example.com'):\n"
            f"    for port in ({port}, 80):\n"
            "        try: socket.create_connection((host, port), 1); print('REACHED', host)\n"
            "        except OSError: pass\n"
            "print([name for _, name in socket.if_nameindex() if name != 'lo'])"
        )
        async with provider.acquire("t", tmp_path / "t") as sandbox:
            result = await sandbox.run(ShellCommand(f'python3 -c "{attempts}"', timeout_seconds=60))
    tunnels = re.findall(r"'(\w+)'", result.output)  # interfaces of the kernel, without routes
    assert set(tunnels) <= {"tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}
    assert "REACHED" not in result.output


@pytest.mark.parametrize("make", ["bubblewrap", "docker"], indirect=True)
async def test_the_socket_folder_is_private_and_read_only(make: Make, outside: Outside, tmp_path: Path) -> None:
    provider = await make(NetworkRules("allowlist", hosts(outside.http), ca_file=str(outside.authority)))
    async with provider.acquire("t", tmp_path / "t") as sandbox, provider.acquire("u", tmp_path / "u") as other:
        result = await sandbox.run(
            ShellCommand(
                "ls /run/fawn; rm -f /run/fawn/egress.sock; mv /run/fawn/ca.pem /run/fawn/x; echo > /run/fawn/ca.pem; "
                "ln -s /etc /run/fawn/link; echo ---; ls /run; ls /run/fawn"
            )
        )
        assert result.output.split()[:2] == ["ca.pem", "egress.sock"]
        assert result.output.split("---")[1].split() == ["fawn", "ca.pem", "egress.sock"]
        url = f"http://{HOST}:{outside.http}/hello"
        assert (await sandbox.run(ShellCommand(ask(url)))).output == "hello\n"
        await provider.destroy("u")
        assert (await sandbox.run(ShellCommand(ask(url)))).output == "hello\n"
        assert other.gone
    await provider.destroy("t")
    assert list((tmp_path / "egress").iterdir()) == []


@pytest.mark.parametrize("make", ["kubernetes"], indirect=True)
async def test_a_pod_that_removes_its_socket_harms_only_itself(make: Make, outside: Outside, tmp_path: Path) -> None:
    """The socket is the pod's own: its tunnel made it there."""
    provider = await make(NetworkRules("allowlist", hosts(outside.http)))
    look = ShellCommand(ask(f"http://{HOST}:{outside.http}/hello"))
    async with provider.acquire("t", tmp_path / "t") as sandbox, provider.acquire("u", tmp_path / "u") as other:
        await sandbox.run(ShellCommand("rm /run/fawn/egress.sock"))
        assert "hello" not in (await sandbox.run(look)).output
        assert (await sandbox.run(ShellCommand("echo works"))).output == "works\n"
        assert (await other.run(look)).output == "hello\n"
    await provider.destroy("t")
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        assert (await sandbox.run(look)).output == "hello\n"


async def test_heavy_transfers_do_not_delay_commands(make: Make, outside: Outside, tmp_path: Path) -> None:
    provider = await make(NetworkRules("allowlist", hosts(outside.http)))
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        payload = random.randbytes(8 << 20)
        (tmp_path / "t" / "uploads" / "payload").write_bytes(payload)
        (tmp_path / "t" / "uploads" / "payload").chmod(0o644)
        echo = (
            "import urllib.request, concurrent.futures as f\n"
            "data = open('/mnt/user-data/uploads/payload', 'rb').read()\n"
            f"ask = lambda n: urllib.request.urlopen('http://{HOST}:{outside.http}/echo', data).read() == data\n"
            "print(all(f.ThreadPoolExecutor(8).map(ask, range(16))))"
        )
        transfers = asyncio.create_task(sandbox.run(ShellCommand(f'python3 -c "{echo}"', timeout_seconds=120)))
        await asyncio.sleep(0.5)
        assert (await sandbox.run(ShellCommand("echo meanwhile"))).output == "meanwhile\n"
        assert (await transfers).output == "True\n"
        count = ShellCommand("ls -d /proc/[0-9]* 2>/dev/null | wc -l")
        async with asyncio.timeout(60):  # the relays end with their connections
            while int((await sandbox.run(count)).output) > 8:
                await asyncio.sleep(0.05)


async def test_without_a_network_the_refusal_names_the_setting(make: Make, tmp_path: Path) -> None:
    provider = await make(NetworkRules())
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        result = await sandbox.run(ShellCommand(ask("http://example.com/", "https://example.com/")))
        assert result.output.count("The sandbox has no network (sandbox.network.mode is off); an operator can") == 2
        assert "FAWN" not in (await sandbox.run(ShellCommand("env"))).output
        serve = "python3 -m http.server -b 127.0.0.1 8000 >/dev/null 2>&1 & sleep 1"
        await sandbox.run(ShellCommand(serve))
        said = await sandbox.run(
            ShellCommand(ask("http://127.0.0.1:8000/", "http://localhost:8000/", "http://0.0.0.0:8000/"))
        )
        assert said.output.count("DOCTYPE HTML") == 3  # its own servers are reached directly


@pytest.mark.parametrize(
    "command",
    [
        "curl -sS http://example.com/",
        "npm view left-pad version",
        "pip install surely-not-there",
        "pip download -q surely-not-there",
    ],
)
async def test_common_programs_show_the_refusal(command: str, tmp_path: Path) -> None:
    need_bubblewrap()
    if not shutil.which(command.split()[0], path="/usr/bin") and "pip" not in command:
        pytest.skip(f"needs {command.split()[0]} on this machine")
    provider = BubblewrapProvider(SandboxSettings(tmp_path))
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        result = await sandbox.run(ShellCommand(command, timeout_seconds=60))
        assert "no network (sandbox.network.mode is off); an operator can allow" in result.output, result.output
        assert not result.timed_out, "it tries again and again"
    await provider.close()


PRY = """
import os, socket
held = socket.create_connection(("127.0.0.1", 3128))
held.send(b"CONNECT registry.test:%d HTTP/1.1\\r\\n\\r\\n")
held.recv(100)
seen = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        line = open(f"/proc/{pid}/cmdline").read()
    except OSError:
        continue
    if "-I\\0-S\\0-u" in line:
        seen += 1
        for what in ("fd", "environ", "mem", "maps", "root"):
            try:
                path = f"/proc/{pid}/{what}"
                found = os.listdir(path) if what in ("fd", "root") else open(path, "rb").read(9)
                print("LEAK", pid, what, found)
            except OSError:
                pass
print("servers:", seen >= 2)
for words in (b"DIAL ", b"DIAL 0123456789abcdef0123456789abcdef", b"DIAL ../x", b"\\0" * 50000):
    door = socket.socket(socket.AF_UNIX)
    door.connect("/run/fawn/egress.sock")
    try:
        door.sendall(words + b"\\r\\n\\r\\n")
        print("door:", door.recv(100).split(b"\\r\\n")[0])
    except OSError:
        print("door: b'closed'")
"""


async def test_the_relay_and_the_socket_reveal_nothing(make: Make, outside: Outside, tmp_path: Path) -> None:
    """A relay is a child of the command server and holds its stream, so commands may not inspect it. The socket refuses
    unknown tickets."""
    provider = await make(NetworkRules("allowlist", hosts(outside.http)))
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        await sandbox.write("/mnt/user-data/workspace/pry.py", (PRY % outside.http).encode())
        said = (await sandbox.run(ShellCommand("python3 pry.py", timeout_seconds=30))).output
        assert "LEAK" not in said
        assert "servers: True" in said
        answers = [line for line in said.splitlines() if line.startswith("door:")]
        assert len(answers) == 4
        assert all("400" in line or line in ("door: b'closed'", "door: b''") for line in answers), answers
        assert (await sandbox.run(ShellCommand("echo works"))).output == "works\n"


async def test_egress_works_after_a_restart_of_the_service(outside: Outside, tmp_path: Path) -> None:
    """The folder gets a new socket, and the next command server a new relay."""
    need_docker()
    rules = NetworkRules("allowlist", hosts(outside.http))
    settings = docker_settings(tmp_path, network=rules)
    look = ask(f"http://{HOST}:{outside.http}/hello")
    first = DockerProvider(settings, EgressService(rules, tmp_path / "egress", Names()))
    async with first.acquire("t", tmp_path / "t") as sandbox:
        assert (await sandbox.run(ShellCommand(look))).output == "hello\n"
    await first.close()
    again = EgressService(rules, tmp_path / "egress", Names())
    async with docker_provider(settings, again) as second, second.acquire("t", tmp_path / "t") as sandbox:
        assert (await sandbox.run(ShellCommand(look))).output == "hello\n"
