"""Feishu and Lark: chats, groups and topics through an app on the long connection, answered with streaming cards.

This file is what a configuration needs; the SDK is imported in a process of its own when the channel is connected
(docs/decisions/0015-feishu-sdk.md). A message's way in is `link` and `events`, its answer's way out
`reply`, over `calls`.
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
        """The platform's address, without a slash at its end."""
        return DOMAINS.get(self.domain, self.domain).rstrip("/")


Settings = FeishuSettings  # the name under which the configuration finds them


def connect(settings: FeishuSettings) -> AbstractAsyncContextManager[Channel]:
    """The channel. It opens no connection yet: `listen` does, and keeps trying."""

    def load() -> type[FeishuChannel]:
        from channels.feishu.channel import FeishuChannel

        return FeishuChannel

    return open_channel(load, settings)


async def probe(settings: FeishuSettings) -> str:
    """One look at the account: a sentence. Raises Refused with what to do."""
    from channels.feishu.account_probe import probe_account

    return await probe_account(settings)
