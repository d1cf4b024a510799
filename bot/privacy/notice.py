"""`/privacy`: what is kept, for how long, and how it ends."""

from __future__ import annotations

from agent.blocks import command_hint
from bot.commands.call import CommandCall
from bot.journey.ignored import keeps_talk
from bot.storage import overheard
from catalogue import N_, _, format_duration, join_sentences, ngettext

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
