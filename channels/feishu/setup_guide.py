"""The steps of `fawn setup feishu`, and the permissions that they grant."""

from __future__ import annotations

import json
from functools import partial

from catalogue import N_, _
from channels.shared.setup_guide import SetupGuide

REQUIRED_SCOPES = ("im:message", "im:message.p2p_msg:readonly", "im:message.group_at_msg:readonly", "im:resource")
OPTIONAL_SCOPES = {  # without one of these, a part does not work
    "im:message.group_msg": "follow-ups in a topic without a mention",
    "im:chat:readonly": "catching up after downtime",
    "cardkit:card:write": "streaming",
    "contact:contact.base:readonly": "names",
    "contact:user.base:readonly": "names",
    "contact:user.employee:readonly": "noticing who has left",
}
SCOPES = json.dumps({"scopes": {"tenant": [*REQUIRED_SCOPES, *OPTIONAL_SCOPES], "user": []}})
CREATE_APP = N_("""\
Create a custom app: https://open.feishu.cn/app (Lark: https://open.larksuite.com/app). Add features: Bot.
Permissions & Scopes, Batch import, paste:

{scopes}

Version Management: create a version and publish it. Credentials & Basic Info shows the app id (cli_…).""")
SHOW_KEY = N_("The same page shows the app secret.")
CONTACT = N_("""\
Events & Callbacks, both tabs: choose the persistent connection. Add the events im.message.receive_v1,
im.message.recalled_v1, im.message.reaction.created_v1 and application.bot.menu_v6, and the callback
card.action.trigger. Publish another version. Then search for the bot in the app and write to it: {word}""")
GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, word=word),
    {"app_id": partial(_, CREATE_APP, scopes=SCOPES), "app_secret": partial(_, SHOW_KEY)},
)
