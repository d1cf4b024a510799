"""Serve the page's view of threads, and take commands, titles, thumbs and searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent.messages import Kind, Message, Thread
from bot.api.page.thread_view import LATEST, look_at, read_view
from bot.api.shared import read_models
from bot.api.shared.caller import NO_ACCESS, Caller, find_caller
from bot.api.shared.posting import make_message
from bot.api.shared.requests import path_number, path_thread
from bot.api.shared.sessions import for_page
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.http.route import HttpProblem, Route, json_response, read_json
from bot.journey.feed import FedRun
from bot.storage import sent_messages, transcripts
from bot.storage.api_access import READ, THREADS
from channels.base import Receipt

if TYPE_CHECKING:
    from aiohttp import web

    from bot.api.shared.read_models import Json

FOUND = 50
MAX_TITLE_CHARS = 120
BY_BUTTON = "page"  # the target of a command that nobody wrote
THUMBS = {"up": Kind.FEEDBACK, "down": Kind.FEEDBACK, "no up": Kind.FEEDBACK_REMOVED, "no down": Kind.FEEDBACK_REMOVED}
BAD_CURSOR = HttpProblem(400, "bad_cursor", "`before` is no number.", "Send the `before` of the page after it.")


@dataclass(frozen=True, slots=True)
class ThreadEndpoints:
    """The routes."""

    door: Door

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        routes = (
            Route("GET", "/threads/{thread}", self._view),
            Route("POST", "/threads/{thread}/press", self._press),
            Route("POST", "/threads/{thread}/title", self._title),
            Route("POST", "/threads/{thread}/choose", self._choose),
            Route("POST", "/runs/{run}/thumb", self._thumb),
            Route("GET", "/search", self._search),
        )
        return [*map(for_page, routes)]

    async def _view(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        before = parse_row_id(request.query["before"]) if "before" in request.query else LATEST
        if before is None:
            raise BAD_CURSOR
        id = path_thread(request)
        running: Sequence[FedRun] = ()
        if before == LATEST:
            await self.door.runs.look(caller.thread(id))
            running = self.door.runs.at(caller.thread(id))
        live = [await look_at(each, self.door.current) for each in running]
        view = partial(read_view, caller=caller, id=id, before=before, live=live)
        return json_response(200, await self.door.store.run(view, durable=False))

    async def _press(self, request: web.Request) -> web.Response:
        """Press a button of a notice: `{"ask": …, "option": …}`."""
        caller = await find_caller(self.door, request, THREADS)
        thread = caller.thread(path_thread(request))
        match await read_json(request):
            case {"ask": str(ask), "option": str(option)}:
                find = partial(_has_button, caller=caller, thread=thread, ask=ask, option=option)
                if not await self.door.store.run(find, durable=False):
                    raise read_models.not_found("open question")
                await self._receive(_event(caller, thread, option, Kind.CLICK, ask))
                return json_response(202, {})
        raise HttpProblem(422, "bad_body", "This is no press of a button.", 'Send {"ask": "…", "option": "…"}.')

    async def _title(self, request: web.Request) -> web.Response:
        """Name a thread."""
        caller = await find_caller(self.door, request, THREADS)
        title = " ".join(_text(await read_json(request), "title").split())[:MAX_TITLE_CHARS]
        await self._receive(_event(caller, caller.thread(path_thread(request)), title, Kind.TITLE))
        return json_response(202, {})

    async def _choose(self, request: web.Request) -> web.Response:
        """Choose the model, `{"model": "NAME EFFORT"}`, or the agent of a thread, as the commands do."""
        caller = await find_caller(self.door, request, THREADS)
        match await read_json(request):
            case {"model": str(name), **rest} if not rest:
                words = f"model {name}"
            case {"agent": str(name), **rest} if not rest:
                words = f"agents {name}"
            case _:
                raise HttpProblem(422, "bad_body", "This is no choice.", 'Send {"model": "…"} or {"agent": "…"}.')
        event = _event(caller, caller.thread(path_thread(request)), words.replace("\0", ""), Kind.COMMAND, BY_BUTTON)
        await self._receive(event)
        return json_response(202, {})

    async def _thumb(self, request: web.Request) -> web.Response:
        """Take 👍 ("up") or 👎 ("down") for the answer of a run, or take it back ("no up", "no down")."""
        caller = await find_caller(self.door, request, THREADS)
        value = _text(await read_json(request), "thumb")
        if value not in THUMBS:
            raise HttpProblem(422, "bad_thumb", "This is no thumb.", f"Send one of {', '.join(THUMBS)}.")
        number = path_number(request, "run")
        found = await self.door.store.run(partial(_posted, caller=caller, run=number), durable=False)
        thread, post = found
        event = _event(caller, thread, value.removeprefix("no "), THUMBS[value])
        await self._receive(replace(event, reply_to=post, to_bot=True))
        return json_response(202, {})

    async def _receive(self, event: Message) -> None:
        if await self.door.receive([event]) == [Receipt.IGNORED]:
            raise NO_ACCESS

    async def _search(self, request: web.Request) -> web.Response:
        """Return the own threads whose titles have the words, then what was said that has them, each newest first."""
        caller = await find_caller(self.door, request, READ)
        words = request.query.get("words", "").split()[: transcripts.MAX_WORDS]
        search = partial(_search, chat=caller.thread("any"), words=words)
        return json_response(200, {"found": await self.door.store.run(search, durable=False) if words else []})


def _event(caller: Caller, thread: Thread, text: str, kind: Kind, target: str = "") -> Message:
    return make_message(caller, thread, text, f"web:page:{uuid4().hex}", kind, target)


def _has_button(execute: Execute, caller: Caller, thread: Thread, ask: str, option: str) -> bool:
    notices = transcripts.notices_with_buttons(execute, thread)
    asks = [each for notice in notices for each in read_models.entry_json(execute, caller, notice)["questions"]]
    return any(each["id"] == ask and option in each["options"] for each in asks)


def _posted(execute: Execute, caller: Caller, run: int) -> tuple[Thread, str]:
    """Return where a run of the caller answered, and the id of its answer. Raises HttpProblem."""
    _found, _row, thread = read_models.read_run(execute, caller, run)
    post = next((each.id for each in sent_messages.known_messages(execute, f"r{run}") if each.id), None)
    if post is None:
        raise read_models.not_found("answer")
    return thread, post


def _search(execute: Execute, chat: Thread, words: Sequence[str]) -> list[Json]:
    titled = transcripts.search_titles(execute, chat, words, FOUND)
    found = transcripts.search_chat(execute, chat, words, FOUND, topics=True)
    return [
        *(_found(each.key, each.title, "", each.used) for each in titled),
        *(_found(each.conversation, each.title, each.text, each.at) for each in found),
    ]


def _found(conversation: str, title: str, text: str, at: float) -> Json:
    return {"thread": _topic(conversation), "title": title, "text": text, "at": at}


def _topic(conversation: str) -> str:
    return Thread.parse(conversation.partition("#")[0]).topic


def _text(body: Any, name: str) -> str:
    """Return the only field of a body. Raises HttpProblem."""
    if not (isinstance(body, dict) and {*body} == {name} and isinstance(body[name], str) and body[name].strip()):
        raise HttpProblem(
            422, "bad_body", f"The body is not an object with the text `{name}`.", f'Send {{"{name}": "…"}}.'
        )
    text: str = body[name]
    return text.replace("\0", "")
