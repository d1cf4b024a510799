"""One line per event, for people (text) or machines (JSON), with the thread and the run it belongs to.

Nothing secret gets out: registered secrets, bot tokens, keys and passwords in URLs are replaced in every field of
every record, exceptions included.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from bot.config.schema import LogConfig

thread_var: ContextVar[str] = ContextVar("thread", default="")
"""The address of the thread that is being served; set by the bot around each piece of work."""
run_var: ContextVar[str] = ContextVar("run", default="")
"""The id of the run that is being worked on."""

MAX_FILE_BYTES = 10_000_000  # of one log file; three older ones are kept
_QUIET_LOGGERS = (
    "httpx",
    "httpx2",
    "httpcore",
    "aiohttp.access",
    "telegram",
    "openai",
    "asyncio",
    "markdown_it",
    "alembic",
    "aiosqlite",
)
_SECRET_PATTERNS = (
    re.compile(r"\d{6,12}:[A-Za-z0-9_-]{30,}"),  # a Telegram bot token, in URLs after "bot"
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),  # an OpenAI key and those that look like it
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user and password of a URL
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
)
_OWN = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "thread_address"}  # of every record
_MIN_SECRET_CHARS = 6  # a shorter "secret" would black out ordinary words
_TEXT_BREAKS = {ord("\n"): "\\n", ord("\r"): "\\r"}


class Redactor:
    """Takes secrets out of text. `hide` registers more of them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.hide(secrets)

    def hide(self, secrets: Iterable[str]) -> None:
        """From now on these do not appear, nor as they look inside a URL or a JSON text."""
        for secret in secrets:
            if len(secret) >= _MIN_SECRET_CHARS:
                self._known |= {secret, quote(secret, safe=""), quote(secret), orjson.dumps(secret).decode()[1:-1]}
        longest_first = sorted(self._known, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        if self._pattern:
            text = self._pattern.sub("***", text)
        for pattern in _SECRET_PATTERNS:
            text = pattern.sub("***", text)
        return text


class LogFormatter(logging.Formatter):
    """A record as one line without secrets."""

    def __init__(self, redact: Redactor, json: bool) -> None:
        super().__init__()
        self.redact, self.json = redact, json

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": self.redact(record.getMessage()),
            "thread": self.redact(getattr(record, "thread_address", "") or thread_var.get()),
            "run": getattr(record, "run", "") or run_var.get(),
        }
        for name in sorted(record.__dict__.keys() - _OWN - fields.keys()):  # what was given as `extra`
            value = record.__dict__[name]
            fields[name] = value if isinstance(value, int | float) else self.redact(str(value))
        if record.exc_info and record.exc_info[1]:
            fields |= {name: self.redact(text) for name, text in _format_error(record.exc_info[1]).items()}
        if self.json:
            return orjson.dumps({name: value for name, value in fields.items() if value != ""}).decode()
        head = f"{fields.pop('time')} {fields.pop('level'):7} {fields.pop('from')}: {fields.pop('event')}"
        tail = (f"{name}={_format_field(str(value))}" for name, value in fields.items() if value != "")
        return " ".join([head, *tail]).translate(_TEXT_BREAKS)


def _format_field(value: str) -> str:
    return value if re.fullmatch(r"[^\s\"=]+", value) else orjson.dumps(value).decode()


def _format_error(error: BaseException) -> dict[str, str]:
    """An exception with its causes, and the last calls that led to it."""
    summary = traceback.TracebackException.from_exception(error)
    frames = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in summary.stack]
    return {"error": _format_frames(summary), "at": " > ".join(frames[-8:])}


def _format_frames(summary: traceback.TracebackException) -> str:
    text = "".join(summary.format_exception_only()).strip()
    if summary.exceptions:  # a group says nothing without its members
        text += f" [{'; '.join(map(_format_frames, summary.exceptions))}]"
    cause = summary.__cause__ or (None if summary.__suppress_context__ else summary.__context__)
    return f"{text} ← {_format_frames(cause)}" if cause else text


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Writes to what sys.stderr is at that moment: the console channel moves it while a prompt is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[no-untyped-def]  # the base class has an attribute here
        return sys.stderr


def set_up_logging(log: LogConfig, secrets: Iterable[str] = (), file: Path | None = None) -> Redactor:
    """Send every log line to stderr, or to `file` (rotated). Replaces what an earlier call set up.

    The redactor that is returned takes secrets which become known later.
    """
    redact = Redactor(secrets)
    handler: logging.Handler = _Stderr()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=MAX_FILE_BYTES, backupCount=3, encoding="utf-8", delay=True)
    handler.setFormatter(LogFormatter(redact, log.format == "json"))
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h.formatter, LogFormatter)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(log.level.upper())
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    return redact
