"""Let operators sign the bot in to a platform on the page, by a code that a telephone scans.

The code is a way into the account of the bot: only who may sign it in sees it. What is signed in to is kept by the
channel; a code that is shown goes on without the page, and ends with the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.read_models import not_found
from bot.api.shared.sessions import for_page
from bot.commands.feature import Door
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.http.route import HttpProblem, Route, json_response, read_json
from bot.rights import deeds
from bot.status.qr_code import code_path
from bot.storage.api_access import OPERATE
from catalogue import use_language
from channels.base import Channel, Health
from channels.shared.code_sign_in import SignInChannel, as_sign_in
from channels.shared.texts import language_of

if TYPE_CHECKING:
    from aiohttp import web

Json = dict[str, Any]
BODY_BYTES = 256
PATH = "/operate/channels/{channel}/sign-in"
SIGNED_IN = HttpProblem(409, "signed_in", "The bot is signed in there already.", "Load the page again.")
NOT_ASKED = HttpProblem(409, "answered", "Nothing is asked there now.", "Look again.")
BAD_NUMBER = HttpProblem(422, "bad_body", "This is no number.", 'Send {"number": "123456"}.')


def sign_in_json(channel: Channel | None) -> Json | None:
    """Return how far signing in is on a channel, without its code; None where nobody signs in by a code."""
    if (found := as_sign_in(channel)) is None:
        return None
    state = found.sign_in_state()
    return {"out": state.is_signed_out, "going": state.is_going, "asks": state.wants_number}


@dataclass(frozen=True, slots=True)
class SignIns:
    """The routes."""

    door: Door
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        routes = (
            Route("GET", PATH, self._look, quiet=True),
            Route("POST", PATH, self._begin, body_bytes=BODY_BYTES),
            Route("POST", f"{PATH}/number", self._answer, body_bytes=BODY_BYTES),
        )
        return [*map(for_page, routes)]

    async def _find(self, request: web.Request) -> tuple[Caller, SignInChannel]:
        caller = await find_caller(self.door, request, OPERATE, deed=deeds.SIGN_IN_CHANNEL)
        channel = as_sign_in(self.door.channel(request.match_info["channel"]))
        if channel is None:
            raise not_found("channel")
        return caller, channel

    async def _look(self, request: web.Request) -> web.Response:
        """Return how far it is, with the code."""
        _caller, channel = await self._find(request)
        return json_response(200, _shown(channel))

    async def _begin(self, request: web.Request) -> web.Response:
        """Begin, unless that goes on already: everybody who looks sees the same code then."""
        caller, channel = await self._find(request)
        async with self._beginning:
            state = channel.sign_in_state()
            if not state.is_signed_out:
                raise SIGNED_IN
            if not state.is_going:
                what = {"channel": channel.name, "via": "http"}
                kind = AuditKind.CHANNEL_SIGN_IN
                event = AuditEvent(kind, caller.chat, caller.author.id, what=what, result="begun")
                await self.door.store.run(partial(audit.record, event=event))
                with use_language(language_of(caller.chat, caller.author)):  # of all that it says from here
                    await channel.begin_sign_in()
        return json_response(200, _shown(channel))

    async def _answer(self, request: web.Request) -> web.Response:
        """Hand over the number that the telephone shows."""
        _caller, channel = await self._find(request)
        match await read_json(request):
            case {"number": str(number)} if number.strip():
                if not channel.answer_sign_in(number.strip()):
                    raise NOT_ASKED
            case _:
                raise BAD_NUMBER
        return json_response(200, _shown(channel))


def _shown(channel: SignInChannel) -> Json:
    offered, code = channel.sign_in_code(), None
    if offered.code:
        side, path = code_path(offered.code)
        code = {"side": side, "path": path}
    is_ready = channel.readiness().health is Health.READY
    return {**(sign_in_json(channel) or {}), "text": offered.text, "code": code, "ready": is_ready}
