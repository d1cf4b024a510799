"""WhatsApp channel: the Cloud API of a business number, with a relay for what it pushes.

The configuration imports only this file. `events` reads what comes through the relay, and `reply` answers over `api`
(docs/decisions/archive-channels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe

NAME = "whatsapp"
PUBLIC_URL = "https://graph.facebook.com"


@dataclass(frozen=True, slots=True)
class WhatsAppSettings:
    """`channels.whatsapp` in config.yaml."""

    phone_number_id: str = required(
        N_("the Phone number ID, page API Setup"),
        environment="WHATSAPP_PHONE_NUMBER_ID",
        shape=r"[0-9]{6,20}",  # developers.facebook.com/docs/whatsapp/cloud-api/phone-numbers; no telephone number
        looks="106540352242922",
    )
    token: Secret = required(N_("the token of a system user, page System users"), environment="WHATSAPP_TOKEN")
    app_secret: Secret = required(N_("the App secret, page App settings, Basic"), environment="WHATSAPP_APP_SECRET")
    relay_url: str = required(
        N_("the address of the relay, such as https://relay.example.com"), environment="WHATSAPP_RELAY_URL"
    )
    relay_key: Secret = required(N_("the key of the relay"), environment="WHATSAPP_RELAY_KEY", least=32)
    source: str = setting(NAME, "the name of this number in the relay's `sources`")
    template: str = setting(
        "",
        "an approved template without variables, which asks a person to write when an answer waits longer than 24"
        " hours; Meta charges for it; empty: the answer waits until they write",
        shape=r"[a-z0-9_]{1,512}",
        looks="fawn_answer_waits",
    )
    template_language: str = setting("en", "its language, as Meta lists it, such as en or zh_CN")
    read_marks: bool = setting(True, "show the person that a message was read, and that the bot is typing")
    base_url: str = setting(PUBLIC_URL, "URL of the API")
    proxy: str = setting("", "HTTP proxy for calls and files, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    per_person: float = setting(0.16, "messages per second to one person; Meta takes one in 6 seconds", ge=0.01)
    burst: int = setting(
        15, "messages to one person at once; Meta takes 45, and wants as long a pause after them", ge=1
    )
    overall: float = setting(60.0, "messages per second together; Meta takes 80", ge=1)


Settings = WhatsAppSettings  # the configuration loader looks for this name
IDS = IdForms(
    r"[1-9][0-9]{5,19}",
    r"[1-9][0-9]{5,19}",
    N_("ids are telephone numbers with their country, digits only, such as 4915112345678"),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {"graph.facebook.com": ("lookaside.fbsbx.com",)}  # the `url` of media
connect = partial(open_channel, "channels.whatsapp.channel:WhatsAppChannel")
probe = partial(run_probe, "channels.whatsapp.setup:probe_number")
