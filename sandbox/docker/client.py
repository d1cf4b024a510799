"""The Docker SDK off the event loop, its errors as ours. It is imported only here, when an engine is first asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sandbox.base import SandboxError, SandboxUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
Client = Any  # docker.APIClient: half of its methods have no types

MAX_THREADS = 8
CALL_SECONDS = 30.0
NOT_FOUND, CONFLICT = 404, 409


class NotInEngine(SandboxError):
    """The engine does not know it (any more)."""


class NameTaken(SandboxError):
    """The name belongs to another container, or one that is being removed."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """What is known of one. `memory_ran_out`: the kernel killed it for that; `error`: why it did not start."""

    id: str
    name: str
    running: bool
    memory_ran_out: bool
    labels: Mapping[str, str]
    error: str = ""
    pid: int = 0


class DockerEngine:
    """A Docker engine at `host`, unix:// or tcp:// (without TLS: the engine sees our files, so it is on this machine).
    Every call raises SandboxError, or SandboxUnavailable with the fix when the engine cannot be asked at all."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(MAX_THREADS, "docker")
        self._opening = threading.Lock()
        self._client: Client = None

    async def info(self) -> dict[str, Any]:
        """What the engine says of itself: `SecurityOptions`, `Runtimes`, …"""
        found: dict[str, Any] = await self.run_sdk(lambda client: client.info())
        return found

    async def image_info(self, name: str) -> tuple[str, list[str]]:
        """The id of an image, and the places that it wants volumes for. Raises Missing."""
        found = await self.run_sdk(lambda client: client.inspect_image(name))
        return str(found["Id"]), sorted((found.get("Config") or {}).get("Volumes") or {})

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        """Make a container of the engine's own configuration object; its id. Raises Taken."""
        made = await self.run_sdk(lambda client: client.create_container_from_config(dict(config), name))
        for warning in made.get("Warnings") or []:
            log.debug("docker: %s", warning)
        return str(made["Id"])

    async def start(self, container: str) -> None:
        """Start it; no harm when it runs already."""
        await self.run_sdk(lambda client: client.start(container))

    async def inspect(self, container: str) -> ContainerInfo:
        """Look at one, by name or id. Raises Missing."""
        found = await self.run_sdk(lambda client: client.inspect_container(container))
        state = found["State"]
        labels = found["Config"].get("Labels") or {}
        return ContainerInfo(
            found["Id"],
            found["Name"].lstrip("/"),
            state["Running"],
            state["OOMKilled"],
            labels,
            plain_engine_text(state.get("Error", "")),
            state.get("Pid", 0),
        )

    async def inspect_ended(self, container: str) -> ContainerInfo:
        """Look at one whose stream ended. The engine writes down a little later that all of it did."""
        for _ in range(10):
            if not (found := await self.inspect(container)).running:
                break
            await asyncio.sleep(0.1)
        return found

    async def mounts(self, container: str) -> list[tuple[str, str]]:
        """Where its mounts lie inside and on the host. Raises Missing."""
        found = await self.run_sdk(lambda client: client.inspect_container(container))
        return [(mount["Destination"], mount["Source"]) for mount in found["Mounts"] if mount.get("Source")]

    async def list_labelled(self, label: str) -> list[ContainerInfo]:
        """Every container with this label=value, running or not."""
        found = await self.run_sdk(lambda client: client.containers(all=True, filters={"label": label}))
        return [
            ContainerInfo(one["Id"], one["Names"][0].lstrip("/"), one["State"] == "running", False, one["Labels"])
            for one in found
            if one["Names"]
        ]

    async def remove(self, container: str) -> None:
        """Kill and remove it; no harm when it is gone."""
        with contextlib.suppress(NotInEngine, NameTaken):  # Taken: its removal is under way
            await self.run_sdk(lambda client: client.remove_container(container, v=True, force=True))

    async def open_exec(self, container: str, command: Sequence[str]) -> tuple[socket.socket, str]:
        """Start a program in it: a connection with its stdin, stdout and stderr (these multiplexed), and its id."""
        made = (await self.run_sdk(lambda client: client.exec_create(container, list(command), stdin=True)))["Id"]

        def begin(client: Client) -> socket.socket:
            held = client.exec_start(made, socket=True)  # nothing was said yet: all is still in the socket
            try:
                # A descriptor of our own: the SDK's goes with its HTTP response, whenever that is collected.
                return socket.socket(fileno=os.dup(held.fileno()))
            finally:
                held._response.close()  # noqa: SLF001  the one handle on its connection that the SDK leaves

        return await self.run_sdk(begin), str(made)

    async def exit_code(self, program: str) -> int | None:
        """How a program of `open_exec` ended; None while it runs."""
        code: int | None = (await self.run_sdk(lambda client: client.exec_inspect(program)))["ExitCode"]
        return code

    async def build(self, context: bytes, tag: str, arguments: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Build an image of a tar with a Dockerfile, from a thread; `say` gets its log. Raises SandboxError."""

        def run(client: Client) -> None:
            import io

            steps = client.build(
                fileobj=io.BytesIO(context), custom_context=True, tag=tag, buildargs=dict(arguments), rm=True,
                forcerm=True, decode=True, timeout=3600,
            )  # fmt: skip
            for step in steps:
                if "error" in step:
                    raise SandboxError(f"The image was not built: {str(step['error']).strip().rstrip('.')}.")
                if "stream" in step:
                    say(str(step["stream"]))
                elif "progress" not in step and "status" in step:
                    say(f"{step.get('id', '')} {step['status']}\n")

        await self.run_sdk(run)

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client:
            self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run_sdk(self, work: Callable[[Client], T]) -> T:
        """Let the SDK do something, in a thread."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._map_sdk_errors, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_late_result)
            raise

    def _map_sdk_errors(self, work: Callable[[Client], T]) -> T:
        import docker.errors
        import requests

        try:
            self.check_reachable()  # first: of an engine that is away, the SDK leaves a socket open and says little
            with self._opening:
                if self._client is None:
                    self._client = docker.APIClient(self._host, version="auto", timeout=int(CALL_SECONDS))
            return work(self._client)
        except docker.errors.APIError as error:
            text = plain_engine_text(str(error.explanation or error))
            if error.status_code == NOT_FOUND:
                raise NotInEngine(text) from error
            if error.status_code == CONFLICT:
                raise NameTaken(text) from error
            log.warning("docker: %s", error)
            raise SandboxError(f"The Docker engine refused: {text}") from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise SandboxError("The Docker engine did not answer: try again.") from error

    def check_reachable(self) -> None:
        """Connect and hang up. Raises SandboxUnavailable with what to do."""
        url = urlsplit(self._host)
        if url.scheme not in ("unix", "tcp"):
            raise SandboxUnavailable(f"sandbox.docker_host must begin with unix:// or tcp://, not {url.scheme}://.")
        try:
            if url.scheme == "tcp":
                socket.create_connection((url.hostname or "", url.port or 2375), timeout=5).close()
                return
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(5)
                probe.connect(url.path)
        except FileNotFoundError:
            raise SandboxUnavailable(
                "There is no Docker engine here: `sudo systemctl start docker`, if it is installed (`sudo apt install "
                "docker.io`), or set `sandbox.docker_host`."
            ) from None
        except PermissionError:
            raise SandboxUnavailable(
                "This user may not use the Docker engine: `sudo usermod -aG docker $USER`, then log in again."
            ) from None
        except OSError as error:
            raise SandboxUnavailable(
                f"The Docker engine does not answer ({error.strerror or error}): `sudo systemctl start docker`."
            ) from error


def plain_engine_text(text: str) -> str:
    """Words of the engine in one line, without paths of the host."""
    return re.sub(r"(?<![\w:/])/[^\s:'\",]+|(?<=:)/(?!/)[^\s:'\",]+", "…", " ".join(text.split()))[:300]


def _close_late_result(future: asyncio.Future[Any]) -> None:
    """What nobody waits for any more must not stay open."""
    if not future.cancelled() and not future.exception() and isinstance(found := future.result(), socket.socket):
        found.close()
