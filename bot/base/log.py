"""Log one line per event, as text or JSON, with its thread and run.

Registered secrets, whatever looks like a token or a key, and passwords in URLs are redacted in every field of every
record, exceptions included.

Keep the latest lines of the log in memory for `fawn logs`, wherever the log itself goes.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from agent.token_patterns import SECRET_PATTERNS
from bot.config.schema import LogConfig

MAX_LINES, MAX_CHARS = 10_000, 8_000_000


class LogLine(NamedTuple):
    """A line, with its number in this process and whose it is; "" for nobody's."""

    number: int
    run: str
    thread: str
    text: str


class RecentLines:
    """A ring of lines, bounded in their number and their size."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._chars = 0
        self.last = 0

    def add(self, text: str, run: str, thread: str) -> None:
        """Keep a line."""
        self.last += 1
        self._lines.append(LogLine(self.last, run, thread, text))
        self._chars += len(text)
        while len(self._lines) > MAX_LINES or self._chars > MAX_CHARS:
            self._chars -= len(self._lines.popleft().text)

    def after(self, number: int, wanted: Callable[[LogLine], bool], limit: int) -> tuple[Sequence[LogLine], int]:
        """Return up to `limit` wanted lines behind a number, and the number up to which that looked."""
        found = []
        for line in list(self._lines):
            if line.number > number and wanted(line):
                found.append(line)
                if len(found) == limit:
                    return found, line.number
        return found, self.last


RECENT = RecentLines()  # of this process: what sets up the log adds to it


thread_var: ContextVar[str] = ContextVar("thread", default="")
"""The address of the current thread; each task sets its own."""
run_var: ContextVar[str] = ContextVar("run", default="")
"""The id of the current run."""
key_var: ContextVar[str] = ContextVar("key", default="")
"""The key of the first message of the current run."""
request_var: ContextVar[str] = ContextVar("request", default="")
"""The id of the current request over HTTP."""

MAX_FILE_BYTES = 10_000_000  # of one log file; three older files are kept
_QUIET_LOGGERS = (
    "httpx",
    "httpx2",
    "httpcore",
    "aiohttp.access",
    "telegram",
    "openai",
    "anthropic",
    "asyncio",
    "markdown_it",
    "alembic",
    "aiosqlite",
    "docker",
    "langsmith",
    "urllib3",
)
_OWN = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "thread_address"}  # of every record
_MIN_SECRET_CHARS = 6  # a shorter "secret" would redact ordinary words
_ARGUMENT = re.compile(r"%[-+0-9.]*[a-zA-Z]")
_TEXT_BREAKS = {ord("\n"): "\\n", ord("\r"): "\\r"}


class Redactor:
    """Redacts secrets in text. `hide` registers more of them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.hide(secrets)

    def hide(self, secrets: Iterable[str]) -> None:
        """Redact these from now on, also in their URL and JSON encodings."""
        for secret in secrets:
            if len(secret) >= _MIN_SECRET_CHARS:
                self._known |= {secret, quote(secret, safe=""), quote(secret), orjson.dumps(secret).decode()[1:-1]}
        longest_first = sorted(self._known, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        if self._pattern:
            text = self._pattern.sub("***", text)
        for pattern in SECRET_PATTERNS:
            text = pattern.sub("***", text)
        return text


class LogFormatter(logging.Formatter):
    """Formats a record as one line without secrets."""

    def __init__(self, redact: Redactor, json: bool) -> None:
        super().__init__()
        self.redact, self.json = redact, json

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": self.redact(record.getMessage()),
            **(self._named_arguments(record) if self.json else {}),
            "thread": self.redact(getattr(record, "thread_address", "") or thread_var.get()),
            "run": getattr(record, "run", "") or run_var.get(),
            "key": "" if "key=" in str(record.msg) else key_var.get(),
            "request": request_var.get(),
        }
        for name in sorted(record.__dict__.keys() - _OWN - fields.keys()):  # the `extra` fields
            value = record.__dict__[name]
            fields[name] = value if isinstance(value, int | float) else self.redact(str(value))
        if record.exc_info and record.exc_info[1]:
            fields |= {name: self.redact(text) for name, text in _format_error(record.exc_info[1]).items()}
        if self.json:
            return orjson.dumps({name: value for name, value in fields.items() if value != ""}).decode()
        head = f"{fields.pop('time')} {fields.pop('level'):7} {fields.pop('from')}: {fields.pop('event')}"
        tail = (f"{name}={_format_field(str(value))}" for name, value in fields.items() if value != "")
        return " ".join([head, *tail]).translate(_TEXT_BREAKS)

    def _named_arguments(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return "event name=%s … — words" as fields; {} for a message of another form, which is a library's."""
        if not isinstance(record.args, tuple):
            return {}
        head, _dash, words = str(record.msg).partition(" — ")
        event, *pairs = head.split(" ")
        fields = [pair.split("=", 1) for pair in pairs if "=" in pair]
        first = len(_ARGUMENT.findall(event))
        values = [value if type(value) in (int, float, bool) else self.redact(str(value)) for value in record.args]
        given = iter(values[first:])
        named = {name: next(given, "") if _ARGUMENT.fullmatch(value) else value for name, value in fields}
        if len(fields) != len(pairs) or first > len(values) or next(given, None) is not None:
            return {}
        event = self.redact(event % record.args[:first])
        return {"event": event, **named, **({"text": self.redact(words)} if words else {})}


def _format_field(value: str) -> str:
    return value if re.fullmatch(r"[^\s\"=]+", value) else orjson.dumps(value).decode()


def _format_error(error: BaseException) -> dict[str, str]:
    """Return an exception with its causes, and the last calls that led to it."""
    summary = traceback.TracebackException.from_exception(error)
    frames = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in summary.stack]
    return {"error": _format_frames(summary), "at": " > ".join(frames[-8:])}


def _format_frames(summary: traceback.TracebackException) -> str:
    text = "".join(summary.format_exception_only()).strip()
    if summary.exceptions:  # a group is useless without its members
        text += f" [{'; '.join(map(_format_frames, summary.exceptions))}]"
    cause = summary.__cause__ or (None if summary.__suppress_context__ else summary.__context__)
    return f"{text} ← {_format_frames(cause)}" if cause else text


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Writes to the current sys.stderr, which the console channel replaces while it shows a prompt."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[no-untyped-def]  # the base class has an attribute here
        return sys.stderr


class _KeptLines(LogFormatter):
    """Keeps each line for `fawn logs`, too."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        RECENT.add(
            line, getattr(record, "run", "") or run_var.get(), getattr(record, "thread_address", "") or thread_var.get()
        )
        return line


def current_redactor() -> Redactor:
    """Return what redacts the log at this moment."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return next((each.redact for each in formatters if isinstance(each, LogFormatter)), Redactor())


def set_up_logging(log: LogConfig, secrets: Iterable[str] = (), file: Path | None = None) -> Redactor:
    """Send every log line to stderr, or to `file` (rotated). Replaces the handlers of an earlier call.

    Returns the redactor, which takes secrets that become known later.
    """
    redact = Redactor(secrets)
    handler: logging.Handler = _Stderr()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=MAX_FILE_BYTES, backupCount=3, encoding="utf-8", delay=True)
    handler.setFormatter(_KeptLines(redact, log.format == "json"))
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
