"""Slack: channels, threads and direct messages through an app in Socket Mode, with native streams.

The configuration imports only this file; `connect` imports the SDK. `socket_mode` and `events` receive messages,
`reply` answers them, both over `api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe


@dataclass(frozen=True, slots=True)
class WorkspaceTokens:
    """The tokens of another workspace. An app has the same app token in all its workspaces."""

    bot_token: Secret = required("the bot's token in that workspace (xoxb-…)")
    app_token: Secret = required("the app-level token (xapp-…)")


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """`channels.slack` in config.yaml."""

    bot_token: Secret = required(
        N_("the bot's token (xoxb-…), page OAuth & Permissions"),
        environment="SLACK_BOT_TOKEN",
        shape="xoxb-.+",
        looks="xoxb-…",
    )
    app_token: Secret = required(
        N_("the app-level token (xapp-…) with the scope connections:write"),
        environment="SLACK_APP_TOKEN",
        shape="xapp-.+",
        looks="xapp-…",
    )
    workspaces: tuple[WorkspaceTokens, ...] = setting((), "more workspaces: a list of {bot_token, app_token}")
    base_url: str = setting("https://slack.com/api/", "URL of the Web API")
    proxy: str = setting(
        "", "HTTP proxy for calls, the event socket and files; the environment's is not used", repr=False
    )
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    rate_factor: float = setting(
        1.0, "factor for Slack's rate limits, such as 0.5 if another program uses the same tokens", ge=0.01
    )
    agent_view: bool | None = setting(
        None,
        "whether each message in the direct chat's composer begins a thread, as in an app with `agent_view`; by"
        " default, if the app has the scope assistant:write",
    )
    ping_seconds: float = setting(10.0, "interval of the pings that check the event socket", ge=0.1)
    shared_check_seconds: float = setting(
        60.0, "while another program uses the same app token: how often Fawn asks Slack whether it still does", ge=0.1
    )

    @property
    def workspace_tokens(self) -> tuple[WorkspaceTokens, ...]:
        return (WorkspaceTokens(self.bot_token, self.app_token), *self.workspaces)


Settings = SlackSettings  # the name under which the configuration finds them
IDS = IdForms(  # docs.slack.dev/reference/objects: users U and W, bots B; channels C, G and D; workspaces T, grids E
    r"[UWB][A-Z0-9]+",
    r"[CGDTE][A-Z0-9]+",
    N_(
        "people are U… or W…, bots B…, channels C…, G… or D…, workspaces T… or E…; `fawn pair list` shows the id of"
        " each person who wrote to the bot"
    ),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {
    "slack.com": ("*.slack.com",)
}  # slack.com/help/articles/360001603387: the event socket and files
connect = partial(open_channel, "channels.slack.channel:SlackChannel")
probe = partial(run_probe, "channels.slack.setup:probe")
