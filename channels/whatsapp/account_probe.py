"""Probe the number and the relay for `fawn check`."""

from __future__ import annotations

from catalogue import N_, _
from channels.base import ChannelError, Refused
from channels.shared.account_probe import CONNECTED, refusing
from channels.shared.lifecycle import opened
from channels.shared.relay_client import RelayClient
from channels.whatsapp import WhatsAppSettings
from channels.whatsapp.api import WhatsAppApi

NO_RELAY = N_("the relay cannot be used: {error} → check `relay_url` and `relay_key`; docs/relay.md sets one up")


async def probe_number(settings: WhatsAppSettings) -> str:
    """Ask who the number is, and whether the relay takes the key; take nothing from it."""
    with refusing(settings.base_url, ["base_url", "proxy", "ca_file"]):
        async with opened(WhatsAppApi(settings)) as api:
            found = await api.account()
            relay = RelayClient(api, settings.relay_url, settings.relay_key.reveal())
            try:
                await relay.probe()
            except ChannelError as error:
                raise Refused(_(NO_RELAY, error=error)) from None
    return _(CONNECTED, name=f"{found.get('verified_name')} ({found.get('display_phone_number')})")
