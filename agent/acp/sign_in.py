"""Open a session with an external agent that asks for a sign-in: by its own methods, with the variables of `env`.

https://agentclientprotocol.com/protocol/initialization#authentication
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent.acp.connection import AcpConnection, AcpError, AcpRefused, Json
from agent.foreign_text import printable_line
from agent.settings.sections import ExternalAgentSettings
from catalogue import N_, LazyText, list_items

AUTH_REQUIRED = -32000
AUTH_SECONDS = 60.0  # for one method: one that opens a browser would wait for ever
MAX_METHODS, MAX_MODES = 10, 20
MAX_WORD_CHARS = 80
NEEDS_PERSON = "terminal"  # the type of a method that a person runs in a terminal


@dataclass(frozen=True, slots=True)
class AuthMethod:
    """A way in which the agent can be signed in, as it advertises it."""

    id: str
    about: str
    kind: str
    variables: tuple[str, ...]

    def works_with(self, env: Collection[str]) -> bool:
        """Return whether the method takes what `env` has, so that no person is needed. Many say only in words, or by
        their id, such as `openai-api-key`, which variable that is."""
        if self.kind == NEEDS_PERSON:
            return False
        if self.variables:
            return {*self.variables} <= {*env}
        words = f"{self.id.upper().replace('-', '_')} {self.about}"
        return not {*env}.isdisjoint(re.findall(r"\w+", words))

    def __str__(self) -> str:
        needed = self.about + (f" ({', '.join(self.variables)})" if self.variables else "")
        return f"{self.id}: {needed}" if needed else self.id


async def open_session(
    connection: AcpConnection, settings: ExternalAgentSettings, welcome: Json, place: Mapping[str, Any]
) -> str:
    """Return the id of a new session in the configured mode, after a sign-in if the agent asks for one. Raises
    AcpError."""
    methods = _methods(welcome)
    if settings.auth_method:
        await _authenticate(connection, settings.auth_method, methods)
    try:
        session = await connection.request("session/new", {**place})
    except AcpRefused as refused:
        if refused.code != AUTH_REQUIRED or not methods or settings.auth_method:
            raise
        session = await _sign_in_and_open(connection, settings, methods, place, refused)
    id = str(session.get("sessionId"))
    if settings.mode:
        await _set_mode(connection, settings.mode, id, session)
    return id


async def _sign_in_and_open(
    connection: AcpConnection,
    settings: ExternalAgentSettings,
    methods: Collection[AuthMethod],
    place: Mapping[str, Any],
    refused: AcpRefused,
) -> Json:
    """Try the methods that `env` has the variables for. Raises AcpError, which names all methods."""
    failed: list[str] = []
    for method in methods:
        if not method.works_with(settings.env):
            continue
        try:
            await _authenticate(connection, method.id, methods)
            return await connection.request("session/new", {**place})
        except AcpRefused as error:
            failed.append(f"{method.id}: {error}")
    tried = LazyText(N_("tried: {failed}"), failed="; ".join(failed)) if failed else LazyText(N_("none fits its `env`"))
    raise AcpError(
        N_(
            "{refused}. Its ways to sign in: {methods} ({tried}). Put the variable of one of them into `env` of the"
            " agent, or its id into `auth_method`, in config.yaml"
        ),
        refused=refused.text,
        methods=list_items([str(each) for each in methods]),
        tried=tried,
    )


async def _authenticate(connection: AcpConnection, id: str, methods: Collection[AuthMethod]) -> None:
    if methods and id not in {each.id for each in methods}:
        known = list_items([each.id for each in methods])
        raise AcpError(N_("it has no way to sign in that is called {id}. It has: {known}"), id=id, known=known)
    try:
        async with asyncio.timeout(AUTH_SECONDS):
            await connection.request("authenticate", {"methodId": id})
    except TimeoutError:
        text = N_("signing in with {id} took longer than {n:g} s: it may wait for a browser, which it does not have")
        raise AcpError(text, id=id, n=AUTH_SECONDS) from None


async def _set_mode(connection: AcpConnection, mode: str, session: str, opened: Json) -> None:
    modes = opened.get("modes")
    offered = modes.get("availableModes") if isinstance(modes, dict) else None
    known = [_word(each.get("id")) for each in offered or () if isinstance(each, dict)][:MAX_MODES]
    if mode not in known:
        text = N_("it has no mode {mode}. It has: {known}") if known else N_("it has no modes, so not {mode} either")
        raise AcpError(text, mode=mode, known=list_items(known))
    await connection.request("session/set_mode", {"sessionId": session, "modeId": mode})


def _methods(welcome: Json) -> list[AuthMethod]:
    offered = welcome.get("authMethods")
    found = [each for each in offered if isinstance(each, dict)] if isinstance(offered, list) else []
    return [_method(each) for each in found[:MAX_METHODS] if each.get("id")]


def _method(offered: Json) -> AuthMethod:
    wanted = offered.get("vars")
    variables = [each for each in wanted if isinstance(each, dict)] if isinstance(wanted, list) else []
    needed = tuple(_word(each.get("name")) for each in variables[:MAX_METHODS] if not each.get("optional"))
    about = _word(offered.get("description") or offered.get("name"))
    return AuthMethod(_word(offered["id"]), about, str(offered.get("type") or ""), needed)


def _word(value: object) -> str:
    return printable_line(value or "", MAX_WORD_CHARS)
