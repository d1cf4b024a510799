"""What all tests use: servers that one run shares, the fork server, and modules that wait for their use."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_services import ROOT, own_modules
from tests.support.growth import grows_in_proportion
from tests.support.lazy_modules import lazy_module
from tests.support.run_folder import VARIABLE

FIRST = """
import os, subprocess, sys
from tests.support.run_folder import run_folder, shared
print(run_folder(), shared("echo", lambda: f"made by {os.getpid()}"), os.getpid(), flush=True)
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
LATER = """
from tests.support.run_folder import await_owner, run_folder, shared
import os
print(run_folder(), shared("echo", lambda: "made again"), flush=True)
if os.fork() == 0:
    await_owner()
    print("its owner has ended", flush=True)
"""


def test_one_process_of_a_run_starts_a_server_for_all_which_ends_with_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", FIRST, LATER], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    first, second, last = done.stdout.splitlines()
    folder, _, _, maker, pid = first.split()
    assert maker == pid
    assert second == f"{folder} made by {maker}"
    assert last == "its owner has ended"
    assert not Path(folder).exists()


def test_the_fork_server_loads_the_whole_program() -> None:
    names = {*own_modules()}
    assert {
        "bot.__main__",
        "bot.main.app",
        "agent.turn.factory",
        "sandbox.docker.provider",
        "channels.telegram.channel",
    } <= names


def test_a_module_waits_for_its_first_public_name() -> None:
    assert "this" not in sys.modules, "another test has read it"
    module = lazy_module("this")  # as pytest looks at what a test file has at its top
    assert inspect.unwrap(module) is module
    for name in ("_mock_name", "__wrapped__", "__test__", "_pytestfixturefunction"):
        with pytest.raises(AttributeError):
            getattr(module, name)
    assert "this" not in sys.modules
    assert module.s.startswith("Gur Mra")
    assert "this" in sys.modules


def test_work_that_grows_with_the_square_of_its_size_is_told_from_other_work() -> None:
    assert grows_in_proportion(lambda size: sum(range(size)), 20_000)
    assert not grows_in_proportion(lambda size: sum(range(size * size)), 200)
