"""Answer an interaction by its response URL, visible to one person."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from agent.blocks import View
from agent.messages import Kind, Message, ReplyHandle, Thread
from catalogue import N_, _
from channels.base import ChatGone, Refused, SentMessages
from channels.shared.reply_writer import MessageMissing
from channels.slack.blocks import SlackMessage, message_arguments
from channels.slack.reply import SlackRenderer

ID_PREFIX = "response:"  # of our ids, because Slack gives such an answer none
ONLY_YOU_NOTE = N_("Only you see this, because I'm not a member of this conversation. Invite me to continue here.")


RESPONSE_URL_SECONDS = 29 * 60.0  # for which an interaction can be answered: 30 minutes at Slack, less a margin
ANSWERED_KINDS = (Kind.CHAT, Kind.COMMAND)
ONLY = "only "  # begins the handle of a slash command


def with_response_url(message: Message, url: str) -> Message:
    """Return the message of an interaction with its response URL.

    It is the only way to answer a slash command; for a shortcut it is the fallback where the app may not post.
    """
    if not url or message.kind not in ANSWERED_KINDS:
        return message
    token = f"{ONLY if message.kind is Kind.COMMAND else ''}{url}"
    return replace(message, reply_handle=ReplyHandle(token, time.time() + RESPONSE_URL_SECONDS))


class EphemeralRenderer(SlackRenderer):
    """The messages of one such answer. A URL accepts five calls, so nothing is streamed."""

    def __init__(self, find_workspace: Any, thread: Thread, posts: SentMessages, to: str, asker: str) -> None:
        super().__init__(find_workspace, thread, posts, to, asker)
        self._only = posts.reply_handle.startswith(ONLY)
        self._url = posts.reply_handle.removeprefix(ONLY)
        self._posted = sum(post.id is not None and post.id.startswith(ID_PREFIX) for post in posts.known)

    def render(self, view: View) -> list[SlackMessage]:
        return [] if self._only else super().render(view)

    async def post(self, part: SlackMessage, index: int, replaced: str) -> str:
        if self._only and (message_id := await self._respond(part, index)):
            return message_id
        try:
            return await super().post(part, index, replaced)
        except ChatGone:
            if (
                part.live
                or self._only
                or not (message_id := await self._respond(replace(part, mark=_(ONLY_YOU_NOTE)), index))
            ):
                raise
            return message_id

    async def _respond(self, part: SlackMessage, index: int) -> str:
        """Answer by the URL and return our id of the answer, or "" if the URL has expired."""
        if self._url:
            workspace = await self._workspace()
            try:
                await workspace.api.post_to_response_url(
                    self._url, {"response_type": "ephemeral", **message_arguments(part)}
                )
            except Refused:
                self._url = ""
            else:
                self._posted += 1
                return f"{ID_PREFIX}{self._key}:{index}"
        return ""

    async def edit(self, message_id: str, part: SlackMessage) -> None:
        if not message_id.startswith(ID_PREFIX):
            return await super().edit(message_id, part)
        if not self._url or self._posted > 1:  # only the latest answer can be replaced
            raise MessageMissing("the response cannot be changed any more")
        workspace = await self._workspace()
        try:
            await workspace.api.post_to_response_url(self._url, {"replace_original": True, **message_arguments(part)})
        except Refused as error:
            raise MessageMissing(str(error)) from None

    async def delete(self, message_id: str) -> None:
        if not message_id.startswith(ID_PREFIX):
            await super().delete(message_id)

    async def typing(self) -> None:
        """Show it for a shortcut only: Slack itself confirms a slash command."""
        if not self._only:
            await super().typing()
