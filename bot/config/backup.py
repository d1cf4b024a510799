"""Define the section `backup` of config.yaml: where backups at set times go, how often, and how many stay."""

from __future__ import annotations

from dataclasses import dataclass

from agent.setting import setting


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """Backups at set times: none without a folder."""

    to: str = setting("", "folder of the archives; empty: no backups at set times", path=True)
    every_hours: float = setting(24.0, "how old the latest archive gets before the next one is written", ge=0.1)
    keep: int = setting(7, "how many archives stay", ge=1)
    then: tuple[str, ...] = setting(
        (), "a program with its arguments that runs after each backup, `{file}` is the archive: to copy it elsewhere"
    )
