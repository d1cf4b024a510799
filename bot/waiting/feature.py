"""What waits for a person as a feature: the list, and the buttons of what is closed."""

from __future__ import annotations

from functools import partial

from bot.commands.call import Command
from bot.commands.presses import Press, Pressed
from bot.commands.waits import COMMAND, HOME_JOB, PREFIX
from bot.feature import Feature, Parts, Service
from bot.service.jobs import JobKind
from bot.storage import personal
from bot.storage.database import Execute
from bot.waiting.command import WAITING_WORDS, waiting_command
from bot.waiting.home import show_home
from bot.waiting.questions import waiting_questions
from catalogue import N_
from channels.base import Receipt


def refuse_listed(_execute: Execute, _pressed: Pressed) -> Receipt:
    """Return the receipt of a press on what waits no longer: one that counts went to its question (`redirect`)."""
    return Receipt.DUPLICATE


def start(service: Service) -> Parts:
    """Return the job that shows the list on the bot's own page."""
    return Parts({HOME_JOB: JobKind(partial(show_home, service))})


FEATURE = Feature(
    "waiting",
    personal=personal.WAITING,
    commands=(Command(COMMAND, N_("all that waits for you"), waiting_command, WAITING_WORDS, rank=135),),
    presses={PREFIX: Press("waiting", (), refuse_listed)},
    waits=waiting_questions,
    start=start,
)
