"""Define the sections by which operators keep, watch and check the service.

They are audit, backup, drill, encryption, metrics, traces and push.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit

from agent.setting import HEADERS, Secret, setting
from bot.config.addresses import check_chat
from bot.config.document import Document
from bot.config.excerpt import Location
from catalogue import _
from sandbox.disk.sealing import MIN_KEY_CHARS, Sealer


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The audit: a tamper-evident log of who did what (docs/operations.md)."""

    days: int = setting(365, "rows of the audit that are older are deleted; 0: they are kept", ge=0)
    key: Secret | None = setting(None, "signs the head of the audit, which is logged every hour")


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """Backups at set times: none without a folder."""

    to: str = setting("", "folder of the archives; empty: no backups at set times", path=True)
    every_hours: float = setting(24.0, "how old the latest archive gets before the next one is written", ge=0.1)
    keep: int = setting(7, "how many archives stay", ge=1)
    then: tuple[str, ...] = setting(
        (), "a program with its arguments that runs after each backup, `{file}` is the archive: to copy it elsewhere"
    )


Often = Literal["", "daily", "weekly", "monthly"]


@dataclass(frozen=True, slots=True)
class DrillConfig:
    """Drills at set times: none without a schedule (docs/operations.md)."""

    schedule: Often = setting(
        "", "`daily`, `weekly` (Sundays) or `monthly` (the 1st), at 3 o'clock in `time_zone`; empty: only `fawn drill`"
    )
    to: str = setting("", "the chat that reads how it went, `CHANNEL/WORKSPACE/CHAT`, as `/whoami` shows it there")


def check_drill(
    document: Document, drill: DrillConfig, channels: Collection[str], modules: Mapping[str, ModuleType]
) -> None:
    """A drill at set times is reported to a chat of a channel that is configured."""
    at = ("drill", "to")
    if drill.to and not drill.schedule:
        document.fault(
            ("drill",), _("begins no drill"), _("add `schedule: weekly`, or remove the section"), on_key=True
        )
    if not drill.schedule:
        return
    check_chat(document, at, drill.to, channels, modules)


@dataclass(frozen=True, slots=True)
class EncryptionConfig:
    """Encrypt stored secrets and backups under a key from outside of data_dir (docs/operations.md)."""

    key: Secret | None = setting(
        None, "seals tokens of MCP servers, people's Bark keys and backups; 32 characters or more at random"
    )
    old_keys: tuple[Secret, ...] = setting((), "keys from before, which still open; a start seals everything anew")

    def sealer(self) -> Sealer:
        """Return what seals with the key and opens with all of them."""
        keys = ([self.key] if self.key else []) + [*self.old_keys]
        return Sealer([key.reveal() for key in keys] if self.key else ())


def check_encryption(document: Document, section: object) -> None:
    """A key has to be long, and old ones need a new one."""
    if not isinstance(section, dict):
        return
    old = section.get("old_keys")
    named: list[tuple[Location, object]] = [(("encryption", "key"), section.get("key"))]
    named += [(("encryption", "old_keys", i), each) for i, each in enumerate(old if isinstance(old, list) else ())]
    for at, key in named:
        if isinstance(key, str):
            fix = _("make one with `openssl rand -base64 32`, and keep a copy elsewhere")
            document.refuse_weak(at, key, MIN_KEY_CHARS, fix)
    if old and not section.get("key") and ("encryption", "key") not in document.faulty:
        document.fault(("encryption", "old_keys"), _("needs `key`"), _("name the key that seals from now on"))


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Metrics for Prometheus, at `GET /metrics` of `http.listen` (docs/operations.md)."""

    enabled: bool = setting(False, "count messages, turns, model calls, tools and platform calls; needs `http.listen`")


def check_metrics(document: Document, sections: dict[str, Any]) -> None:
    """Metrics need an address where they are scraped."""
    metrics, http = sections.get("metrics"), sections.get("http")
    listens = isinstance(http, dict) and http.get("listen")
    if isinstance(metrics, dict) and metrics.get("enabled") is True and not listens:
        document.fault(("metrics", "enabled"), _("needs a listener"), _("set `http.listen`, such as 127.0.0.1:8080"))


@dataclass(frozen=True, slots=True)
class TracesConfig:
    """Traces of what each message brought about, sent by OTLP over HTTP as JSON (docs/operations.md)."""

    endpoint: str = setting(
        "", "where traces go, with its path, such as http://127.0.0.1:4318/v1/traces; empty: there are none"
    )
    headers: Mapping[str, Secret] = field(
        default_factory=dict,
        metadata={"help": "headers of each export, such as `Authorization: $LANGFUSE_AUTH`", **HEADERS},
    )
    service: str = setting("fawn", "`service.name` of the traces, to tell several services apart")
    contents: bool = setting(
        False, "what people, models and tools write goes with the traces, and the ids of people as they are"
    )
    propagate: bool = setting(True, "servers of models and MCP servers get the header `traceparent`")


def check_traces(document: Document, section: Any) -> None:
    """An endpoint has the path at which traces are taken."""
    endpoint = section.get("endpoint") if isinstance(section, dict) else None
    at = ("traces", "endpoint")
    if isinstance(endpoint, str) and endpoint and at not in document.faulty and urlsplit(endpoint).path in ("", "/"):
        address = f"{endpoint.rstrip('/')}/v1/traces"
        document.fault(at, _("names no path"), _("collectors take traces at {address}", address=address))


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
