"""`/waiting`: list what waits for a person in all chats, each with its buttons; say why an answer does not count."""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import Approve, command_hint
from bot.base.plain_text import code_span, plain_line
from bot.commands.call import CommandCall
from bot.commands.waits import COMMAND, PREFIX, Waiting, split_number
from bot.rights.approvals import send_long_call
from bot.storage import outbox
from bot.waiting import hand_over
from catalogue import N_, _, format_duration, join_sentences, list_items, ngettext
from channels.shared.texts import shorten

WAITING_WORDS = "NUMBER ANSWER | hand over to @NAME until DAY | take back"
MAX_SHOWN = 10  # items of one list
MAX_QUESTION_CHARS = 1500
ONLY_PRIVATE = N_(
    "What waits for you may come from other chats, so I show it only in our direct chat: write `{command}` to me there."
)
NOTHING = N_("Nothing waits for you.")
NOT_KNOWN = N_("Nothing with the number {number} waits for you any more. `{command}` lists what does.")
TAKES = N_("Number {number} takes one of these answers: {options}. Write, for example, `{command}`.")
USE = N_("Use `{list}`, or `{answer}` with the number of what you answer.")
HOW = N_("Press a button, or write `{command}`.")


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
    options = tuple(_(option) for option in item.options)
    first = options[0] if options else _("ANSWER")
    answer = command_hint(f"{COMMAND} {number} {first}")
    origin = describe_origin(item, call.now)
    detail = join_sentences(origin, _(HOW, command=answer) if options else f"`{answer}`")
    words = f"**{number}.** {shorten(item.question, MAX_QUESTION_CHARS)}"
    approve = Approve(f"{PREFIX}{number}", words, detail, item.call, option_count=len(options))
    ask = replace(approve.to_question(), options=options, approval=bool(item.call))
    send_long_call(call.execute, approve, call.thread, key=key, now=call.now)
    asks = (ask,) if options else ()
    outbox.enqueue_notice(call.execute, call.thread, ask.question, key=key, now=call.now, asks=asks)


def describe_origin(item: Waiting, now: float) -> str:
    """Say where something was asked, for whose request, and for how long it has waited."""
    return " · ".join([describe_place(item), *describe_request(item, now)]) + "."


def describe_place(item: Waiting) -> str:
    """Name the chat in which something was asked."""
    if item.is_direct:
        on = item.account.channel.capitalize() if item.account else ""
        return _("our direct chat on {channel}", channel=on) if on else _("our direct chat")
    return code_span("/".join(filter(None, (item.place.channel, item.place.workspace, item.place.chat))))


def describe_request(item: Waiting, now: float) -> list[str]:
    """Return what the work is, for whose request something was asked, and for how long it has waited."""
    parts = []
    parts += [f"“{title}”"] if (title := plain_line(item.title)) else []
    parts += [_("asked for {name}", name=plain_line(item.who))] if item.who else []
    since = format_duration(max(0.0, now - item.since))
    parts += [_("waits for {time}", time=since)] if item.since else []
    return parts
