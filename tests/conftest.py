"""Settings for all tests: generated examples are the same in every run.

`pytest --hypothesis-profile=default` draws new examples.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sandbox.disk.folders import remove_tree
from tests.support.costs import CostMeter, mark
from tests.support.growth import without_collection
from tests.support.postgres import ENGINE, drop_databases_of
from tests.support.run_folder import run_folder

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a shell's script starts with `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the programs that tests start obey Ctrl-C again
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as of `nohup`: they end with their terminal again
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
run_folder()  # before the workers start: they share it
sys.dont_write_bytecode = False  # six workers would compile 650 modules each, and the programs that tests start again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # while the tests are collected: it would look for garbage among millions of objects that all stay
os.environ["LC_ALL"] = "C.UTF-8"  # the command line speaks the language of the terminal

settings.register_profile(  # how long an example takes to draw says only how busy the machine is
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
FAILED = pytest.StashKey[bool]()


def pytest_collection_finish() -> None:
    """Exclude loaded modules from garbage collection, as the service does at its start.

    A full collection of them takes up to 0.3 s and would be charged to the unit of the database that triggers it, so
    there is none here either: what little garbage there is stays.
    """
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Measure what the tests cost."""
    config.pluginmanager.register(CostMeter())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark and order the tests by their costs. Leave out what tests SQLite itself, where they run on PostgreSQL."""
    mark(items)
    if ENGINE == "postgresql":
        for item in items:
            if item.get_closest_marker("sqlite"):
                item.add_marker(pytest.mark.skip(reason="it tests SQLite"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test failed, whose folder is then worth a look.

    No garbage is collected meanwhile: the report parses the source of a failed test, and Python 3.11 gives that up with
    "AST constructor recursion depth mismatch" where a round in between calls a `__del__`, which ends the worker.
    """
    with without_collection():
        report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Empty the folder of a test that passed: each service sets 32 MB aside there, 25 GB for all of them.

    The folder itself stays, because pytest would give its name to another test, and containers and databases are
    named after such paths.
    """
    yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is None or FAILED in item.stash:
        return
    drop_databases_of(folder)
    for each in folder.glob("*"):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            with suppress(PermissionError):  # what a test made unwritable for itself stays
                each.unlink()


@pytest.fixture(autouse=True)
def process_settings_restored() -> Iterator[None]:
    """Undo what `fawn` sets for its whole process, where a test calls it in this one."""
    mask, thresholds = os.umask(0o077), gc.get_threshold()
    os.umask(mask)
    yield
    os.umask(mask)
    gc.set_threshold(*thresholds)


@pytest.fixture
def deep_tree_removed(tmp_path: Path) -> Iterator[None]:
    """Remove `tmp_path` after the test: pytest cannot delete thousands of levels and would fail in a later run."""
    yield
    remove_tree(tmp_path)
