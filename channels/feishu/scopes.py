"""The permissions of docs/setup-feishu.md. Without an optional one, a part does not work."""

from __future__ import annotations

REQUIRED_SCOPES = ("im:message", "im:message.p2p_msg:readonly", "im:message.group_at_msg:readonly", "im:resource")
OPTIONAL_SCOPES = {
    "im:message.group_msg": "follow-ups in a topic without a mention",
    "im:chat:readonly": "catching up after downtime",
    "cardkit:card:write": "streaming",
    "contact:contact.base:readonly": "names",
    "contact:user.base:readonly": "names",
}
