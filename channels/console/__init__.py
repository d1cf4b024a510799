"""The console: a chat in the terminal, without an account or a token."""

from channels.console.attached import AttachedView as AttachedView
from channels.console.attached import attach_view as attach_view
from channels.console.channel import LOCAL as LOCAL
from channels.console.channel import ConsoleChannel as ConsoleChannel
from channels.console.channel import ConsolePlace as ConsolePlace
from channels.console.channel import ConsoleSettings as ConsoleSettings
from channels.console.channel import connect as connect
from channels.console.channel import open_view as open_view
from channels.console.channel import own_topic as own_topic
from channels.console.channel import person_name as person_name
from channels.console.view import Look as Look

Settings = ConsoleSettings  # the name under which the configuration finds them
