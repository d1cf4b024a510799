"""Select the sandbox provider, and hand a turn its sandbox on first use."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from sandbox.base import Sandbox, SandboxProvider, SandboxUnavailable
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import DockerSettings
from sandbox.network.rules import NetworkRules


async def select_provider(
    provider: Literal["auto", "docker", "local", "none"],
    settings: DockerSettings,
    folders: ConversationFolders,
) -> tuple[SandboxProvider, str]:
    """The provider, and one sentence for people: what is used and why. "docker" and "local" insist on theirs and raise
    SandboxUnavailable with the fix, as do `folders` where they do not work; "auto" takes the best that works, and says
    what keeps it from a better one."""
    only = FilesOnlyProvider(settings.skills)
    if provider == "none":
        await folders.check(only)
        return only, "Sandbox: files only, as configured; commands are off."
    why: list[str] = []
    if provider in ("auto", "docker"):
        made: DockerProvider | BubblewrapProvider = DockerProvider(settings)
        try:
            await _checked_provider(made, folders)
            words = f"Docker, one {settings.runtime or 'isolated'} container of {settings.image} per conversation"
            return made, f"Sandbox: {words}, {describe_network(settings.network)}, {folders.description}."
        except SandboxUnavailable as error:
            if provider == "docker":
                raise
            why.append(f"Docker is not used: {error}")
    made = BubblewrapProvider(settings)
    try:
        await _checked_provider(made, folders)
    except SandboxUnavailable as error:
        if provider == "local":
            raise
        await folders.check(only)
        return only, " ".join(["Sandbox: files only, commands are off.", str(error), *why])
    network = describe_network(settings.network)
    words = f"Sandbox: bubblewrap, one isolated machine per conversation, {network}, {folders.description}."
    return made, " ".join([words, *why])


async def _checked_provider(provider: SandboxProvider, folders: ConversationFolders) -> None:
    """Its check, and that of `folders` with it; a provider that does not pass is closed."""
    try:
        await provider.check()
        await folders.check(provider)
    except BaseException:
        await provider.close()
        raise


def describe_network(rules: NetworkRules) -> str:
    """What sandboxes reach, in a few words."""
    if rules.mode == "allowlist":
        return "with a network of named hosts"
    return "with a way to public hosts" if rules.mode == "on" else "without network"


class LazySandbox:
    """See `SandboxHandle`. Made at the start of a turn, closed at its end."""

    def __init__(self, provider: SandboxProvider, key: str, folder: Path) -> None:
        self.runs_commands = provider.runs_commands
        self._provider, self._key, self._folder = provider, key, folder
        self._held = AsyncExitStack()
        self._task: asyncio.Task[Sandbox] | None = None

    @property
    def used(self) -> bool:
        """Somebody asked for it in this turn."""
        return self._task is not None

    def warm(self) -> None:
        """See `SandboxHandle.warm`."""
        self._begin()

    async def get(self) -> Sandbox:
        """See `SandboxHandle.get`. A sandbox that ended meanwhile is replaced."""
        while True:
            task = self._begin()
            sandbox = await asyncio.shield(task)  # a tool call that is stopped does not take it from the others
            if not sandbox.gone:
                return sandbox
            if self._task is task:
                self._task = None

    async def aclose(self) -> None:
        """Let it go: it stays warm for the next turn until it is reaped."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._held.aclose()

    def _begin(self) -> asyncio.Task[Sandbox]:
        if self._task is None or (self._task.done() and (self._task.cancelled() or self._task.exception())):
            acquired = self._held.enter_async_context(self._provider.acquire(self._key, self._folder))
            self._task = asyncio.create_task(acquired, name=f"sandbox-acquire:{self._key}")
            # Seen here, so that a failed warm-up is not reported by the loop: `get` raises it to whoever needs it.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task
