"""The terminal as a channel: a chat with no account and no token."""

from channels.console.channel import LOCAL, ConsoleSettings, connect

__all__ = ["LOCAL", "ConsoleSettings", "Settings", "connect"]

Settings = ConsoleSettings  # the name under which the configuration finds them
