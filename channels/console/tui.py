"""The terminal view: a prompt at the bottom, streamed replies above it.

Only this file and `markdown.py`, which renders the texts, import prompt_toolkit and rich, and only on a terminal.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.search import accept_search
from prompt_toolkit.utils import get_cwidth, is_dumb_terminal

from agent.blocks import Block, View
from catalogue import N_, _, format_duration, list_items, set_language
from channels.base import ChatGone, OutgoingFile
from channels.console.files import NotSent, describe_download, find_files, save_download, short_path, stage_files
from channels.console.markdown import LiveMarkdown, render_markdown
from channels.console.view import (
    ICONS,
    ConsoleView,
    FinalReply,
    Key,
    Look,
    Progress,
    Typed,
    fold_steps,
    human_size,
    one_line,
    plan_head,
    step_text,
    strip_controls,
)
from channels.shared.background import BackgroundTasks

_MAX_HISTORY_BYTES = 1_000_000
_FRAME_SECONDS = 0.1
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_COLOURS = {
    "running": "ansicyan",
    "done": "ansigreen",
    "failed": "ansired",
    "denied": "ansired",
    "stopped": "ansiyellow",
    "pending": "",
}
_LOOKS = {Look.OWN: "1", Look.HINT: "2", Look.FAULT: "31"}  # SGR: bold, faint, red: readable on light and dark
ASK_ME = N_("Ask me, or /help")
TRY_DEMO = N_("Try: plot")
UNFOLD = N_("Ctrl-O shows them")
SENT_WITH = N_("Sent with your message: {files}")
WORKING = N_("Working · {time} · Ctrl-C stops")
WORKING_TOKENS = N_("Working · {time} · {tokens:,} tokens · Ctrl-C stops")


@dataclass(slots=True)
class _LiveReply:
    """A running reply, and its latest text as rows."""

    view: View = field(default_factory=View)
    markdown: LiveMarkdown = field(default_factory=LiveMarkdown)
    shown: tuple[str, int] = ("", 0)  # the text and the columns of `rows`
    rows: Sequence[StyleAndTextTuples] = ()

    def render(self, text: str, columns: int) -> None:
        """Make `rows` of the text. Called in a thread."""
        rows = self.markdown.render(text, columns)
        self.rows = [to_formatted_text(ANSI(row)) for row in rows]
        self.shown = (text, columns)


class _Keyboard(Vt100Input):
    """Keys stay keys while something is printed: a Ctrl-C in that moment would be a signal, which stops the service."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class TerminalView(ConsoleView):
    """Show a prompt at the bottom and streamed replies above it; finished output scrolls up.

    `folder` keeps the history between runs, and copies of the files that are sent.
    """

    is_interactive = True
    is_gone = False  # whoever leaves it ends the process

    def __init__(
        self, source: TextIO, target: TextIO, downloads: Path, folder: Path, upload_mb: int, *, is_demo: bool = False
    ) -> None:
        self._source, self._target = source, target
        self._downloads, self._folder, self._upload_mb = downloads, folder, upload_mb
        self._hint = TRY_DEMO if is_demo else ASK_ME
        self._events: asyncio.Queue[str | Key | None] = asyncio.Queue()
        self._replies: dict[int, _LiveReply] = {}
        self._language = ""  # of the person; "": that of the task
        self._began = 0.0  # monotonic, of the work that is shown; 0: none
        self._tokens = 0
        self._commands: Sequence[tuple[str, str]] = ()
        self._session: PromptSession[str] | None = None
        self._spinner: asyncio.Task[None] | None = None
        self._background = BackgroundTasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.cancel()

    # input

    async def read(self) -> Typed | Key | None:
        if self._session is None:
            self._session = await asyncio.to_thread(self._build_prompt)
            self._background.start(self._keep_prompt_open(self._session), "console-prompt")
        while isinstance(event := await self._events.get(), str):
            if not event.strip():
                continue
            await self.write(event, Look.OWN)
            self._speak()
            try:
                typed = await asyncio.to_thread(self._with_files, event)
            except NotSent as error:
                await self.write(str(error), Look.FAULT)
                continue
            if typed.files:
                files = list_items(f"{file.name} ({human_size(file.size or 0)})" for file in typed.files)
                await self.write(_(SENT_WITH, files=files), Look.HINT)
            return typed
        return event

    def _with_files(self, typed: str) -> Typed:
        text, files = find_files(typed)
        return Typed(text, stage_files(files, self._folder / "uploads", self._upload_mb)) if files else Typed(text)

    def _build_prompt(self) -> PromptSession[str]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        session: PromptSession[str] = PromptSession(
            message=self._prompt_message,
            completer=_ConsoleCompleter(lambda: self._commands),
            history=FileHistory(_history_file(self._folder)),
            auto_suggest=AutoSuggestFromHistory(),
            enable_history_search=True,
            key_bindings=self._key_bindings(),
            erase_when_done=True,
            input=_Keyboard(self._source),
            output=create_output(self._target),
            complete_while_typing=False,
            placeholder=self._placeholder,
            reserve_space_for_menu=_completion_lines(self._terminal_size()[1]),
        )
        session.app.min_redraw_interval = 0.05
        session.app.terminal_size_polling_interval = None  # SIGWINCH tells of a new size
        return session

    def _placeholder(self) -> StyleAndTextTuples:
        self._speak()
        return [("ansibrightblack", _(self._hint))]

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()  # while a person searches, only Enter is ours: prompt_toolkit has the others

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if is_searching():
                accept_search()  # as in readline: Enter takes the line that was found
            buffer = event.app.current_buffer
            self._events.put_nowait(buffer.text)
            buffer.reset(append_to_history=True)

        @keys.add("escape", "enter", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-o", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            self._events.put_nowait(Key.STEPS)

        @keys.add("c-c", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._events.put_nowait(Key.INTERRUPT)

        @keys.add("c-d", filter=~is_searching)
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

    def show(self, reply: int, block: Block) -> None:
        self._replies.setdefault(reply, _LiveReply()).view.add(block)
        self._keep_drawing()

    def drop(self, reply: int) -> None:
        if self._replies.pop(reply, None) is not None:
            self._refresh()

    def set_busy(self, busy: bool) -> None:
        self._began = (self._began or time.monotonic()) if busy else 0.0
        self._tokens = self._tokens if busy else 0
        if busy:
            self._keep_drawing()
        self._refresh()

    def set_progress(self, progress: Progress) -> None:
        self._began, self._tokens = time.monotonic() - progress.seconds, progress.tokens

    def _keep_drawing(self) -> None:
        if self._spinner is None or self._spinner.done():
            self._spinner = self._background.start(self._spin(), "console-spinner")

    async def _spin(self) -> None:
        """Draw the running replies until they end. Markdown is rendered in a thread, so that nobody waits for it."""
        while self._began or self._replies:
            columns = self._terminal_size()[0]
            for reply in [*self._replies.values()]:
                if reply.shown != (text := reply.view.text, columns):
                    await asyncio.to_thread(reply.render, text, columns)
            self._refresh()
            await asyncio.sleep(_FRAME_SECONDS)

    def set_language(self, language: str) -> None:
        self._language = language
        self._refresh()

    def _speak(self) -> None:
        """Speak the person's language in this task: the prompt, the drawing and the replies have their own."""
        if self._language:
            set_language(self._language)

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        self._commands = commands

    async def write_reply(self, final: FinalReply) -> None:
        self._speak()
        line = fold_steps(final)
        pieces = [await self._styled_text(text, Look.MARKDOWN) for text in final.earlier if text.strip()]
        pieces += [await self._styled_text(f"{line} · {_(UNFOLD)}", Look.HINT)] if line else []
        pieces += [await self._styled_text(final.text, Look.MARKDOWN)] if final.text.strip() else []
        await self._print("".join(pieces), ended=final.reply)  # at once, so that nothing jumps

    async def save_file(self, file: OutgoingFile) -> str:
        self._speak()
        path = await asyncio.to_thread(save_download, file, self._downloads)
        place = short_path(path) if is_dumb_terminal() else _link(path)
        await self._print(f"{describe_download(file, place)}\n")
        return str(path)

    async def write(self, text: str, look: Look = Look.PLAIN) -> None:
        await self._print(await self._styled_text(text, look))

    async def _styled_text(self, text: str, look: Look) -> str:
        text, columns = strip_controls(text), self._terminal_size()[0]
        if look is Look.MARKDOWN:
            return await asyncio.to_thread(render_markdown, text, columns)
        if look is Look.OWN:
            return "\n" + _styled(f"› {text}", look) + "\n\n"
        return _styled(wrap_text(text, columns - 1), look) + "\n"

    async def _print(self, text: str, ended: int = 0) -> None:
        """Print above the prompt. The running reply `ended` disappears in the same moment."""

        def put() -> None:
            self._replies.pop(ended, None)
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
        self._speak()
        columns, lines = self._terminal_size()
        rows = [row for reply in self._replies.values() for row in draw_reply(reply.view, reply.rows, columns - 1)]
        if self._began:
            rows.append([("ansicyan", next(wrap_line(self._working_line(), columns - 1)))])
        elif not rows:
            rows.append([])  # a blank line above the idle prompt
        room = max(lines - _completion_lines(lines) - 2, 1)
        if len(rows) > room:
            rows = rows[-room:] if room < 3 else [[("ansibrightblack", "…")], *rows[1 - room :]]
        return [*(part for row in rows for part in (*row, ("", "\n"))), ("bold", "› ")]

    def _working_line(self) -> str:
        now = time.monotonic()
        form = WORKING_TOKENS if self._tokens else WORKING
        spinner = _FRAMES[int(now / _FRAME_SECONDS) % len(_FRAMES)]
        return f"{spinner} {_(form, time=format_duration(now - self._began), tokens=self._tokens)}"


class _ConsoleCompleter(Completer):
    """Complete commands at the beginning of a line, and paths after an @."""

    def __init__(self, list_commands: Callable[[], Sequence[tuple[str, str]]]) -> None:
        self._list_commands = list_commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        if found := re.search(r"(?:^|\s)@((?:\\.|[^\s\\])*)$", document.text_before_cursor):
            return self._complete_path(re.sub(r"\\(.)", r"\1", found[1]), complete_event)
        if not document.text.startswith("/"):
            return []
        names = {f"/{name}": text for name, text in self._list_commands()}
        return WordCompleter(list(names), meta_dict=names, sentence=True).get_completions(document, complete_event)

    def _complete_path(self, begun: str, complete_event: CompleteEvent) -> Iterable[Completion]:
        for found in self._paths.get_completions(Document(begun), complete_event):
            yield Completion(re.sub(r"([\s\\])", r"\\\1", found.text), found.start_position, found.display)


def _history_file(folder: Path) -> Path:
    """Return the history of this user, without its older half where it grew long."""
    path = folder / f"history-{os.getuid()}"
    path.touch(mode=0o600)
    if path.stat().st_size > _MAX_HISTORY_BYTES:
        data = path.read_bytes()
        path.write_bytes(data[data.find(b"\n# ", len(data) // 2) + 1 :])
    return path


def _styled(text: str, look: Look) -> str:
    code = "" if is_dumb_terminal() else _LOOKS.get(look, "")
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def _link(path: Path) -> str:
    """Return a path that opens with a click, also where the terminal breaks it over two lines."""
    address = f"file://{socket.gethostname()}{path.as_uri().removeprefix('file://')}"
    return f"\x1b]8;;{address}\x1b\\{short_path(path)}\x1b]8;;\x1b\\"


def _completion_lines(lines: int) -> int:
    """Return the number of lines below the prompt for completions."""
    return min(4, lines // 4)


def draw_reply(view: View, text: Sequence[StyleAndTextTuples], columns: int) -> Iterator[StyleAndTextTuples]:
    """Yield a running reply as rows within the width of the screen: plan, steps, its `text`, and what it says below."""
    if view.plan:
        yield [("bold", next(wrap_line(plan_head(view.plan.items), columns)))]
        for item in view.plan.items:
            yield [
                (_COLOURS[item.state], next(wrap_line(f"  {ICONS[item.state]} {one_line(item.title)}", columns), ""))
            ]
    for step in view.steps.values():
        for row in wrap_line(step_text(step, with_detail=step.state != "done"), columns):
            yield [(_COLOURS[step.state], row)]
    yield from text
    for ask in view.asks:
        yield from _plain_rows("bold", ask.question, columns)
    if view.notice:
        yield from _plain_rows("ansiyellow", view.notice.text, columns)
    if view.failed:
        yield from _plain_rows("ansired", str(view.failed), columns)


def _plain_rows(style: str, text: str, columns: int) -> Iterator[StyleAndTextTuples]:
    for row in wrap_line(one_line(text), columns):
        yield [(style, row)]


def wrap_text(text: str, columns: int) -> str:
    return "\n".join(row for line in text.splitlines() for row in wrap_line(line, columns))


def wrap_line(line: str, columns: int) -> Iterator[str]:
    """Yield a line in rows of at most `columns` cells, split between words if possible; wide characters take two."""
    row, width, is_first = "", 0, True
    for character in line:
        cells = get_cwidth(character)
        while width + cells > columns and row:  # the rest of a row may still be too long
            head, space, rest = row.rpartition(" ")
            if character == " " or not (space and head.strip()):
                head, rest = row, ""
            yield head.rstrip()
            row, width, is_first = rest, get_cwidth(rest), False
        if character == " " and not row and not is_first:  # no row but the first begins with the blank between words
            continue
        row, width = row + character, width + cells
    yield row
