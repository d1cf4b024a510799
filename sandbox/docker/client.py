"""The Docker SDK in threads, with its errors mapped.

The SDK is imported when the engine is first used.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
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

from catalogue import N_
from sandbox.base import SandboxError, SandboxUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
Client = Any  # docker.APIClient, which is only half typed

MAX_THREADS = 8
API_SECONDS = 30.0
NOT_FOUND, CONFLICT = 404, 409


class NotInEngine(SandboxError):
    """The engine does not have this container or image."""


class NameTaken(SandboxError):
    """Another container has this name, or the container is being removed."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """The state of a container. `error` says why it did not start."""

    id: str
    name: str
    running: bool
    memory_ran_out: bool
    labels: Mapping[str, str]
    error: str = ""
    pid: int = 0


class DockerEngine:
    """The engine at `host`, unix:// or tcp:// without TLS. Calls raise SandboxError or SandboxUnavailable."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(MAX_THREADS, "docker")
        self._opening = threading.Lock()
        self._client: Client = None

    async def engine_info(self) -> dict[str, Any]:
        """Return the engine's description of itself: `SecurityOptions`, `Runtimes`, …"""
        found: dict[str, Any] = await self.run_sdk(lambda client: client.info())
        return found

    async def image_info(self, name: str) -> tuple[str, list[str]]:
        """Return an image's id and its volumes. Raises NotInEngine."""
        found = await self.run_sdk(lambda client: client.inspect_image(name))
        return str(found["Id"]), sorted((found.get("Config") or {}).get("Volumes") or {})

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        """Create a container from the engine's own configuration object. Returns its id. Raises NameTaken."""
        made = await self.run_sdk(lambda client: client.create_container_from_config(dict(config), name))
        for warning in made.get("Warnings") or []:
            log.debug("docker.warning text=%s", warning)
        return str(made["Id"])

    async def start(self, container: str) -> None:
        await self.run_sdk(lambda client: client.start(container))

    async def inspect(self, container: str) -> ContainerInfo:
        """Return the state of a container by name or id. Raises NotInEngine."""
        found = await self.run_sdk(lambda client: client.inspect_container(container))
        state, name = found["State"], found["Name"].lstrip("/")
        labels, error = found["Config"].get("Labels") or {}, plain_engine_text(state.get("Error", ""))
        return ContainerInfo(
            found["Id"], name, state["Running"], state["OOMKilled"], labels, error, state.get("Pid", 0)
        )

    async def inspect_ended(self, container: str) -> ContainerInfo:
        """Inspect a container whose stream ended. The engine records its end a little later."""
        for _ in range(10):
            if not (found := await self.inspect(container)).running:
                break
            await asyncio.sleep(0.1)
        return found

    async def container_mounts(self, container: str) -> list[tuple[str, str]]:
        """Return the container's mounts as (path inside, path on the host). Raises NotInEngine."""
        found = await self.run_sdk(lambda client: client.inspect_container(container))
        return [(mount["Destination"], mount["Source"]) for mount in found["Mounts"] if mount.get("Source")]

    async def list_labelled(self, label: str) -> list[ContainerInfo]:
        """List all containers with this label=value, running or not."""
        found = await self.run_sdk(lambda client: client.containers(all=True, filters={"label": label}))
        return [
            ContainerInfo(one["Id"], one["Names"][0].lstrip("/"), one["State"] == "running", False, one["Labels"])
            for one in found
            if one["Names"]
        ]

    async def remove(self, container: str) -> None:
        """Kill and remove a container, if it exists."""
        with contextlib.suppress(NotInEngine, NameTaken):  # NameTaken: its removal is under way
            await self.run_sdk(lambda client: client.remove_container(container, v=True, force=True))

    async def open_exec(self, container: str, command: Sequence[str]) -> tuple[socket.socket, str]:
        """Start a program in a container. Returns its multiplexed connection and its id."""
        made = (await self.run_sdk(lambda client: client.exec_create(container, list(command), stdin=True)))["Id"]

        def begin(client: Client) -> socket.socket:
            held = client.exec_start(made, socket=True)  # nothing was read from the socket yet
            try:
                # Duplicate the descriptor: the SDK closes its own when it collects the HTTP response.
                return socket.socket(fileno=os.dup(held.fileno()))
            finally:
                held._response.close()  # noqa: SLF001  the SDK has no other handle on the connection

        return await self.run_sdk(begin), str(made)

    async def exit_code(self, program: str) -> int | None:
        """Return the exit code of a program of `open_exec`; None while it runs."""
        code: int | None = (await self.run_sdk(lambda client: client.exec_inspect(program)))["ExitCode"]
        return code

    async def build(self, context: bytes, tag: str, arguments: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Build an image from a tar with a Dockerfile; pass its log to `say`, in a thread. Raises SandboxError."""

        def run(client: Client) -> None:
            steps = client.build(
                fileobj=io.BytesIO(context), custom_context=True, tag=tag, buildargs=dict(arguments), rm=True,
                forcerm=True, decode=True, timeout=3600,
            )  # fmt: skip
            for step in steps:
                if "error" in step:
                    reason = str(step["error"]).strip().rstrip(".")
                    raise SandboxError(N_("The image was not built: {reason}."), reason=reason)
                if "stream" in step:
                    say(str(step["stream"]))
                elif "progress" not in step and "status" in step:
                    say(f"{step.get('id', '')} {step['status']}\n")

        await self.run_sdk(run)

    async def close(self) -> None:
        if self._client:
            self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run_sdk(self, work: Callable[[Client], T]) -> T:
        """Call the SDK in a thread."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._map_sdk_errors, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_late_result)
            raise

    def _map_sdk_errors(self, work: Callable[[Client], T]) -> T:
        self.check_reachable()  # first: without an engine nobody needs the SDK, which leaks a socket then
        import docker.errors
        import requests

        try:
            with self._opening:
                if self._client is None:
                    self._client = docker.APIClient(self._host, version="auto", timeout=int(API_SECONDS))
            return work(self._client)
        except docker.errors.APIError as error:
            text = plain_engine_text(str(error.explanation or error))
            if error.status_code == NOT_FOUND:
                raise NotInEngine(text) from error
            if error.status_code == CONFLICT:
                raise NameTaken(text) from error
            log.warning("docker.refused reason=%s", error)
            raise SandboxError(N_("The Docker engine refused: {reason}"), reason=text) from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise SandboxError(N_("The Docker engine did not answer: try again.")) from error

    def check_reachable(self) -> None:
        """Connect to the engine. Raises SandboxUnavailable with the fix."""
        url = urlsplit(self._host)
        if url.scheme not in ("unix", "tcp"):
            text = N_("`sandbox.docker_host` must begin with unix:// or tcp://, not {scheme}://.")
            raise SandboxUnavailable(text, scheme=url.scheme)
        try:
            if url.scheme == "tcp":
                socket.create_connection((url.hostname or "", url.port or 2375), timeout=5).close()
                return
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(5)
                probe.connect(url.path)
        except FileNotFoundError:
            raise SandboxUnavailable(
                N_(
                    "There is no Docker engine here: `sudo systemctl start docker`, if it is installed"
                    " (`sudo apt install docker.io`), or set `sandbox.docker_host`."
                )
            ) from None
        except PermissionError:
            raise SandboxUnavailable(
                N_("This user may not use the Docker engine: `sudo usermod -aG docker $USER`, then log in again.")
            ) from None
        except OSError as error:
            text = N_("The Docker engine does not answer ({reason}): `sudo systemctl start docker`.")
            raise SandboxUnavailable(text, reason=error.strerror or str(error)) from error


def plain_engine_text(text: str) -> str:
    """Put an engine message on one line, without host paths."""
    return re.sub(r"(?<![\w:/])/[^\s:'\",]+|(?<=:)/(?!/)[^\s:'\",]+", "…", " ".join(text.split()))[:300]


def _close_late_result(future: asyncio.Future[Any]) -> None:
    """Close a connection that arrived after its caller was cancelled."""
    if not future.cancelled() and not future.exception() and isinstance(found := future.result(), socket.socket):
        found.close()
