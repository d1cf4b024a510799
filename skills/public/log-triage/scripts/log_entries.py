"""Parse lines of logs into entries with time, level and message; lines of a stack trace belong to their entry."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from log_files import RawLine

UTC = datetime.timezone.utc
MAX_TRACE_LINES = 60
MAX_MESSAGE_CHARS = 2000
MONTHS = {
    "jan feb mar apr may jun jul aug sep oct nov dec"[place : place + 3]: place // 4 + 1 for place in range(0, 48, 4)
}
LEVELS = {
    "error": "error err severe crit critical fatal alert emerg emergency panic fail failed",
    "warning": "warn warning",
    "info": "info information notice",
    "debug": "debug trace verbose fine finer finest",
}
LEVEL_OF = {word: level for level, words in LEVELS.items() for word in words.split()}
KLOG = {"E": "error", "F": "error", "W": "warning", "I": "info", "D": "debug"}

ISO = re.compile(
    r"[\[(]?(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _]?(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
    r"(?:[.,](?P<f>\d{1,9}))? ?(?P<z>Z|UTC|[+-]\d\d:?\d\d)?[\])]?"
)
SYSLOG = re.compile(
    r"(?:<(?P<pri>\d{1,3})>)?(?P<mo>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
    r" (?P<host>\S+) (?P<prog>[^\s\[:]+)(?:\[\d+\])?: ?"
)
SYSLOG_NEW = re.compile(r"<(?P<pri>\d{1,3})>1 (?P<time>\S+) (?P<host>\S+) (?P<prog>\S+) \S+ \S+ (?:-|\[[^\]]*\]) ?")
ACCESS = re.compile(
    r"(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<d>\d\d)/(?P<mo>[A-Z][a-z]{2})/(?P<y>\d{4}):"
    r'(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d) (?P<z>[+-]\d{4})\] "(?P<request>[^"]*)" (?P<status>\d{3}) (?P<size>\d+|-)'
)
APACHE_ERROR = re.compile(
    r"\[[A-Z][a-z]{2} (?P<mo>[A-Z][a-z]{2}) (?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d+))?"
    r" (?P<y>\d{4})\] (?:\[(?:(?P<prog>[\w-]*):)?(?P<level>\w+)\] )?(?:\[pid [^\]]*\] )?(?:\[client [^\]]*\] )?"
)
LEVEL = re.compile(
    r"(?:^|[\s\[(|<:=\"])(" + "|".join(sorted(LEVEL_OF, key=len, reverse=True)) + r")(?=$|[\s\])|>:,=\"])",
    re.IGNORECASE,
)
EXCEPTION = re.compile(
    r"(?:(?:Caused by|Exception in thread \"[^\"]{0,100}\"|Uncaught|panic):? )?"
    r"(?P<name>(?:[A-Za-z_$][\w$]*\.)*[A-Z][\w$]*(?:Error|Exception|Fault|Interrupt|Exit|Timeout))"
    r"(?::? (?P<text>.*)|:|$)"
)
TRACE_START = re.compile(
    r"\s|Traceback |Caused by:|\.\.\. \d+ more|at |File \"|goroutine |During handling|The above exc|[}\])]"
)
TIME_KEYS = ("timestamp", "@timestamp", "time", "ts", "t", "date", "datetime", "asctime", "eventTime", "@t")
LEVEL_KEYS = ("level", "severity", "lvl", "levelname", "loglevel", "log.level", "@l", "s")
TEXT_KEYS = ("message", "msg", "event", "log", "text", "error", "@m", "@mt", "body")
SOURCE_KEYS = ("logger", "service", "app", "component", "name", "program")
NUMERIC_LEVELS = {10: "debug", 20: "info", 30: "info", 40: "warning", 50: "error", 60: "error"}  # of pino and bunyan


@dataclass
class Entry:
    """One entry. `at` is in seconds since 1970, None without a time; `trace` are the lines that follow."""

    at: float | None
    level: str
    message: str
    line: RawLine
    kind: str
    exception: str = ""
    frame: str = ""
    trace: list[str] = field(default_factory=list)


class Clock:
    """Makes times: of a zone where the text has none, and of the likely year where a syslog line has none."""

    def __init__(self, zone: datetime.tzinfo = UTC, now: datetime.datetime | None = None) -> None:
        self.zone = zone
        self.now = now or datetime.datetime.now(UTC)
        self.made = lru_cache(maxsize=4096)(self._make)

    def _make(self, year: str, month: str, day: str, hour: str, minute: str, second: str, zone: str) -> float | None:
        number = MONTHS.get(month.lower(), 0) or int(month) if month.isdigit() or month.lower() in MONTHS else 0
        tz: datetime.tzinfo = self.zone
        if zone in ("Z", "UTC"):
            tz = UTC
        elif zone:
            minutes = int(zone[1:3]) * 60 + int(zone[-2:])
            tz = datetime.timezone(datetime.timedelta(minutes=-minutes if zone[0] == "-" else minutes))
        try:
            seconds = min(int(second), 59)
            at = datetime.datetime(
                int(year or self.now.year), number, int(day), int(hour), int(minute), seconds, tzinfo=tz
            )
            if not year and at > self.now + datetime.timedelta(days=2):
                at = at.replace(year=at.year - 1)
            return at.timestamp()
        except (ValueError, OverflowError):
            return None

    def of(self, found: re.Match[str]) -> float | None:
        parts = found.groupdict()
        at = self.made(
            parts.get("y") or "", parts["mo"], parts["d"], parts["h"], parts["mi"], parts["s"], parts.get("z") or ""
        )
        fraction = parts.get("f")
        return at + float(f"0.{fraction}") if at is not None and fraction else at

    def of_value(self, value: Any) -> float | None:
        """Return a time of JSON: a text, or seconds, milli-, micro- or nanoseconds since 1970."""
        if isinstance(value, str):
            if found := ISO.match(value.strip()):
                return self.of(found)
            try:
                value = float(value)
            except ValueError:
                return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        for unit in (1, 1e3, 1e6, 1e9):
            if 1e8 < value / unit < 1e10:
                return float(value / unit)
        return None


def parse_line(raw: RawLine, clock: Clock) -> Entry:
    """Return the entry of one line; without a time if the line has none."""
    text = raw.text
    if text.startswith("{") and (entry := parse_json(raw, clock)):
        return entry
    if found := ACCESS.match(text):
        status = int(found["status"])
        level = "error" if status >= 500 else "warning" if status >= 400 else "info"
        method, _blank, rest = found["request"].partition(" ")
        path = rest.split(" ")[0].partition("?")[0]
        return Entry(clock.of(found), level, f"HTTP {status} {method} {path}", raw, "access log")
    if found := ISO.match(text):
        rest = text[found.end() :].lstrip(" -|:")
        return Entry(clock.of(found), find_level(rest), rest, raw, "plain")
    if found := SYSLOG.match(text):
        rest = text[found.end() :]
        level = priority_level(found["pri"]) or find_level(rest)
        return Entry(clock.of(found), level, f"{found['prog']}: {rest}", raw, "syslog")
    if found := SYSLOG_NEW.match(text):
        rest = text[found.end() :]
        level = priority_level(found["pri"]) or find_level(rest)
        return Entry(clock.of_value(found["time"]), level, f"{found['prog']}: {rest}", raw, "syslog")
    if found := APACHE_ERROR.match(text):
        rest = text[found.end() :]
        level = LEVEL_OF.get((found["level"] or "").lower(), "") or find_level(rest)
        return Entry(clock.of(found), level, rest, raw, "Apache error log")
    return Entry(None, find_level(text), text, raw, "no time")


def parse_json(raw: RawLine, clock: Clock) -> Entry | None:
    try:
        data = json.loads(raw.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    at = next((at for key in TIME_KEYS if (at := clock.of_value(data.get(key))) is not None), None)
    named = next((data[key] for key in LEVEL_KEYS if isinstance(data.get(key), (str, int))), "")
    level = NUMERIC_LEVELS.get(named, "") if isinstance(named, int) else LEVEL_OF.get(named.lower(), "")
    text = next((data[key] for key in TEXT_KEYS if isinstance(data.get(key), str) and data[key]), "")
    source = next((data[key] for key in SOURCE_KEYS if isinstance(data.get(key), str)), "")
    message = text or json.dumps(data, ensure_ascii=False)[:MAX_MESSAGE_CHARS]
    entry = Entry(at, level or find_level(message), f"{source}: {message}" if source else message, raw, "JSON")
    trace = next(
        (data[key] for key in ("stack", "stack_trace", "exc_info", "exception", "traceback") if data.get(key)), ""
    )
    if isinstance(trace, str):
        add_trace(entry, trace.splitlines()[:MAX_TRACE_LINES])
    return entry


def priority_level(text: str | None) -> str:
    """Return the level of a syslog priority."""
    if not text:
        return ""
    severity = int(text) & 7
    return "error" if severity <= 3 else "warning" if severity == 4 else "info" if severity <= 6 else "debug"


def find_level(text: str) -> str:
    """Return the level that a line names in its first 160 characters; "" if it names none."""
    found = LEVEL.search(text[:160])
    if found:
        return LEVEL_OF[found[1].lower()]
    return "error" if EXCEPTION.match(text) or text.startswith("Traceback ") else ""


def add_trace(entry: Entry, lines: Iterable[str]) -> None:
    """Add lines to the trace, and note the exception and the frame that it came from.

    Python names the exception last and the innermost frame before it; Java and JavaScript begin with both. Of a chain
    of causes, the root is the last one.
    """
    for line in lines:
        if len(entry.trace) < MAX_TRACE_LINES:
            entry.trace.append(line)
        bare = line.strip()
        python = bare.startswith("File ")
        if python or (bare.startswith("at ") and not entry.frame):
            entry.frame = bare[:200]
        if found := EXCEPTION.match(bare):
            entry.exception = found["name"]
            if not bare.startswith("Caused by") and not entry.message.strip():
                entry.message = bare
            entry.frame = "" if bare.startswith("Caused by") else entry.frame
            entry.level = entry.level if entry.level in ("error", "warning") else "error"


def parse_entries(lines: Iterable[RawLine], clock: Clock) -> Iterator[Entry]:
    """Yield the entries. In a file with times, a line without one continues the entry before it."""
    current: Entry | None = None
    timed = False
    for raw in lines:
        if not raw.text.strip():
            continue
        if current and current.line.file != raw.file:
            yield current
            current, timed = None, False
        entry = parse_line(raw, clock)
        timed = timed or entry.at is not None
        open_trace = current and current.trace and current.trace[0].startswith("Traceback")
        inner = TRACE_START.match(raw.text) and not raw.text.startswith("Traceback ")
        follows = entry.at is None and (timed or inner or open_trace) and entry.kind != "JSON"
        if current and follows:
            add_trace(current, [raw.text])
            if open_trace and not timed and EXCEPTION.match(raw.text):  # which ends a traceback
                yield current
                current = None
            continue
        if current:
            yield current
        if found := EXCEPTION.match(entry.message.partition(" - ")[2] or entry.message):
            entry.exception = found["name"]
        entry.message = entry.message[:MAX_MESSAGE_CHARS]
        current = entry
        if raw.text.startswith("Traceback "):
            current.trace.append(raw.text)
            current.message, current.level = "", "error"
    if current:
        yield current
