"""The section `push:` of config.yaml: notifications outside of the chats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.setting import Secret, setting

PushEvent = Literal["done", "failed", "waiting", "task", "schedule"]
ALL_EVENTS: tuple[PushEvent, ...] = ("done", "failed", "waiting", "task", "schedule")


@dataclass(frozen=True, slots=True)
class PushTarget:
    """One entry of `push.targets`."""

    name: str = field(metadata={"help": "a name of your choice, for the log"})
    url: Secret = field(metadata={"help": "the address of the webhook, or `https://SERVER/KEY` of Bark"})
    kind: Literal["webhook", "bark"] = setting(
        "webhook", "`webhook`: JSON with the headers of Standard Webhooks; `bark`: the app Bark"
    )
    secret: Secret | None = setting(
        None, "signs what a webhook gets (header `webhook-signature`): text, or `whsec_` and Base64"
    )
    people: tuple[str, ...] = setting(
        (), "whose notifications go there, as `CHANNEL/PERSON`; empty: everybody's", repr=True
    )
    events: tuple[PushEvent, ...] = setting(ALL_EVENTS, f"which notifications go there, of: {', '.join(ALL_EVENTS)}")


@dataclass(frozen=True, slots=True)
class PushConfig:
    """Notifications outside of the chats (docs/notifications.md)."""

    targets: tuple[PushTarget, ...] = setting((), "where notifications go beside the chats, described below")
    bark_servers: tuple[str, ...] = setting(
        (), "Bark servers that people may name with `/notify bark`, such as `https://api.day.app`; empty: none"
    )
    private_addresses: bool = setting(
        False, "targets may have addresses that are not public, and any port, such as a server in your own network"
    )
