"""Probe the address for `fawn check`."""

from __future__ import annotations

from catalogue import N_, _
from channels.shared.account_probe import refusing
from channels.shared.http_client import HttpClient
from channels.shared.lifecycle import opened
from channels.wecom import WeComSettings
from channels.wecom.connection import WeComConnection

ANSWERS = N_("WeCom answers; the start tries the Bot ID and Secret, because a second connection would end the first")


async def probe_address(settings: WeComSettings) -> str:
    """Reach the platform, but do not connect as the robot: that would throw a running service out."""
    with refusing(settings.gateway_url, ["gateway_url", "proxy", "ca_file"]):
        async with opened(HttpClient("WeCom", settings.proxy, settings.ca_file)) as http:
            await WeComConnection(settings, http).probe()
    return _(ANSWERS)
