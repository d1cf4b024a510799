"""`/link`: prove that two accounts on different platforms are one person's; `/unlink` ends that.

A code goes from the direct chat of one account to that of the other, which sees whose it is and agrees; then the first
one sees who sent it, and agrees, too. So neither a code that somebody overhears nor one that somebody was talked into
sending links strangers. What a link gives is in `bot/commands/waits.py`: each account sees what waits for the others.
"""

from __future__ import annotations

from agent.blocks import Ask, command_hint
from agent.messages import Author, Thread
from bot.base.codes import make_code
from bot.base.display_names import display_name
from bot.commands.call import CommandCall
from bot.commands.table import UNKNOWN, Pressed
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.database.web_people import WEB
from bot.rights.known_people import describe_links, show_account
from bot.storage import account_links, languages, outbox, people
from bot.storage.account_links import LinkRequest
from catalogue import N_, _, join_sentences, list_items
from channels.base import Receipt

PREFIX = "link:"  # begins the id of its questions, before the number of the request
LINK_WORDS = "CODE | yes | no"
CODE_SECONDS = 600.0
MINE, NOT_MINE = N_("Both are mine"), N_("Not mine")
OPTIONS = (MINE, NOT_MINE)
ONLY_PRIVATE = N_("Write `{command}` to me in our direct chat: nobody else should read it.")
ONLY_PLATFORMS = N_("Accounts are linked from the chats themselves: write `{command}` to me there.")
SEND_CODE = N_(
    "Send `{command}` to me from your account on the other platform, in our direct chat there, within 10 minutes. The"
    " code works once. Give it to nobody: who is linked with you sees what waits for you, and answers in your name."
)
NO_CODE = N_("I don't know this code: it was used, or it is older than 10 minutes. `{command}` gives you a new one.")
SAME_CHANNEL = N_("This code is from this platform. Send it from your account on another one.")
TAKEN = N_(
    "Both cannot be yours at once: one of them, or an account that is linked with it, is on a platform where the other"
    " has another account. `{command}` ends the links of an account."
)
ASK_MINE = N_(
    "The code is from {person}. Are both accounts yours? Then each lists what waits for the other, and answers it in"
    " its name and with its rights."
)
ASK_OWNER = N_(
    "{person} has sent your code. Are both accounts yours? Then each lists what waits for the other, and answers it in"
    " its name and with its rights."
)
IN_WORDS = N_("Press a button, or write `{yes}` or `{no}`.")
NOW_THERE = N_("Now confirm it in our direct chat on {channel}: I have asked there, too.")
LINKED = N_(
    "{person} is linked with this account: `{waiting}` lists here what waits for both, and `{unlink}` ends that."
)
DECLINED = N_("Nothing is linked, and the code no longer works.")
OTHER_DECLINED = N_("{person} said that your accounts are not one person's. Nothing is linked.")
NOTHING_ASKED = N_("There is nothing to confirm: it was decided, or the code is too old. `{command}` gives a new one.")
NOT_LINKED = N_("This account is linked with no other.")
UNLINKED = N_("This account is linked with no other any more. It was with {accounts}.")
TOLD_UNLINKED = N_("{person} is not linked with this account any more.")


def link_command(call: CommandCall) -> str:
    """Give a code, take one, or confirm a link by words; in the direct chat only."""
    if not call.message.private:
        return _(ONLY_PRIVATE, command=command_hint("link"))
    if call.thread.channel == WEB or not call.message.is_by_person:
        return _(ONLY_PLATFORMS, command=command_hint("link"))
    word = call.words.strip()
    if not word:
        return _give_code(call)
    if word.casefold() in ("yes", "no"):
        request = account_links.request_of(call.execute, call.thread.channel, call.message.author.id, call.now)
        if request is None:
            return _(NOTHING_ASKED, command=command_hint("link"))
        return _confirm(call, request, agrees=word.casefold() == "yes")
    return _take_code(call, word.upper())


def _give_code(call: CommandCall) -> str:
    code, author, channel = make_code(), call.message.author, call.thread.channel
    people.store_address(call.execute, call.message)
    account_links.add_request(call.execute, channel, author, code, call.now + CODE_SECONDS)
    return join_sentences(
        describe_links(call.execute, channel, author.id), _(SEND_CODE, command=command_hint(f"link {code}"))
    )


def _take_code(call: CommandCall, code: str) -> str:
    """Take a code from its other account, and ask whether both are one person's."""
    channel, author, hint = call.thread.channel, call.message.author, command_hint("link")
    found = account_links.find_code(call.execute, code, call.now)
    if found is None:
        return _(NO_CODE, command=hint)
    if found.channel == channel:
        return _(SAME_CHANNEL)
    people.store_address(call.execute, call.message)
    request = account_links.take_code(call.execute, code, channel, author, call.now)
    if request is None:
        return _(NO_CODE, command=hint)
    if not account_links.fit_together(call.execute, request):
        account_links.end_request(call.execute, request.id, call.now)
        return _(TAKEN, command=command_hint("unlink"))
    owner = show_account(request.channel, request.person, request.name)
    _ask(call.execute, call.thread, request, _(ASK_MINE, person=owner), call.now)
    return ""


def _ask(execute: Execute, home: Thread, request: LinkRequest, question: str, now: float) -> None:
    """Enqueue the question whether both accounts are one person's, in the direct chat of one of them."""
    yes, no = command_hint("link yes"), command_hint("link no")
    words = join_sentences(question, _(IN_WORDS, yes=yes, no=no))
    ask = Ask(f"{PREFIX}{request.id}", words, tuple(map(_, OPTIONS)), free_text=False, personal=True)
    key = f"link:{request.id}:{home.channel}"
    outbox.enqueue_notice(execute, home, words, key=key, now=now, asks=(ask,))


# ------------------------------------------------------------ confirm


def check_confirmation(execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press that is another person's, or has no effect any more."""
    id, click = parse_row_id(pressed.subject), pressed.click
    request = account_links.find_request(execute, id, pressed.now) if id is not None else None
    if request is None or pressed.option == UNKNOWN:
        return Receipt.DUPLICATE
    who = (click.thread.channel, click.author.id)
    if who not in ((request.channel, request.person), (request.to_channel, request.to_person)) or not click.private:
        return Receipt.IGNORED
    return None if _is_asked(request, *who) else Receipt.DUPLICATE


def _is_asked(request: LinkRequest, channel: str, person: str) -> bool:
    """Return whether it is this account's turn: who sent the code is asked first, then who was given it."""
    if request.code:
        return False
    asked = (request.channel, request.person) if request.agreed else (request.to_channel, request.to_person)
    return (channel, person) == asked


def take_press(call: CommandCall, pressed: Pressed) -> str:
    """Take the answer of one of the two accounts."""
    request = account_links.find_request(call.execute, parse_row_id(pressed.subject) or 0, call.now)
    if request is None or not _is_asked(request, call.thread.channel, call.message.author.id):
        return _(NOTHING_ASKED, command=command_hint("link"))
    return _confirm(call, request, agrees=OPTIONS[pressed.option] == MINE)


def _confirm(call: CommandCall, request: LinkRequest, *, agrees: bool) -> str:
    """Take the answer of the account whose turn it is; link both when each has agreed."""
    execute, now = call.execute, call.now
    if not agrees:
        account_links.end_request(execute, request.id, now)
        _record(call, request, "declined")
        _tell_other(call, request, OTHER_DECLINED)
        return _(DECLINED)
    if not request.agreed:
        account_links.agree(execute, request.id, now)
        _ask_owner(execute, request, now)
        return _(NOW_THERE, channel=display_name(request.channel))
    if not account_links.fit_together(execute, request):
        account_links.end_request(execute, request.id, now)
        return _(TAKEN, command=command_hint("unlink"))
    account_links.end_request(execute, request.id, now)
    account_links.link(execute, request, now)
    _record(call, request, "linked")
    _tell_other(call, request, LINKED)
    return _linked(LINKED, show_account(request.to_channel, request.to_person, request.to_name))


def _linked(sentence: str, person: str) -> str:
    return _(sentence, person=person, waiting=command_hint("waiting"), unlink=command_hint("unlink"))


def _ask_owner(execute: Execute, request: LinkRequest, now: float) -> None:
    """Ask the account that was given the code, in its direct chat."""
    known = people.find_person(execute, request.channel, request.person)
    if known is None or (home := known.private_chat) is None:
        return
    with languages.speak_to(execute, home, Author(request.person, request.name)):
        sender = show_account(request.to_channel, request.to_person, request.to_name)
        _ask(execute, home, request, _(ASK_OWNER, person=sender), now)


def _tell_other(call: CommandCall, request: LinkRequest, sentence: str) -> None:
    """Tell the account that did not just answer, in its direct chat, about the one that did."""
    owner = (request.channel, request.person, request.name)
    sender = (request.to_channel, request.to_person, request.to_name)
    is_owner = (call.thread.channel, call.message.author.id) == owner[:2]
    told, other = (sender, owner) if is_owner else (owner, sender)
    _tell(call, told, other, sentence, f"link:{request.id}:told")


def _tell(call: CommandCall, told: tuple[str, str, str], about: tuple[str, str, str], sentence: str, key: str) -> None:
    """Tell an account (channel, id, name) in its direct chat about another one."""
    known = people.find_person(call.execute, *told[:2])
    home = known.private_chat if known else None
    if home is not None:
        with languages.speak_to(call.execute, home, Author(*told[1:])):
            words = _linked(sentence, show_account(*about))
            outbox.enqueue_notice(call.execute, home, words, key=key, now=call.now)


def _record(call: CommandCall, request: LinkRequest, result: str) -> None:
    """Note in the audit what the author's account did about a link with the other one."""
    owner = (request.channel, request.person)
    is_owner = (call.thread.channel, call.message.author.id) == owner
    _record_link(call, *((request.to_channel, request.to_person) if is_owner else owner), result)


def _record_link(call: CommandCall, channel: str, person: str, result: str) -> None:
    author, subject = call.message.author.id, audit.person_name(channel, person)
    audit.record(call.execute, AuditEvent(AuditKind.ACCOUNT_LINK, call.thread, author, subject=subject, result=result))


# ------------------------------------------------------------ end


def unlink_command(call: CommandCall) -> str:
    """End the links of the author's account, and tell the others; in the direct chat only."""
    if not call.message.private:
        return _(ONLY_PRIVATE, command=command_hint("unlink"))
    channel, author = call.thread.channel, call.message.author
    others = account_links.unlink(call.execute, channel, author.id)
    if not others:
        return _(NOT_LINKED)
    for each in others:
        _record_link(call, each.channel, each.person, "ended")
        told, about = (each.channel, each.person, each.name), (channel, author.id, author.name)
        _tell(call, told, about, TOLD_UNLINKED, f"unlink:{call.message.key}:{each.channel}")
    return _(UNLINKED, accounts=list_items(show_account(each.channel, each.person, each.name) for each in others))
