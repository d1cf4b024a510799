"""Feishu and Lark channel: settings and entry points.

The configuration imports only this file; the SDK runs in a process of its own (docs/decisions/0015-feishu-sdk.md).
`connection` and `events` receive messages, `reply` answers them, both over `api`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.secret import Secret
from channels.base import Channel
from channels.shared.lifecycle import open_channel

if TYPE_CHECKING:
    from channels.feishu.channel import FeishuChannel

DOMAINS = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}


@dataclass(frozen=True, slots=True)
class FeishuSettings:
    """`channels.feishu` in config.yaml."""

    app_id: str = field(metadata={"help": "the app's id (cli_…), page Credentials of the developer console"})
    app_secret: Secret = field(metadata={"help": "the app's secret, same page"})
    domain: str = field(default="feishu", metadata={"help": "`feishu` (China), `lark` (elsewhere), or a URL"})
    proxy: str = field(
        default="",
        repr=False,
        metadata={"help": "http proxy for calls, events and files, with user:password@ if it wants one"},
    )
    ca_file: str = field(default="", metadata={"help": "PEM file of certificates to trust instead of the system's"})
    per_reply: float = field(default=5.0, metadata={"help": "changes a second of one reply's card", "least": 0.1})
    overall: float = field(default=50.0, metadata={"help": "changes a second of all cards together", "least": 1})

    @property
    def base_url(self) -> str:
        """The platform's address without a final slash."""
        return DOMAINS.get(self.domain, self.domain).rstrip("/")


Settings = FeishuSettings  # the configuration loader looks for this name


def connect(settings: FeishuSettings) -> AbstractAsyncContextManager[Channel]:
    """Return the channel. It opens no connection until `listen`, which retries by itself."""

    def load() -> type[FeishuChannel]:
        from channels.feishu.channel import FeishuChannel

        return FeishuChannel

    return open_channel(load, settings)


async def probe(settings: FeishuSettings) -> str:
    """Probe the app once and describe it. Raises Refused with what to do."""
    from channels.feishu.account_probe import probe_account

    return await probe_account(settings)
