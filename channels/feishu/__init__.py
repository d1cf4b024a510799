"""Feishu and Lark channel: settings and entry points.

The configuration imports only this file; the SDK runs in a process of its own (docs/decisions/0015-feishu-sdk.md).
`connection` and `events` receive messages, `reply` answers them, both over `api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe

DOMAINS = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}


@dataclass(frozen=True, slots=True)
class FeishuSettings:
    """`channels.feishu` in config.yaml."""

    app_id: str = required(
        N_("the app's id (cli_…), page Credentials of the developer console"),
        environment="FEISHU_APP_ID",
        shape=r"cli_[\w-]+",
        looks="cli_…",
    )
    app_secret: Secret = required(N_("the app's secret, same page"), environment="FEISHU_APP_SECRET")
    domain: str = setting(
        "feishu",
        "`feishu` (China), `lark` (elsewhere), or a URL",
        shape=r"feishu|lark|https?://[^\s/]\S*",
        looks=N_("`feishu`, `lark` or a URL"),
    )
    proxy: str = setting("", "HTTP proxy for calls, events and files, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    per_reply: float = setting(5.0, "updates per second of one reply's card", ge=0.1)
    overall: float = setting(50.0, "updates per second of all cards together", ge=1)
    shared_check_seconds: float = setting(
        60.0, "a message of the app that is not Fawn's, so long after its start, is of another program", ge=0
    )

    @property
    def base_url(self) -> str:
        """The platform's address without a final slash."""
        return DOMAINS.get(self.domain, self.domain).rstrip("/")


Settings = FeishuSettings  # the configuration loader looks for this name
IDS = IdForms(  # open.feishu.cn/document/platform-overveiw/basic-concepts/user-identity-introduction/open-id
    r"ou_[\w-]+|cli_\w+",  # another app writes with its own id
    r"oc_[\w-]+|cli_\w+",
    N_("people are ou_…, chats oc_…; `fawn pair list` shows the id of each person who wrote to the bot"),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {
    "feishu.cn": ("*.feishu.cn",),
    "larksuite.com": ("*.larksuite.com",),
}  # the host of events that /callback/ws/endpoint names
connect = partial(open_channel, "channels.feishu.channel:FeishuChannel")
probe = partial(run_probe, "channels.feishu.setup:probe_account")
