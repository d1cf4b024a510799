"""Guide through `fawn setup whatsapp`."""

from __future__ import annotations

from functools import partial

from catalogue import N_, _
from channels.shared.setup_guide import SetupGuide

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
