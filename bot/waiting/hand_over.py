"""Hand over what waits for a person: `/waiting hand over to @X until Friday`, or buttons; and end that again.

Whether a deputy may answer is decided when they do (`bot.rights.approvals.find_hand_over`). Here is stored who stands
in for whom, and both are told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.blocks import Ask, command_hint
from agent.messages import Author, Message, Thread
from bot.base.plain_text import plain_line
from bot.commands.call import CommandCall
from bot.commands.presses import UNKNOWN, Pressed
from bot.commands.waits import COMMAND, Waiting
from bot.config.team import Right
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.rights.approvals import may_stand_in
from bot.rights.current import Current
from bot.rights.known_people import KnownPerson, find_people, people_around
from bot.storage import account_links, hand_overs, languages, outbox, people
from bot.storage import questions as stored
from bot.storage.hand_overs import EVERYTHING, HandOverRow
from bot.storage.jobs import enqueue_job
from bot.storage.questions import QuestionRow
from bot.waiting.until import A_WEEK, FRIDAY, TODAY, TOMORROW, describe_until, parse_until
from catalogue import N_, _, join_sentences, list_items
from channels.base import Receipt

PREFIX = "handover:"  # begins the id of its questions, before what they are about
ASK, TO, UNTIL, END = "ask", "to", "until-", "end-"
HAND_OVER, TAKE_BACK, GIVE_BACK = N_("Hand over…"), N_("Take back"), N_("Give back")
UNTILS = (TODAY, TOMORROW, FRIDAY, A_WEEK)
OPTIONS = (HAND_OVER, TAKE_BACK, GIVE_BACK, *UNTILS)
MAX_OFFERED = 8  # people, as buttons
MAX_GIVEN = 20  # hand-overs of one person that are in force
UTC = "UTC"
ENDS_JOB = "hand over"  # the kind of the job that ends one whose time is over
_WORDS = re.compile(r"(?i)hand over(?: #?(\d{1,18}))? to (.+)")
_END_WORDS = re.compile(r"(?i)(?:take|give) back(?: #?(\d{1,18}))?")
_UNTIL = re.compile(r"(?i) until ")

USE_HAND_OVER = N_("Use `{all}`, or `{one}` for one question. It also takes a date, a time, or `3 days`.")
USE_TAKE_BACK = N_("Use `{command}` with one of these numbers: {numbers}.")
NOTHING_GIVEN = N_("You have handed over nothing, and stand in for nobody.")
NO_TIME = N_("“{words}” is no time to come within a year. Write, for example, `{command}`.")
NOBODY_CALLED = N_(
    "I don't know anybody called “{name}”. Name them by a mention or an id, or have them write to me once."
)
SEVERAL = N_("More than one person is called that: {people}. Write the id in place of the name.")
YOURSELF = N_("You answer for yourself already. Name somebody else.")
MAY_NOT = N_("{person} may not answer in your place: their role there is **{role}**.")
MAY_NOT_THIS = N_("{person} may not answer number {number}: whoever does needs a role there that allows it.")
NOT_ALLOWED_ITSELF = N_("Number {number} can't be handed over: only the agent's questions and approvals can.")
NOT_LISTED = N_("Nothing with the number {number} waits for you any more. `{command}` lists what does.")
TOO_MANY = N_("You have handed over {n} times already. `{command}` ends one.")
EVERYTHING_OF = N_("everything that waits for you in shared chats")
ONE_OF = N_("number {number}")
GIVEN = N_("Until {until}, {person} may answer in your place: {what}.")
WHAT_FOR = N_(
    "They can answer, approve once and deny, but allow nothing for later. You can answer, too; who comes first decides."
)
NO_ACCOUNT = N_(
    "Number {number} waits on {channel}, and I know no account of {person} there. They can link it: `{command}`."
)
NOT_TOLD = N_("I have no direct chat with {person}, so please tell them: `{command}` shows it to them.")
STANDS_IN = N_("You stand in for {giver} until {until}: {what}.")
SEE_LIST = N_("`{command}` lists it here.")
EVERYTHING_FOR = N_("everything that waits for them in shared chats")
ONE_FOR = N_("one question")
TAKEN_BACK = N_("{person} does not stand in for you any more.")
GAVE_BACK = N_("You do not stand in for {person} any more.")
TOLD_DEPUTY = N_("{person} has taken back what was handed over to you. You do not stand in for them any more.")
TOLD_GIVER = N_("{person} has given back what you handed over to them. It waits for you only.")
TO_WHOM = N_("To whom do you hand over? You can also write `{command}`.")
KNOW_NOBODY = N_("I know nobody else in your chats yet. Write `{command}`, with a mention or an id.")
UNTIL_WHEN = N_("Until when does {person} answer in your place?")


class _Refused(Exception):
    """Why nothing is handed over; the message is for the person who wanted it."""


# ------------------------------------------------------------ words


def is_hand_over(words: str) -> bool:
    """Return whether the words of the command hand over, or take back."""
    return words.split(maxsplit=2)[:2] in (["hand", "over"], ["take", "back"], ["give", "back"])


def run_words(call: CommandCall) -> str:
    """Hand over or end it, by words; return the answer."""
    words = " ".join(call.words.split())
    if (ended := _END_WORDS.fullmatch(words)) is not None:
        return _end_by_words(call, ended[1])
    found = _WORDS.fullmatch(words)
    if found is None:
        return _usage()
    who, *when = _UNTIL.split(found[2], maxsplit=1)
    try:
        deputy = _find_deputy(call, who)
        number = parse_row_id(found[1]) if found[1] else 0
        if when:
            return _give(call, deputy, number or 0, when[0])
        return "" if _ask_until(call, deputy, number or 0) else _usage()
    except _Refused as refused:
        return str(refused)


def _usage() -> str:
    everything = command_hint(_("waiting hand over to @NAME until Friday"))
    return _(USE_HAND_OVER, all=everything, one=command_hint(_("waiting hand over 12 to @NAME until Friday")))


def _find_deputy(call: CommandCall, words: str) -> KnownPerson:
    """Return the person whom words name. Raises _Refused."""
    found = find_people(call.execute, call.thread.channel, words)
    if not found:
        raise _Refused(_(NOBODY_CALLED, name=plain_line(words)))
    if len(found) > 1:
        raise _Refused(_(SEVERAL, people=list_items(each.shown for each in found)))
    return found[0]


# ------------------------------------------------------------ give


def _give(call: CommandCall, deputy: KnownPerson, number: int, when: str) -> str:
    """Store that a person stands in for the author until then, and tell both. Raises _Refused."""
    execute, author = call.execute, call.message.author
    zone = zone_of(execute, call.current, call.thread.channel, author.id)
    until = parse_until(when, zone, call.now)
    if until is None:
        raise _Refused(_(NO_TIME, words=plain_line(when), command=command_hint(_example(deputy, number))))
    given = _check(call, deputy, number)
    if len(hand_overs.of_giver(execute, given.channel, given.giver, call.now)) >= MAX_GIVEN:
        raise _Refused(_(TOO_MANY, n=MAX_GIVEN, command=command_hint("waiting take back")))
    values = {
        "channel": given.channel,
        "giver": given.giver,
        "giver_name": author.name,
        "deputy": given.deputy,
        "deputy_name": deputy.name,
        "subject": given.subject,
        "number": number,
        "since": call.now,
        "until": until,
        "ended": None,
    }
    row = HandOverRow(id=hand_overs.add_hand_over(execute, values), **values)  # type: ignore[arg-type]  # by name
    enqueue_job(execute, key=f"{ENDS_JOB}:{row.id}", kind=ENDS_JOB, payload={"id": row.id}, due=until)
    _record(call, row, "given", is_giver=True)
    deputys = zone_of(execute, call.current, row.channel, row.deputy)
    told = _tell(call, row, row.deputy, lambda: describe(row, deputys, is_giver=False), END)
    words = join_sentences(
        describe(row, zone, is_giver=True),
        _(WHAT_FOR),
        "" if told else _(NOT_TOLD, person=deputy.shown, command=command_hint(COMMAND)),
    )
    show(call, row, words, f"handover:{row.id}:given", reply_to=call.message.id)
    return ""


def _example(deputy: KnownPerson, number: int) -> str:
    name = deputy.name or deputy.id
    if number:
        return _("waiting hand over {n} to @{name} until Friday", n=number, name=name)
    return _("waiting hand over to @{name} until Friday", name=name)


@dataclass(frozen=True, slots=True)
class _Given:
    """What is handed over by which account to which one, all of one channel. The subject is as in HandOverRow."""

    channel: str
    giver: str
    deputy: str
    subject: str = EVERYTHING


def _check(call: CommandCall, deputy: KnownPerson, number: int) -> _Given:
    """Return what is handed over. Raises _Refused where this person may not have it."""
    access, giver, channel = call.current.access, call.message.author.id, call.thread.channel
    if deputy.id == giver:
        raise _Refused(_(YOURSELF))
    if not _may_talk(call, deputy):
        role = access.role_of(call.execute, _shared_place(call), deputy.id)
        raise _Refused(_(MAY_NOT, person=deputy.shown, role=role.name or "-"))
    if not number:
        return _Given(channel, giver, deputy.id)
    question, item = _find_question(call, number)
    there = deputy.id
    if item.account:  # it waits for another account of the giver: the deputy answers with theirs on that channel
        giver = item.account.person
        there = account_links.account_on(call.execute, channel, deputy.id, item.account.channel)
        if not there:
            raise _Refused(
                _(
                    NO_ACCOUNT,
                    number=number,
                    channel=item.account.channel.capitalize(),
                    person=deputy.shown,
                    command=command_hint("link"),
                )
            )
        channel = item.account.channel
    if not may_stand_in(call.execute, access, question, item.place, giver=giver, deputy=there):
        raise _Refused(_(MAY_NOT_THIS, person=deputy.shown, number=number))
    return _Given(channel, giver, there, question.subject)


def _shared_place(call: CommandCall) -> Thread:
    """Return where the role of another person is looked up: a direct chat is only its own person's place."""
    return Thread(call.thread.channel, call.thread.workspace, "") if call.message.private else call.thread


def _may_talk(call: CommandCall, deputy: KnownPerson) -> bool:
    """Return whether somebody may have the agent work here, or in a chat that they share with the author."""
    around = people_around(call.execute, call.thread.channel, call.message.author.id).get(deputy.id)
    places = (_shared_place(call), *([around.place] if around and around.place else []))
    return any(call.current.access.may(call.execute, place, deputy.id, Right.TALK) for place in places)


def _find_question(call: CommandCall, number: int) -> tuple[QuestionRow, Waiting]:
    """Return the question with this number in the author's list, and how it is listed. Raises _Refused."""
    if not call.message.private:
        raise _Refused(_(NOT_LISTED, number=number, command=command_hint(COMMAND)))
    item = dict(call.service.waits(call.execute, call.message, call.now)).get(number)
    if item is None:
        raise _Refused(_(NOT_LISTED, number=number, command=command_hint(COMMAND)))
    question = stored.find_question(call.execute, item.conversation, item.target) if item.conversation else None
    if question is None:
        raise _Refused(_(NOT_ALLOWED_ITSELF, number=number))
    return question, item


# ------------------------------------------------------------ show


def describe(row: HandOverRow, zone: str, *, is_giver: bool) -> str:
    """Say to its giver or its deputy what is handed over until when."""
    until = describe_until(row.until, zone)
    if is_giver:
        what = _(ONE_OF, number=row.number) if row.subject else _(EVERYTHING_OF)
        return _(GIVEN, until=until, person=KnownPerson(row.deputy, row.deputy_name).shown, what=what)
    giver = plain_line(row.giver_name) or row.giver
    return _(STANDS_IN, until=until, giver=giver, what=_(ONE_FOR) if row.subject else _(EVERYTHING_FOR))


def show_all(call: CommandCall, key: str) -> None:
    """Enqueue a line with a button for each hand-over that the author gave, or was given."""
    author, channel = call.message.author.id, call.thread.channel
    zone = zone_of(call.execute, call.current, channel, author)
    rows = hand_overs.of_person(call.execute, channel, author, call.now)
    for row in rows[:MAX_GIVEN]:
        words = describe(row, zone, is_giver=_is_giver(call.execute, call.message, row))
        show(call, row, words, f"{key}:handover:{row.id}")


def show(call: CommandCall, row: HandOverRow, words: str, key: str, reply_to: str = "") -> None:
    """Enqueue words to the author about a hand-over, with the button that ends it."""
    end = TAKE_BACK if _is_giver(call.execute, call.message, row) else GIVE_BACK
    asks = (Ask(f"{PREFIX}{END}{row.id}", words, (_(end),), free_text=False),)
    outbox.enqueue_notice(call.execute, call.thread, words, key=key, now=call.now, asks=asks, reply_to=reply_to)


def offer(words: str) -> Ask:
    """Return these words as the question that has the button with which a person hands over."""
    return Ask(f"{PREFIX}{ASK}", words, (_(HAND_OVER),), free_text=False)


def _is_giver(execute: Execute, message: Message, row: HandOverRow) -> bool:
    """Return whether the author of a message gave this, with any account."""
    accounts = account_links.accounts_of(execute, message.thread.channel, message.author.id)
    return (row.channel, row.giver) in accounts


def zone_of(execute: Execute, current: Current, channel: str, person: str) -> str:
    """Return the time zone of a person, or else that of the service."""
    return people.zone_of(execute, channel, person) or current.config.time_zone or UTC


def _tell(call: CommandCall, row: HandOverRow, person: str, words: Callable[[], str], about: str = "") -> bool:
    """Tell one of the two that something was given or ended. Return whether their direct chat is known."""
    return tell_one(call.execute, row, person, words, call.now, about)


def tell_one(
    execute: Execute, row: HandOverRow, person: str, words: Callable[[], str], now: float, about: str = ""
) -> bool:
    """Enqueue words to one of the two in their direct chat, with the button that ends it if there is something to end.
    Return whether it is known."""
    known = people.find_person(execute, row.channel, person)
    home = known.private_chat if known else None
    if home is None:
        return False
    with languages.speak_to(execute, home, Author(person, known.name if known else "")):
        text = words()
        if about:
            text = join_sentences(text, _(SEE_LIST, command=command_hint(COMMAND)))
        ask = Ask(f"{PREFIX}{about}{row.id}", text, (_(GIVE_BACK),), free_text=False)
        key = f"handover:{row.id}:told:{'given' if about else 'ended'}:{person}"
        outbox.enqueue_notice(execute, home, text, key=key, now=now, asks=(ask,) if about else ())
    return True


# ------------------------------------------------------------ end


def _end_by_words(call: CommandCall, number: str | None) -> str:
    """End the hand-over with this number, or the only one."""
    author, channel = call.message.author.id, call.thread.channel
    rows = {row.id: row for row in hand_overs.of_person(call.execute, channel, author, call.now)}
    if not rows:
        return _(NOTHING_GIVEN)
    wanted = parse_row_id(number) if number else next(iter(rows)) if len(rows) == 1 else None
    if wanted not in rows:
        zone, message = zone_of(call.execute, call.current, channel, author), call.message
        described = {
            id: describe(row, zone, is_giver=_is_giver(call.execute, message, row)) for id, row in rows.items()
        }
        listed = "\n".join(f"- **{id}**: {words}" for id, words in described.items())
        command = command_hint(_("waiting take back {n}", n=next(iter(rows))))
        return "\n".join([_(USE_TAKE_BACK, command=command, numbers=list_items(map(str, rows))), listed])
    return _end(call, wanted)


def _end(call: CommandCall, id: int) -> str:
    """End a hand-over of the author, and tell the other one; return the answer."""
    row = hand_overs.find_in_force(call.execute, id, call.now)
    if row is None or not _concerns(call.execute, call.message, row):
        return _(NOTHING_GIVEN)
    hand_overs.end_hand_over(call.execute, id, call.now)
    is_giver = _is_giver(call.execute, call.message, row)
    _record(call, row, "ended", is_giver=is_giver)
    giver, deputy = names_of(row)
    if is_giver:
        _tell(call, row, row.deputy, lambda: _(TOLD_DEPUTY, person=giver))
        return _(TAKEN_BACK, person=deputy)
    _tell(call, row, row.giver, lambda: _(TOLD_GIVER, person=deputy))
    return _(GAVE_BACK, person=giver)


def names_of(row: HandOverRow) -> tuple[str, str]:
    """Return the names of the giver and of the deputy, as people read them."""
    return plain_line(row.giver_name) or row.giver, plain_line(row.deputy_name) or row.deputy


def _concerns(execute: Execute, message: Message, row: HandOverRow) -> bool:
    """Return whether the author of a message is the giver or the deputy, with any account."""
    accounts = account_links.accounts_of(execute, message.thread.channel, message.author.id)
    return any(channel == row.channel and id in (row.giver, row.deputy) for channel, id in accounts)


def _record(call: CommandCall, row: HandOverRow, result: str, *, is_giver: bool) -> None:
    """Note in the audit that the author handed something over, or that one of the two ended this."""
    subject = audit.person_name(row.channel, row.deputy if is_giver else row.giver)
    record_hand_over(call.execute, row, call.thread, call.message.author.id, subject, result)


def record_hand_over(
    execute: Execute, row: HandOverRow, where: Thread | None, who: str, subject: str, result: str
) -> None:
    """Note in the audit that something was handed over, or that this ended."""
    what = {"id": row.id, "until": round(row.until), "number": row.number}
    audit.record(execute, AuditEvent(AuditKind.HAND_OVER, where, who, subject=subject, what=what, result=result))


# ------------------------------------------------------------ buttons


def check_step(execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press without effect. All but the end of a hand-over is about who presses."""
    if not pressed.subject.startswith(END):
        return None if pressed.click.private else Receipt.IGNORED
    id, click = parse_row_id(pressed.subject.removeprefix(END)), pressed.click
    row = hand_overs.find_in_force(execute, id, pressed.now) if id is not None else None
    if row is None:
        return Receipt.DUPLICATE
    return None if _concerns(execute, click, row) else Receipt.IGNORED


def take_step(call: CommandCall, pressed: Pressed) -> str:
    """Take the next step of a hand-over, or end one."""
    subject = pressed.subject
    try:
        if subject.startswith(END):
            return _end(call, parse_row_id(subject.removeprefix(END)) or 0)
        if subject == ASK:
            return _ask_whom(call)
        if subject == TO:
            deputy = _people_offered(call).get(pressed.label)
            if deputy is None:
                return _ask_whom(call)
            _ask_until(call, deputy, 0)
            return ""
        id, _dash, number = subject.removeprefix(UNTIL).rpartition("-")
        if not subject.startswith(UNTIL) or pressed.option == UNKNOWN or OPTIONS[pressed.option] not in UNTILS:
            return _usage()
        return _give(call, _find_deputy(call, id), parse_row_id(number) or 0, _(OPTIONS[pressed.option]))
    except _Refused as refused:
        return str(refused)


def _ask_whom(call: CommandCall) -> str:
    """Ask to whom a person hands over, with buttons for those whom they meet."""
    command, offered = command_hint(_("waiting hand over to @NAME until Friday")), _people_offered(call)
    if not offered:
        return _(KNOW_NOBODY, command=command)
    words, key = _(TO_WHOM, command=command), f"handover:to:{call.message.key}"
    ask = Ask(f"{PREFIX}{TO}", words, tuple(offered), free_text=False)
    outbox.enqueue_notice(call.execute, call.thread, words, key=key, now=call.now, asks=(ask,))
    return ""


def _ask_until(call: CommandCall, deputy: KnownPerson, number: int) -> bool:
    """Ask until when somebody stands in; return whether that can be asked here. Raises _Refused."""
    _check(call, deputy, number)
    if not call.message.private:  # others could press
        return False
    words, key = _(UNTIL_WHEN, person=deputy.shown), f"handover:until:{call.message.key}"
    ask = Ask(f"{PREFIX}{UNTIL}{deputy.id}-{number}", words, tuple(map(_, UNTILS)), free_text=False)
    outbox.enqueue_notice(call.execute, call.thread, words, key=key, now=call.now, asks=(ask,))
    return True


def _people_offered(call: CommandCall) -> Mapping[str, KnownPerson]:
    """Return label → person: those to whom the author handed over last, and who wrote last in chats of theirs."""
    channel, me = call.thread.channel, call.message.author.id
    before = hand_overs.latest_deputies(call.execute, channel, me, MAX_OFFERED)
    around = {id: each.name for id, each in people_around(call.execute, channel, me).items()}
    offered: dict[str, KnownPerson] = {}
    for id, name in [*{**before, **around}.items()][: 2 * MAX_OFFERED]:
        known = KnownPerson(id, name)
        if len(offered) < MAX_OFFERED and _may_talk(call, known):
            label = f"@{plain_line(name) or id}"
            offered[f"{label} ({id})" if label in offered else label] = known
    return offered
