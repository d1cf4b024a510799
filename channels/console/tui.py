"""The terminal view: a prompt at the bottom, streamed replies above it.

Only this file imports prompt_toolkit and rich; it is imported only on a terminal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Self, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import DynamicCompleter, WordCompleter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.utils import get_cwidth

from agent.blocks import Block, View
from catalogue import _
from channels.base import ChatGone
from channels.console.view import ICONS, Key, one_line, strip_controls
from channels.shared.background import BackgroundTasks

_TAIL_CHARS = 8000  # of a streamed text that are drawn: more than any screen shows
_COLOURS = {"running": "ansicyan", "done": "ansigreen", "failed": "ansired", "stopped": "ansiyellow", "pending": ""}


class TerminalView:
    """Show a prompt at the bottom and streamed replies above it; finished output scrolls up."""

    def __init__(self, source: TextIO, target: TextIO) -> None:
        self._source, self._target = source, target
        self._events: asyncio.Queue[str | Key | None] = asyncio.Queue()
        self._views: dict[int, View] = {}
        self._busy = False
        self._commands: Sequence[tuple[str, str]] = ()
        self._session: PromptSession[str] | None = None
        self._background = BackgroundTasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.cancel()

    # input

    async def read(self) -> str | Key | None:
        if self._session is None:
            self._session = await asyncio.to_thread(self._build_prompt)
            self._background.start(self._keep_prompt_open(self._session), "console-prompt")
        event = await self._events.get()
        if isinstance(event, str) and event.strip():
            await self.write(f"› {event}")
        return event

    def _build_prompt(self) -> PromptSession[str]:
        def completer() -> WordCompleter:
            names = {f"/{name}": text for name, text in self._commands}
            return WordCompleter(list(names), meta_dict=names, sentence=True)

        session: PromptSession[str] = PromptSession(
            message=self._prompt_message,
            completer=DynamicCompleter(completer),
            key_bindings=self._key_bindings(),
            erase_when_done=True,
            input=create_input(self._source),
            output=create_output(self._target),
            complete_while_typing=False,
            placeholder=[("ansibrightblack", _("Ask me, or /help"))],
            reserve_space_for_menu=_completion_lines(self._terminal_size()[1]),
        )
        session.app.min_redraw_interval = 0.05
        return session

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            self._events.put_nowait(buffer.text)
            buffer.reset(append_to_history=True)

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._events.put_nowait(Key.INTERRUPT)

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                self._events.put_nowait(None)

        return keys

    async def _keep_prompt_open(self, session: PromptSession[str]) -> None:
        """Keep the prompt open; other output, such as the log, scrolls above it."""
        try:
            with patch_stdout():
                await session.prompt_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:  # the terminal was closed
            pass
        finally:
            self._events.put_nowait(None)

    # output

    def show(self, view: View, block: Block) -> None:
        self._views[id(view)] = view
        self._refresh()

    def drop(self, view: View) -> None:
        if self._views.pop(id(view), None) is not None:
            self._refresh()

    def set_busy(self, working: bool) -> None:
        self._busy = working
        self._refresh()

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        self._commands = commands

    async def write(self, text: str, *, markdown: bool = False) -> None:
        text = (
            await asyncio.to_thread(render_markdown, strip_controls(text), self._terminal_size()[0])
            if markdown
            else strip_controls(text) + "\n"
        )

        def put() -> None:
            self._target.write(text)
            self._target.flush()

        try:
            await run_in_terminal(put)
        except OSError:
            raise ChatGone("the terminal was closed") from None

    def _refresh(self) -> None:
        if self._session:
            self._session.app.invalidate()

    def _terminal_size(self) -> tuple[int, int]:
        """Return columns and lines; an unknown size is reported as zero."""
        size = os.get_terminal_size(self._target.fileno())
        return size.columns or 80, size.lines or 24

    def _prompt_message(self) -> StyleAndTextTuples:
        """Return the running replies and the prompt itself."""
        columns, lines = self._terminal_size()
        rows = [row for view in self._views.values() for row in draw_reply(view, columns - 1)]
        if not rows and self._busy:
            rows = [("ansibrightblack", "• working…")]
        room = max(lines - _completion_lines(lines) - 2, 1)
        if len(rows) > room:
            rows = rows[-room:] if room < 3 else [("ansibrightblack", "…"), *rows[1 - room :]]
        return [*((style, f"{text}\n") for style, text in rows), ("bold", "› ")]


def _completion_lines(lines: int) -> int:
    """Return the number of lines below the prompt for completions."""
    return min(4, lines // 4)


def draw_reply(view: View, columns: int) -> Iterator[tuple[str, str]]:
    """Yield a running reply as rows (style, text) within the width of the screen."""
    for step in view.steps.values():
        detail = f" — {step.detail}" if step.detail and step.state != "done" else ""
        for row in wrap_line(one_line(f"{ICONS[step.state]} {step.title}{detail}"), columns):
            yield _COLOURS[step.state], row
    for item in view.plan.items if view.plan else ():
        yield _COLOURS[item.state], next(wrap_line(one_line(f"  {ICONS[item.state]} {item.title}"), columns), "")
    for line in strip_controls(view.text[-_TAIL_CHARS:]).expandtabs(4).splitlines():
        yield from (("", row) for row in wrap_line(line, columns))
    for ask in view.asks:
        yield from (("bold", row) for row in wrap_line(one_line(ask.question), columns))
    if view.notice:
        yield from (("ansiyellow", row) for row in wrap_line(one_line(view.notice.text), columns))
    if view.failed:
        yield from (("ansired", row) for row in wrap_line(one_line(str(view.failed)), columns))


def wrap_line(line: str, columns: int) -> Iterator[str]:
    """Yield a line in rows of at most `columns` cells, split between words if possible; wide characters take two."""
    row, width = "", 0
    for character in line:
        cells = get_cwidth(character)
        while width + cells > columns and row:  # the rest of a row may still be too long
            head, space, rest = row.rpartition(" ")
            if character == " " or not (space and head.strip()):
                head, rest = row, ""
            yield head
            row, width = rest, get_cwidth(rest)
        row, width = row + character, width + cells
    yield row


def render_markdown(text: str, columns: int) -> str:
    """Render Markdown as styled terminal text. Called in a thread, because importing rich is slow."""
    from rich.console import Console
    from rich.markdown import Markdown

    page = StringIO()
    console = Console(file=page, width=columns, force_terminal=True, color_system="standard", legacy_windows=False)
    document = Markdown(text, hyperlinks=False)
    for child in (child for token in document.parsed for child in token.children or ()):
        if child.type == "softbreak":  # a new line in a chat stays one
            child.type = "hardbreak"
    console.print(document)
    return page.getvalue()
