"""The proxy before the engine's socket: sandboxes work through it, and nothing else does."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox.base import OUTPUTS, WORKSPACE, SandboxError, ShellCommand
from sandbox.docker.client import ContainerInfo, DockerEngine
from sandbox.docker.proxy_rules import CallRefused, ProxyRules, check_container, judge
from sandbox.docker.spec import INSTANCE, KEY, DockerSettings, EngineSite, container_config
from sandbox.settings import SandboxSettings
from sandbox.wire.connection import SERVER_COMMAND
from tests.support.engines import HOST, IMAGE, docker_provider, docker_settings, need_docker

DATA = PurePosixPath("/srv/fawn")
RULES = ProxyRules(DATA, (IMAGE,))
NAME = "fawn-" + "0a" * 10
LABELS = {INSTANCE: "0" * 16, KEY: "telegram/bot/1/"}


def sandbox_body(**more: Any) -> dict[str, Any]:
    """Return what the provider asks for."""
    settings = DockerSettings(Path("/skills"), state=Path("/state"), **more)
    sources = {name: f"{DATA}/threads/1/{name}" for name in ("workspace", "uploads", "outputs")}
    sources |= {"egress": f"{DATA}/run/e", "passwd": f"{DATA}/state/passwd-1", "skills": f"{DATA}/state/skills"}
    body = container_config(settings, EngineSite(10001, 10001), IMAGE, ["/v"], sources) | {"Labels": LABELS}
    return dict(json.loads(json.dumps(body)))


@pytest.mark.parametrize("more", [{}, {"memory_mb": 100, "cpus": 0.5, "file_mb": 7, "tmp_mb": 12, "processes": 9}])
def test_what_the_provider_asks_for_passes(more: dict[str, Any]) -> None:
    assert check_container(sandbox_body(**more), RULES)["Image"] == IMAGE


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of one setting: a path such as HostConfig.Privileged."""

    def change(body: dict[str, Any]) -> None:
        *outer, last = path.split(".")
        inner: Any = body
        for name in outer:
            inner = inner[int(name)] if isinstance(inner, list) else inner[name]
        inner[last] = value

    return change


FORBIDDEN = {
    "privileged": put("HostConfig.Privileged", True),
    "not even as a number": put("HostConfig.Privileged", 0),
    "capabilities": put("HostConfig.CapAdd", ["SYS_ADMIN"]),
    "no dropped capabilities": put("HostConfig.CapDrop", []),
    "the host's network": put("HostConfig.NetworkMode", "host"),
    "a bridge": put("HostConfig.NetworkMode", "default"),
    "the host's processes": put("HostConfig.PidMode", "host"),
    "the host's IPC": put("HostConfig.IpcMode", "host"),
    "the host's users": put("HostConfig.UsernsMode", "host"),
    "devices": put("HostConfig.Devices", [{"PathOnHost": "/dev/sda"}]),
    "binds": put("HostConfig.Binds", ["/:/host"]),
    "volumes of others": put("HostConfig.VolumesFrom", ["other"]),
    "no system call filter": put("HostConfig.SecurityOpt", ["no-new-privileges:true", "seccomp=unconfined"]),
    "a writable image": put("HostConfig.ReadonlyRootfs", False),
    "ports": put("HostConfig.PortBindings", {"80/tcp": [{"HostPort": "80"}]}),
    "a restart policy": put("HostConfig.RestartPolicy", {"Name": "always"}),
    "a cgroup": put("HostConfig.CgroupParent", "/"),
    "another runtime": put("HostConfig.Runtime", "runc-evil"),
    "too much memory": put("HostConfig.Memory", 1 << 40),
    "swap": put("HostConfig.MemorySwap", -1),
    "too many processors": put("HostConfig.NanoCpus", 10**12),
    "no limit of processes": put("HostConfig.PidsLimit", -1),
    "sysctls": put("HostConfig.Sysctls", {"kernel.msgmax": "1"}),
    "the host's root": put("HostConfig.Mounts.0.Source", "/"),
    "the data as a whole": put("HostConfig.Mounts.0.Source", str(DATA)),
    "a way out by ..": put("HostConfig.Mounts.0.Source", f"{DATA}/../../etc"),
    "a folder with the same beginning": put("HostConfig.Mounts.0.Source", f"{DATA}-other/x"),
    "another target": put("HostConfig.Mounts.0.Target", "/usr/lib"),
    "another kind of mount": put("HostConfig.Mounts.0.Type", "volume"),
    "options of a mount": put("HostConfig.Mounts.0.BindOptions", {"Propagation": "shared"}),
    "a writable folder of the proxy": put("HostConfig.Mounts.0.ReadOnly", False),
    "tmpfs options": put("HostConfig.Tmpfs./tmp", "rw,suid,dev,exec,size=10"),
    "root": put("User", "0:0"),
    "root by name": put("User", "root"),
    "the root group": put("User", "10001:0"),
    "a program": put("Cmd", ["sh", "-c", "id"]),
    "an entry point": put("Entrypoint", ["sh"]),
    "a health check": put("Healthcheck", {"Test": ["CMD", "id"]}),
    "code by a variable": put("Env", ["LD_PRELOAD=/mnt/user-data/workspace/x.so"]),
    "a label of others": put("Labels", {**LABELS, "traefik.enable": "true"}),
    "no label": put("Labels", {}),
    "networks": put("NetworkingConfig", {"EndpointsConfig": {"host": {}}}),
    "volumes": put("Volumes", {"/x": {}}),
}


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_container_that_is_no_sandbox_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    body = sandbox_body()
    change(body)
    with pytest.raises(CallRefused):
        check_container(body, RULES)


def test_each_setting_of_a_sandbox_must_be_there() -> None:
    whole = sandbox_body()
    optional = {"Memory", "MemorySwap", "NanoCpus", "PidsLimit", "Mounts", "Tmpfs", "Ulimits", "ShmSize"}
    for name in whole["HostConfig"].keys() - optional:
        body = copy.deepcopy(whole)
        del body["HostConfig"][name]
        with pytest.raises(CallRefused, match=name):
            check_container(body, RULES)


OTHER_CALLS = [
    ("GET", "/containers/json"),
    ("GET", f"/containers/json?filters={json.dumps({'label': ['x']})}"),
    ("GET", "/images/json"),
    ("GET", "/images/other/json"),
    ("POST", "/images/create?fromImage=x"),
    ("POST", "/build"),
    ("GET", f"/containers/{NAME}/logs"),
    ("GET", f"/containers/{NAME}/archive?path=/"),
    ("PUT", f"/containers/{NAME}/archive?path=/"),
    ("POST", f"/containers/{NAME}/attach"),
    ("POST", f"/containers/{NAME}/update"),
    ("POST", f"/containers/{NAME}/rename?name=x"),
    ("POST", f"/containers/{NAME}/../{NAME}/start"),
    ("POST", f"/containers/{NAME}%2f../start"),
    ("GET", "/volumes"),
    ("POST", "/volumes/create"),
    ("GET", "/networks"),
    ("POST", "/networks/bridge/connect"),
    ("GET", "/secrets"),
    ("POST", "/swarm/init"),
    ("GET", "/events"),
    ("POST", "/plugins/pull"),
    ("POST", "/session"),
    ("POST", "/grpc"),
    ("GET", "/system/df"),
    ("GET", "http://other/version"),
    ("GET", "//version"),
    ("GET", "/v1.41/v1.41/version"),
    ("POST", "/version"),
    ("POST", "/containers/create"),
    ("POST", "/containers/create?name=mine"),
]


@pytest.mark.parametrize(("method", "target"), OTHER_CALLS)
def test_another_call_is_refused(method: str, target: str) -> None:
    with pytest.raises(CallRefused):
        judge(method, target, json.dumps(sandbox_body()).encode(), RULES)


@pytest.mark.parametrize(
    "change",
    [{"Privileged": True}, {"User": "root"}, {"Env": ["X=y"]}, {"Cmd": ["sh"]}, {"WorkingDir": "/"}, {"Tty": True}],
)
def test_only_the_command_server_is_started(change: dict[str, Any]) -> None:
    right = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Cmd": list(SERVER_COMMAND)}
    target = f"/v1.41/containers/{NAME}/exec"
    assert judge("POST", target, json.dumps(right).encode(), RULES).kind == "exec"
    with pytest.raises(CallRefused):
        judge("POST", target, json.dumps(right | change).encode(), RULES)


# ---------------------------------------------------------------- with an engine


@asynccontextmanager
async def running_proxy(folder: Path, *more: str) -> AsyncIterator[str]:
    """Run the proxy as its own process; yield the host for a provider."""
    need_docker()
    listen = Path(tempfile.mkdtemp(prefix="fawn-")) / "engine"  # a short path: sockets allow 108 characters
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox.docker.socket_proxy", "--listen", listen, "--data", folder / "data",
        "--image", IMAGE, *more, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    try:
        line = await asyncio.wait_for(process.stderr.readline(), 60)
        assert b"ready" in line, line
        yield f"unix://{listen}"
    finally:
        process.terminate()
        assert await process.wait() == 0
        shutil.rmtree(listen.parent)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.mark.slow
async def test_a_sandbox_works_through_the_proxy(tmp_path: Path, data: Path) -> None:
    folder = data / "threads" / "1"
    async with running_proxy(tmp_path) as host, docker_provider(docker_settings(data, host=host)) as provider:
        await provider.check()
        async with provider.acquire("t", folder) as sandbox:
            done = await sandbox.run(ShellCommand(f"echo hi >{OUTPUTS}/a; id -u; pwd", timeout_seconds=20))
            assert done.output.split()[1:] == [WORKSPACE]
            assert (folder / "outputs" / "a").read_text() == "hi\n"
        engine = DockerEngine(host)
        [own] = [each for each in await engine.list_labelled(INSTANCE) if await is_of(each, folder)]
        await provider.destroy("t")
        assert own.id not in {each.id for each in await engine.list_labelled(INSTANCE)}
        await engine.close()


async def is_of(container: ContainerInfo, folder: Path) -> bool:
    """Return whether a container has a conversation's folder: other tests may have some, too."""
    asked = ("docker", "inspect", "-f", "{{json .Mounts}}", container.id)
    process = await asyncio.create_subprocess_exec(
        *asked, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    return str(folder).encode() in (await process.communicate())[0]


@pytest.mark.slow
async def test_a_link_out_of_the_data_is_found_before_anything_runs(tmp_path: Path, data: Path) -> None:
    """The service may have been taken over: what it asks for passes by its words, but the folder is another one."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    for name in ("workspace", "uploads", "outputs"):
        (data / name).mkdir()
    user = os.getuid() or 10001
    os.chown(data / "workspace", user, user)
    (data / "link").symlink_to(outside)
    async with running_proxy(tmp_path) as host:
        engine = DockerEngine(host)
        sources = {"workspace": f"{data}/link", "uploads": f"{data}/uploads", "outputs": f"{data}/outputs"}
        settings = docker_settings(data, host=host)
        body = container_config(settings, EngineSite(user, user), IMAGE, [], sources) | {"Labels": LABELS}
        container = await engine.create(NAME, body)
        try:
            await engine.start(container)
            with pytest.raises(SandboxError, match="symbolic link"):
                await engine.open_exec(container, SERVER_COMMAND)
            (data / "link").unlink()  # …and put back what the words say
            (data / "link").mkdir()
            with pytest.raises(SandboxError, match="not below the data"):
                await engine.open_exec(container, SERVER_COMMAND)
        finally:
            await engine.remove(container)
            await engine.close()


@pytest.mark.slow
async def test_containers_of_others_are_out_of_reach(tmp_path: Path, data: Path) -> None:
    real = DockerEngine(HOST)
    need_docker()
    other = await real.create("other-" + os.urandom(6).hex(), {"Image": IMAGE, "Cmd": ["sleep", "60"], "Env": ["K=v"]})
    try:
        async with running_proxy(tmp_path) as host:
            engine = DockerEngine(host)
            for call in (engine.inspect, engine.start):
                with pytest.raises(SandboxError, match="no sandbox"):
                    await call(other)
            with pytest.raises(SandboxError, match="no sandbox"):
                await engine.open_exec(other, SERVER_COMMAND)
            with pytest.raises(SandboxError, match="no sandbox"):
                await engine.remove(other)
            assert other not in {each.id for each in await engine.list_labelled(INSTANCE)}
            await engine.close()
        assert not (await real.inspect(other)).running
    finally:
        await real.remove(other)
        await real.close()


@pytest.mark.slow
async def test_an_image_that_is_not_named_and_one_container_too_many_are_refused(tmp_path: Path, data: Path) -> None:
    user = os.getuid() or 10001
    async with running_proxy(tmp_path, "--containers", "0") as host:
        engine = DockerEngine(host)
        settings = docker_settings(data, host=host)
        for image, why in (("sha256:" + "0" * 64, "image is not allowed"), (IMAGE, "0 containers already")):
            body = container_config(settings, EngineSite(user, user), image, [], {}) | {"Labels": LABELS}
            with pytest.raises(SandboxError, match=why):
                await engine.create(NAME, body)
        await engine.close()


async def test_nonsense_is_answered_and_the_proxy_goes_on(tmp_path: Path, data: Path) -> None:
    async with running_proxy(tmp_path) as host:
        path = host.removeprefix("unix://")
        for nonsense in (
            b"\x16\x03\x01\x00\r\n\r\n",
            b"GET /version HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        ):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(nonsense)
                assert b" 400 " in await asyncio.to_thread(client.recv, 4096)
        long = f"POST /containers/create?name={NAME} HTTP/1.1\r\nHost: x\r\nContent-Length: {2 << 20}\r\n\r\n".encode()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(long + b"x" * (1 << 20) + b"y")
        assert b" 400 " in await reader.readline()
        writer.close()
        engine = DockerEngine(host)
        assert (await engine.engine_info())["OSType"] == "linux"
        await engine.close()


def test_defaults_of_the_settings_are_within_the_bounds() -> None:
    settings = SandboxSettings(Path("/"))
    assert settings.memory_mb <= RULES.memory_mb
    assert settings.cpus <= RULES.cpus
    assert settings.processes <= RULES.processes
