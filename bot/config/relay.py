"""Read the section `relay:`: a relay that keeps what other systems post until Fawn fetches it (docs/relay.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.setting import Secret, setting
from bot.config.document import Document
from bot.config.hooks import NAME_PATTERN, HookConfig, Signature
from catalogue import _

MIN_KEY_CHARS = 32


@dataclass(frozen=True, slots=True)
class RelaySource:
    """One entry of `relay.sources`, by its name."""

    secret: Secret = field(metadata={"help": "what the sender signs with, or sends"})
    signature: Literal["standard", "github", "gitlab", "sentry", "grafana", "bearer", "meta"] = setting(
        "standard", "how the sender proves itself, as in `hooks`; `meta`: WhatsApp Cloud, with the app secret"
    )
    verify_token: Secret = setting(Secret(""), "what Meta repeats when it asks whether the address is yours")

    @property
    def as_hook(self) -> HookConfig:
        """The hook with the same signature: Meta signs as GitHub does."""
        signature: Signature = "github" if self.signature == "meta" else self.signature
        return HookConfig("", "", self.secret, signature)


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """A relay: `sources` where it runs, `url` where Fawn runs."""

    url: str = setting("", "where Fawn fetches from, such as https://relay.example.com; empty: no relay")
    key: Secret = setting(
        Secret(""), f"with which Fawn fetches: the same in both places, at least {MIN_KEY_CHARS} characters"
    )
    ca_file: str = setting("", "PEM file with certificate authorities to trust for `url` instead of the system's")
    proxy: str = setting("", "HTTP proxy to `url`, with user:password@ if it needs them", repr=False)
    sources: Mapping[str, RelaySource] = field(
        default_factory=dict, metadata={"help": "for `fawn relay`: who may post to `/hooks/NAME` of it"}
    )
    max_mb: int = setting(256, "what waits to be fetched, in MB; a sender is asked to come later beyond it", ge=1)
    per_minute: int = setting(600, "deliveries of a source in a minute; beyond it, a sender is asked to wait", ge=1)


def check_relay(document: Document, relay: RelayConfig, *, listens: bool) -> None:
    """A relay has a key, and an address; its sources have names that can end an address."""
    at = ("relay",)
    if not (relay.url or relay.sources):
        return
    if len(relay.key.reveal()) < MIN_KEY_CHARS and document.has_accounts:
        fix = _("make one with `openssl rand -base64 32`, and set it in both places")
        document.fault((*at, "key"), _("needs at least {n} characters", n=MIN_KEY_CHARS), fix)
    for name, source in relay.sources.items():
        if not NAME_PATTERN.fullmatch(name):
            fix = _("use small letters, digits and -, at most 40")
            document.fault((*at, "sources", name), _("cannot be the end of an address"), fix, on_key=True)
        if not source.secret.reveal():
            document.fault((*at, "sources", name, "secret"), _("is empty"), _("set the secret that the sender has"))
    if relay.sources and not listens:
        fix = _("add `http: {listen: 127.0.0.1:8080}`, with a proxy with TLS in front of it")
        document.fault((*at, "sources"), _("needs an address on which it listens"), fix, on_key=True)
