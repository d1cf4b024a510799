"""Find the burst of errors in a timeline, what began before it, and what stopped."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from log_templates import Grouping

STEPS = (1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400, 604800)
MAX_STEPS = 120
RISE = 3.0
STEADY_GAPS = 6  # a message that came at least so often before is missed when it stays away


@dataclass
class Course:
    """When the messages of one template came, sorted."""

    number: int
    times: list[float] = field(default_factory=list)

    def count(self, start: float, end: float) -> int:
        return bisect.bisect_left(self.times, end) - bisect.bisect_left(self.times, start)


class Burst(NamedTuple):
    """The largest burst of errors: its first and last error, its peak, and the errors in it."""

    start: float
    end: float
    peak: float
    peak_errors: int
    errors: int


class Change(NamedTuple):
    """A template that changed before the burst: "new", "more often" or "stopped"."""

    number: int
    kind: str
    at: float
    times: int
    before: float  # messages that were to be expected in the same time


class Timeline(NamedTuple):
    """Counts in spans of `step` seconds from `start`: all lines, warnings, errors."""

    start: float
    step: int
    lines: list[int]
    warnings: list[int]
    errors: list[int]


def courses(grouping: Grouping) -> list[Course]:
    """Return the course of each template; messages without a time have none."""
    made = [Course(number) for number in range(len(grouping.templates))]
    for at, number in zip(grouping.at, grouping.which):
        if not math.isnan(at):
            made[number].times.append(at)
    for course in made:
        course.times.sort()
    return made


def make_timeline(grouping: Grouping, step: int = 0) -> Timeline | None:
    """Return the counts; None without times. The step is a usual one that gives at most MAX_STEPS spans."""
    known = [at for at in grouping.at if not math.isnan(at)]
    if not known:
        return None
    first, last = min(known), max(known)
    step = step or next((each for each in STEPS if (last - first) / each < MAX_STEPS), STEPS[-1])
    start = first - first % step
    size = min(int((last - start) // step) + 1, 100_000)
    table = {"": [0] * size, "warning": [0] * size, "error": [0] * size}
    for at, number in zip(grouping.at, grouping.which):
        if not math.isnan(at):
            place = min(int((at - start) // step), size - 1)
            table[""][place] += 1
            level = grouping.templates[number].level
            if level in ("warning", "error"):
                table[level][place] += 1
    return Timeline(start, step, table[""], table["warning"], table["error"])


def find_burst(grouping: Grouping, timeline: Timeline) -> Burst | None:
    """Return the largest burst: from the span with most errors back and forth while there are more than usual."""
    errors = timeline.errors
    if not any(errors):
        return None
    peak = max(range(len(errors)), key=errors.__getitem__)
    usual = sorted(errors)[len(errors) // 2]
    least = max(1, 2 * usual + 1) if errors[peak] > 2 * usual else 1

    def edge(direction: int) -> int:
        place, quiet, found = peak, 0, peak
        while 0 <= place + direction < len(errors) and quiet < 3:
            place += direction
            quiet = 0 if errors[place] >= least else quiet + 1
            found = found if quiet else place
        return found

    low = timeline.start + edge(-1) * timeline.step
    high = timeline.start + (edge(1) + 1) * timeline.step
    times = [
        at
        for at, number in zip(grouping.at, grouping.which)
        if low <= at < high and grouping.templates[number].level == "error"
    ]
    return Burst(min(times), max(times), timeline.start + peak * timeline.step, errors[peak], len(times))


def find_changes(grouping: Grouping, made: list[Course], burst: Burst, window: float) -> list[Change]:
    """Return what is new or more frequent in the window before the burst, and what stopped there; strongest first."""
    known = [at for at in grouping.at if not math.isnan(at)]
    first, last = min(known), max(known)
    start = max(first, burst.start - window)
    earlier = start - first
    changes = []
    for course in made:
        if not course.times or course.times[0] >= burst.start:
            continue
        near, far = course.count(start, burst.start), course.count(first, start)
        expected = far * (burst.start - start) / earlier if earlier > 0 else 0.0
        inside = course.times[bisect.bisect_left(course.times, start)] if near else 0.0
        if near and not far and earlier > 0:
            changes.append(Change(course.number, "new", inside, near, 0.0))
        elif near >= 3 and far and near >= RISE * max(expected, 1.0):
            changes.append(Change(course.number, "more often", inside, near, expected))
        elif is_silent(course, burst, start, last):
            changes.append(Change(course.number, "stopped", course.times[-1], near, expected))
    order = {"new": 0, "more often": 1, "stopped": 2}
    rank = {"error": 0, "warning": 1}
    return sorted(
        changes,
        key=lambda change: (order[change.kind], rank.get(grouping.templates[change.number].level, 2), -change.times),
    )


def is_silent(course: Course, burst: Burst, start: float, last: float) -> bool:
    """Return whether a message that came steadily ended near the onset, although the log goes on."""
    times = course.times
    if len(times) < STEADY_GAPS or not start <= times[-1] <= burst.end:
        return False
    gaps = sorted(after - before for before, after in zip(times, times[1:]))
    return last - times[-1] > 3 * max(gaps[-1], 1.0)


def peak_rate(times: list[float]) -> tuple[int, float]:
    """Return the most messages within a minute, and when that minute begins."""
    counts = Counter(int(at // 60) for at in times)
    minute, count = max(counts.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
    return count, minute * 60.0
