"""Read the section `hooks:`: what other systems post, and in whose name the agent works on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.messages import HOOK_ID, Thread
from agent.near_misses import suggest
from agent.setting import Secret, setting
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

    to: str = field(metadata={"help": "the chat, `CHANNEL:WORKSPACE/CHAT`, as `/whoami` shows it there"})
    as_: str = field(
        metadata={
            "help": "the name of a role (`team.roles`): the hook works with its rights, on budgets of its own as the"
            " person `hook:NAME`; or `@ID` of a person as `/whoami` shows it: with their rights in that chat, on theirs"
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
        return parse_target(self.to)

    @property
    def person(self) -> str:
        """The platform id of the person whose rights it has; "" where it has a role of its own."""
        return self.as_.removeprefix("@").strip() if self.as_.startswith("@") else ""

    @property
    def role(self) -> str:
        """The name of the role that it has of its own; "" where it has the rights of a person."""
        return "" if self.as_.startswith("@") else self.as_.strip()

    def requester(self, name: str) -> str:
        """Return the id of the person who asks for its work: for a role, the hook itself."""
        return self.person or f"{HOOK_ID}{name}"


def parse_target(text: str) -> Thread:
    """Return the chat of `CHANNEL:WORKSPACE/CHAT`, with `/TOPIC` behind it or not. Raises ValueError."""
    channel, colon, rest = text.partition(":")
    address = f"{channel}/{rest}" if colon and "/" not in channel else text
    thread = Thread.parse(address if address.count("/") == 3 else f"{address}/")
    if not (thread.channel and thread.chat):
        raise ValueError(text)
    return thread


def check_hooks(
    document: Document,
    hooks: Mapping[str, HookConfig],
    channels: Mapping[str, object],
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
        _check_target(document, hook, (*at, "to"), channels)
        _check_requester(document, hook, (*at, "as"), roles)
        if not hook.secret.reveal():
            document.fault((*at, "secret"), _("is empty"), _("set the secret that the sender has"))
        if not listens:
            fix = _("add `http: {listen: 127.0.0.1:8080}`, and name the senders in `http.peers`")
            document.fault(at, _("needs an address on which it listens"), fix, on_key=True)


def _check_requester(document: Document, hook: HookConfig, at: Location, roles: Mapping[str, RoleConfig]) -> None:
    if hook.person:
        return
    if hook.role not in roles:
        fix = _("write `@ID` with the platform id of a person, or the name of a role")
        document.fault(at, _("names no person and no role"), suggest(hook.role, roles) if hook.role else fix)
    elif Right.TALK not in roles[hook.role].rights and hook.prompt:
        fix = _('give it the right `talk`, or write `prompt: ""` so that what comes is posted only')
        document.fault(at, _("this role may not have the agent work"), fix)


def _check_target(document: Document, hook: HookConfig, at: Location, channels: Mapping[str, object]) -> None:
    try:
        target = hook.target
    except ValueError:
        fix = _("write it as CHANNEL:WORKSPACE/CHAT; the command `whoami` shows it in that chat")
        document.fault(at, _("is not the address of a chat"), fix)
        return
    if target.channel == "console":
        document.fault(at, _("the console has no chats"), _("name a chat of another channel"))
    elif target.channel not in channels and document.has_accounts:
        document.fault(at, _("this channel is not configured"), suggest(target.channel, channels))
