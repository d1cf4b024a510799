"""Packages that libraries import and nobody uses are not loaded, and load when something uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BEGIN = """
import importlib, sys, threading
from agent.late_imports import DEFERRED, defer_packages
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
    assert {"langgraph_sdk", "langsmith.client", "openai.types"} <= {*there}, "the libraries import them as before"
    unused = ("openai.types.beta", "langsmith.types.session", "langgraph_sdk.client", "websockets", "rich.console")
    for name in (*unused, "langsmith._client", "tiktoken.core", "charset_normalizer", "mcp", "mcp_types"):
        assert name not in there, name


def test_the_sdk_of_telegram_does_without_cryptography_that_others_import() -> None:
    program = """
import telegram
assert "cryptography" not in sys.modules
import cryptography.fernet, charset_normalizer
assert charset_normalizer.from_bytes("hällo".encode()).best()
"""
    run(program)


# https://docs.langchain.com/langsmith/trace-with-langchain: whoever names LANGSMITH_TRACING in `library_switches`
def test_traces_go_to_langsmith_where_it_is_configured() -> None:
    program = """
import http.server, os, zlib
posts = []
class LangSmith(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")
    def do_POST(self):
        posts.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(b"{}")
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LangSmith)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "any",
               "LANGSMITH_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.langchain import wait_for_all_tracers
from langsmith import Client, RunTree, run_helpers, traceable
import langsmith.run_trees
class Own(Client):
    pass
RunnableLambda(lambda word: word.upper(), name="shout").invoke("a traced word")
traceable(lambda word: word, name="own", client=Own())("another word")
wait_for_all_tracers()
Own().flush()
assert langsmith.run_trees._REPLICAS is run_helpers._CONTEXT_KEYS["replicas"]
assert isinstance(RunTree(name="x"), RunTree) and issubclass(Own, Client)
print(posts)
"""
    said = run(program)
    assert "a traced word" in said
    assert "A TRACED WORD" in said


def test_each_loads_whole_with_its_first_use_also_in_many_threads() -> None:
    program = """
import openai.types, openai.types.responses, langsmith.types, langsmith.client, langsmith.schemas, langgraph_sdk
import langsmith.run_trees, tiktoken
found = []
def use():
    found.append((openai.types.Completion, openai.types.responses.Response, langsmith.types.Session,
                  langgraph_sdk.get_client, tiktoken.Encoding, langsmith.client.ID_TYPE, langsmith.schemas.Run,
                  langsmith.run_trees.LANGSMITH_PREFIX))
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
