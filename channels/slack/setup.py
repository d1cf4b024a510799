"""Set up Slack: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

import json
from functools import partial
from urllib.parse import quote

from catalogue import N_, _, join_sentences, list_items
from channels.base import ChannelError, Refused, TokenRejected
from channels.shared.lifecycle import CONNECTED, SetupGuide, opened
from channels.slack import SlackSettings
from channels.slack.channel import SlackChannel
from channels.slack.manifest import REQUIRED_SCOPES, SCOPES, app_manifest

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


SCOPES_LACKING = N_(
    "In {team} the app lacks {scopes}: add the scopes (`fawn slack manifest` has all of them) and install the app again"
)


async def probe(settings: SlackSettings) -> str:
    async with opened(SlackChannel(settings)) as channel:
        try:
            return await _probe_workspaces(channel)
        except (Refused, TokenRejected) as error:
            raise Refused(f"{error}.") from None
        except ChannelError as error:
            raise Refused(join_sentences(f"{error}.", _("Check base_url, proxy and the network."))) from None


async def _probe_workspaces(channel: SlackChannel) -> str:
    found = []
    for workspace in channel.workspaces:
        account, granted = await workspace.identify(), workspace.scopes
        if granted and (missing := sorted(REQUIRED_SCOPES - granted)):
            raise Refused(_(SCOPES_LACKING, team=account.workspace_name, scopes=list_items(missing)))
        lacking = sorted(SCOPES.keys() - granted) if granted else []
        place = {"name": account.name, "team": account.workspace_name, "id": account.team_id}
        where = _("@{name} in {team} ({id})", **place)
        if lacking:
            where = _("@{name} in {team} ({id}) without {scopes}", **place, scopes=list_items(lacking))
        found.append(where)
    for socket in channel.sockets:
        await socket.probe_connection()
    return _(CONNECTED, name=list_items(found))
