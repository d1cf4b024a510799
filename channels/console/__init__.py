"""The console: a chat in the terminal, without an account or a token."""

from channels.console.attached import attach_view
from channels.console.channel import (
    LOCAL,
    ConsoleChannel,
    ConsolePlace,
    ConsoleSettings,
    connect,
    open_view,
    own_topic,
    person_name,
)

__all__ = [
    "LOCAL",
    "ConsoleChannel",
    "ConsolePlace",
    "ConsoleSettings",
    "Settings",
    "attach_view",
    "connect",
    "open_view",
    "own_topic",
    "person_name",
]

Settings = ConsoleSettings  # the name under which the configuration finds them
