"""Faults in the core that the tests should catch: each mutant changes one line, and its nearest tests run on it.

    python -m bench.mutants --count 20 --area rights --seed 1     (also: make mutants ARGS="…")

All happens in a copy of the tree. One process has collected the tests and knows which of them run which lines; a mutant is
planted in a fork of it, in memory, and costs seconds. On survivors, and on faults outside of functions, the wider tests
run in a second process with the file changed. mutmut and cosmic-ray start pytest for each mutant (4 to 10 s of imports
here), and choose tests by a command of one's own (cosmic-ray) or by names of functions without async ones' tasks (mutmut).
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import difflib
import gc
import importlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from bench.mutations import Fault, faults, marked

ROOT = Path(__file__).parents[1]
MAX_SECONDS, MAX_WIDER_SECONDS = 60.0, 300.0  # beside the time of the tests themselves; a mutant that hangs is caught
JOBS = 3  # most tests wait


@dataclass(frozen=True, slots=True)
class Area:
    """Files of the program, the folders of their nearest tests, and the wider tests, which other processes run."""

    files: str
    words: str  # a test file is near if it has one of these
    wider: str = ""


AREAS = {
    "rights": Area(
        "bot/rights/*.py",
        "bot.rights bot.team test_commands test_notifications",
        "permissions roles strangers access links plan_holds own_resources refusals budgets",
    ),
    "permissions": Area(
        "agent/permissions/*.py",
        "agent.permissions test_policies",
        "permissions permissions_try rules_by_paths outward ways_out roles",
    ),
    "exposure": Area(
        "bot/journey/exposure.py agent/policies/exposure.py bot/storage/exposures.py agent/permissions/outward.py "
        "agent/permissions/reach.py",
        "agent.permissions test_exposure test_exposures test_claims test_inbox test_hand_over test_web_search "
        "test_turn_runner test_retention test_tasks test_ways_out",
        "outward ways_out hostile_pages permissions",
    ),
    "api": Area(
        "bot/api/caller.py bot/api/keys.py bot/api/posting.py bot/api/page/identity.py bot/api/page/sessions.py "
        "bot/http/route.py bot/http/visitors.py bot/http/exchange.py",
        "bot.api bot.http",
        "api page_access page_sign_in page_proxy api_files operate origins openapi",
    ),
    "journey": Area(
        "bot/journey/inbox.py bot/journey/scheduler.py bot/journey/questions.py bot/journey/turn_*.py "
        "bot/journey/addressing.py bot/journey/bundles.py bot/journey/live_questions.py bot/journey/running_turn.py",
        "bot.journey test_commands",
        "talk questions waiting threads crash new_and_stop quoted_replies",
    ),
    "claims": Area("bot/journey/claims.py", "bot.journey", "questions talk roles permissions crash"),
    "outbox": Area(
        "bot/journey/outbox.py bot/storage/outbox.py",
        "bot.journey.outbox bot.storage test_outbox test_shared_outbox test_notifications test_races test_many_at_once",
        "crash faults posts",
    ),
    "hooks": Area(
        "bot/hooks/*.py bot/service/hook_signatures.py",
        "bot.hooks bot.service.hook_signatures",
        "hooks hook_threads hooks_in_threads relay",
    ),
    "files": Area(
        "sandbox/disk/safe_files.py sandbox/disk/unpacking.py",
        "sandbox.disk.safe_files sandbox.disk.unpacking test_attachments test_artifacts test_quota",
        "files",
    ),
    "budgets": Area(
        "bot/rights/budget_limits.py bot/rights/reservations.py bot/rights/rates.py",
        "bot.rights bot.budgets test_commands",
        "budgets charges",
    ),
    "schedules": Area(
        "bot/schedules/*.py bot/service/schedule_timing.py", "bot.schedules test_commands test_watches", "schedules"
    ),
    "replies": Area(
        "channels/shared/reply_*.py",
        "channels.shared.reply_writer channels.shared.reply_window test_channel_reply test_reply_writer",
        "talk faults",
    ),
    "policies": Area("agent/policies/*.py", "agent.policies agent.turn agent.factory", "whole_calls models faults"),
}
EQUIVALENT = {  # what no test can catch, because the program does the same: file and changed line, and the reason
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault in a file of an area."""

    area: str
    path: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.area} {self.path}:{self.fault.line}  {self.fault.before}  →  {self.fault.after}"


def draw(areas: Collection[str], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants of each area, the same for a seed."""
    drawn: list[Mutant] = []
    for name in areas:
        paths = sorted({path for glob in AREAS[name].files.split() for path in ROOT.glob(glob)})
        found = [Mutant(name, str(p.relative_to(ROOT)), f) for p in paths for f in faults(p.read_text())]
        random.Random(f"{seed} {name}").shuffle(found)
        drawn += itertools.islice(filter(counts, found), count)
    return drawn


def counts(mutant: Mutant) -> bool:
    """Return whether a mutant is Python, and not one that no test can catch."""
    try:
        compile(mutant.fault.text, mutant.path, "exec")
    except SyntaxError:
        return False
    return f"{mutant.path}: {mutant.fault.after}" not in EQUIVALENT


def near(area: Area) -> Iterator[str]:
    """Return the test files that import a part of the area, or are named."""
    imports = re.compile(rf"^ *(?:from|import) (?:{'|'.join(map(re.escape, area.words.split()))})\b", re.MULTILINE)
    for path in sorted([*ROOT.glob("tests/unit/*/test_*.py"), *ROOT.glob("tests/contracts/test_*.py")]):
        if path.stem in area.words.split() or imports.search(path.read_text()):
            yield str(path.relative_to(ROOT))


class Planting:
    """A plugin of pytest: instead of running the collected tests once, run on each mutant those that reach it."""

    def __init__(self, mutants: Sequence[Mutant], report: Path) -> None:
        self._mutants, self._report = mutants, report
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)

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
        if os.environ.get("MDEBUG"):
            print({p: len(f) for p, f in self._functions.items() if p in paths}, len(session.items), len(reached))
            print({p: sum(any(b.startswith(p) for b in blocks) for _, blocks in reached.values()) for p in paths})
        started: dict[int, tuple[Mutant, float]] = {}
        results: dict[str, str] = {}
        for mutant in [*self._mutants, *[None] * JOBS]:
            while started and (mutant is None or len(started) >= JOBS):
                for pid, (running, deadline) in [*started.items()]:
                    if (failed := _ended(pid, deadline)) is not None:
                        del started[pid]
                        note = self._report / str(pid)
                        results[str(running)] = (note.read_text() or "it dies" if note.exists() else "it hangs") if failed else ""
                        print("." if failed else "S", end="", file=sys.stderr, flush=True)
                time.sleep(0.02)
            if mutant and mutant.fault.block:
                block = f"{mutant.path}:{mutant.fault.block}"
                chosen = sorted((t, node) for node, (t, blocks) in reached.items() if block in blocks)
                pid = _fork(self._report, lambda m=mutant, c=chosen: self._try(session, m, [n for _, n in c]))  # type: ignore[misc]
                started[pid] = mutant, time.monotonic() + MAX_SECONDS + 3 * sum(t for t, _ in chosen)
        (self._report / "results").write_text(json.dumps(results))
        return True

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

        running = {_fork(self._report, lambda p=part: run(p)) for part in range(JOBS)}  # type: ignore[misc]
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


def _fork(folder: Path, work: Any) -> int:
    """Run `work` in a fork with folders of its own. It leaves a note with what it returned, and fails if there was any."""
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
    """Return whether the wider tests, or those of the same file where it has none, catch a mutant that is in its file."""
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
        pytest.main(words, [Planting(mutants, Path(report))])
        results = json.loads(Path(report, "results").read_text())
    caught = {mutant: results.get(str(mutant), "") for mutant in mutants}
    for mutant in [mutant for mutant, by in caught.items() if not by and not options.nearest]:
        wider = [f"tests/e2e/test_{name}.py" for name in AREAS[mutant.area].wider.split()]
        if widely(mutant, [*(() if mutant.fault.block else files[mutant.area]), *wider]):
            caught[mutant] = "the wider tests"
    for mutant, by in caught.items():
        if not by:
            lines = [(ROOT / mutant.path).read_text().splitlines(), mutant.fault.text.splitlines()]
            print(f"\nSURVIVED: {mutant}", *list(difflib.unified_diff(*lines, n=0, lineterm=""))[2:], sep="\n")
        elif options.verbose:
            print(f"{mutant}\n    caught by {by}")
    for name in files:
        own = [by for mutant, by in caught.items() if mutant.area == name]
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
