"""Read the configuration of a service, at its start and at each reload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bot.config.loader import load_config
from bot.config.schema import Config


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The file (None: ./config.yaml, if it exists), and where the log goes (None: stderr)."""

    file: Path | None = None
    log_file: Path | None = None

    def read(self) -> Config:
        """Return the configuration as it is now. Raises ConfigError."""
        return load_config(self.file)
