"""Name the JSON of threads, messages, runs and questions, for the document that describes the API.

The functions of `read_models.py` make them; `tests/e2e/test_openapi.py` compares what the service answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.api.own.answers import ThreadAnswer

RunStates = Literal["queued", "running", "waiting", "done", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file. `size` is in bytes, null where it could not be delivered; `url` is where it is."""

    id: str
    name: str
    size: int | None
    caption: str
    url: str | None


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """An open question. `call` is the exact call of an approval, and `until` when it closes by itself."""

    id: str
    run: int
    kind: Literal["ask", "approve"]
    text: str
    call: str
    options: list[str]
    free_text: bool
    until: float | None


@dataclass(frozen=True, slots=True)
class PostedQuestion:
    """A question with buttons below a notice of the bot itself."""

    id: str
    text: str
    options: list[str]
    free_text: bool


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """A stored entry. `run` is null for a notice of the bot itself, and `seconds` how long a step took.

    `of_sub_agent`: a sub-agent did the step.
    """

    id: int
    run: int | None
    kind: Literal["message", "answer", "text", "question", "step", "file", "notice"]
    text: str
    at: float
    by: Literal["person", "agent"]
    state: str
    seconds: float | None
    of_sub_agent: bool
    file: FileAnswer | None
    questions: list[PostedQuestion]


@dataclass(frozen=True, slots=True)
class ThreadList:
    """A page of threads, the latest first."""

    threads: list[ThreadAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class ThreadPage(ThreadAnswer):
    """A thread with a page of its entries in their order. Its events go on behind the position `events`."""

    entries: list[EntryAnswer]
    next: int | None
    events: str
    questions: list[QuestionAnswer]


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """A message, and the run that took it; null until one does."""

    id: int
    thread: str
    run: int | None


@dataclass(frozen=True, slots=True)
class MessageBody:
    """What a person writes."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandBody:
    """A command of the chats, such as /status."""

    command: str


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """A command that was stored: a notice in the thread answers it."""

    thread: str
    command: str


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """A run, with its text so far or at the end, and what it asks. `failure` says why it failed."""

    id: int
    thread: str
    state: RunStates
    attempt: int
    started: float
    finished: float | None
    text: str
    failure: str
    files: list[FileAnswer]
    questions: list[QuestionAnswer]


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that was stored as `message`; the thread says how the work goes on."""

    question: str
    answer: str
    thread: str
    run: int | None
    message: int | None


@dataclass(frozen=True, slots=True)
class ProblemAnswer:
    """What is wrong with a request, and what to do (RFC 9457). `code` is for programs, `request` is in the log."""

    type: str
    title: str
    status: int
    code: str
    request: str
    detail: str = ""
