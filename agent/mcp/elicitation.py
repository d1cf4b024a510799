"""Questions of a server to the person: one question in the chat for each field of its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from agent.context import NO_ANSWER, TurnContext
from agent.mcp.schemas import clean_text
from agent.questions import ask_person
from catalogue import N_, _, every_translation

DECLINE, SKIP, ACCEPT, DONE, YES, NO = N_("Decline"), N_("Skip"), N_("Accept"), N_("Done"), N_("Yes"), N_("No")
MAX_FIELDS = 16
MAX_TRIES = 3  # for an answer that does not fit its field
MAX_QUESTION_CHARS = 1000
MAX_OPTIONS = 20

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


class _Misfit(Exception):
    """The answer does not fit its field."""


async def ask_for_server(context: TurnContext, server: str, params: Mapping[str, Any], *, approval: str) -> Elicitation:
    """Ask what a server wants to know. `params` are those of `elicitation/create` in JSON, `approval` is the id of the
    question with which the person permitted the call, "" without one. A form that is too long is cancelled."""
    form = _Form(context, server, clean_text(params.get("message"), MAX_QUESTION_CHARS), approval)
    try:
        if params.get("mode") == "url":
            return await form.open_page(str(params.get("url", "")))
        schema = params.get("requestedSchema") or {}
        fields: Mapping[str, Any] = schema.get("properties") or {}
        if len(fields) > MAX_FIELDS:
            return Elicitation("cancel")
        if not fields:
            await form.ask(form.text(), [_(ACCEPT)])
        required = schema.get("required") or ()
        answers = {name: await form.ask_field(name, each, name in required) for name, each in fields.items()}
        return Elicitation("accept", {name: value for name, value in answers.items() if value is not None})
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
        lines = [_("The server “{server}” asks: {question}", server=self.server, question=self.message)]
        if label:
            lines.append(f"**{label}**" + (f": {about}" if about else ""))
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
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
            return Elicitation("cancel")
        page = _("Open this page at {host} only if you expect it: {url}", host=parts.hostname, url=url)
        await self.ask(f"{self.text()}\n{page}", [_(DONE)])
        return Elicitation("accept")

    async def ask_field(self, name: str, schema: Mapping[str, Any], required: bool) -> Any:
        """Ask for one field until the answer fits. Returns None if it is skipped."""
        label = clean_text(schema.get("title") or name, 80)
        about, expected = clean_text(schema.get("description"), 300), _kind(schema)
        is_obvious = bool(_choices(schema)) or schema.get("type") not in ("array", "integer", "number")
        text = self.text(label, about, "" if is_obvious else expected)
        options = [*_choices(schema), *([] if required else [_(SKIP)])]
        for _try in range(MAX_TRIES):
            words = await self.ask(text, options)
            if not required and _is_option(words, SKIP):
                return None
            try:
                return _value(schema, words)
            except _Misfit:
                misfit = _("This answer does not fit.")
                text = f"{misfit}\n{self.text(label, about, expected)}"
        raise _EndedBy("cancel")


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
    named = ", ".join(_named_values(schema.get("items") or schema))
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
    """Return the value of an answer. Raises _Misfit."""
    kind = schema.get("type")
    if kind == "array":
        return [_chosen(_named_values(schema.get("items") or {}), each.strip()) for each in words.split(",")]
    if named := _named_values(schema):
        return _chosen(named, words)
    if kind == "boolean":
        if not (yes := _is_option(words, YES)) and not _is_option(words, NO):
            raise _Misfit
        return yes
    try:
        value = int(words) if kind == "integer" else float(words) if kind == "number" else words
    except ValueError as error:
        raise _Misfit from error
    size = value if isinstance(value, int | float) else len(value)
    least, most = ("minimum", "maximum") if isinstance(value, int | float) else ("minLength", "maxLength")
    if size < schema.get(least, size) or size > schema.get(most, size):
        raise _Misfit
    return value


def _chosen(named: Mapping[str, Any], words: str) -> Any:
    for label, value in named.items():
        if words.casefold() in (label.casefold(), str(value).casefold()):
            return value
    if named:
        raise _Misfit
    return words
