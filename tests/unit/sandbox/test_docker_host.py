"""Docker on the host: file owners, host paths, and a service in a container."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest

from sandbox.base import SandboxUnavailable
from sandbox.docker.capabilities import describe_site
from sandbox.docker.client import plain_engine_text
from sandbox.docker.host_paths import HostPaths
from sandbox.docker.spec import EngineSite
from sandbox.docker.stream import ExecStream
from sandbox.users import FIRST_USER_ID
from tests.support.engines import HOST, IMAGE, need_docker

INFO = {
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
}
ROOT = Path(__file__).parents[3]
SOCK = Path("/")  # stands for the engine's socket; its owner, here root, is the owner of a rootless engine


def test_root_gives_each_sandbox_its_own_user() -> None:
    assert describe_site(INFO, SOCK, 61, 62) == EngineSite(61, 62, None)
    assert describe_site(INFO, SOCK, 0, 0) == EngineSite(FIRST_USER_ID, FIRST_USER_ID, 0)


def test_userns_remap_shifts_folder_owners() -> None:
    info = {**INFO, "SecurityOptions": ["name=userns"], "DockerRootDir": "/var/lib/docker/100000.100000"}
    assert describe_site(info, SOCK, 0, 0) == EngineSite(FIRST_USER_ID, FIRST_USER_ID, 100_000)
    with pytest.raises(SandboxUnavailable, match=r"userns-remap.*run Fawn as root"):
        describe_site(info, SOCK, 61, 61)


def test_a_rootless_engine_maps_root_to_its_owner() -> None:
    info = {**INFO, "SecurityOptions": ["name=seccomp", "name=rootless"]}
    assert describe_site(info, SOCK, SOCK.stat().st_uid, 1) == EngineSite(0, 0, None)
    with pytest.raises(SandboxUnavailable, match="rootless and belongs to another user"):
        describe_site(info, SOCK, SOCK.stat().st_uid + 1, 1)


def test_unsupported_limits_are_not_requested() -> None:
    assert describe_site({}, SOCK, 61, 61) == EngineSite(61, 61, None, memory=False, cpus=False, processes=False)


def test_the_longest_mount_maps_a_path(tmp_path: Path) -> None:
    inner = tmp_path / "data" / "threads"
    inner.mkdir(parents=True)
    places = HostPaths([(str(tmp_path), "/outer"), (str(tmp_path / "data"), "/volumes/v/_data"), ("/x", "/y")])
    assert places.host_path(inner) == "/volumes/v/_data/threads"
    assert places.host_path(tmp_path) == "/outer"
    assert places.host_path(tmp_path / "database") == "/outer/database"
    assert HostPaths().host_path(inner) == str(inner)
    with pytest.raises(SandboxUnavailable, match="volume"):
        places.host_path(Path("/etc"))


def test_engine_messages_lose_their_host_paths() -> None:
    text = "invalid mount: bind source path does not exist: /srv/fawn/x\n in '/a b':/c, see https://docs.docker.com/go"
    assert (
        plain_engine_text(text)
        == "invalid mount: bind source path does not exist: … in '… b':…, see https://docs.docker.com/go"
    )


@pytest.mark.parametrize("piece", [1, 3, 8, 1000])
async def test_exec_frames_are_parsed_in_any_pieces(piece: int) -> None:
    ours, theirs = socket.socketpair()
    stream = ExecStream(*await asyncio.open_connection(sock=ours))
    _, writer = await asyncio.open_connection(sock=theirs)
    frames = [(1, b"out"), (2, b"a word of warning"), (1, b""), (1, b"x" * 300), (2, b"!"), (1, b"end")]
    sent = b"".join(struct.pack(">BxxxI", kind, len(data)) + data for kind, data in frames)

    async def send() -> None:
        for start in range(0, len(sent), piece):
            writer.write(sent[start : start + piece])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    sending = asyncio.create_task(send())
    got = b""
    while data := await stream.read():
        got += data
    await sending
    assert got == b"out" + b"x" * 300 + b"end"
    assert stream.stderr == "a word of warning!"
    await stream.close()
    with pytest.raises(OSError, match="closed"):
        await stream.write(b"x")


async def test_a_build_without_a_registry_reports_the_fix(tmp_path: Path) -> None:
    need_docker()
    (tmp_path / "config.yaml").write_text("config_version: 1\nsandbox: {image: 'fawn-sandbox:never'}\n")
    build = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", "sandbox", "build", "--base", "127.0.0.1:1/none", cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(build.communicate(), 60)
    assert build.returncode == 1
    assert b"Step 1/" in said
    assert b"fawn sandbox build --base IMAGE" in said
    assert b"Traceback" not in said


INSIDE = """
import asyncio
from pathlib import Path
from sandbox.base import ShellCommand
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import DockerSettings

async def main():
    data, skills = Path("/var/lib/fawn"), Path("/opt/skills")  # the one on a mount, the other in the image
    skills.mkdir(parents=True)
    (skills / "SKILL.md").write_text("# A skill\\n")
    provider = DockerProvider(DockerSettings(skills, state=data / "sandbox", image=IMAGE))
    await provider.check()
    async with provider.acquire("t", data / "threads" / "t") as sandbox:
        command = ShellCommand("cat /mnt/skills/SKILL.md; echo made > /mnt/user-data/outputs/a")
        print((await sandbox.run(command)).output, end="")
    print((data / "threads/t/outputs/a").read_text(), end="")
    await provider.reap(0)
    await provider.close()
    try:
        provider = DockerProvider(DockerSettings(skills, state=Path("/tmp/elsewhere"), image=IMAGE))
        await provider.check()
    except Exception as error:
        print(type(error).__name__, error)
    await provider.close()

asyncio.run(main())
"""


@pytest.fixture
async def client() -> AsyncIterator[docker.APIClient]:
    need_docker()
    made = await asyncio.to_thread(docker.APIClient, HOST)
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["folder", "volume"])
async def test_a_service_in_a_container_finds_its_host_paths(
    client: docker.APIClient, tmp_path: Path, kind: str
) -> None:
    """Run our source in a container with the engine's socket, its data in a folder or a volume of the host."""
    (tmp_path / "data").mkdir()
    volume = f"fawn-test-{secrets.token_hex(6)}"
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    binds = {str(ROOT / name): f"/fawn/{name}" for name in ("sandbox", "catalogue")} | {libraries: "/libraries"}
    config = client.create_host_config(
        network_mode="none",
        binds=[
            *(f"{source}:{target}:ro" for source, target in binds.items()),
            f"{HOST.removeprefix('unix://')}:/var/run/docker.sock",
            f"{tmp_path / 'data' if kind == 'folder' else volume}:/var/lib/fawn",
        ],
    )
    made = client.create_container(
        IMAGE, ["python3", "-c", INSIDE.replace("IMAGE", repr(IMAGE))], user="0:0", host_config=config,
        environment={"PYTHONPATH": "/fawn:/libraries", "PYTHONDONTWRITEBYTECODE": "1"}, use_config_proxy=False,
    )  # fmt: skip
    try:
        client.start(made["Id"])
        await asyncio.to_thread(client.wait, made["Id"], timeout=180)
        said = client.logs(made["Id"]).decode().splitlines()
    finally:
        client.remove_container(made["Id"], force=True)
        if kind == "volume":
            client.remove_volume(volume, force=True)
    assert said[:2] == ["# A skill", "made"], said
    assert said[2].startswith("SandboxUnavailable Fawn runs in a container, and the engine cannot see its data"), said
    if kind == "folder":
        assert (tmp_path / "data" / "threads" / "t" / "outputs" / "a").read_text() == "made\n"
