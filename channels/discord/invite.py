"""The link that adds the bot to a server, with the permissions that it needs."""

from __future__ import annotations

# Permission bits that docs/setup-discord.md asks for (…/docs/topics/permissions)
REQUIRED_PERMISSIONS = sum(1 << bit for bit in (10, 11, 14, 15, 16, 34, 35, 38))


def invite_link(application: str) -> str:
    """Return the link for an application's id."""
    link = f"https://discord.com/oauth2/authorize?client_id={application}&scope=bot+applications.commands"
    return f"{link}&permissions={REQUIRED_PERMISSIONS}"
