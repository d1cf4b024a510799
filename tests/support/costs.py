"""Measure what the tests cost, and order and mark them by it.

    python -m tests.support.costs -n 5          # pytest with these options; then CPU seconds and wall of the whole run
    make costs                                  # run all tests and write `costs.txt`
    FAWN_TEST_LONG=1 make suite long            # all that .ci/run does with them

`costs.txt` has the tests that cost much: CPU seconds, seconds of wall, and the name of a test, or of a function whose
rows cost that much on average. A test of LONG CPU seconds is marked `long`, one that costs more than a moment `slow`.
Those that wait more than FIRST seconds begin first, so that no worker has one alone at the end of a run. The others
keep the order of their files, so that a worker gets the tests that share a service.

The CPU seconds of a test are those of its process and of the programs that ended during it, forked ones included. Those
of servers that the tests of a run share count for the whole run only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.forked_services import charged_seconds

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".txt")
LONG = 1.5  # CPU seconds
SLOW = 0.07  # CPU seconds, or
SLOW_WALL = 0.25  # seconds
FIRST = 10.0  # seconds
KEPT = 1.0, 4.0  # a single row of a function is on the list from these CPU seconds, or seconds of wall
DEAREST = 10
WRITE = "FAWN_TEST_COSTS"  # write the list at the end of the run
THOROUGH = bool(os.environ.get("FAWN_TEST_LONG"))  # kill at every step, and attack for a minute: .ci/run
BEGUN = pytest.StashKey[tuple[float, float]]()
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
END_SECONDS = 30.0  # for what the run has left to end


@dataclass(frozen=True, slots=True)
class Cost:
    """What a test costs, in seconds."""

    cpu: float
    wall: float


def read_costs() -> dict[str, Cost]:
    """Return the costs on the list, by the name of a test or of a function."""
    costs = {}
    for line in LIST.read_text("utf-8").splitlines():
        cpu, wall, name = line.split(" ", 2)
        costs[name] = Cost(float(cpu), float(wall))
    return costs


def worth_keeping(costs: Mapping[str, Cost]) -> dict[str, Cost]:
    """Return what the list keeps: functions that cost a moment on average, and single rows that cost more."""
    rows: defaultdict[str, list[Cost]] = defaultdict(list)
    for name, cost in costs.items():
        rows[name.partition("[")[0]].append(cost)
    kept = {name: cost for name, cost in costs.items() if cost.cpu >= KEPT[0] or cost.wall >= KEPT[1]}
    for name, some in rows.items():
        mean = Cost(sum(each.cpu for each in some) / len(some), sum(each.wall for each in some) / len(some))
        if mean.cpu >= SLOW or mean.wall >= SLOW_WALL:
            kept[name] = mean
    return dict(sorted(kept.items()))


def mark(items: list[pytest.Item]) -> None:
    """Mark slow and long tests, and start those that wait longest first."""
    costs, nothing = read_costs(), Cost(0, 0)
    found = {item: costs.get(item.nodeid) or costs.get(item.nodeid.partition("[")[0], nothing) for item in items}
    for item, cost in found.items():
        if cost.cpu >= SLOW or cost.wall >= SLOW_WALL:
            item.add_marker(pytest.mark.slow)
        if cost.cpu >= LONG:
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: -found[item].wall if found[item].wall > FIRST else 0)


class CostMeter:
    """A plugin that measures each test in a worker, and names the dearest at the end of the run."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the beginning of a test."""
        item.stash[BEGUN] = (_cpu_seconds(), time.monotonic())
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the cost of a test to its last report."""
        report = yield
        if call.when == "teardown":
            cpu, since = item.stash[BEGUN]
            report.user_properties.append(("cost", (_cpu_seconds() - cpu, time.monotonic() - since)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the cost of a test from its last report."""
        for name, value in report.user_properties:
            if name == "cost" and report.when == "teardown":
                assert isinstance(value, tuple | list)
                cpu, wall = value
                self.costs[report.nodeid] = Cost(cpu, wall)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the dearest tests."""
        dearest = sorted(self.costs.items(), key=lambda pair: -pair[1].cpu)[:DEAREST]
        if len(self.costs) >= 10 * DEAREST:
            terminalreporter.section(f"the {DEAREST} dearest tests, in CPU seconds")
            for name, cost in dearest:
                terminalreporter.line(f"{cost.cpu:7.2f} {name}")
        if os.environ.get(WRITE):
            lines = [f"{cost.cpu:.2f} {cost.wall:.1f} {name}\n" for name, cost in worth_keeping(self.costs).items()]
            LIST.write_text("".join(lines), "utf-8")


def _cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system + charged_seconds()


def main(arguments: Iterable[str]) -> int:
    """Run pytest; print the CPU seconds of all its processes, and the wall. Returns its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what loses its parent is charged to this process
    since = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False)
    wall = time.monotonic() - since
    end = time.monotonic() + END_SECONDS
    while time.monotonic() < end:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.05)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} CPU seconds, {wall / 60:.1f} minutes", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
