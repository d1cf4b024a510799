"""WeCom channel: a smart robot over its long connection, which needs no public address.

The configuration imports only this file. `connection` holds the line, `events` reads what comes over it, and `reply`
answers (docs/decisions/archive-channels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe

NAME = "wecom"
PUBLIC_URL = "wss://openws.work.weixin.qq.com"


@dataclass(frozen=True, slots=True)
class WeComSettings:
    """`channels.wecom` in config.yaml."""

    bot_id: str = required(N_("the robot's Bot ID, page API mode"), environment="WECOM_BOT_ID")
    secret: Secret = required(N_("the robot's Secret, same page"), environment="WECOM_SECRET")
    name: str = setting("Fawn", "the robot's name, as people mention it in groups")
    gateway_url: str = setting(PUBLIC_URL, "address of the long connection")
    proxy: str = setting("", "HTTP proxy for calls, events and files, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    per_reply: float = setting(0.5, "updates per second of one answer", ge=0.1)
    overall: float = setting(20.0, "updates per second of all answers together", ge=1)


Settings = WeComSettings  # the configuration loader looks for this name
# Of members (developer.work.weixin.qq.com/document/path/90195), and of others with their company in front; "@" and one
# is their direct chat.
IDS = IdForms(
    r"(?:[A-Za-z0-9_-]+:)?[A-Za-z0-9][A-Za-z0-9_@.-]{0,63}",
    r"@?(?:[A-Za-z0-9_-]+:)?[A-Za-z0-9][A-Za-z0-9_@.-]{0,127}",
    N_("ids have letters, digits, _, -, @ and dots; `fawn pair list` shows the id of each person who wrote to the bot"),
    certain=False,
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {"weixin.qq.com": ("*.myqcloud.com",)}  # the `url` of pictures and files
connect = partial(open_channel, "channels.wecom.channel:WeComChannel")
probe = partial(run_probe, "channels.wecom.setup:probe_address")
