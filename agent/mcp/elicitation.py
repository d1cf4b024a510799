"""Questions of a server to the person: one question in the chat for a whole form, then one for each field that is not
understood. What is understood is kept until the person declines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from agent.core.context import NO_ANSWER, TurnContext
from agent.core.tool import ask_person
from agent.mcp.bounds import clean_text
from agent.permissions.invisible import ascii_host, is_seen, show_invisible, show_line, show_literally
from catalogue import N_, _, every_translation, list_items

DECLINE, SKIP, ACCEPT, DONE, YES, NO = N_("Decline"), N_("Skip"), N_("Accept"), N_("Done"), N_("Yes"), N_("No")
MAX_FIELDS = 16
MAX_QUESTION_CHARS = 1000
MAX_FORM_CHARS = 2400  # of the question for a form, so that it is one message on every platform
SHORT_QUESTION_CHARS = 600  # of the server, in a form
HINT_TRIES = 3  # after so many wrong answers, the question says what is kept and how to give up
MAX_OPTIONS = 20
MAX_VALUES = 500  # that a field may choose among
MAX_KIND_CHARS = 600  # of what the question says is expected
MAX_BOUND = 1e15
URL_MARKS = "%/:?#@!$&'+,;=~"  # which say nothing in Markdown
LEFT_OUT = ("", "-", "–", "—")

Action = Literal["accept", "decline", "cancel"]


@dataclass(frozen=True, slots=True)
class Elicitation:
    """The answer of a person to a server."""

    action: Action
    content: Mapping[str, Any] = field(default_factory=dict)


class _EndedBy(Exception):
    """The person did not answer everything."""

    def __init__(self, action: Action) -> None:
        super().__init__(action)
        self.action: Action = action


class MisfitAnswer(Exception):
    """The answer does not fit its field."""


async def ask_for_server(context: TurnContext, server: str, params: Mapping[str, Any], *, approval: str) -> Elicitation:
    """Ask what a server wants to know. `params` are those of `elicitation/create` in JSON, `approval` is the id of the
    question with which the person permitted the call, "" without one. A form that is too long is cancelled."""
    form = _Form(context, server, clean_text(params.get("message"), MAX_QUESTION_CHARS), approval)
    try:
        if params.get("mode") == "url":
            return await form.open_page(str(params.get("url", "")))
        schema = _mapping(params.get("requestedSchema"))
        fields = _mapping(schema.get("properties"))
        if len(fields) > MAX_FIELDS:
            return Elicitation("cancel")
        required = frozenset(map(str, _list(schema.get("required"))))
        wanted = [Field.of(str(name), each, str(name) in required) for name, each in fields.items()]
        if not wanted:
            await form.ask(form.text(), [_(ACCEPT)])
        answers, wrong = await form.ask_form(wanted) if len(wanted) > 1 else ({}, set())
        for each in wanted:
            if each.name not in answers:
                answers[each.name] = await form.ask_field(each, answers, tries=int(each.name in wrong))
        content = {each.name: value for each in wanted if (value := answers[each.name]) is not None}
        return Elicitation("accept", content)
    except _EndedBy as ended:
        return Elicitation(ended.action)


@dataclass(frozen=True, slots=True)
class _Form:
    context: TurnContext
    server: str
    message: str
    approval: str

    def text(self, label: str = "", about: str = "", expected: str = "") -> str:
        """Return a question with the server that asks it, so that nobody takes it for the agent's."""
        lines = [_asks(self.server, self.message)]
        if label:
            lines.append(show_line(label) + (f": {show_line(about)}" if about else ""))
        if expected:
            lines.append(_("Expected: {kind}.", kind=expected))
        return "\n".join(lines)

    async def ask(self, text: str, options: Sequence[str]) -> str:
        """Ask one question. Raises _EndedBy if the person declines, or does not answer in time."""
        offered = [*options, _(DECLINE)]
        value = {"kind": "ask", "question": text, "options": offered, "approval": self.approval, "personal": True}
        words = (await ask_person(self.context, value)).strip()
        if words == NO_ANSWER:
            raise _EndedBy("cancel")
        if _is_option(words, DECLINE):
            raise _EndedBy("decline")
        return words

    async def open_page(self, url: str) -> Elicitation:
        """Show the address of a page, which the person opens, or does not."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not all(map(is_seen, url)) or " " in url:
            return Elicitation("cancel")
        shown = {"host": show_line(ascii_host(parts.hostname)), "url": quote(show_invisible(url), safe=URL_MARKS)}
        page = _("Open this page at {host} only if you expect it: {url}", **shown)
        await self.ask(f"{self.text()}\n{page}", [_(DONE)])
        return Elicitation("accept")

    async def ask_form(self, fields: Sequence[Field]) -> tuple[dict[str, Any], set[str]]:
        """Ask for all fields at once. Returns what `read_form` returns."""
        server = clean_text(self.message, SHORT_QUESTION_CHARS)
        head = _asks(self.server, server)
        how = _("Answer with a line for each, in this order or as {label}.", label=show_line(f"{fields[0].label}: …"))
        room = (MAX_FORM_CHARS - len(head) - len(how)) // len(fields) - 8
        lines = [f"{number}. {each.line(room)}" for number, each in enumerate(fields, 1)]
        return read_form(fields, await self.ask("\n".join([head, *lines, how]), []))

    async def ask_field(self, wanted: Field, kept: Mapping[str, Any], tries: int) -> Any:
        """Ask for one field until the answer fits; `tries` did not. Returns None if it is skipped."""
        options = [*_choices(wanted.schema), *([] if wanted.required else [_(SKIP)])]
        while True:
            words = await self.ask(self._field_text(wanted, kept, tries), options)
            try:
                return wanted.read(words)
            except MisfitAnswer:
                tries += 1

    def _field_text(self, wanted: Field, kept: Mapping[str, Any], tries: int) -> str:
        expected = "" if wanted.is_obvious and not tries else wanted.expected
        parts = [_("This answer does not fit.")] if tries else []
        parts.append(self.text(wanted.label, wanted.about, expected))
        if tries >= HINT_TRIES:
            known = [f"{name}: {value}" for name, value in kept.items() if value is not None]
            parts += [_("Kept so far: {answers}.", answers=clean_text(list_items(known), 300))] if known else []
            parts.append(_("To give up, choose {option}.", option=_(DECLINE)))
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    label: str
    about: str

    @classmethod
    def of(cls, name: str, schema: object, required: bool) -> Field:
        """Return a field of this schema."""
        known = _mapping(schema)
        label = clean_text(known.get("title") or name, 80)
        return cls(name, usable_schema(known), required, label, clean_text(known.get("description"), 300))

    @property
    def expected(self) -> str:
        """What an answer looks like."""
        return _kind(self.schema)

    @property
    def is_obvious(self) -> bool:
        """Whether the question says it without `expected`."""
        return bool(_choices(self.schema)) or self.schema.get("type") not in ("array", "integer", "number")

    def line(self, limit: int) -> str:
        """Return the field in one line of a form, with the beginning of what is said about it."""
        kind = self.expected if self.required else _("{kind}; may be left out", kind=self.expected)
        about = clean_text(self.about, max(1, limit - len(self.label) - len(kind) - 10))
        return f"{show_line(self.label)} ({' '.join(kind.split())})" + (f": {show_line(about)}" if about else "")

    def is_meant(self, word: str) -> bool:
        """Return whether a person's word before a colon names this field."""
        return word.strip().strip("*`").casefold() in (self.label.casefold(), self.name.casefold())

    def read(self, words: str) -> Any:
        """Return the value of an answer; None if it leaves the field out. Raises MisfitAnswer."""
        if not self.required and (_is_option(words, SKIP) or words.strip() in LEFT_OUT):
            return None
        return _value(self.schema, words)


def read_form(fields: Sequence[Field], words: str) -> tuple[dict[str, Any], set[str]]:
    """Return what a person's answer to a form says, by field, None for those that it leaves out; and the fields whose
    answer does not fit. A field in neither is required and has no answer."""
    given = _given(fields, words)
    found: dict[str, Any] = {}
    wrong: set[str] = set()
    for each in fields:
        if each.name not in given and each.required:
            continue
        try:
            found[each.name] = each.read(given[each.name]) if each.name in given else None
        except MisfitAnswer:
            wrong.add(each.name)
    return found, wrong


def _given(fields: Sequence[Field], words: str) -> dict[str, str]:
    """Return the words for each field: by its name or number, else the next one in order."""
    lines = [line.strip().removeprefix("- ").strip() for line in words.splitlines() if line.strip()]
    if len(lines) == 1 and len(fields) > 1:  # all in one line
        for mark in (";", "；", ",", "，"):
            parts = [each.strip() for each in lines[0].split(mark)]
            if len(parts) > 1 and (len(parts) == len(fields) or all(_named(fields, each)[0] for each in parts)):
                lines = parts
                break
    given: dict[str, str] = {}
    rest = []
    for line in lines:
        named, value = _named(fields, line)
        if named and named.name not in given:
            given[named.name] = value
        else:
            rest.append(line)
    open_fields = [each for each in fields if each.name not in given]
    return given | {each.name: line for each, line in zip(open_fields, rest, strict=False)}


def _named(fields: Sequence[Field], line: str) -> tuple[Field | None, str]:
    """Return the field that a line names, as in `Colour: blue`, `colour = blue` or `2. blue`, and its words."""
    for mark in (":", "：", "="):
        word, found, value = line.partition(mark)
        if found and (meant := [each for each in fields if each.is_meant(word)]):
            return meant[0], value.strip()
    number, found, value = line.partition(". ")
    if found and number.isdecimal() and 1 <= int(number[:4]) <= len(fields):
        return fields[int(number[:4]) - 1], value.strip()
    return None, line


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def usable_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a question for a field can use of its schema, which a server may write as it likes."""
    bounds = {name: schema.get(name) for name in ("minimum", "maximum", "minLength", "maxLength")}
    found: dict[str, Any] = {
        name: value
        for name, value in bounds.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_BOUND
    }
    if isinstance(kind := schema.get("type"), str):
        found["type"] = kind
    titled = [each for each in _list(schema.get("oneOf")) or _list(schema.get("anyOf")) if isinstance(each, Mapping)]
    if titled := [each for each in titled[:MAX_VALUES] if _is_plain(each.get("const"))]:
        found["oneOf"] = titled
    values, names = _list(schema.get("enum"))[:MAX_VALUES], _list(schema.get("enumNames"))[:MAX_VALUES]
    if values and all(map(_is_plain, values)):
        found["enum"] = values
        if len(names) == len(values) and all(isinstance(name, str) for name in names):
            found["enumNames"] = names
    if isinstance(items := schema.get("items"), Mapping):
        found["items"] = usable_schema({name: items[name] for name in items if name != "items"})
    return found


def _is_plain(value: object) -> bool:
    """Return whether a value can be a choice, in the words of a person."""
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_QUESTION_CHARS)


def _asks(server: str, question: str) -> str:
    shown = "\n" + show_literally(question) if "\n" in question else show_line(question)
    return _("The server “{server}” asks: {question}", server=server, question=shown)


def _is_option(words: str, option: str) -> bool:
    return words.casefold() in {each.casefold() for each in every_translation(option)}


def _named_values(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return label → value of the choices of a field."""
    titled = schema.get("oneOf") or schema.get("anyOf")
    if titled:
        return {str(each.get("title") or each.get("const")): each.get("const") for each in titled}
    values = schema.get("enum") or ()
    return dict(zip(map(str, schema.get("enumNames") or values), values, strict=False))


def _choices(schema: Mapping[str, Any]) -> list[str]:
    if schema.get("type") == "boolean":
        return [_(YES), _(NO)]
    return [clean_text(label, 80) for label in _named_values(schema)][:MAX_OPTIONS]


def _kind(schema: Mapping[str, Any]) -> str:
    named = show_line(clean_text(", ".join(_named_values(schema.get("items") or schema)), MAX_KIND_CHARS - 4))
    match schema.get("type"):
        case "array" if named:
            return _("one or more of these, with commas between them: {options}", options=named)
        case "boolean":
            return _("yes or no")
        case "integer" if not named:
            return _within(_("a whole number"), schema.get("minimum"), schema.get("maximum"))
        case "number" if not named:
            return _within(_("a number"), schema.get("minimum"), schema.get("maximum"))
        case _other:
            return named or _text_kind(schema.get("minLength") or 0, schema.get("maxLength"))


def _text_kind(least: int, most: int | None) -> str:
    if most is not None:
        return _("a text of {least} to {most} characters", least=least, most=most)
    return _("a text of at least {least} characters", least=least) if least else _("a text")


def _within(kind: str, least: Any, most: Any) -> str:
    if least is None and most is None:
        return kind
    if most is None:
        return _("{kind}, at least {least}", kind=kind, least=least)
    if least is None:
        return _("{kind}, at most {most}", kind=kind, most=most)
    return _("{kind}, from {least} to {most}", kind=kind, least=least, most=most)


def _value(schema: Mapping[str, Any], words: str) -> Any:
    """Return the value of an answer. Raises MisfitAnswer."""
    kind = schema.get("type")
    if kind == "array":
        return [_chosen(_named_values(schema.get("items") or {}), each.strip()) for each in words.split(",")]
    if named := _named_values(schema):
        return _chosen(named, words)
    if kind == "boolean":
        if not (yes := _is_option(words, YES)) and not _is_option(words, NO):
            raise MisfitAnswer
        return yes
    try:
        value = int(words) if kind == "integer" else float(words) if kind == "number" else words
    except ValueError as error:
        raise MisfitAnswer from error
    if isinstance(value, int | float) and not abs(value) < MAX_BOUND:
        raise MisfitAnswer
    size = value if isinstance(value, int | float) else len(value)
    least, most = ("minimum", "maximum") if isinstance(value, int | float) else ("minLength", "maxLength")
    if size < schema.get(least, size) or size > schema.get(most, size):
        raise MisfitAnswer
    return value


def _chosen(named: Mapping[str, Any], words: str) -> Any:
    for label, value in named.items():
        if words.casefold() in (label.casefold(), str(value).casefold()):
            return value
    if named:
        raise MisfitAnswer
    return words
