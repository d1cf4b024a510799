"""`/help`: every command once, in groups."""

from __future__ import annotations

from collections import Counter

from agent.blocks import command_hint
from bot.commands.core import GROUPS, describe_commands
from bot.main.features import gather_commands
from channels.base import CommandInfo
from tests.support.current_config import current_of

COMMANDS = gather_commands(current_of()).ranked()


def test_every_command_is_in_one_group() -> None:
    assert Counter(name for _title, names in GROUPS for name in names) == Counter(command.name for command in COMMANDS)


def test_help_shows_each_command_once_and_a_new_one_below_the_others() -> None:
    text = describe_commands([*(CommandInfo(each.name, each.help) for each in COMMANDS), CommandInfo("dance", "move")])
    for command in COMMANDS:
        assert text.count(f"`{command_hint(command.name)}` ") == 1
    assert text.endswith(f"**More**\n`{command_hint('dance')}` move")
    assert "**Work**\n" in text
