"""DingTalk channel in stream mode: settings and entry points.

The configuration imports only this file. `connection` and `events` receive messages, `reply` answers them, all over
`api` (docs/decisions/archive-channels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe

PUBLIC_URL = "https://api.dingtalk.com"


@dataclass(frozen=True, slots=True)
class DingTalkSettings:
    """`channels.dingtalk` in config.yaml."""

    client_id: str = required(N_("the app's Client ID (AppKey), page Credentials"), environment="DINGTALK_CLIENT_ID")
    client_secret: Secret = required(N_("the app's Client Secret, same page"), environment="DINGTALK_CLIENT_SECRET")
    card_template_id: str = setting(
        "",
        "AI card template (….schema); without one, answers neither stream nor change",
        shape=r"[\w-]+\.schema",
        looks="8aebdfb9-0000-0000-0000-000000000000.schema",
    )
    robot_code: str = setting("", "the robot's code, if it is not the Client ID")
    name: str = setting("Fawn", "the robot's name, as people mention it in groups")
    reaction: bool = setting(True, "show 🤔 on a message while the bot works on it: two API calls for each message")
    base_url: str = setting(PUBLIC_URL, "URL of the API")
    upload_url: str = setting("https://oapi.dingtalk.com", "URL of the older API, which takes files")
    proxy: str = setting("", "HTTP proxy for calls, events and files, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    per_reply: float = setting(1.0, "updates per second of one reply's card", ge=0.1)
    overall: float = setting(15.0, "updates per second of all cards together", ge=1)

    @property
    def robot(self) -> str:
        """The robot's code: of an internal app, it is the Client ID."""
        return self.robot_code or self.client_id


Settings = DingTalkSettings  # the configuration loader looks for this name
# Of staff: any text of up to 64 characters that the company chose; of others `$:LWCP_v1:$…`. A mention and a telephone
# number with its country are neither.
IDS = IdForms(
    r"(?!@|\+[0-9])\S{1,64}",
    r"(?!@|\+[0-9])\S{1,200}",
    N_("ids have no blanks and no @ or + in front; `fawn pair list` shows the id of each person who wrote to the bot"),
    certain=False,
    direct="@",
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {
    "dingtalk.com": ("*.dingtalk.com", "*.aliyuncs.com")
}  # the endpoint of gateway/connections/open, and the downloadUrl of files
connect = partial(open_channel, "channels.dingtalk.channel:DingTalkChannel")
probe = partial(run_probe, "channels.dingtalk.setup:probe_account")
