"""Hold what a drill found, a row for each fault; render it for a terminal, a chat, programs and the audit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from catalogue import N_, _, ngettext

FAULTS = {
    "kills": N_("killed while it works"),
    "gateway": N_("504 after a post"),
    "deaf": N_("deaf channel"),
    "disk": N_("full disk"),
    "restore": N_("restore of a backup"),
}
LEFT_OUT = {  # what a drill cannot do, by its short name
    "disk": N_("the full disk: this machine allows no small file system without root or user namespaces"),
    "network": N_("the lock on the network: this machine allows no namespace of its own (nothing else is configured)"),
}


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One fault: how often it came, what became of the messages, and how long answers were away.

    `repeated` has those of `marked`: repeats that people can tell, because they say so. `rpo` is None where nothing
    bounds what a loss of the machine takes away.
    """

    fault: str
    times: int
    messages: int
    exact: int
    repeated: int
    marked: int
    lost: int
    rpo: float | None
    rto: float
    worst_rto: float

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, and nothing was repeated without a mark."""
        return not self.lost and self.repeated == self.marked


@dataclass(frozen=True, slots=True)
class DrillReport:
    """A drill: when it began, how long it took, its rows, what it left out, and how services ended by themselves."""

    at: float
    seconds: float
    rows: Sequence[FaultRow]
    left_out: Sequence[str] = ()  # of LEFT_OUT
    sections: Sequence[str] = ()  # of the configuration, that were not used
    ended: Sequence[str] = ()

    @property
    def is_good(self) -> bool:
        """Whether the drill was passed."""
        return bool(self.rows) and all(row.is_good for row in self.rows) and not self.ended

    @property
    def figures(self) -> dict[str, int | str]:
        """The figures for the audit: whole numbers only."""
        found: dict[str, int | str] = {
            name: sum(getattr(row, name) for row in self.rows)
            for name in ("messages", "exact", "repeated", "marked", "lost")
        }
        rpo = [row.rpo for row in self.rows]
        found["rpo_seconds"] = -1 if None in rpo else round(max((each or 0.0 for each in rpo), default=0.0))
        found["rto_ms"] = round(1000 * max((row.worst_rto for row in self.rows), default=0.0))
        return found | {"seconds": round(self.seconds), "ended": len(self.ended), "left_out": " ".join(self.left_out)}

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self) | {"passed": self.is_good}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> DrillReport:
        """Return the report of a JSON object that `to_json` made. Raises KeyError and TypeError."""
        values = {name: given[name] for name in ("at", "seconds", "left_out", "sections", "ended")}
        return cls(**values, rows=[FaultRow(**row) for row in given["rows"]])


def row_of(
    fault: str, times: int, answers: Sequence[tuple[int, int]], away: Sequence[float], rpo: float | None = 0.0
) -> FaultRow:
    """Return the row of a fault: `answers` has for each message the plain answers that are visible, and marked ones."""
    plain = [n for n, _marked in answers]
    again = [max(0, n + marked - 1) for n, marked in answers]
    marked = sum(min(extra, marks) for extra, (_n, marks) in zip(again, answers, strict=True))
    exact = sum(n + marks == 1 for n, marks in answers)
    lost = sum(n + marks == 0 for n, marks in answers)
    waits = [*away] or [0.0]
    return FaultRow(fault, times, len(plain), exact, sum(again), marked, lost, rpo, median(waits), max(waits))


def render_table(report: DrillReport) -> str:
    """Return the dated table for a terminal."""
    heads = (_("fault"), _("times"), _("messages"), _("exact"), _("repeated"), _("lost"), "RPO", "RTO", _("worst RTO"))
    lines = [heads, *(_cells(row) for row in report.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    table = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    return "\n".join([describe_outcome(report), "", *table, *_notes(report)])


def render_lines(report: DrillReport) -> str:
    """Return the table as a message of a chat."""
    lines = []
    for row in report.rows:
        name, times, _messages, exact, repeated, lost, rpo, rto, worst = _cells(row)
        said = _(
            "{name} ({times}): {exact} exact, {repeated} repeated, {lost} lost; RPO {rpo}, RTO {rto}, at worst {worst}",
            name=name,
            times=times,
            exact=exact,
            repeated=repeated,
            lost=lost,
            rpo=rpo,
            rto=rto,
            worst=worst,
        )
        lines.append(f"- {said}")
    return "\n".join([f"**{describe_outcome(report)}**", *lines, *_notes(report)])


def describe_outcome(report: DrillReport) -> str:
    """Return the first line: when, how long, and whether it was passed."""
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report.at))
    if report.is_good:
        return _("Drill of {at}: passed in {n} s.", at=at, n=round(report.seconds))
    return _("Drill of {at}: NOT PASSED, after {n} s.", at=at, n=round(report.seconds))


def _cells(row: FaultRow) -> tuple[str, ...]:
    repeated = str(row.repeated)
    if row.marked:
        repeated = _("{n} ({marked} marked)", n=row.repeated, marked=row.marked)
    rpo = _("no bound") if row.rpo is None else _duration(row.rpo)
    counts = (str(row.times), str(row.messages), str(row.exact), repeated, str(row.lost))
    return (_(FAULTS[row.fault]), *counts, rpo, _duration(row.rto), _duration(row.worst_rto))


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:g} h"
    return f"{seconds:.1f} s" if seconds else "0 s"


def _notes(report: DrillReport) -> Iterator[str]:
    if any(row.fault == "restore" and row.rpo is None for row in report.rows):
        yield _("No backups are written at set times: set `backup.to`.")
    for name in report.left_out:
        yield _("Left out: {what}.", what=_(LEFT_OUT[name]))
    if report.sections:
        yield _("Sections that were not used: {names}.", names=", ".join(report.sections))
    if report.ended:
        yield ngettext(
            "{n} service ended by itself: {last}", "{n} services ended by themselves: {last}", len(report.ended),
            last=report.ended[-1],
        )  # fmt: skip
