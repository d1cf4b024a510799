"""What the configuration says about folders and sandboxes, for whoever opens them: the service or a check."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from bot.config.schema import Config
from sandbox.disk.folders import ConversationFolders
from sandbox.docker.spec import DockerSettings
from sandbox.settings import SandboxSettings


def folders(config: Config) -> ConversationFolders:
    """Return the manager of the conversations' folders."""
    return ConversationFolders(config.data_dir / "threads", config.sandbox.disk_mb)


def sandbox_settings(config: Config) -> DockerSettings:
    """Return the settings of the sandbox providers."""
    sandbox = config.sandbox
    names = {each.name for each in fields(SandboxSettings)} - {"skills"}
    same: dict[str, Any] = {name: getattr(sandbox, name) for name in names}
    return DockerSettings(
        **same,
        skills=config.data_dir / "skills" / "view",
        state=config.data_dir / "sandbox",
        image=sandbox.image,
        host=sandbox.docker_host,
        runtime=sandbox.runtime,
    )
