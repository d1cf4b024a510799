"""Make the configuration of a drill: the operator's own, with a channel, a model and a folder of the drill's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from agent.settings.models import ModelSettings
from bot.config.loader import ConfigError, load_config, read_plain_sections
from bot.config.schema import Config
from bot.drill.telegram_server import TOKEN
from channels.telegram import TelegramSettings

KEPT = (  # sections that decide what happens to messages, and can reach nothing outside
    *("team", "permissions", "limits", "uploads", "catch_up", "context", "keep_days", "schedules", "tasks"),
    *("time_zone", "language", "subagents", "goal"),
)
OF_THE_DRILL = frozenset(
    {"data_dir", "database", "models", "roles", "channels", "sandbox", "memory", "audit", "log", "drill"}
)
KEPT_OF_MODELS = ("name", "display_name", "connect_seconds", "read_seconds", "retries", "context_tokens", "vision")
KEPT_OF_TELEGRAM = ("per_chat", "burst", "per_group", "overall", "drafts")
MOST_POLL_SECONDS = 5.0  # else a deaf channel alone would take half a minute
FIRST_PERSON, PEOPLE = 1001, 200


def people() -> list[int]:
    """Return the people of a drill: each writes one message, so that no limit of a person is met."""
    return [*range(FIRST_PERSON, FIRST_PERSON + PEOPLE)]


def write_scratch(config: Config, folder: Path, data_dir: Path, address: str) -> list[str]:
    """Write `folder`/config.yaml; return the names of the sections that are not used.

    `address` is that of the drill's servers. Raises ConfigError where even a plain configuration has a fault.
    """
    own, written = read_plain_sections(config.file, KEPT) if config.file else ({}, frozenset())
    file = folder / "config.yaml"
    while True:
        sections = {**own, **_own_sections(config, data_dir, address)}
        file.write_text(yaml.safe_dump({"config_version": 1, **sections}, sort_keys=False))
        try:
            load_config(file, environ={})
        except ConfigError as error:
            bad = {name for fault in error.faults for name in own if fault.place.startswith(name)}
            if not bad:
                raise
            own = {name: value for name, value in own.items() if name not in bad}
        else:
            return sorted(written - own.keys() - OF_THE_DRILL)


def leave_out(folder: Path, name: str) -> bool:
    """Remove a section from a configuration that was written. Return whether it had one."""
    file = folder / "config.yaml"
    sections: dict[str, Any] = yaml.safe_load(file.read_text())
    found = sections.pop(name, None)
    file.write_text(yaml.safe_dump(sections, sort_keys=False))
    return found is not None


def _own_sections(config: Config, data_dir: Path, address: str) -> dict[str, Any]:
    telegram = next((each.settings for each in config.channels if isinstance(each.settings, TelegramSettings)), None)
    paced = {name: getattr(telegram, name) for name in KEPT_OF_TELEGRAM} if telegram else {}
    waits = min(MOST_POLL_SECONDS, telegram.poll_seconds if telegram else MOST_POLL_SECONDS)
    channel = {
        "token": TOKEN,
        "base_url": address,
        "poll_seconds": waits,
        "access": {"open": True, "operators": [*map(str, people())]},
        **paced,
    }
    return {
        "data_dir": str(data_dir),
        "models": [_model(each, address) for each in config.models or (ModelSettings("main"),)],
        "roles": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in ((field.name, getattr(config.roles, field.name)) for field in fields(config.roles))
        },
        "sandbox": {"provider": "none"},
        "memory": {"enabled": False},
        "audit": {"days": config.audit.days},
        "log": {"level": "info"},
        "channels": {"telegram": channel},
    }


def _model(settings: ModelSettings, address: str) -> Mapping[str, Any]:
    kept = {name: getattr(settings, name) for name in KEPT_OF_MODELS if getattr(settings, name) is not None}
    return kept | {"model": "drill", "base_url": f"{address}/v1"}
