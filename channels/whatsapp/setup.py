"""Set up WhatsApp: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

from functools import partial

from catalogue import N_, _
from channels.base import ChannelError, Refused
from channels.shared.lifecycle import CONNECTED, SetupGuide, opened, refusing
from channels.shared.relay_client import RelayClient
from channels.whatsapp import WhatsAppSettings
from channels.whatsapp.api import WhatsAppApi

CREATE_APP = N_("""\
At https://developers.facebook.com/apps create an app of the kind Business, add the product WhatsApp, and open its page
API Setup. It gives you a test number, or takes one of yours. The page shows the Phone number ID below the number.""")
TOKEN = N_("""\
The token on that page ends after a day. At https://business.facebook.com/settings/system-users add a system user,
assign the app and the WhatsApp account to it, and generate a token with whatsapp_business_messaging.""")
SECRET = N_("The page App settings, Basic shows the App secret.")
RELAY = N_("""\
WhatsApp posts to a public address only: run `fawn relay` there (docs/relay.md) with a source `whatsapp`, and enter
https://YOUR-RELAY/hooks/whatsapp and its verify token on the page WhatsApp, Configuration. Subscribe to `messages`.""")
KEY = N_("It is `relay.key` in the configuration of the relay.")
CONTACT = N_("Write to the number in WhatsApp: {word}")
GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, word=word),
    {
        "phone_number_id": partial(_, CREATE_APP),
        "token": partial(_, TOKEN),
        "app_secret": partial(_, SECRET),
        "relay_url": partial(_, RELAY),
        "relay_key": partial(_, KEY),
    },
)


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
