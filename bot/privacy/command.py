"""`/forget me`: asks the person, then enqueues the job that deletes what is stored of them.

`/privacy`: what is kept, for how long, and how it ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agent.blocks import Ask, command_hint
from agent.messages import Thread
from bot.commands.call import CommandCall
from bot.commands.table import Pressed
from bot.database.database import Execute
from bot.database.web_people import true_person
from bot.journey.ignored import keeps_talk
from bot.storage import inbox, outbox, overheard
from bot.storage.forgetting import PersonKey
from bot.storage.jobs import enqueue_job, has_job
from catalogue import N_, _, format_duration, join_sentences, ngettext
from channels.base import Receipt

FORGET_PERSON_JOB = "forget_person"
YES, NO = N_("Forget me"), N_("Keep everything")
OPTIONS = (YES, NO)
PREFIX = "forget:"  # of the question's id, before the person's
USAGE = N_("`{forget}` deletes what I have stored of you. I ask before I do it.")
QUESTION = N_(
    "Shall I forget you? I stop your work and delete your messages, our direct chats with their files, what I remember"
    " of you, your schedules, your choices and what you allowed. In chats with others I delete your messages, my"
    " answers to them and the files you sent, and I lose the thread of those conversations. Not deleted: what is on"
    " this platform, what I said to others, files I made in chats with others, your role here, and the costs, whose"
    " link to you ends within 32 days. The audit keeps a pseudonym. This cannot be undone."
)
KEPT = N_("I keep everything as it is.")
BEGUN = N_("I'm forgetting you. I'll tell you when it's done.")
UNDER_WAY = N_("I'm forgetting you already. I'll tell you when it's done.")
LATELY = N_(
    "I forgot you within the last 24 hours, and I do that once a day. Please ask me again tomorrow; until then I keep"
    " what you wrote since."
)
LATELY_JOB = "forgotten"
AGAIN_SECONDS = 86400.0


def forget_command(call: CommandCall) -> str:
    """Ask the person whether to forget them."""
    if call.words.lower().split() != ["me"]:
        return _(USAGE, forget=command_hint("forget me"))
    person = call.message.author
    if refusal := _refuse_again(call, PersonKey(call.thread.channel, person.id)):
        return refusal
    ask = Ask(f"{PREFIX}{person.id}", _(QUESTION), tuple(map(_, OPTIONS)), free_text=False)
    key = f"forget:{call.message.key}"
    outbox.enqueue_notice(call.execute, call.thread, ask.question, key=key, now=call.now, asks=(ask,))
    return ""


def lately_key(person: PersonKey) -> str:
    """Return the key of the job that remembers for a day that a person was forgotten, without their id."""
    return f"{LATELY_JOB}:{hashlib.sha256(person.key.encode()).hexdigest()[:24]}"


def _refuse_again(call: CommandCall, person: PersonKey) -> str | None:
    """Return why not now, None if nothing speaks against it: it is much work, once for each person and day."""
    if has_job(call.execute, f"{FORGET_PERSON_JOB}:{person.key}"):
        return _(UNDER_WAY)
    return _(LATELY) if has_job(call.execute, lately_key(person)) else None


def check_press(_execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of another person's press."""
    return None if pressed.subject == pressed.click.author.id else Receipt.IGNORED


def answer_press(call: CommandCall, pressed: Pressed) -> str:
    """Do what the person decided."""
    person = PersonKey(call.thread.channel, call.message.author.id)
    if refusal := _refuse_again(call, person):
        return refusal
    if OPTIONS[pressed.option] == NO:
        return _(KEPT)
    chats = [call.thread] if call.message.private else []
    enqueue_forgetting(call.execute, person, chats, call.thread, person.id)
    return _(BEGUN)


def enqueue_forgetting(
    execute: Execute, person: PersonKey, chats: Sequence[Thread] = (), tell: Thread | None = None, by: str = ""
) -> None:
    """Enqueue the job, and another one where the same person wrote over HTTP.

    `chats` are direct chats of the person, `tell` is where its end is said, `by` who asked.
    """
    platform = PersonKey(*true_person(person.channel, person.id))
    for each in (platform, platform.on_web):
        asked = each == person
        if not asked and not inbox.has_written(execute, each.key):
            continue
        payload = {
            "channel": each.channel,
            "person": each.id,
            "chats": [*map(str, chats)] if asked else [],
            "tell": str(tell) if tell and asked else "",
            "by": by if asked else "",
        }
        enqueue_job(execute, key=f"{FORGET_PERSON_JOB}:{each.key}", kind=FORGET_PERSON_JOB, payload=payload)


ABOVE = N_("When you ask me in a group, I also read the messages above yours, as context only.")
KEPT_TALK = N_(
    "In this group I keep what people write without addressing me for {time}: as context for the next question to me,"
    " and for nothing else."
)
DELETE = N_("`{export}` sends you what I have of you, `{forget}` deletes it.")


def privacy_command(call: CommandCall) -> str:
    """Say what is kept of the people of this chat."""
    config, limits = call.current.config, call.current.limits
    days = ngettext(
        "I keep what you write to me, my answers and their files; {n} day after the last use I delete them.",
        "I keep what you write to me, my answers and their files; {n} days after the last use I delete them.",
        round(config.keep_days),
    )
    talk = ""
    if keeps_talk(limits) and overheard.is_listening(call.execute, call.thread.without_topic):
        talk = _(KEPT_TALK, time=format_duration(limits.talk_hours * 3600))
    elif limits.earlier_messages:
        talk = _(ABOVE)
    delete = _(DELETE, export=command_hint("export me"), forget=command_hint("forget me"))
    return join_sentences(days, talk, delete)
