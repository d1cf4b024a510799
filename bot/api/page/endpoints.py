"""Serve the page's files, its login, who one is, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent.models.presets import effort_names
from bot.api.page.assets import Assets
from bot.api.page.operate import allowed_deeds
from bot.api.page.words import page_words
from bot.api.shared.caller import find_caller
from bot.api.shared.identity import signed_in_by_proxy
from bot.api.shared.sessions import (
    SESSION_SECONDS,
    cookie_name,
    cookie_var,
    for_page,
    refuse_other_pages,
    sign_out,
    use_identity,
    use_key,
    use_link,
)
from bot.base.version import VERSION
from bot.commands.feature import Door
from bot.config.team import DEFAULT_AGENT, RoleConfig
from bot.http.route import HttpProblem, Route, json_response, read_json
from bot.rights.current import Current
from bot.storage.api_keys import READ
from catalogue import current_language, default_language, preferred_language, use_language
from channels.shared.texts import language_of

if TYPE_CHECKING:
    from aiohttp import web

BODY_BYTES = 1024
BAD_LOGIN = HttpProblem(422, "bad_body", "This is no login.", 'Send {"token": "…"} or {"key": "…"}.')


@dataclass(frozen=True, slots=True)
class PageEndpoints:
    """The routes of the page."""

    door: Door
    assets: Assets = field(default_factory=Assets)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            *self.assets.routes(),
            Route("POST", "/page/login", self._sign_in, body_bytes=BODY_BYTES),
            Route("GET", "/page/words", self._words, quiet=True),
            for_page(Route("POST", "/logout", self._sign_out, body_bytes=BODY_BYTES)),
            for_page(Route("GET", "/me", self._me)),
        ]

    async def _sign_in(self, request: web.Request) -> web.Response:
        refuse_other_pages(request)
        match await read_json(request):
            case {"token": str(token)}:
                use = partial(use_link, token=token)
            case {"key": str(key)}:
                use = partial(use_key, key=key)
            case {"proxy": True} if named := signed_in_by_proxy(self.door.current.config.http.identity, request):
                use = partial(use_identity, channel=named[0], person=named[1])
            case _:
                raise BAD_LOGIN
        session, _row = await self.door.store.run(use)
        response = json_response(200, {})
        response.set_cookie(
            cookie_name(request),
            session,
            httponly=True,
            samesite="Strict",
            max_age=int(SESSION_SECONDS),
            secure=request.headers.get("Origin", "").startswith("https:"),
        )
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        await self.door.store.run(partial(sign_out, token=cookie_var.get() or ""))
        response = json_response(200, {})
        response.del_cookie(cookie_name(request), httponly=True, samesite="Strict")
        return response

    async def _words(self, request: web.Request) -> web.Response:
        """Return the sentences of the page in the language of the browser, or in the asked one."""
        asked = request.query.get("language", "") or request.headers.get("Accept-Language", "")
        with use_language(preferred_language(asked) or default_language("")):
            return json_response(200, page_words())

    async def _me(self, request: web.Request) -> web.Response:
        """Return who is signed in, what they may do, and the commands that they may write."""
        caller = await find_caller(self.door, request, READ)
        access, author = self.door.current.access, caller.author
        role = await self.door.store.run(partial(access.role_of, place=caller.chat, person=author.id), durable=False)
        may = await self.door.store.run(partial(allowed_deeds, door=self.door, caller=caller), durable=False)
        with use_language(language_of(caller.chat, caller.author)):
            commands = [asdict(each) for each in self.door.commands.listed()]
            language, words = current_language(), page_words()
        found = {"name": author.name or author.id.partition(":")[2], "role": role.name, "rights": sorted(role.rights)}
        more = {
            "person": author.id,
            "version": VERSION,
            **choices(self.door.current, role),
            "may": may,
            "language": language,
            "upload_bytes": self.door.current.config.uploads.max_mb << 20,
            "commands": commands,
            "words": words,
        }
        return json_response(200, {**found, **more})


def choices(current: Current, role: RoleConfig) -> dict[str, object]:
    """Return the models and the agents that a person of this role may choose, each with what it is."""
    efforts = {entry.name: effort_names(entry.preset, entry.use) for entry in current.config.models}
    models = [
        {"name": name, "label": label, "efforts": efforts.get(name, ())}
        for name, label in current.models.items()
        if role.may_use_model(name)
    ]
    agents = [{"name": name, "label": text} for name, text in current.agents.items() if role.may_use_agent(name)]
    return {"models": models, "agents": agents, "may_use_default_agent": role.may_use_agent(DEFAULT_AGENT)}
