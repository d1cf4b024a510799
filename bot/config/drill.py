"""Define the section `drill` of config.yaml: drills at set times, and the chat that reads how they went."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from agent.near_misses import suggest
from agent.setting import setting
from bot.config.document import Document
from bot.config.hooks import parse_target
from catalogue import _

Often = Literal["", "daily", "weekly", "monthly"]


@dataclass(frozen=True, slots=True)
class DrillConfig:
    """Drills at set times: none without a schedule (docs/operations.md)."""

    schedule: Often = setting(
        "", "`daily`, `weekly` (Sundays) or `monthly` (the 1st), at 3 o'clock in `time_zone`; empty: only `fawn drill`"
    )
    to: str = setting("", "the chat that reads how it went, `CHANNEL:WORKSPACE/CHAT`, as `/whoami` shows it there")


def check_drill(document: Document, drill: DrillConfig, channels: Collection[str]) -> None:
    """A drill at set times is reported to a chat of a channel that is configured."""
    at = ("drill", "to")
    if drill.to and not drill.schedule:
        document.fault(
            ("drill",), _("begins no drill"), _("add `schedule: weekly`, or remove the section"), on_key=True
        )
    if not drill.schedule:
        return
    try:
        channel = parse_target(drill.to).channel
    except ValueError:
        fix = _("write it as CHANNEL:WORKSPACE/CHAT; the command `whoami` shows it in that chat")
        document.fault(at, _("is not the address of a chat"), fix)
        return
    if channel == "console":
        document.fault(at, _("the console has no chats"), _("name a chat of another channel"))
    elif channel not in channels and document.has_accounts:
        document.fault(at, _("this channel is not configured"), suggest(channel, channels))
