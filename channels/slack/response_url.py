"""Ephemeral answers over an interaction's response URL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agent.blocks import View
from channels.base import ChatGone, Refused
from channels.shared.reply_writer import MessageMissing
from channels.slack.blocks import SlackMessage, message_arguments
from channels.slack.reply import SlackRenderer

ID_PREFIX = "response:"  # such an answer has no id of Slack's
ONLY_YOU_NOTE = "Only you see this, because I am not in this conversation. Invite me to go on here."


@dataclass(frozen=True, slots=True)
class ResponseUrl:
    """The response URL of an interaction, good until then. `only`: a slash command is answered by it alone; what a
    shortcut asked for, only where the app may not write."""

    url: str
    until: float  # time.monotonic()
    only: bool


class EphemeralRenderer(SlackRenderer):
    """The messages of one such answer. A URL is good for five calls, so nothing is streamed by it."""

    def __init__(self, *args: Any, way: ResponseUrl) -> None:
        super().__init__(*args)
        self._url = way.url
        self._only = way.only
        self._posted = 0

    def render(self, view: View) -> list[SlackMessage]:
        return [] if self._only else super().render(view)

    async def post(self, part: SlackMessage, index: int) -> str:
        if self._only and (made := await self._respond(part, index)):
            return made
        try:
            return await super().post(part, index)
        except ChatGone:
            if part.live or self._only or not (made := await self._respond(replace(part, mark=ONLY_YOU_NOTE), index)):
                raise
            return made

    async def _respond(self, part: SlackMessage, index: int) -> str:
        """Gives an id of ours; "" when the URL is used up or too old."""
        if self._url:
            team = await self._find(self._thread.workspace)
            try:
                await team.calls.post_to_response_url(
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
        if not self._url or self._posted > 1:  # only the latest can be replaced
            raise MessageMissing("the response cannot be changed any more")
        team = await self._find(self._thread.workspace)
        try:
            await team.calls.post_to_response_url(self._url, {"replace_original": True, **message_arguments(part)})
        except Refused as error:
            raise MessageMissing(str(error)) from None

    async def delete(self, message_id: str) -> None:
        if not message_id.startswith(ID_PREFIX):
            await super().delete(message_id)

    async def typing(self) -> None:
        """Slack shows by itself that a command was heard."""
        if not self._only:
            await super().typing()
