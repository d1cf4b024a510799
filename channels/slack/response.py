"""The answer to a slash command: by its response URL, seen only by who used it, as long as Slack allows that."""

from __future__ import annotations

from typing import Any

from agent.conversation import View
from channels.base import Refused
from channels.slack.blocks import Part, message
from channels.slack.reply import Surface
from channels.writer import Missing

PREFIX = "response:"  # such an answer has no id of Slack's


class Response(Surface):
    """The messages of one such answer. The URL is good for five calls, so nothing is streamed."""

    def __init__(self, *args: Any, url: str) -> None:
        super().__init__(*args)
        self._url = url
        self._posted = 0

    def render(self, view: View) -> list[Part]:
        return []

    async def post(self, part: Part, index: int) -> str:
        if self._url:
            team = await self._find(self._thread.workspace)
            try:
                await team.calls.respond(self._url, {"response_type": "ephemeral", **message(part)})
            except Refused:
                self._url = ""  # used up or too late: as an ordinary message
            else:
                self._posted += 1
                return f"{PREFIX}{self._key}:{index}"
        return await super().post(part, index)

    async def edit(self, message_id: str, part: Part) -> None:
        if not message_id.startswith(PREFIX):
            return await super().edit(message_id, part)
        if not self._url or self._posted > 1:  # only the latest can be replaced
            raise Missing("the response cannot be changed any more")
        team = await self._find(self._thread.workspace)
        try:
            await team.calls.respond(self._url, {"replace_original": True, **message(part)})
        except Refused as error:
            raise Missing(str(error)) from None

    async def delete(self, message_id: str) -> None:
        if not message_id.startswith(PREFIX):
            await super().delete(message_id)

    async def typing(self) -> None:
        """Slack shows by itself that the command was heard."""
