"""The terminal as a channel: a chat with no account and no token."""

from channels.console.channel import LOCAL, Settings, connect

__all__ = ["LOCAL", "Settings", "connect"]
