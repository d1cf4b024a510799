"""Guide through `fawn setup wecom`."""

from __future__ import annotations

from functools import partial

from catalogue import N_, _
from channels.shared.setup_guide import SetupGuide

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
