"""The steps of `fawn setup slack`."""

from __future__ import annotations

import json
from functools import partial
from urllib.parse import quote

from catalogue import N_, _
from channels.shared.setup_guide import SetupGuide
from channels.slack.manifest import app_manifest

CREATE_APP = N_("""\
Create the app: open this link, choose the workspace, then Next and Create.

{link}

(If no click opens it: From a manifest, at api.slack.com/apps, takes what `fawn slack manifest` prints.)
Then, on the page Basic Information, App-Level Tokens, Generate: any name, the scope connections:write.
The token begins with xapp-.""")
INSTALL_APP = N_("""\
On the page Install App, install it to the workspace and allow it. The Bot User OAuth Token begins with xoxb-.""")
CONTACT = N_("In Slack, find the app under Apps and write to it: {word}")


def manifest_link() -> str:
    """Return the link that creates the app with Fawn's manifest (docs.slack.dev/app-manifests)."""
    compact = json.dumps(json.loads(app_manifest()), separators=(",", ":"))
    return f"https://api.slack.com/apps?new_app=1&manifest_json={quote(compact, safe='')}"


GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, word=word),
    {"app_token": lambda: _(CREATE_APP, link=manifest_link()), "bot_token": partial(_, INSTALL_APP)},
)
