"""Read the section `hooks:`: what other systems post, and in whose name the agent works on it.

Read the section `relay:`: a relay that keeps what other systems post until Fawn fetches it (docs/relay.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal

from agent.messages import HOOK_ID, Thread
from agent.near_misses import suggest
from agent.setting import Secret, setting
from bot.config.addresses import check_chat, id_on, parse_chat
from bot.config.document import Document
from bot.config.excerpt import Location
from bot.config.team import Right, RoleConfig
from catalogue import _

Signature = Literal["standard", "github", "gitlab", "sentry", "grafana", "bearer"]
MAX_BODY_BYTES = 1024 * 1024  # of a delivery
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PROMPT = (
    "Find out what happened and what it affects, as far as your tools let you. Say it in a few sentences, with what"
    " people should do next."
)


@dataclass(frozen=True, slots=True)
class HookConfig:
    """One entry of `hooks:`, by its name."""

    to: str = field(metadata={"help": "the chat, `CHANNEL/WORKSPACE/CHAT`, as `/whoami` shows it there"})
    as_: str = field(
        metadata={
            "help": "the name of a role (`team.roles`): the hook works with its rights, on budgets of its own as the"
            " person `hook:NAME`; or `CHANNEL/ID` of a person as `/whoami` shows it: with their rights in that chat,"
            " on theirs"
        }
    )
    secret: Secret = field(metadata={"help": "what the sender signs with, or sends"})
    signature: Signature = setting(
        "standard",
        "how the sender proves itself: headers of Standard Webhooks, those of `github`, `gitlab`, `sentry` or"
        " `grafana`, or `Authorization: Bearer SECRET`",
    )
    prompt: str = setting(PROMPT, "what the agent does with each delivery; empty: it is posted only")
    group_by: tuple[str, ...] = setting(
        (),
        "places in the body, such as `commonLabels.service`: what is equal there goes on in one thread; empty: what the"
        " sender calls a group, an issue or a request",
    )
    events: tuple[str, ...] = setting(
        (), "kinds that are taken, such as `issues.opened`; others are acknowledged and ignored; empty: all"
    )
    gather_seconds: float = setting(2.0, "a delivery waits for others until none has come for so long", ge=0)
    per_minute: int = setting(5, "posts of it in a minute; what is more waits, and becomes one post together", ge=1)

    @property
    def target(self) -> Thread:
        """The chat of `to`. Raises ValueError where it is no address."""
        return parse_chat(self.to)

    @property
    def person(self) -> str:
        """The platform id of the person whose rights it has; "" where it has a role of its own."""
        written = self.as_.strip()
        if written.startswith("@"):
            return written.removeprefix("@").strip()
        id = id_on(self.to.partition("/")[0].partition(":")[0], written)
        return "" if id == written else id.strip()

    @property
    def role(self) -> str:
        """The name of the role that it has of its own; "" where it has the rights of a person."""
        return "" if self.person else self.as_.strip()

    def requester(self, name: str) -> str:
        """Return the id of the person who asks for its work: for a role, the hook itself."""
        return self.person or f"{HOOK_ID}{name}"


def check_hooks(
    document: Document,
    hooks: Mapping[str, HookConfig],
    channels: Collection[str],
    modules: Mapping[str, ModuleType],
    roles: Mapping[str, RoleConfig],
    *,
    listens: bool,
) -> None:
    """Each hook has a name for its address, a chat of a channel that is configured, and a person or a role."""
    for name, hook in hooks.items():
        at = ("hooks", name)
        if not NAME_PATTERN.fullmatch(name):
            fix = _("use small letters, digits and -, at most 40")
            document.fault(at, _("cannot be the end of an address"), fix, on_key=True)
        check_chat(document, (*at, "to"), hook.to, channels, modules)
        _check_requester(document, hook, (*at, "as"), roles)
        document.refuse_weak((*at, "secret"), hook.secret.reveal(), MIN_SECRET_CHARS)
        if not listens:
            fix = _("add `http: {listen: 127.0.0.1:8080}`, and name the senders in `http.peers`")
            document.fault(at, _("needs an address on which it listens"), fix, on_key=True)


def _check_requester(document: Document, hook: HookConfig, at: Location, roles: Mapping[str, RoleConfig]) -> None:
    if hook.person:
        return
    if hook.role not in roles:
        fix = _("write CHANNEL/ID of a person, as the command `whoami` shows it, or the name of a role")
        document.fault(at, _("names no person and no role"), suggest(hook.role, roles) if hook.role.strip("@") else fix)
    elif Right.TALK not in roles[hook.role].rights and hook.prompt:
        fix = _('give it the right `talk`, or write `prompt: ""` so that what comes is posted only')
        document.fault(at, _("this role may not have the agent work"), fix)


MIN_KEY_CHARS, MIN_SECRET_CHARS = 32, 16  # the latter: what a sender of hooks has, too


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
    if document.has_accounts:
        document.refuse_weak((*at, "key"), relay.key.reveal(), MIN_KEY_CHARS)
    for name, source in relay.sources.items():
        if not NAME_PATTERN.fullmatch(name):
            fix = _("use small letters, digits and -, at most 40")
            document.fault((*at, "sources", name), _("cannot be the end of an address"), fix, on_key=True)
        document.refuse_weak((*at, "sources", name, "secret"), source.secret.reveal(), MIN_SECRET_CHARS)
    if relay.sources and not listens:
        fix = _("add `http: {listen: 127.0.0.1:8080}`, with a proxy with TLS in front of it")
        document.fault((*at, "sources"), _("needs an address on which it listens"), fix, on_key=True)
