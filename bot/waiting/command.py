"""`/waiting`: list what waits for a person in all chats, each with its buttons; say why an answer does not count.

Show what waits for a person on the bot's own page, where a platform has one, with the buttons of `/waiting`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from agent.blocks import Approve, command_hint, spell_commands
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.commands.call import CommandCall
from bot.commands.feature import Service
from bot.commands.waits import (
    COMMAND,
    DECISIONS,
    PREFIX,
    Waiting,
    approvals_to_decide,
    describe_place,
    describe_request,
    show_item,
    split_number,
)
from bot.database.database import Execute
from bot.rights.approvals import send_long_call
from bot.storage import languages, outbox
from bot.storage.jobs import BackgroundJob
from bot.storage.questions import open_approvals_at
from bot.waiting import hand_over
from catalogue import N_, _, join_sentences, list_items, ngettext
from channels.base import Home, HomeItem, HomePage, Refused, TryLater
from channels.shared.texts import shorten

WAITING_WORDS = "NUMBER ANSWER | hand over to @NAME until DAY | take back"
MAX_SHOWN = 10  # items of one list
ONLY_PRIVATE = N_(
    "What waits for you may come from other chats, so I show it only in our direct chat: write `{command}` to me there."
)
NOTHING = N_("Nothing waits for you.")
NOT_KNOWN = N_("Nothing with the number {number} waits for you any more. `{command}` lists what does.")
TAKES = N_("Number {number} takes one of these answers: {options}. Write, for example, `{command}`.")
USE = N_("Use `{list}`, or `{answer}` with the number of what you answer.")
DECIDE_WORDS = "[NUMBER]"
NO_APPROVAL = N_("No approval waits here. `{command}`, in our direct chat, lists what waits for you in all chats.")
NOT_YOURS = N_("Your role here, **{role}**, may not decide what waits here.")
SEVERAL = N_(
    "Several approvals wait. Press a button, or write `{answer}` to me in our direct chat, with a number that `{list}`"
    " shows."
)


def waiting_command(call: CommandCall) -> str:
    """List what waits for a person, and who stands in for whom; or hand over. An answer that counts does not come here:
    it went to its question."""
    if hand_over.is_hand_over(call.words):
        return hand_over.run_words(call)
    if not call.message.private:
        return _(ONLY_PRIVATE, command=command_hint(COMMAND))
    if call.words:
        return _explain(dict(call.service.waits(call.execute, call.message, call.now)), call.words)
    return show_list(call)


def decide_command(call: CommandCall) -> str:
    """Say why `/approve` or `/deny` decides nothing here: one that counts went to its approval."""
    name = call.message.text.partition(" ")[0]
    if call.words:
        return _explain(dict(call.service.waits(call.execute, call.message, call.now)), f"{call.words} {name}")
    others = [item for _number, item in call.service.waits(call.execute, call.message, call.now) if item.call]
    if others or approvals_to_decide(call.execute, call.current, call.message, DECISIONS[name], call.now):
        return _(SEVERAL, answer=command_hint(f"{name} NUMBER"), list=command_hint(COMMAND))
    if open_approvals_at(call.execute, call.thread):
        return _(NOT_YOURS, role=call.role.name)
    return _(NO_APPROVAL, command=command_hint(COMMAND))


def show_list(call: CommandCall) -> str:
    """Enqueue the list, with the hand-overs; in the direct chat only."""
    found = call.service.waits(call.execute, call.message, call.now)
    heading, key = count_waiting(len(found)), f"waiting:{call.message.key}"
    asks = (hand_over.offer(heading),)
    outbox.enqueue_notice(
        call.execute, call.thread, heading, key=key, now=call.now, reply_to=call.message.id, asks=asks
    )
    hand_over.show_all(call, key)
    for number, item in found[:MAX_SHOWN]:
        _show(call, number, item, f"{key}:{number}")
    return ""


def count_waiting(count: int) -> str:
    """Say how much waits for a person, and whether the list has all of it."""
    if not count:
        return _(NOTHING)
    heading = ngettext("{n} question waits for you.", "{n} questions wait for you.", count)
    return join_sentences(heading, _("These are the oldest {n}.", n=MAX_SHOWN) if count > MAX_SHOWN else "")


def _explain(found: dict[int, Waiting], words: str) -> str:
    """Say why words are no answer to what waits."""
    number, _answer = split_number(words)
    if number is None:
        return _(USE, list=command_hint(COMMAND), answer=command_hint(_("waiting 12 ANSWER")))
    if (item := found.get(number)) is None:
        return _(NOT_KNOWN, number=number, command=command_hint(COMMAND))
    options = [_(option) for option in item.options]
    if not options:
        return _(USE, list=command_hint(COMMAND), answer=command_hint(_("waiting {n} ANSWER", n=number)))
    return _(
        TAKES,
        number=number,
        options=list_items(f"**{option}**" for option in options),
        command=command_hint(f"{COMMAND} {number} {options[0]}"),
    )


def _show(call: CommandCall, number: int, item: Waiting, key: str) -> None:
    """Enqueue one item: what it asks, the exact call, where, of whom and since when, and its buttons."""
    approve, ask = show_item(number, item, call.now)
    send_long_call(call.execute, approve, call.thread, key=key, now=call.now)
    asks = (ask,) if ask.options else ()
    outbox.enqueue_notice(call.execute, call.thread, ask.question, key=key, now=call.now, asks=asks)


log = logging.getLogger(__name__)

MAX_HOME_CHARS = 600
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
    question = f"{number}. {shorten(item.question, MAX_HOME_CHARS)}"
    place = None if item.account or item.is_direct else item.place
    parts = [*([] if place else [describe_place(item)]), *describe_request(item, now)]
    options = () if asked.has_long_call else tuple(_(option) for option in item.options)
    if asked.has_long_call:
        parts.append(_(TOO_LONG, command=command_hint(COMMAND)))
    elif not options:
        parts.append(_(HOW_IN_WORDS, command=command_hint(f"{COMMAND} {number} …")))
    return HomeItem(asked.id, question, place, " · ".join(parts), asked.shown_call, options)
