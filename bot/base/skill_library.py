"""The library of skills that a configuration names."""

from __future__ import annotations

from pathlib import Path

from agent.skills.git_source import CloneBounds
from agent.skills.library import SkillFolders, SkillLibrary
from agent.web.addresses import AddressGuard
from bot.config.schema import Config
from sandbox.rules import normalize_host


def open_library(config: Config) -> SkillLibrary:
    """Return the library of this configuration, not read yet."""
    return SkillLibrary(skill_folders(config), config.data_dir / "skills")


def skill_folders(config: Config) -> SkillFolders:
    """Return where the skills of this configuration are."""
    extra = tuple(Path(folder) for folder in config.skills.folders)
    return SkillFolders(Path(config.skills.custom), extra, allow=config.skills.allow)


def clone_bounds(config: Config) -> CloneBounds:
    """Return what an installation from a git address may reach and fill."""
    private = tuple(map(normalize_host, config.skills.private_hosts))
    return CloneBounds(AddressGuard(private=private))
