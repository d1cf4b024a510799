"""Probe the workspaces for `fawn check`: tokens, scopes, the event socket."""

from __future__ import annotations

from catalogue import N_, _, join_sentences, list_items
from channels.base import ChannelError, Refused, TokenRejected
from channels.shared.account_probe import CONNECTED
from channels.shared.lifecycle import opened
from channels.slack import SlackSettings
from channels.slack.channel import SlackChannel
from channels.slack.manifest import REQUIRED_SCOPES, SCOPES

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
