"""`fawn ask`: one message, its answer on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from agent.blocks import Block
from agent.messages import Attachment
from catalogue import N_, _
from channels.base import OutgoingFile, parse_command_text
from channels.console.files import save_download
from channels.console.plain import progress_lines
from channels.console.session import NO_ACCESS, SERVICE_ENDS
from channels.console.view import ConsoleView, FinalReply, Key, Look, Typed, strip_controls

QUESTION_OPEN = N_("This is a question. Answer it with: fawn ask --continue {name} ANSWER")

TIMED_OUT = N_("No answer within {seconds:g} s. I stopped the request.")


class AskView(ConsoleView):
    """A view that sends one message and keeps the answer. `name` is that of the conversation. `ended`: no other
    service need be asked, because one has stored the message or refused it."""

    is_interactive = False

    def __init__(
        self,
        text: str,
        files: tuple[Attachment, ...],
        downloads: Path,
        name: str,
        *,
        seconds: float = 0.0,
        quiet: bool,
    ) -> None:
        self._typed, self._sent = Typed(text, files), False
        self._downloads, self._name = downloads, name
        self._is_command = not files and parse_command_text(text) is not None  # a notice is the answer to one
        self._seconds = seconds  # 0: without end
        self._quiet = quiet
        self._printed: set[str] = set()
        self.ended = False
        self.final: FinalReply | None = None
        self._resumes = False  # another service is asked for the answer to what is stored
        self.timed_out = False  # the request was stopped
        self.files: list[str] = []

    async def read(self) -> Typed | Key | None:
        if self._sent:
            return None
        self._sent = True
        return self._typed

    async def is_overdue(self) -> bool:
        """Return whether the request took longer than it may, as soon as it does."""
        if not self._seconds:
            return False
        await asyncio.sleep(self._seconds)
        self.timed_out = True
        return True

    def show(self, reply: int, block: Block) -> None:
        for line in progress_lines(block):
            if line not in self._printed:
                self._printed.add(line)
                self._say(line)

    def set_busy(self, busy: bool) -> None:
        self.ended = self.ended or busy

    async def write(self, text: str, look: Look = Look.PLAIN) -> None:
        if text == _(SERVICE_ENDS):  # the next one is asked
            return
        self.ended = self.ended or text == _(NO_ACCESS)
        self._say(text, always=look is Look.FAULT)

    async def write_reply(self, final: FinalReply) -> None:
        for text in final.earlier:
            self._say(text)
        if final.of_turn:
            self.final = final
        elif self._is_command and self.final is None:  # a turn that it begins replaces it
            self.final, self.ended = final, True
        else:  # a notice, such as a refused file
            self._say(final.text, always=True)

    async def save_file(self, file: OutgoingFile) -> str:
        path = str(await asyncio.to_thread(save_download, file, self._downloads))
        self.files.append(path)
        self._say(_("File: {path}", path=path))
        return path

    def go_on(self, *, elsewhere: bool) -> None:
        """Prepare for the next service: it takes the message if none has stored it, or goes on with what one began.

        `elsewhere`: the last one ended for another one, which resumes its turns.
        """
        stored = self.ended
        self._sent = stored
        if elsewhere and stored and self.final is None and not self._resumes:
            self._resumes, self.ended = True, False
        elif self._resumes:
            self.ended = True

    def _say(self, text: str, *, always: bool = False) -> None:
        if always or not self._quiet:
            print(strip_controls(text), file=sys.stderr, flush=True)

    def print_answer(self, *, as_json: bool) -> bool:
        """Print an answer or JSON on stdout, a failure or a question on stderr. Returns whether it was done."""
        final = self.final
        if final is None or (self.timed_out and final.state != "done"):
            if self.timed_out:
                self._say(_(TIMED_OUT, seconds=self._seconds), always=True)
            return False
        if as_json:
            steps = [{"title": step.title, "state": step.state, "detail": step.detail} for step in final.steps]
            answer = {
                "text": final.text,
                "files": self.files,
                "seconds": round(final.seconds, 3),
                "tokens": final.tokens,
                "state": final.state,
                "steps": steps,
            }
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        elif final.state == "done":
            print(strip_controls(final.text), flush=True)
        else:
            self._say(final.text, always=True)
        if final.state == "waiting":
            self._say(_(QUESTION_OPEN, name=self._name), always=True)
        return final.state == "done"
