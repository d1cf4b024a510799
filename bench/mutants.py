"""Faults in the core that the tests should catch: each mutant changes one line, and its nearest tests run on it.

    python -m bench.mutants --count 20 --area rights --seed 1     (also: make mutants ARGS="…")

All happens in a copy of the tree. One process has collected the tests and knows which of them run which lines; a mutant
is planted in a fork of it, in memory, and costs seconds. On survivors, and on faults outside of functions, these tests
and their slow ones, then the wider tests, run in a second process with the file changed. mutmut and cosmic-ray import
all for each mutant (4 to 10 s).
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import gc
import importlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from bench.mutant_areas import AREAS, Mutant, draw, near
from bench.mutations import marked

ROOT = Path(__file__).parents[1]
MAX_SECONDS, MAX_WIDER_SECONDS = 60.0, 300.0  # beside the time of the tests themselves; a mutant that hangs is caught
JOBS = 3  # most tests wait


class Planting:
    """A plugin of pytest: instead of running the collected tests once, run on each mutant those that reach it."""

    def __init__(self, mutants: Sequence[Mutant], report: Path) -> None:
        self._mutants, self._report = mutants, report
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)
        self._running: dict[int, tuple[int, float]] = {}  # pid → the mutant's number, and when it is killed
        self.caught: dict[int, str] = {}  # number → what caught the mutant, "" for nothing

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out what each test reaches; then plant each mutant in a fork. Write which test caught which mutant."""
        paths = sorted({mutant.path for mutant in self._mutants})
        for path in paths:
            importlib.import_module(path.removesuffix(".py").replace("/", "."))
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and (name := each.__code__.co_filename).startswith(f"{ROOT}/"):
                self._functions[name.removeprefix(f"{ROOT}/")].append(each)
        gc.freeze()
        reached = self._trace(session, paths)
        for number, mutant in enumerate(self._mutants):
            block = f"{mutant.path}:{mutant.fault.block}"
            chosen = sorted((seconds, name) for name, (seconds, blocks) in reached.items() if block in blocks)
            total = itertools.accumulate(seconds for seconds, _ in chosen)
            chosen = [
                each for each, sum_ in zip(chosen, total, strict=True) if sum_ <= MAX_SECONDS
            ]  # the shortest first
            if chosen:
                self._collect(JOBS - 1)
                pid = _fork(self._report, partial(self._try, session, mutant, [name for _, name in chosen]))
                self._running[pid] = number, time.monotonic() + MAX_SECONDS + 3 * sum(each for each, _ in chosen)
        self._collect(0)
        return True

    def _collect(self, most: int) -> None:
        """Wait until no more than so many forks run, and note by what the mutants of the others were caught."""
        while len(self._running) > most:
            for pid, (number, deadline) in [*self._running.items()]:
                if (failed := _ended(pid, deadline)) is not None:
                    del self._running[pid]
                    note = self._report / str(pid)
                    self.caught[number] = "" if not failed else note.read_text() if note.exists() else "its end"
                    mutant = self._mutants[number]
                    said = "." if failed else f" {mutant.path}:{mutant.fault.line} "  # a long run may be cut off
                    print(said, end="", file=sys.stderr, flush=True)
            time.sleep(0.02)

    def _trace(self, session: pytest.Session, paths: Sequence[str]) -> Mapping[str, tuple[float, Collection[str]]]:
        """Return for each test that passes its seconds and the blocks of these files that it runs."""

        def run(part: int) -> str:
            hits: set[str] = set()
            builtins.__dict__["__hits__"] = hits
            for path in paths:
                self._swap(path, compile(marked((ROOT / path).read_text(), path), str(ROOT / path), "exec"))
            files = sorted({item.path for item in session.items})[part::JOBS]
            traced, items = {}, [item for item in session.items if item.path in files]
            for item, later in zip(items, [*items[1:], None], strict=True):
                hits.clear()
                failed, since = session.testsfailed, time.monotonic()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=later)
                if session.testsfailed == failed:
                    traced[item.nodeid] = (time.monotonic() - since, sorted(hits))
            return json.dumps(traced)

        running = {_fork(self._report, partial(run, part)) for part in range(JOBS)}
        reached: dict[str, tuple[float, Collection[str]]] = {}
        for pid in running:
            os.waitpid(pid, 0)
            reached |= json.loads((self._report / str(pid)).read_text())
        return reached

    def _try(self, session: pytest.Session, mutant: Mutant, chosen: Sequence[str]) -> str:
        """Run these tests on the mutant until one fails; return its name."""
        self._swap(mutant.path, compile(mutant.fault.text, str(ROOT / mutant.path), "exec"))
        by_name = {item.nodeid: item for item in session.items}
        items = [by_name[name] for name in chosen]
        for item, later in zip(items, [*items[1:], None], strict=True) if items else ():
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=later)
            if session.testsfailed:
                return item.nodeid
        return ""

    def _swap(self, path: str, module: CodeType) -> None:
        """Give the functions of a loaded module the code of the same ones in `module`."""
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(module)}
        for function in self._functions[path]:
            new = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if new and new.co_freevars == function.__code__.co_freevars:
                function.__code__ = new


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _fork(folder: Path, work: Callable[[], str]) -> int:
    """Run `work` in a fork with a folder of its own. It leaves a note of what it returned, and fails if it did."""
    if pid := os.fork():
        return pid
    os.setsid()
    own = folder / f"tests-{os.getpid()}"
    own.mkdir()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(own)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    said = "an error outside of the tests"
    try:
        said = work()
    finally:
        (folder / str(os.getpid())).write_text(said)
        shutil.rmtree(own, ignore_errors=True)
        os._exit(bool(said))


def _ended(pid: int, deadline: float) -> bool | None:
    """Return whether a process ended with a failure; None: it runs. Kill it, and what it left, at its deadline."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done and time.monotonic() < deadline:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not done:
        os.waitpid(pid, 0)
    return bool(status) or not done


def widely(mutant: Mutant, files: Sequence[str]) -> bool:
    """Return whether these tests catch a mutant that stands in its file."""
    path = ROOT / mutant.path
    original = path.read_text()
    path.write_text(mutant.fault.text)
    program = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", *files]
    try:
        with (
            tempfile.TemporaryDirectory() as own,
            subprocess.Popen(
                program,
                cwd=ROOT,
                env={**os.environ, "PYTEST_DEBUG_TEMPROOT": own},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as process,
        ):
            try:
                return process.wait(MAX_WIDER_SECONDS) not in (0, 5)  # 5: no tests
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return True
    finally:
        path.write_text(original)


def study(options: argparse.Namespace) -> int:
    """Plant the mutants in this copy of the tree, and print who survived."""
    mutants = draw(options.area or AREAS, options.count, options.seed)
    files = {name: [*near(AREAS[name])] for name in {mutant.area for mutant in mutants}}
    with tempfile.TemporaryDirectory() as report:
        chosen = sorted({path for each in files.values() for path in each})
        words = ["-q", "-s", "--no-header", "-p", "no:cacheprovider", "-m", "not slow", *chosen]
        pytest.main(words, [planting := Planting(mutants, Path(report))])
    caught = [planting.caught.get(number, "") for number in range(len(mutants))]
    for number, mutant in enumerate(mutants):
        if not caught[number] and not options.nearest:
            wider = [f"tests/e2e/test_{name}.py" for name in AREAS[mutant.area].wider.split()]
            caught[number] = "the wider tests" if widely(mutant, [*files[mutant.area], *wider]) else ""
        place = f"{mutant.path}:{mutant.fault.line}"
        if not caught[number]:
            print(f"\nSURVIVED: {place}\n-{mutant.fault.before}\n+{mutant.fault.after}", flush=True)
        elif options.verbose:
            print(f"{place} {caught[number]}")
    for name in files:
        own = [by for mutant, by in zip(mutants, caught, strict=True) if mutant.area == name]
        print(f"{name}: {sum(map(bool, own))} of {len(own)} caught")
    return 0


def main() -> int:
    """Copy the tree, and go on in the copy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", action="append", choices=AREAS, help="one area, also several times; all without")
    parser.add_argument("--count", type=int, default=10, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nearest", action="store_true", help="leave out the wider tests")
    parser.add_argument("--verbose", action="store_true", help="say what caught each mutant")
    parser.add_argument("--copied", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.copied:
        return study(options)
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder, "fawn")
        shutil.copytree(ROOT, copied, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "data"))
        (copied / ".venv").symlink_to(ROOT / ".venv")
        environment = {**os.environ, "PYTHONPATH": str(copied)}
        program = [sys.executable, "-m", "bench.mutants", *sys.argv[1:], "--copied"]
        return subprocess.run(program, cwd=copied, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
