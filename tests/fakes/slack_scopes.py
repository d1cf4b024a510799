"""The scopes that Slack demands of each method (docs.slack.dev/reference/methods/NAME, "Required scopes")."""

from __future__ import annotations

EVENT_SCOPES = {"reaction_added": "reactions:read", "reaction_removed": "reactions:read"}
METHOD_SCOPES = {
    "agents.sessions.rename": "chat:write",
    "agents.sessions.setStatus": "chat:write",
    "apps.connections.open": "connections:write",
    "chat.appendStream": "chat:write",
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.postMessage": "chat:write",
    "chat.startStream": "chat:write",
    "chat.stopStream": "chat:write",
    "chat.update": "chat:write",
    "conversations.open": "im:write",
    "files.completeUploadExternal": "files:write",
    "files.getUploadURLExternal": "files:write",
    "files.info": "files:read",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "users.info": "users:read",
    "users.list": "users:read",
    "assistant.threads.setStatus": "chat:write",
}
_FAMILIES = {  # by the kind of conversation, and by the types of users.conversations
    "channel": "channels",
    "group": "groups",
    "im": "im",
    "mpim": "mpim",
    "public_channel": "channels",
    "private_channel": "groups",
}


def needed_scopes(method: str, kind: str, types: str) -> list[str]:
    """Return the scopes of a call: of conversations those of their kind, of a list those of its `types`."""
    if method in ("conversations.history", "conversations.replies"):
        return [f"{_FAMILIES[kind]}:history"] if kind else []
    if method == "conversations.info":
        return [f"{_FAMILIES[kind]}:read"] if kind else []
    if method == "users.conversations":
        return [f"{_FAMILIES[name]}:read" for name in (types or "public_channel").split(",")]
    return [METHOD_SCOPES[method]] if method in METHOD_SCOPES else []
