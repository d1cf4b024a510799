"""Matrix channel: rooms, direct chats and threads through an ordinary account, by the client-server API.

The configuration imports only this file. `syncing` receives events, `events` reads them, `rooms` knows the rooms, and
`reply` answers, all over `api` (docs/decisions/archive-channels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe

NAME = "matrix"


@dataclass(frozen=True, slots=True)
class MatrixSettings:
    """`channels.matrix` in config.yaml."""

    homeserver: str = required(
        N_("the address of the homeserver, such as https://matrix.example.org"),
        environment="MATRIX_HOMESERVER",
    )
    token: Secret = required(N_("the access token of the bot's account"), environment="MATRIX_TOKEN")
    proxy: str = setting("", "HTTP proxy for all calls, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    key_seconds: float = setting(
        10.0, "how long an encrypted message waits for its key, before it counts as unreadable", ge=0
    )
    poll_seconds: float = setting(25.0, "how long one request for events waits", ge=0)
    per_reply: float = setting(1.0, "updates per second of one answer", ge=0.05)
    overall: float = setting(
        0.2,
        "events per second in all rooms together; Synapse allows one in five seconds until an admin lifts the limit",
        ge=0.01,
    )
    burst: int = setting(10, "events at once in all rooms together", ge=2)


Settings = MatrixSettings  # the configuration loader looks for this name
IDS = IdForms(  # of users and rooms (spec.matrix.org/latest/appendices/#identifier-grammar)
    r"@[^:\s]{1,250}:[^\s:/]+(?::\d+)?",
    r"![^\s/]{1,254}|@[^:\s]{1,250}:[^\s:/]+(?::\d+)?",
    N_("ids look like @jane:example.org and !room:example.org"),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {}  # files come from the homeserver
connect = partial(open_channel, "channels.matrix.channel:MatrixChannel")
probe = partial(run_probe, "channels.matrix.setup:probe_matrix_account")
