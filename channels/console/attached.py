"""A console in another process: its view, over the HTTP API on the socket of the service.

Each call of a `ConsoleView` is an event of one stream to the console; what is typed is posted. The console confirms
what it printed or saved. `attach_view` is the other end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from agent.blocks import Approve, Ask, Block, Done, Failed, File, Notice, Plan, PlanItem, Step, Text
from agent.messages import Attachment
from catalogue import _, match_language
from channels.base import ChannelError, ChatGone, OutgoingFile, Refused
from channels.console.view import ConsoleView, FinalReply, Key, Look, Progress, Typed

T = TypeVar("T")

MAX_WAITING_BYTES = 64 << 20  # before a console that does not read is given up
CONFIRM_SECONDS = 60.0  # in which a console must confirm what it printed or saved
END = "end"  # the event after which nothing comes
_BLOCKS: dict[str, type[Any]] = {each.__name__: each for each in (Text, Step, Ask, Approve, File, Notice, Failed, Done)}


class AttachedView(ConsoleView):
    """The service's end. Raises ChatGone where the console has left."""

    def __init__(self, *, is_interactive: bool) -> None:
        self.is_interactive = is_interactive
        self.woken = asyncio.Event()  # there are calls to take, or it has ended
        self.left = asyncio.Event()  # nobody is there any more
        self._calls: list[bytes] = []
        self._waiting_bytes = 0
        self._events: asyncio.Queue[Typed | Key | None] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._language = ""  # what the console was told
        self._unconfirmed: dict[int, asyncio.Future[str]] = {}

    @property
    def is_gone(self) -> bool:
        return self.left.is_set()

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def take_calls(self) -> bytes:
        """Return the events to send: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
        calls, self._calls, self._waiting_bytes = b"".join(self._calls), [], 0
        return calls

    def leave(self) -> None:
        """End it: the console has left, or is let go."""
        self.left.set()
        self.woken.set()
        self._events.put_nowait(None)
        for future in self._unconfirmed.values():
            if not future.done():
                future.set_exception(ChatGone(_("the console has left")))

    def take_event(self, event: dict[str, Any]) -> None:
        """Take an event or a confirmation of the console. Raises TypeError, ValueError or AttributeError for others."""
        match event:
            case {"typed": str(text), "files": files}:
                self._events.put_nowait(Typed(text, tuple(_load(Attachment, file) for file in files)))
            case {"key": key}:
                self._events.put_nowait(Key(key))
            case {"end": True}:
                self._events.put_nowait(None)
            case {"confirmed": int(number), **outcome}:
                future = self._unconfirmed.get(number)
                if future and not future.done():
                    error = outcome.get("error")
                    future.set_exception(Refused(error)) if error else future.set_result(outcome.get("value", ""))
            case _other:
                raise ValueError("it is no event")

    async def read(self) -> Typed | Key | None:
        return await self._events.get()

    def show(self, reply: int, block: Block) -> None:
        self._send("show", reply, {"type": type(block).__name__, **asdict(block)})

    def drop(self, reply: int) -> None:
        self._send("drop", reply)

    def set_busy(self, busy: bool) -> None:
        self._send("set_busy", busy)

    def set_progress(self, progress: Progress) -> None:
        self._send("set_progress", asdict(progress))

    def set_language(self, language: str) -> None:
        if language != self._language:
            self._language = language
            self._send("set_language", language)

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        self._send("set_completions", commands)

    async def write(self, text: str, look: Look = Look.PLAIN) -> None:
        await self._confirm("write", text, look)

    async def write_reply(self, final: FinalReply) -> None:
        await self._confirm("write_reply", asdict(final))

    async def save_file(self, file: OutgoingFile) -> str:
        return await self._confirm("save_file", {**asdict(file), "path": str(file.path)})

    def close(self) -> None:
        """Tell the console that this is the end."""
        self._send(END)
        self.leave()

    async def _confirm(self, call: str, *arguments: object) -> str:
        number = next(self._numbers)
        future = self._unconfirmed[number] = asyncio.get_running_loop().create_future()
        try:
            if self.is_gone:
                raise ChatGone(_("the console has left"))
            self._send(call, *arguments, number=number)
            async with asyncio.timeout(CONFIRM_SECONDS):
                value: str = await future
                return value
        except TimeoutError:
            self.leave()
            raise ChatGone(_("the console does not answer")) from None
        finally:
            del self._unconfirmed[number]

    def _send(self, call: str, *arguments: object, number: int = 0) -> None:
        if self.is_gone:
            return
        data = orjson.dumps({"arguments": arguments, "number": number})
        event = b"event: %s\ndata: %s\n\n" % (call.encode(), data)
        self._calls.append(event)
        self._waiting_bytes += len(event)
        self.woken.set()
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._calls.clear()
            self.leave()


# ------------------------------------------------------------ the console's end


class AttachedConsole(Protocol):
    """The connection of a console with its service. Both raise ConnectionError where it ended."""

    def calls(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the data of each event, until the service ends the stream."""
        ...

    async def send(self, event: dict[str, Any]) -> None:
        """Send what was typed, pressed or confirmed."""
        ...


async def attach_view(view: ConsoleView, console: AttachedConsole) -> bool:
    """Connect a view with the service until one of them ends. Returns False if the service broke off."""
    forwarding = asyncio.create_task(_forward_events(view, console), name="console input")
    showing = asyncio.create_task(_show_calls(view, console), name="console output")
    try:
        await asyncio.wait({forwarding, showing}, return_when=asyncio.FIRST_COMPLETED)
        if not showing.done() and not forwarding.exception():
            await asyncio.wait({showing})
        for task in (forwarding, showing):
            if task.done() and (error := task.exception()):
                raise error
        return showing.done() and showing.result()
    finally:
        forwarding.cancel()
        showing.cancel()


async def _forward_events(view: ConsoleView, console: AttachedConsole) -> None:
    try:
        while (event := await view.read()) is not None:
            typed = {"key": event} if isinstance(event, Key) else {"typed": event.text, "files": event.files}
            await console.send(typed)
        await console.send({"end": True})
        if await view.is_overdue():
            await console.send({"key": Key.INTERRUPT})
    except ConnectionError:  # the other task sees it, too
        return


async def _show_calls(view: ConsoleView, console: AttachedConsole) -> bool:
    """Show what comes. The stream tells how it ended, not a confirmation that the service did not wait for."""
    try:
        async for call, data in console.calls():
            if call == END:
                return True
            outcome: dict[str, Any] = {"confirmed": data["number"]}
            try:
                outcome["value"] = await _call_view(view, call, data["arguments"])
            except ChatGone:
                return True  # our own output was closed
            except ChannelError as error:
                outcome["error"] = str(error)
            if data["number"]:
                with suppress(ConnectionError):
                    await console.send(outcome)
    except ConnectionError:
        return False
    return False


async def _call_view(view: ConsoleView, call: str, arguments: list[Any]) -> str:
    match call, arguments:
        case "show", [reply, block]:
            view.show(reply, _load_block(block))
        case "drop", [reply]:
            view.drop(reply)
        case "set_busy", [busy]:
            view.set_busy(busy)
        case "set_progress", [progress]:
            view.set_progress(_load(Progress, progress))
        case "set_language", [language]:
            view.set_language(match_language(language))
        case "set_completions", [commands]:
            view.set_completions([(name, text) for name, text in commands])
        case "write", [text, look]:
            await view.write(text, Look(look))
        case "write_reply", [final]:
            steps = tuple(_load(Step, step) for step in final["steps"])
            plan = tuple(_load(PlanItem, item) for item in final.get("plan", ()))
            await view.write_reply(_load(FinalReply, final, steps=steps, plan=plan))
        case "save_file", [file]:
            return await view.save_file(_load(OutgoingFile, file, path=Path(file["path"])))
    return ""


def _load(kind: type[T], raw: dict[str, Any], /, **more: Any) -> T:
    """Build a dataclass from JSON. Lists become tuples; unknown fields of another version are ignored."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # `kind` is always a dataclass
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items() if name in names}
    return kind(**{**known, **more})


def _load_block(raw: dict[str, Any]) -> Block:
    if raw["type"] == "Plan":
        return Plan(tuple(_load(PlanItem, item) for item in raw["items"]))
    block: Block = _load(_BLOCKS[raw["type"]], raw)
    return block
