"""Post a reply on WeChat: text, of which little is shown as Markdown, in as few messages as can be.

Ten messages may follow a message of the person, so that nothing streams, and all of an answer is joined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agent.blocks import Ask, Final
from catalogue import _
from channels.base import SentMessages
from channels.shared import reply_layout, texts
from channels.shared.markdown import split_markdown
from channels.shared.reply_layout import lay_out
from channels.shared.reply_window import UnchangeableRenderer, digest_of

MAX_TEXT_CHARS = 3_800  # of a message: 4,000, with a mark


@dataclass(frozen=True, slots=True)
class WeChatMessage:
    """One message. `repeated`: it may be visible already."""

    text: str
    repeated: bool = False

    @property
    def content(self) -> str:
        return f"{_(texts.REPEAT_MARK)}\n\n{self.text}" if self.repeated else self.text

    @property
    def digest(self) -> str:
        """What tells whether it shows the same as another one."""
        return digest_of(self.text.encode())


class WeChatRenderer(UnchangeableRenderer[WeChatMessage]):
    """Renders and posts the messages of one reply.

    `check` raises WindowClosed while nothing may be sent.
    """

    def __init__(
        self,
        posts: SentMessages,
        check: Callable[[], None],
        post: Callable[[str, str], Awaitable[str]],
        typing: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__("WeChat", typing)
        self._posts = posts
        self._check = check
        self._post = post

    def render_final(self, final: Final) -> list[WeChatMessage]:
        """Render the answer with all its questions as one text, which is split only where it is too long."""
        whole = "\n\n".join(text for text, _ask in lay_out(final, _never, 0, reply_layout.summary_line(final)))
        whole = whole.encode("utf-8", "replace").decode()  # no lone surrogates
        return [WeChatMessage(chunk) for chunk in split_markdown(whole, MAX_TEXT_CHARS)]

    def repeat(self, part: WeChatMessage) -> WeChatMessage:
        return replace(part, repeated=True)

    def plain(self, part: WeChatMessage) -> WeChatMessage:
        return part

    async def prepare_post(self, part: WeChatMessage, index: int) -> str:
        """Raise WindowClosed before anything is recorded."""
        self._check()
        return ""

    async def post(self, part: WeChatMessage, index: int, replaced: str) -> str:
        key = f"{self._posts.key}-{index}-{part.digest}"  # the same in each attempt
        return f"{await self._post(part.content, key)}/{part.digest}"


def _never(_ask: Ask) -> bool:
    """WeChat has no buttons: options are numbered."""
    return False
