"""Write the body of a message on Discord: a `content`, or a text component for a longer text.

A `content` takes 2,000 characters. The text components of a message together take 4,000, but then it has neither
`content` nor embeds, for good (discord.com/developers/docs/components/reference#component-object). So only a long text
is one: people find a `content` by searching, and see it in notifications and replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.blocks import Ask
from channels.discord.markdown import without_previews
from channels.shared import texts
from channels.shared.markdown import utf16_length
from channels.shared.reply_layout import button_label
from channels.shared.visible_text import dicts_in, text_of

MAX_MESSAGE_CHARS = 2000  # discord.com/developers/docs/resources/message#create-message
CHUNK_UNITS = 1950  # UTF-16 units (the strictest way to count) of Markdown: leaves room for a mention
MAX_WIDE_UNITS, WIDE_UNITS = 4000, 3950  # of all text components of a message; of Markdown in one of them
DOCUMENT_NAME = "answer.md"
MAX_BUTTONS, BUTTONS_PER_ROW, MAX_LABEL_CHARS = 25, 5, 80
MAX_MENUS, MAX_MENU_OPTIONS, MAX_OPTION_CHARS = 5, 25, 100
SUPPRESS_EMBEDS_FLAG = 1 << 2  # hides link previews, and the bot's own embeds too
COMPONENTS_FLAG = 1 << 15  # …/docs/resources/message#message-object-message-flags: IS_COMPONENTS_V2
ROW, BUTTON, MENU, TEXT, FILE, CONTAINER = 1, 2, 3, 10, 13, 17  # types of components
EMBED_COLOUR = 0x5865F2
GREY, APPROVAL_STYLES = 2, (3, 4, 2, 2)  # discord.com/developers/docs/components/reference#button-button-styles

Json = dict[str, Any]  # Discord defines the shape


@dataclass(frozen=True, slots=True)
class DiscordMessage:
    """One message: text, an embed with the progress, an open question, and the user to mention.

    The `document` is the rest of a long answer, a file below the text. The `fold` is small grey text below an answer,
    the `command` the data of a button that sends one.
    """

    text: str
    document: str = ""
    progress: str = ""
    fold: str = ""
    ask: Ask | None = None
    command: str = ""
    mention: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether its text is too long for `content`, and so a component."""
        return utf16_length(self.shown + self.fold) > CHUNK_UNITS

    @property
    def shown(self) -> str:
        """Its text, in which no link has a preview: an embed with the progress forbids the flag that hides them."""
        return without_previews(self.text) if self.progress else self.text


def message_content(part: DiscordMessage) -> str:
    """Return the text of a message with its mention."""
    text = part.text if part.is_wide else part.shown
    text = f"{text}\n{part.fold}" if part.fold else text
    return f"<@{part.mention}> {text}" if part.mention else text


def message_body(part: DiscordMessage, *, wide: bool = False) -> Json:
    """Return the body of a call that posts a message, or edits one; `wide` is an edit to one with components only."""
    document: Json = {"attachments": [{"id": 0, "filename": DOCUMENT_NAME}]} if part.document else {}
    common = document | {
        "allowed_mentions": {"parse": [], "users": [part.mention] if part.mention else [], "replied_user": False},
    }
    if wide or part.is_wide:
        emptied: Json = {"content": None, "embeds": []} if wide else {}  # an edit keeps what it does not name
        return common | emptied | {"components": _all_components(part), "flags": COMPONENTS_FLAG}
    return common | {
        "content": message_content(part),
        "embeds": [{"description": part.progress, "color": EMBED_COLOUR}] if part.progress else [],
        "components": _rows(part),
        "flags": 0 if part.progress else SUPPRESS_EMBEDS_FLAG,
    }


def _all_components(part: DiscordMessage) -> list[Json]:
    text = message_content(part).strip()
    shown: list[Json] = [{"type": TEXT, "content": text}] if text else []
    if part.progress:
        inside = [{"type": TEXT, "content": part.progress}]
        shown.append({"type": CONTAINER, "accent_color": EMBED_COLOUR, "components": inside})
    if part.document:
        shown.append({"type": FILE, "file": {"url": f"attachment://{DOCUMENT_NAME}"}})
    return [*shown, *_rows(part)]


def _rows(part: DiscordMessage) -> list[Json]:
    return _question_components(part.ask) if part.ask else _command_components(part.command)


def components_in(message: Mapping[str, Any]) -> Iterator[Json]:
    """Yield the components of a message that Discord returned, also those inside of containers."""
    for component in dicts_in(message.get("components")):
        yield component
        yield from components_in(component)


def text_in(message: Mapping[str, Any]) -> str:
    """Return the text of a message of the bot that Discord returned, without its progress."""
    top = (text_of(each.get("content")) for each in dicts_in(message.get("components")) if each.get("type") == TEXT)
    return "\n".join([text_of(message.get("content")), *top]).strip()


def with_rows(message: Mapping[str, Any], rows: list[Json]) -> Json:
    """Return the change that puts these rows in place of a message's own, and keeps its text."""
    kept = [_as_sent(each) for each in dicts_in(message.get("components")) if each.get("type") != ROW]
    return {"components": [*kept, *rows]}


def _as_sent(component: Json) -> Json:
    """Return a component that Discord returned in the form in which it takes it."""
    if component.get("type") != FILE:
        return component
    return {"type": FILE, "file": {"url": f"attachment://{DOCUMENT_NAME}"}}


def _fits_buttons(ask: Ask) -> bool:
    return len(ask.options) <= MAX_BUTTONS and all(len(option) <= MAX_LABEL_CHARS for option in ask.options)


def _fits_menus(ask: Ask) -> bool:
    return len(ask.options) <= MAX_MENUS * MAX_MENU_OPTIONS


def question_hint(ask: Ask) -> str:
    label = MAX_LABEL_CHARS if _fits_buttons(ask) else MAX_OPTION_CHARS
    when = f"<t:{ask.until:.0f}:R>" if ask.until else ""  # discord.com/developers/docs/reference#message-formatting
    return texts.question_hint(ask, has_buttons=_fits_menus(ask), max_label_chars=label, when=when)


def _command_components(command: str) -> list[Json]:
    if not command:
        return []
    button = {"type": 2, "style": GREY, "label": button_label(command), "custom_id": command}
    return [{"type": 1, "components": [button]}]


def _question_components(ask: Ask) -> list[Json]:
    """Return rows of five buttons; menus for many or long options."""
    if not _fits_menus(ask):
        return []
    numbered = list(enumerate(ask.options))
    if _fits_buttons(ask):
        buttons = [
            {
                "type": 2,
                "style": APPROVAL_STYLES[n] if ask.approval else GREY,
                "label": texts.shorten(option, MAX_LABEL_CHARS) or "…",
                "custom_id": f"{ask.id}|{n}",
            }
            for n, option in numbered
        ]
        rows = [buttons[at : at + BUTTONS_PER_ROW] for at in range(0, len(buttons), BUTTONS_PER_ROW)]
    else:
        options = [{"label": texts.shorten(option, MAX_OPTION_CHARS) or "…", "value": str(n)} for n, option in numbered]
        rows = [
            [{"type": 3, "custom_id": f"{ask.id}|m{at}", "options": options[at : at + MAX_MENU_OPTIONS]}]
            for at in range(0, len(options), MAX_MENU_OPTIONS)
        ]
    return [{"type": 1, "components": row} for row in rows]
