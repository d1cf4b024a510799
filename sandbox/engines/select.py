"""Select the sandbox provider, and start a turn's sandbox on first use."""

from __future__ import annotations

import asyncio
import importlib
import time
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from catalogue import N_, LazyText, join_lazily
from sandbox.base import Sandbox, SandboxProvider, SandboxUnavailable
from sandbox.disk.folders import ConversationFolders
from sandbox.rules import NetworkRules
from sandbox.settings import SandboxSettings

if TYPE_CHECKING:  # the providers load when one is chosen: the channels listen before that
    from sandbox.bubblewrap.provider import BubblewrapProvider
    from sandbox.docker.provider import DockerProvider
    from sandbox.docker.spec import DockerSettings

SANDBOX = N_("Sandbox: {description}")
DOCKER = N_("Docker, one isolated container of {image} per conversation, {network}, {disk}.")
DOCKER_RUNTIME = N_("Docker, one {runtime} container of {image} per conversation, {network}, {disk}.")
KUBERNETES = N_("Kubernetes, one pod of {image} per conversation, {network}, {disk}.")
BUBBLEWRAP = N_("bubblewrap, one isolated sandbox per conversation, {network}, {disk}.")


async def select_provider(
    provider: Literal["auto", "docker", "local", "kubernetes", "none"],
    settings: DockerSettings,
    folders: ConversationFolders,
) -> tuple[SandboxProvider, LazyText, LazyText]:
    """Return the provider, a description of the choice, and for `fawn check` why a better one is not used ("" if none
    is). "docker", "local", "kubernetes" and an own provider raise SandboxUnavailable with the fix if theirs does not
    work; "auto" takes the best that works on this machine."""
    await asyncio.to_thread(_load_providers)
    from sandbox.bubblewrap.provider import BubblewrapProvider
    from sandbox.disk.files_only import FilesOnlyProvider
    from sandbox.docker.provider import DockerProvider
    from sandbox.engines.own_provider import make_own_provider

    if settings.use:
        own = make_own_provider(settings)
        await _checked_provider(own)
        return own, LazyText(N_("{name}, by {use}, as configured."), name=own.name, use=settings.use), LazyText("")
    only = FilesOnlyProvider(settings.skills)
    if provider == "none":
        return only, LazyText(N_("files only, as configured; commands are off.")), LazyText("")
    facts = {"network": describe_network(settings.network), "disk": folders.description}
    why = LazyText("")
    if provider == "kubernetes":
        return await _select_kubernetes(settings), LazyText(KUBERNETES, image=settings.image, **facts), why
    if provider in ("auto", "docker"):
        made: DockerProvider | BubblewrapProvider = DockerProvider(settings)
        try:
            await _checked_provider(made)
            container = {"image": settings.image, "runtime": settings.runtime}
            return made, LazyText(DOCKER_RUNTIME if settings.runtime else DOCKER, **container, **facts), why
        except SandboxUnavailable as error:
            if provider == "docker":
                raise
            why = LazyText(N_("Docker is not used: {error}"), error=error)
    made = BubblewrapProvider(settings)
    try:
        await _checked_provider(made)
    except SandboxUnavailable as error:
        if provider == "local":
            raise
        return only, join_lazily(LazyText(N_("files only, commands are off.")), error.text), why
    return made, LazyText(BUBBLEWRAP, **facts), why


async def _select_kubernetes(settings: DockerSettings) -> SandboxProvider:
    """Return the provider of pods, which loads only where it is configured. Raises SandboxUnavailable."""
    from sandbox.kubernetes.provider import KubernetesProvider
    from sandbox.kubernetes.spec import KubernetesSettings

    common = {each.name: getattr(settings, each.name) for each in fields(SandboxSettings)}
    made = KubernetesProvider(KubernetesSettings(**common, state=settings.state, image=settings.image))
    await _checked_provider(made)
    return made


def _load_providers() -> None:
    """Load the providers, which takes long, beside the event loop."""
    for name in ("bubblewrap.provider", "disk.files_only", "docker.provider", "engines.own_provider"):
        importlib.import_module(f"sandbox.{name}")


async def _checked_provider(provider: SandboxProvider) -> None:
    """Check `provider`. Closes it if it does not work."""
    try:
        await provider.check()
    except BaseException:
        await provider.close()
        raise


def describe_network(rules: NetworkRules) -> LazyText:
    """Describe in a few words what sandboxes can reach."""
    if rules.mode == "allowlist":
        return LazyText(N_("with network access to named hosts"))
    return LazyText(N_("with network access to public hosts") if rules.mode == "on" else N_("without network"))


class LazySandbox:
    """See `SandboxHandle`. It lives as long as a turn."""

    def __init__(self, provider: SandboxProvider, key: str, folder: Path) -> None:
        self.runs_commands = provider.runs_commands
        self._provider, self._key, self._folder = provider, key, folder
        self._exit_stack = AsyncExitStack()
        self._task: asyncio.Task[Sandbox] | None = None
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        """For how long a sandbox that runs commands has been in use, up to now."""
        return time.monotonic() - self._began if self._began is not None and self.runs_commands else 0.0

    @property
    def used(self) -> bool:
        """Whether this turn asked for its sandbox."""
        return self._task is not None

    def warm(self) -> None:
        self._start_acquiring()

    async def get(self) -> Sandbox:
        """See `SandboxHandle.get`. Replaces a sandbox that has ended."""
        while True:
            task = self._start_acquiring()
            sandbox = await asyncio.shield(task)  # a cancelled tool call must not cancel it for others
            if not sandbox.gone:
                return sandbox
            if self._task is task:
                self._task = None

    async def aclose(self) -> None:
        """Release the sandbox. It stays warm for the next turn until it is reaped."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._exit_stack.aclose()

    def _start_acquiring(self) -> asyncio.Task[Sandbox]:
        if self._task is None or (self._task.done() and (self._task.cancelled() or self._task.exception())):
            self._began = self._began if self._began is not None else time.monotonic()
            acquired = self._exit_stack.enter_async_context(self._provider.acquire(self._key, self._folder))
            self._task = asyncio.create_task(acquired, name=f"sandbox-acquire:{self._key}")
            # Retrieve the exception, so that the loop does not report a failed warm-up: `get` raises it.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task
