"""Packages that libraries import and nobody uses are not loaded, and load when something uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BEGIN = """
import importlib, sys, threading
from agent.deferred_packages import DEFERRED, defer_packages
defer_packages()
import agent.turn.factory, langchain_openai
langchain_openai.ChatOpenAI(model="any", api_key="none")
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_agent_and_a_model_load_none_of_them() -> None:
    there = run("import httpx; assert httpx.Client().get and callable(httpx.main); print(*sys.modules)").split()
    assert {"langgraph_sdk", "langsmith.types", "openai.types"} <= {*there}, "the libraries import them as before"
    for name in ("openai.types.beta", "langsmith.types.session", "langgraph_sdk.client", "websockets", "rich.console"):
        assert name not in there, name


def test_each_loads_whole_with_its_first_use_also_in_many_threads() -> None:
    program = """
import openai.types, openai.types.responses, langsmith.types, langgraph_sdk
found = []
def use():
    found.append((openai.types.Completion, openai.types.responses.Response, langsmith.types.Session,
                  langgraph_sdk.get_client))
threads = [threading.Thread(target=use) for _ in range(8)]
[each.start() for each in threads]
[each.join(60) for each in threads]
assert len(found) == 8 and len(set(found)) == 1, found
assert isinstance(openai.types.Completion, type)
assert {type(sys.modules[name]).__name__ for name in DEFERRED} == {"module"}
from openai.types.beta import Assistant
for missing in ("no_such_name", "__no_such_name__"):
    try:
        getattr(openai.types, missing)
    except AttributeError as error:
        print(error)
try:
    from langsmith.types import no_such_type
except ImportError as error:
    print(error)
"""
    said = run(program)
    assert "module 'openai.types' has no attribute 'no_such_name'" in said
    assert "cannot import name 'no_such_type'" in said
