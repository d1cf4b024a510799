"""Set up WeCom: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

from functools import partial

from catalogue import N_, _
from channels.shared.http_client import HttpClient
from channels.shared.lifecycle import SetupGuide, opened, refusing
from channels.wecom import WeComSettings
from channels.wecom.connection import WeComConnection

CREATE_ROBOT = N_("""\
Create a smart robot: in the WeCom client, Workbench, Smart robots, Create, By hand; or in the admin console,
Security and management, Management tools, Smart robots. Choose API mode, then “Use a long connection”. Save it, and
let those see it who may talk to it. The same page shows the Bot ID.""")
SAME_PAGE = N_("The same page shows the Secret; “Reset” makes a new one.")
CONTACT = N_("Search for the robot in WeCom and write to it: {word}")
GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, word=word),
    {"bot_id": partial(_, CREATE_ROBOT), "secret": partial(_, SAME_PAGE)},
)


ANSWERS = N_("WeCom answers; the start tries the Bot ID and Secret, because a second connection would end the first")


async def probe_address(settings: WeComSettings) -> str:
    """Reach the platform, but do not connect as the robot: that would throw a running service out."""
    with refusing(settings.gateway_url, ["gateway_url", "proxy", "ca_file"]):
        async with opened(HttpClient("WeCom", settings.proxy, settings.ca_file)) as http:
            await WeComConnection(settings, http).probe()
    return _(ANSWERS)
