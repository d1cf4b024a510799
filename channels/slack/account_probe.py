"""Probe the workspaces for `fawn check`: tokens, scopes, the event socket."""

from __future__ import annotations

from channels.base import ChannelError, Refused, TokenRejected
from channels.shared.lifecycle import opened
from channels.slack import SlackSettings
from channels.slack.channel import SlackChannel
from channels.slack.manifest import REQUIRED_SCOPES, SCOPES

SCOPES_FIX = "add the scopes (`fawn slack manifest` has all of them) and install the app again"


async def probe(settings: SlackSettings) -> str:
    """Return a sentence about the accounts. Raises Refused with what to do."""
    async with opened(SlackChannel(settings)) as channel:
        try:
            return await _probe_workspaces(channel)
        except (Refused, TokenRejected) as error:
            raise Refused(f"{error}.") from None
        except ChannelError as error:
            raise Refused(f"{error}. Check base_url, proxy and the network.") from None


async def _probe_workspaces(channel: SlackChannel) -> str:
    found = []
    for workspace in channel.workspaces:
        account, granted = await workspace.identify(), await workspace.api.granted_scopes()
        if granted and (missing := sorted(REQUIRED_SCOPES - granted)):
            raise Refused(f"In {account.workspace_name} the app lacks {', '.join(missing)}: {SCOPES_FIX}")
        lacking = sorted(SCOPES.keys() - granted) if granted else []
        without = f" without {', '.join(lacking)}" if lacking else ""
        found.append(f"@{account.name} in {account.workspace_name} ({account.team_id}){without}")
    for socket in channel.sockets:
        await socket.probe_connection()
    return f"connected as {' and '.join(found)}"
