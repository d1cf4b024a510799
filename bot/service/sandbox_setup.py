"""Read the settings of folders and sandboxes, for whoever opens them: the service or a check; stop idle ones."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from agent.skills.library import VIEW_FOLDER
from bot.base.data_dir import host_name
from bot.config.schema import Config
from bot.rights.current import Current
from sandbox.base import SandboxProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.docker.spec import DockerSettings
from sandbox.rules import ReportEgress, report_nothing
from sandbox.settings import SandboxSettings

log = logging.getLogger(__name__)

SKILL_PACKAGES_FOLDER = "skill-packages"  # beside the packages of the service: `make skills` fills it
REAP_INTERVAL_SECONDS = 30.0


def folders(config: Config) -> ConversationFolders:
    """Return the manager of the conversations' folders."""
    return ConversationFolders(config.data_dir / "threads", config.sandbox.disk_mb)


def sandbox_settings(config: Config, report_egress: ReportEgress = report_nothing) -> DockerSettings:
    """Return the settings of the sandbox providers. `report_egress` gets each request of a sandbox."""
    sandbox = config.sandbox
    names = {each.name for each in fields(SandboxSettings)} - {"skills", "skill_packages", "report_egress"}
    same: dict[str, Any] = {name: getattr(sandbox, name) for name in names}
    return DockerSettings(
        **same,
        skills=config.data_dir / "skills" / VIEW_FOLDER,
        skill_packages=Path(sys.prefix) / SKILL_PACKAGES_FOLDER,
        report_egress=report_egress,
        state=config.data_dir / "sandbox",
        service=host_name(config.data_dir) if config.database.replicas and config.data_dir.exists() else "",
        image=sandbox.image,
        host=sandbox.docker_host,
        runtime=sandbox.runtime,
    )


async def reap_sandboxes(provider: SandboxProvider, current: Current) -> None:
    """Wait a moment, then stop the sandboxes that nobody has used for as long as the configuration says."""
    await asyncio.sleep(REAP_INTERVAL_SECONDS)
    if keys := await provider.reap(current.config.sandbox.idle_minutes * 60):
        log.info("sandbox.reaped count=%d", len(keys))
