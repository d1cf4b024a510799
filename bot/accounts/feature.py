"""Add links between the accounts of one person as a feature."""

from __future__ import annotations

from bot.accounts.command import (
    LINK_WORDS,
    OPTIONS,
    PREFIX,
    check_confirmation,
    link_command,
    take_press,
    unlink_command,
)
from bot.commands.call import Command
from bot.commands.feature import Feature
from bot.commands.table import Press
from bot.rights import deeds
from bot.storage import personal
from catalogue import N_

FEATURE = Feature(
    "accounts",
    personal=personal.ACCOUNTS,
    commands=(
        Command(
            "link",
            N_("link your accounts on other platforms"),
            link_command,
            LINK_WORDS,
            deeds.CHANGE_OWN,
            rank=136,
        ),
        Command("unlink", N_("end the links of this account"), unlink_command, deed=deeds.CHANGE_OWN, rank=137),
    ),
    presses={PREFIX: Press("link", OPTIONS, check_confirmation, take_press)},
)
