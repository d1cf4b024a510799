"""Add the list of what waits for a person as a feature, with the buttons of what is closed."""

from __future__ import annotations

from functools import partial

from bot.base.jobs import JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.commands.presses import Press, Pressed
from bot.commands.waits import COMMAND, HOME_JOB, LIST_PREFIX, PREFIX, SHOW_LIST
from bot.database.database import Execute
from bot.storage import personal
from bot.waiting import hand_over
from bot.waiting.command import WAITING_WORDS, show_list, waiting_command
from bot.waiting.ending import HandOverEnds
from bot.waiting.home import show_home
from bot.waiting.questions import waiting_questions
from catalogue import N_
from channels.base import Receipt


def refuse_listed(_execute: Execute, _pressed: Pressed) -> Receipt:
    """Return the receipt of a press on what waits no longer: one that counts went to its question (`redirect`)."""
    return Receipt.DUPLICATE


def refuse_in_group(_execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press that would show a list where others read it."""
    return None if pressed.click.private else Receipt.IGNORED


def start(service: Service) -> Parts:
    """Return the jobs that show the list on the bot's own page, and end what was handed over."""
    jobs = {HOME_JOB: JobKind(partial(show_home, service)), hand_over.ENDS_JOB: JobKind(HandOverEnds().end)}
    return Parts(jobs)


FEATURE = Feature(
    "waiting",
    personal=personal.WAITING,
    commands=(Command(COMMAND, N_("all that waits for you"), waiting_command, WAITING_WORDS, rank=135),),
    presses={
        PREFIX: Press("waiting", (), refuse_listed),
        LIST_PREFIX: Press("waiting", (SHOW_LIST,), refuse_in_group, lambda call, _pressed: show_list(call)),
        hand_over.PREFIX: Press(
            "hand over", hand_over.OPTIONS, hand_over.check_step, hand_over.take_step, has_names=True
        ),
    },
    waits=waiting_questions,
    start=start,
)
