"""Show what waits for a person on the bot's own page, where a platform has one, with the buttons of `/waiting`."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from agent.blocks import Approve, command_hint, spell_commands
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.commands.feature import Service
from bot.commands.waits import COMMAND, PREFIX, Waiting
from bot.database.database import Execute
from bot.storage import languages
from bot.storage.jobs import BackgroundJob
from bot.waiting.command import MAX_SHOWN, count_waiting, describe_place, describe_request
from catalogue import N_, _
from channels.base import Home, HomeItem, HomePage, Refused, TryLater
from channels.shared.texts import shorten

log = logging.getLogger(__name__)

MAX_QUESTION_CHARS = 600
NOT_LET_IN = N_("We have not met yet: write to me, and whoever runs me can let you in.")
HOW_IN_WORDS = N_("Write `{command}` to me to answer.")
TOO_LONG = N_("The call is too long for this page. Write `{command}` to me: there you can read all of it, and decide.")
ALWAYS = N_("Write `{command}` to me at any time to see this list. It is as new as when you opened this page.")


async def show_home(service: Service, job: BackgroundJob) -> None:
    """Handle a job that shows the page of a person who has opened it, or has answered there."""
    arguments = job.arguments
    thread = Thread.parse(arguments["thread"])
    person = Author(arguments["person"], arguments["name"], guest=arguments["guest"], language=arguments["language"])
    channel = service.channel(thread.channel)
    if channel is None:
        raise TryLater("the channel is not connected")
    if not isinstance(channel, HomePage):
        return
    home = await service.store.run(partial(_read_home, service, thread, person, time.time()))
    spell = partial(channel.spell_command, thread)

    def plain(text: str) -> str:
        return spell_commands(text, spell).replace("`", "")

    items = tuple(replace(item, detail=plain(item.detail)) for item in home.items)
    try:
        await channel.show_home(thread, person.id, Home(home.heading, items, plain(home.foot)))
    except Refused as error:
        log.info("home.refused person=%s reason=%s", person.id, error)


def _read_home(service: Service, thread: Thread, person: Author, now: float, execute: Execute) -> Home:
    viewer = Message(thread, "home", "", person, "", now, Kind.HOME, private=True, origin=Origin.PERSON)
    with languages.speak_to(execute, thread, person):
        if not service.current.access.may_enter(execute, viewer):
            return Home(_(NOT_LET_IN))
        found = service.waits(execute, viewer, now)
        items = [_make_item(number, item, now) for number, item in found[:MAX_SHOWN]]
        return Home(count_waiting(len(found)), tuple(items), _(ALWAYS, command=command_hint(COMMAND)))


def _make_item(number: int, item: Waiting, now: float) -> HomeItem:
    """Return an item as plain text. A call that is not shown whole cannot be approved here."""
    asked = Approve(f"{PREFIX}{number}", item.question, call=item.call)
    question = f"{number}. {shorten(item.question, MAX_QUESTION_CHARS)}"
    place = None if item.account or item.is_direct else item.place
    parts = [*([] if place else [describe_place(item)]), *describe_request(item, now)]
    options = () if asked.has_long_call else tuple(_(option) for option in item.options)
    if asked.has_long_call:
        parts.append(_(TOO_LONG, command=command_hint(COMMAND)))
    elif not options:
        parts.append(_(HOW_IN_WORDS, command=command_hint(f"{COMMAND} {number} …")))
    return HomeItem(asked.id, question, place, " · ".join(parts), asked.shown_call, options)
