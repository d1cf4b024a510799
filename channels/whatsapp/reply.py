"""Post a reply on WhatsApp: text, and the options of a question as buttons or as a list.

Limits: developers.facebook.com/docs/whatsapp/cloud-api/messages/text-messages, …/interactive-reply-buttons-messages
and …/interactive-list-messages. Nothing that was sent can be changed or taken back, so that nothing streams.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.blocks import Ask, Final
from catalogue import N_, _
from channels.base import SentMessages, find_sent_message
from channels.shared import reply_layout, texts
from channels.shared.markdown import split_markdown
from channels.shared.reply_layout import button_labels, lay_out
from channels.shared.reply_window import UnchangeableRenderer, digest_of
from channels.whatsapp.markdown import to_whatsapp

MAX_TEXT_CHARS = 4_096
MAX_CHUNK_CHARS = 3_600  # of Markdown, which may grow a little
MAX_BUTTONS, MAX_BUTTON_CHARS, MAX_BUTTON_ID = 3, 20, 256
MAX_ROWS, MAX_ROW_CHARS, MAX_ROW_ID, MAX_DESCRIPTION_CHARS = 10, 24, 200, 72
MAX_BODY_CHARS = 1_024  # of a message with buttons or a list
CHOOSE = N_("Choose")
CHOOSE_BELOW = N_("Choose here:")


@dataclass(frozen=True, slots=True)
class WhatsAppMessage:
    """One message: Markdown, with the options of a question below it."""

    text: str
    ask_id: str = ""
    options: tuple[str, ...] = ()
    repeated: bool = False  # it may be visible already

    @property
    def digest(self) -> str:
        """What tells whether it shows the same as another one."""
        shown = orjson.dumps([self.text, self.ask_id, self.options])
        return digest_of(shown)

    def content(self) -> dict[str, Any]:
        """Return it as the API takes it."""
        mark = f"{_(texts.REPEAT_MARK)}\n\n" if self.repeated else ""
        body = f"{mark}{to_whatsapp(self.text)}"[:MAX_TEXT_CHARS] or "·"
        if not self.options:
            return {"type": "text", "text": {"preview_url": False, "body": body}}
        return {"type": "interactive", "interactive": _interactive(body[:MAX_BODY_CHARS], self)}


class WhatsAppRenderer(UnchangeableRenderer[WhatsAppMessage]):
    """Renders and posts the messages of one reply.

    `check` raises WindowClosed while nothing may be sent, `post` sends a message under a mark, and `find` returns the
    id of what was sent under one, as Meta reported it.
    """

    def __init__(
        self,
        posts: SentMessages,
        check: Callable[[], Awaitable[None]],
        post: Callable[[Mapping[str, Any], str], Awaitable[str]],
        find: Callable[[str], str],
        typing: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__("WhatsApp", typing)
        self._posts = posts
        self._check = check
        self._post = post
        self._find = find
        self._marks: dict[int, str] = {}  # of the next post of a part

    def render_final(self, final: Final) -> list[WhatsAppMessage]:
        """Render the answer. A question whose options fit is a message with buttons, or with a list."""
        parts: list[WhatsAppMessage] = []
        for text, ask in lay_out(final, _fits, MAX_ROW_CHARS + MAX_DESCRIPTION_CHARS, reply_layout.summary_line(final)):
            chunks = split_markdown(text.encode("utf-8", "replace").decode(), MAX_CHUNK_CHARS)
            found = [WhatsAppMessage(chunk) for chunk in chunks]
            if ask and found and len(to_whatsapp(found[-1].text)) <= MAX_BODY_CHARS - 100:  # with a mark of a repeat
                found[-1] = replace(found[-1], ask_id=ask.id, options=ask.options)
            elif ask:
                found.append(WhatsAppMessage(_(CHOOSE_BELOW), ask.id, ask.options))
            parts += found
        return parts

    def repeat(self, part: WhatsAppMessage) -> WhatsAppMessage:
        return replace(part, repeated=True)

    def plain(self, part: WhatsAppMessage) -> WhatsAppMessage:
        return WhatsAppMessage(texts.with_options(part.text, part.options)) if part.options else part

    async def prepare_post(self, part: WhatsAppMessage, index: int) -> str:
        """Return the mark under which Meta reports the message, so that an unknown outcome becomes known.

        Raises WindowClosed, before anything is recorded.
        """
        await self._check()
        self._marks[index] = f"{self._posts.key}-{index}-{part.digest}"
        return self._marks[index]

    async def find_earlier_post(self, index: int) -> str | None:
        """Return the message that an earlier attempt has sent, if Meta has reported it."""
        known = find_sent_message(self._posts, index)
        if known is None or not (found := self._find(known.handle)):
            return None
        id = f"{found}/{known.handle.rpartition('-')[2]}"
        await self._posts.sent(index, id)
        return id

    async def post(self, part: WhatsAppMessage, index: int, replaced: str) -> str:
        return f"{await self._post(part.content(), self._marks[index])}/{part.digest}"


def _fits(ask: Ask) -> bool:
    """Return whether the options of a question can be buttons or rows, each with a title of its own."""
    if not 0 < len(ask.options) <= MAX_ROWS:
        return False
    most = MAX_BUTTON_ID if _are_buttons(ask.options) else MAX_ROW_ID
    titles = [*_titles(ask.options)]
    long = any(len(" ".join(option.split())) > MAX_ROW_CHARS + MAX_DESCRIPTION_CHARS for option in ask.options)
    return not long and len({*titles}) == len(titles) and all(len(_data(ask.id, each)) <= most for each in ask.options)


def _are_buttons(options: tuple[str, ...]) -> bool:
    return len(options) <= MAX_BUTTONS and all(len(" ".join(option.split())) <= MAX_BUTTON_CHARS for option in options)


def _titles(options: tuple[str, ...]) -> list[str]:
    return button_labels(options, MAX_BUTTON_CHARS if _are_buttons(options) else MAX_ROW_CHARS)


def _data(ask: str, option: str) -> str:
    return orjson.dumps({"ask": ask, "option": option}).decode()


def _interactive(body: str, part: WhatsAppMessage) -> dict[str, Any]:
    """Return up to three buttons, or a list, whose rows show a long option below its beginning."""
    given = zip(_titles(part.options), part.options, strict=True)
    if _are_buttons(part.options):
        buttons = [
            {"type": "reply", "reply": {"id": _data(part.ask_id, each), "title": title}} for title, each in given
        ]
        return {"type": "button", "body": {"text": body}, "action": {"buttons": buttons}}
    rows = [
        {"id": _data(part.ask_id, each), "title": title}
        | ({"description": texts.shorten(each, MAX_DESCRIPTION_CHARS)} if title.endswith("…") else {})
        for title, each in given
    ]
    action = {"button": texts.shorten(_(CHOOSE), MAX_BUTTON_CHARS), "sections": [{"rows": rows}]}
    return {"type": "list", "body": {"text": body}, "action": action}
