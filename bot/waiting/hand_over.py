"""Hand over what waits for a person: `/waiting hand over to @X until Friday`, or buttons; and end that again.

Words and presses become the same steps: `ChooseDeputy` → `ChooseTime` → `Give`, and later `End`. The id of a question
holds the step that a press on it takes. Here is stored who stands in for whom, and both are told; whether a deputy may
answer is decided when they do (`bot.rights.approvals.find_hand_over`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from agent.blocks import Ask, command_hint
from agent.messages import Author, Message, Thread
from bot.base.display_names import display_name
from bot.base.plain_text import plain_line
from bot.commands.call import CommandCall
from bot.commands.table import UNKNOWN, Pressed
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

PREFIX = "handover:"  # begins the id of its questions, before the step
CHOOSE, DEPUTY, UNTIL, END = "ask", "to", "until", "end"  # "until-DEPUTY-NUMBER", "end-ID"
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


@dataclass(frozen=True, slots=True)
class ChooseDeputy:
    """Ask to whom the person hands over."""


@dataclass(frozen=True, slots=True)
class ChooseTime:
    """Ask until when. `number` is that of a question in the person's list, 0 for everything."""

    deputy: str
    number: int


@dataclass(frozen=True, slots=True)
class Give:
    """Hand over to a deputy until a time, both as words name them."""

    deputy: str
    number: int
    until: str


@dataclass(frozen=True, slots=True)
class End:
    """Take back, or give back, the hand-over with this id; None: the only one."""

    id: int | None


Step = ChooseDeputy | ChooseTime | Give | End


class _Refused(Exception):
    """Why nothing is handed over; the message is for the person who wanted it."""


# ------------------------------------------------------------ steps


def is_hand_over(words: str) -> bool:
    """Return whether the words of the command hand over, or take back."""
    return words.split(maxsplit=2)[:2] in (["hand", "over"], ["take", "back"], ["give", "back"])


def run_words(call: CommandCall) -> str:
    """Take the step that the words of a command ask for; return the answer."""
    words = " ".join(call.words.split())
    if (ended := _END_WORDS.fullmatch(words)) is not None:
        return _take(call, End((parse_row_id(ended[1]) or 0) if ended[1] else None))
    if (found := _WORDS.fullmatch(words)) is None:
        return _usage()
    number = (parse_row_id(found[1]) or 0) if found[1] else 0
    deputy, *until = _UNTIL.split(found[2], maxsplit=1)
    if not until and not call.message.private:  # others could press the buttons
        return _usage()
    return _take(call, Give(deputy, number, until[0]) if until else ChooseTime(deputy, number))


def run_press(call: CommandCall, pressed: Pressed) -> str:
    """Take the step that a button is for; return the answer."""
    step, _dash, rest = pressed.subject.partition("-")
    if step == CHOOSE:
        return _take(call, ChooseDeputy())
    if step == DEPUTY:
        deputy = _deputies_offered(call).get(pressed.label)
        return _take(call, ChooseTime(deputy.id, 0) if deputy else ChooseDeputy())
    if step == END:
        return _take(call, End(parse_row_id(rest) or 0))
    if step != UNTIL or pressed.option == UNKNOWN or OPTIONS[pressed.option] not in UNTILS:
        return _usage()
    id, _dash, number = rest.rpartition("-")
    return _take(call, Give(id, parse_row_id(number) or 0, _(OPTIONS[pressed.option])))


def refuse_press(execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press without effect. All but the end of a hand-over is about the person who presses."""
    step, _dash, rest = pressed.subject.partition("-")
    if step != END:
        return None if pressed.click.private else Receipt.IGNORED
    row = hand_overs.find_in_force(execute, parse_row_id(rest) or 0, pressed.now)
    if row is None:
        return Receipt.DUPLICATE
    return None if _own_side(execute, pressed.click, row) else Receipt.IGNORED


def _take(call: CommandCall, step: Step) -> str:
    try:
        match step:
            case ChooseDeputy():
                _ask_whom(call)
            case ChooseTime():
                _ask_until(call, step)
            case Give():
                _give(call, step)
            case End():
                return _end(call, step)
    except _Refused as refused:
        return str(refused)
    return ""


def _usage() -> str:
    everything = command_hint(_("waiting hand over to @NAME until Friday"))
    return _(USE_HAND_OVER, all=everything, one=command_hint(_("waiting hand over 12 to @NAME until Friday")))


def _ask_whom(call: CommandCall) -> None:
    """Ask with buttons for those whom the person meets. Raises _Refused where they meet nobody."""
    command, offered = command_hint(_("waiting hand over to @NAME until Friday")), _deputies_offered(call)
    if not offered:
        raise _Refused(_(KNOW_NOBODY, command=command))
    _ask(call, DEPUTY, _(TO_WHOM, command=command), tuple(offered))


def _ask_until(call: CommandCall, step: ChooseTime) -> None:
    deputy = _find_deputy(call, step.deputy)
    _draft(call, deputy, step.number)
    subject = f"{UNTIL}-{deputy.id}-{step.number}"
    _ask(call, subject, _(UNTIL_WHEN, person=deputy.shown), tuple(map(_, UNTILS)))


def _ask(call: CommandCall, subject: str, words: str, options: tuple[str, ...]) -> None:
    ask = Ask(f"{PREFIX}{subject}", words, options, free_text=False)
    key = f"handover:{subject.partition('-')[0]}:{call.message.key}"
    outbox.enqueue_notice(call.execute, call.thread, words, key=key, now=call.now, asks=(ask,))


def _give(call: CommandCall, step: Give) -> None:
    """Store that a deputy stands in for the author until then, and tell both. Raises _Refused."""
    execute, deputy = call.execute, _find_deputy(call, step.deputy)
    zone = zone_of(execute, call.current, call.thread.channel, call.message.author.id)
    until = parse_until(step.until, zone, call.now)
    if until is None:
        example = _("waiting hand over to @{name} until Friday", name=deputy.name or deputy.id)
        if step.number:
            example = _("waiting hand over {n} to @{name} until Friday", n=step.number, name=deputy.name or deputy.id)
        raise _Refused(_(NO_TIME, words=plain_line(step.until), command=command_hint(example)))
    draft = _draft(call, deputy, step.number)
    if len(hand_overs.of_giver(execute, draft.channel, draft.giver, call.now)) >= MAX_GIVEN:
        raise _Refused(_(TOO_MANY, n=MAX_GIVEN, command=command_hint("waiting take back")))
    row = hand_overs.add_hand_over(execute, replace(draft, until=until))
    enqueue_job(execute, key=f"{ENDS_JOB}:{row.id}", kind=ENDS_JOB, payload={"id": row.id}, due=until)
    record(execute, row, "given", call.message)
    deputys = zone_of(execute, call.current, row.channel, row.deputy)
    told = tell(execute, row, row.deputy, lambda: describe(row, deputys, GIVE_BACK), now=call.now, button=GIVE_BACK)
    not_told = "" if told else _(NOT_TOLD, person=deputy.shown, command=command_hint(COMMAND))
    words = join_sentences(describe(row, zone, TAKE_BACK), _(WHAT_FOR), not_told)
    _show(call, row, words, f"handover:{row.id}:given", reply_to=call.message.id)


def _end(call: CommandCall, step: End) -> str:
    """End a hand-over of the author, and tell the other one; return the answer."""
    execute, author, channel = call.execute, call.message.author.id, call.thread.channel
    rows = {row.id: row for row in hand_overs.of_person(execute, channel, author, call.now)}
    if not rows:
        return _(NOTHING_GIVEN)
    id = next(iter(rows)) if step.id is None and len(rows) == 1 else step.id
    if id not in rows:
        zone, own = zone_of(execute, call.current, channel, author), partial(_own_side, execute, call.message)
        listed = [f"- **{row.id}**: {describe(row, zone, own(row))}" for row in rows.values()]
        command = command_hint(_("waiting take back {n}", n=next(iter(rows))))
        return "\n".join([_(USE_TAKE_BACK, command=command, numbers=list_items(map(str, rows))), *listed])
    row = rows[id]
    hand_overs.end_hand_over(execute, id, call.now)
    record(execute, row, "ended", call.message)
    giver, deputy = names_of(row)
    if _own_side(execute, call.message, row) == TAKE_BACK:
        tell(execute, row, row.deputy, lambda: _(TOLD_DEPUTY, person=giver), now=call.now)
        return _(TAKEN_BACK, person=deputy)
    tell(execute, row, row.giver, lambda: _(TOLD_GIVER, person=deputy), now=call.now)
    return _(GAVE_BACK, person=giver)


# ------------------------------------------------------------ who and what


def _find_deputy(call: CommandCall, words: str) -> KnownPerson:
    """Return the person whom words name. Raises _Refused."""
    found = find_people(call.execute, call.thread.channel, words)
    if not found:
        raise _Refused(_(NOBODY_CALLED, name=plain_line(words)))
    if len(found) > 1:
        raise _Refused(_(SEVERAL, people=list_items(each.shown for each in found)))
    return found[0]


def _deputies_offered(call: CommandCall) -> Mapping[str, KnownPerson]:
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


def _draft(call: CommandCall, deputy: KnownPerson, number: int) -> HandOverRow:
    """Return what would be handed over, by accounts of one channel. Raises _Refused where this person may not have
    it."""
    access, author, channel = call.current.access, call.message.author, call.thread.channel
    if deputy.id == author.id:
        raise _Refused(_(YOURSELF))
    if not _may_talk(call, deputy):
        role = access.role_of(call.execute, _shared_place(call), deputy.id)
        raise _Refused(_(MAY_NOT, person=deputy.shown, role=role.name or "-"))
    row = HandOverRow(
        0, channel, author.id, author.name, deputy.id, deputy.name, EVERYTHING, number, call.now, 0.0, None
    )
    if not number:
        return row
    question, item = _find_question(call, number)
    if account := item.account:  # of the giver, for which it waits: the deputy answers with theirs on that channel
        there = account_links.account_on(call.execute, channel, deputy.id, account.channel)
        if not there:
            on, link = display_name(account.channel), command_hint("link")
            raise _Refused(_(NO_ACCOUNT, number=number, channel=on, person=deputy.shown, command=link))
        row = replace(row, channel=account.channel, giver=account.person, deputy=there)
    if not may_stand_in(call.execute, access, question, item.place, giver=row.giver, deputy=row.deputy):
        raise _Refused(_(MAY_NOT_THIS, person=deputy.shown, number=number))
    return replace(row, subject=question.subject)


def _shared_place(call: CommandCall) -> Thread:
    """Return where the role of another person is looked up: a direct chat is only its own person's place."""
    return Thread(call.thread.channel, call.thread.workspace, "") if call.message.private else call.thread


def _may_talk(call: CommandCall, deputy: KnownPerson) -> bool:
    """Return whether a person may have the agent work here, or in a chat that they share with the author."""
    around = people_around(call.execute, call.thread.channel, call.message.author.id).get(deputy.id)
    places = (_shared_place(call), *([around.place] if around and around.place else []))
    return any(call.current.access.may(call.execute, place, deputy.id, Right.TALK) for place in places)


def _find_question(call: CommandCall, number: int) -> tuple[QuestionRow, Waiting]:
    """Return the question with this number in the author's list, and how it is listed. Raises _Refused."""
    listed = dict(call.service.waits(call.execute, call.message, call.now)) if call.message.private else {}
    if (item := listed.get(number)) is None:
        raise _Refused(_(NOT_LISTED, number=number, command=command_hint(COMMAND)))
    question = stored.find_question(call.execute, item.conversation, item.target) if item.conversation else None
    if question is None:
        raise _Refused(_(NOT_ALLOWED_ITSELF, number=number))
    return question, item


def _own_side(execute: Execute, message: Message, row: HandOverRow) -> str:
    """Return the button with which the author of a message can end this, with any account; "" where they cannot."""
    accounts = account_links.accounts_of(execute, message.thread.channel, message.author.id)
    if (row.channel, row.giver) in accounts:
        return TAKE_BACK
    return GIVE_BACK if (row.channel, row.deputy) in accounts else ""


def zone_of(execute: Execute, current: Current, channel: str, person: str) -> str:
    """Return the time zone of a person, or else that of the service."""
    return people.zone_of(execute, channel, person) or current.config.time_zone or UTC


def names_of(row: HandOverRow) -> tuple[str, str]:
    """Return the names of the giver and of the deputy, as people read them."""
    return plain_line(row.giver_name) or row.giver, plain_line(row.deputy_name) or row.deputy


# ------------------------------------------------------------ tell


def describe(row: HandOverRow, zone: str, button: str) -> str:
    """Say to its giver, who can take it back, or to its deputy what is handed over until when."""
    until = describe_until(row.until, zone)
    if button == TAKE_BACK:
        what = _(ONE_OF, number=row.number) if row.subject else _(EVERYTHING_OF)
        return _(GIVEN, until=until, person=KnownPerson(row.deputy, row.deputy_name).shown, what=what)
    return _(STANDS_IN, until=until, giver=names_of(row)[0], what=_(ONE_FOR) if row.subject else _(EVERYTHING_FOR))


def show_all(call: CommandCall, key: str) -> None:
    """Enqueue a line with a button for each hand-over that the author gave, or was given."""
    author, channel = call.message.author.id, call.thread.channel
    zone = zone_of(call.execute, call.current, channel, author)
    for row in hand_overs.of_person(call.execute, channel, author, call.now)[:MAX_GIVEN]:
        words = describe(row, zone, _own_side(call.execute, call.message, row))
        _show(call, row, words, f"{key}:handover:{row.id}")


def offer(words: str) -> Ask:
    """Return these words as the question that has the button with which a person hands over."""
    return Ask(f"{PREFIX}{CHOOSE}", words, (_(HAND_OVER),), free_text=False)


def _show(call: CommandCall, row: HandOverRow, words: str, key: str, reply_to: str = "") -> None:
    """Enqueue words to the author about a hand-over, with the button that ends it."""
    asks = (_end_button(row, words, _own_side(call.execute, call.message, row)),)
    outbox.enqueue_notice(call.execute, call.thread, words, key=key, now=call.now, asks=asks, reply_to=reply_to)


def _end_button(row: HandOverRow, words: str, button: str) -> Ask:
    return Ask(f"{PREFIX}{END}-{row.id}", words, (_(button),), free_text=False)


def tell(
    execute: Execute, row: HandOverRow, person: str, words: Callable[[], str], *, now: float, button: str = ""
) -> bool:
    """Enqueue words to one of the two in their direct chat, with the button that ends it if there is something to end.
    Return whether that chat is known."""
    known = people.find_person(execute, row.channel, person)
    home = known.private_chat if known else None
    if home is None:
        return False
    with languages.speak_to(execute, home, Author(person, known.name if known else "")):
        text = words()
        if button:
            text = join_sentences(text, _(SEE_LIST, command=command_hint(COMMAND)))
        asks = (_end_button(row, text, button),) if button else ()
        key = f"handover:{row.id}:told:{'given' if button else 'ended'}:{person}"
        outbox.enqueue_notice(execute, home, text, key=key, now=now, asks=asks)
    return True


def record(execute: Execute, row: HandOverRow, result: str, by: Message | None) -> None:
    """Note in the audit that something was handed over, or ended by one of the two, or by time."""
    is_deputy = by is not None and _own_side(execute, by, row) == GIVE_BACK
    subject = audit.person_name(row.channel, row.giver if is_deputy else row.deputy)
    where, who = (by.thread, by.author.id) if by else (None, "")
    what = {"id": row.id, "until": round(row.until), "number": row.number}
    audit.record(execute, AuditEvent(AuditKind.HAND_OVER, where, who, subject=subject, what=what, result=result))
