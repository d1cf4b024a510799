"""WeChat channel: a robot of Tencent's iLink, with which one person talks after scanning a code.

The configuration imports only this file. `polling` fetches messages, and `reply` answers them, over `api`
(docs/decisions/archive-channels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe

NAME = "wechat"
PUBLIC_URL = "https://ilinkai.weixin.qq.com"


@dataclass(frozen=True, slots=True)
class WeChatSettings:
    """`channels.wechat` in config.yaml."""

    person: str = required(
        N_("the WeChat id of the person to whom the robot belongs"),
        environment="WECHAT_PERSON",
        shape=r"[\w.-]{1,120}@im\.wechat",
        looks="o9cq80-abc@im.wechat",
    )
    base_url: str = setting(PUBLIC_URL, "URL where signing in begins")
    cdn_url: str = setting("https://novac2c.cdn.weixin.qq.com/c2c", "URL of the server of files")
    proxy: str = setting("", "HTTP proxy for calls and files, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    per_person: float = setting(0.8, "messages per second to one person; WeChat blocks three in a second", ge=0.01)


Settings = WeChatSettings  # the configuration loader looks for this name
IDS = IdForms(
    r"[\w.-]{1,120}@im\.wechat",
    r"[\w.-]{1,120}@im\.(?:wechat|bot)",
    N_("ids end in @im.wechat; `fawn pair list` shows the id of each person who wrote to the bot"),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {"weixin.qq.com": ("*.weixin.qq.com",)}  # the address in a login
connect = partial(open_channel, "channels.wechat.channel:WeChatChannel")
probe = partial(run_probe, "channels.wechat.login:probe_login")
