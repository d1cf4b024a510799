"""The console: a chat in the terminal, without an account or a token."""

from channels.console.channel import LOCAL, ConsoleSettings, connect

__all__ = ["LOCAL", "ConsoleSettings", "Settings", "connect"]

Settings = ConsoleSettings  # the name under which the configuration finds them
