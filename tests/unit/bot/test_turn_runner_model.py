"""Turns with a scripted model over the real database: questions, failures, restarts, titles, usage."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langgraph.types import interrupt

from agent.messages import Kind, Message, Thread
from agent.settings.models import ModelSettings
from agent.turn.factory import build_agent
from bot.base.background import JobWorker
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database.database import Database
from bot.journey import claims
from bot.journey.outbox import Outbox
from bot.journey.scheduler import Scheduler
from bot.journey.titles import SHOW_TITLE_JOB, TITLE_JOB, make_title, show_title
from bot.rights.reservations import Budgets
from channels.base import Receipt, Refused
from sandbox.disk.folders import ConversationFolders
from sandbox.docker.spec import DockerSettings
from sandbox.engines.select import select_provider
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.server import until
from tests.support.agent_tools import TOOLS, tool_with
from tests.support.current_config import SERVICES, agent_settings, current_of
from tests.support.reception import open_inbox, open_turns
from tests.support.rehearsed_database import make_empty_database, rehearsed_database, stored_rows
from tests.unit.agent.test_resume import call, script
from tests.unit.bot.test_outbox import RecordingChannel
from tests.unit.bot.test_turn_runner import HELLO


class ModelHarness:
    """The service on a folder: a database, the agent and its turns."""

    def __init__(self, store: Database, tools: Sequence[BaseTool]) -> None:
        self.store = store
        self.current = current_of(wall=AccessConfig(open=True))
        self.threads = Scheduler(store, self.current)
        self.inbox = open_inbox(store, self.current, self.threads)
        self._tools = tools

    async def configure(self, models: Sequence[ModelSettings], limits: ServiceLimits, **settings: Any) -> None:
        """Put this configuration in force."""
        wanted = agent_settings(retry_seconds=0.01, **settings)
        agent = await build_agent(models, wanted, self.store, SERVICES, self._tools)
        await self.current.replace(replace(self.current.config, limits=limits), agent)

    async def states(self) -> list[str]:
        return [state for (state,) in self.rows("SELECT state FROM runs ORDER BY id")]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read from the database."""
        return stored_rows(self.store._path, sql)

    async def say(self, text: str, key: str, wait: bool = True) -> None:
        await self.inbox.receive([replace(HELLO, key=key, id=key, text=text)])
        if wait:
            async with asyncio.timeout(60):
                await self.threads.wait_until_idle()


class Reader(RecordingChannel):
    """A channel that counts the requests for earlier messages."""

    def __init__(self) -> None:
        super().__init__()
        self.earlier: list[int] = []

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        self.earlier.append(earlier)
        return message


class Titled(Reader):
    """A channel with titles; `refuses` counts the calls that it refuses for now."""

    def __init__(self, refuses: int = 0) -> None:
        super().__init__()
        self.titles: list[tuple[Thread, str]] = []
        self.refuses = refuses

    async def set_title(self, thread: Thread, title: str) -> None:
        if self.refuses:
            self.refuses -= 1
            raise Refused("not here")
        self.titles.append((thread, title))


Open = Callable[..., Any]


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


@pytest.fixture
def enter(tmp_path: Path, model: FakeModel) -> Open:
    """`async with enter() as harness` starts the service on this folder; entering again is a restart."""

    @asynccontextmanager
    async def opened(
        *tools: BaseTool, wall: RecordingChannel | None = None, retries: int = 0, **plan: Any
    ) -> AsyncIterator[ModelHarness]:
        make_empty_database(tmp_path / "fawn.db")
        folders = ConversationFolders(tmp_path / "threads", 16)
        provider, *_ = await select_provider(
            "none", DockerSettings(tmp_path / "skills", state=tmp_path / "sandbox"), folders
        )
        url = f"{model.base_url}/v1"
        models = [ModelSettings(name, model=name, base_url=url, retries=retries) for name in ("main", "small")]
        async with rehearsed_database(tmp_path / "fawn.db") as store:
            await store.run(claims.release_stale_claims)
            harness = ModelHarness(store, [*TOOLS, *tools])
            await harness.configure(models, ServiceLimits(), **plan)
            channels = {"wall": wall} if wall else {}
            outbox = Outbox(store, channels.get, harness.current)
            jobs = JobWorker(store)
            turns, _begun = open_turns(store, harness.current, provider, folders, outbox, channels.get, tmp_path)
            jobs.register(TITLE_JOB, partial(make_title, Budgets(store, harness.current)))
            jobs.register(SHOW_TITLE_JOB, partial(show_title, store, channels.get))
            works = (outbox.serve(), harness.threads.serve(turns), jobs.serve())
            serving = [asyncio.create_task(work) for work in works]
            await asyncio.sleep(0)
            try:
                yield harness
            finally:
                await harness.threads.close(0.1)
                for task in serving:
                    task.cancel()
                await asyncio.wait(serving)
                await harness.current.close()

    return opened


def call_of(name: str, **args: Any) -> tuple[ToolCall, ...]:
    return (ToolCall(name, json.dumps(args)),)


# ---------------------------------------------------------------- a question parallel to an effect


async def test_an_effect_parallel_to_a_question_happens_once_across_a_restart(enter: Open, tmp_path: Path) -> None:
    effects = tmp_path / "effects"

    def asked() -> bool:
        with sqlite3.connect(tmp_path / "fawn.db") as checkpoints:
            sql = "SELECT 1 FROM checkpoint_writes WHERE channel='__interrupt__'"
            return bool(checkpoints.execute(sql).fetchall())

    @tool_with()
    async def late(text: str) -> str:
        """Return once the question is recorded."""
        await until(asked, what="the question")
        with effects.open("a") as file:
            file.write(f"{text}\n")
        return f"did {text}"

    both = [call("ask_clarification", question="Which?"), call("late", text="it")]
    async with enter(late) as harness:
        await harness.say(script(both, text="all done"), "k1")
        assert await harness.states() == ["waiting"]
        assert effects.read_text() == "it\n"
        held = dict(harness.current.agent._checkpoints._unsaved)
    async with enter(late) as harness:
        await harness.say("this one", "k2")
        assert await harness.states() == ["waiting", "done"]
    assert effects.read_text() == "it\n"
    assert held == {}, "a conversation that waits holds nothing in memory"


# ---------------------------------------------------------------- several approvals


@pytest.mark.parametrize("restart", [False, True])
async def test_an_approval_is_given_while_the_turn_works_on_another_one(
    enter: Open, model: FakeModel, restart: bool
) -> None:
    working, release = asyncio.Event(), asyncio.Event()
    wall = Reader()

    @tool_with(effect="resumable")
    async def deploy(place: str) -> str:
        """Ask, then work."""
        decided = interrupt({"kind": "approve", "name": "deploy", "args": {"place": place}})
        working.set()
        await release.wait()
        return f"{decided}: {place}"

    async def press(harness: ModelHarness, ask: str) -> None:
        click = replace(HELLO, key=f"press {ask}", kind=Kind.CLICK, target=ask, text="Approve")
        assert await harness.inbox.receive([click, replace(click, key="again")]) == [
            Receipt.ACCEPTED,
            Receipt.DUPLICATE,
        ]

    both = [call("deploy", place="here"), call("deploy", place="there")]
    async with enter(deploy, wall=wall) as harness:
        await harness.say(script(both, text="all done"), "k1")
        one, two = [id for (id,) in harness.rows("SELECT id FROM questions ORDER BY number")]
        await press(harness, one)
        await working.wait()
        await press(harness, two)
        if not restart:
            release.set()
            await harness.threads.wait_until_idle()
    release.set()
    async with enter(deploy, wall=wall) as harness:
        await harness.threads.wait_until_idle()
        assert await harness.states() == (["waiting", "done"] if restart else ["waiting", "waiting", "done"])
        assert harness.rows("SELECT DISTINCT state, answer FROM questions") == [("closed", "Approve")]
        assert not harness.rows("SELECT 1 FROM outbox WHERE key LIKE 'answered:%'"), "the pressed messages say it"
    results = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert results == ["Approve: here", "Approve: there"]
    assert not [text for _, text in wall.shown if "Still open" in text]


async def test_a_stopped_turn_leaves_no_open_question(enter: Open) -> None:
    both = [call("ask_clarification", question="Which?", options=["a", "b"]), call("slow", seconds=60)]
    wall = Reader()
    async with enter(wall=wall) as harness:
        await harness.say(script(both), "k1", wait=False)
        shown = "SELECT 1 FROM checkpoint_writes WHERE channel='__interrupt__'"
        await until(lambda: harness.rows(shown), what="the question")
        harness.threads.stop_run(1, "42")
        await harness.threads.wait_until_idle()
        assert await harness.states() == ["stopped"]
        assert harness.rows("SELECT 1 FROM questions") == []
        await until(lambda: wall.shown, what="the end of the reply")
        assert "Which?" not in wall.shown[-1][1]


# ---------------------------------------------------------------- steering in a failing turn


async def written_into(harness: ModelHarness, model: FakeModel) -> None:
    """Run a turn whose second model call takes further messages."""
    await harness.say("do it", "k1", wait=False)
    await until(lambda: len(model.requests()) == 1, what="the first model call")
    await harness.say("BUT NOT ON PRODUCTION", "k2", wait=False)
    await until(lambda: len(model.requests()) == 2, what="the second model call")
    assert "PRODUCTION" in str(model.requests()[1].messages)


# Case 65 of docs/cases.md
async def test_steering_in_a_failing_model_call_is_remembered(enter: Open, model: FakeModel) -> None:
    answers = iter([Answer(calls=call_of("look", text="a"), delay=0.5), Answer(status=400)])
    model.script = lambda body: next(answers, Answer("fine"))
    async with enter() as harness:
        await written_into(harness, model)
        await harness.threads.wait_until_idle()
        assert await harness.states() == ["failed"]
        await harness.say("go on", "k3")
    said = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "user"]
    assert [text.splitlines()[-1] for text in said] == ["do it", "BUT NOT ON PRODUCTION", "go on"]


# Case 65 of docs/cases.md
@pytest.mark.parametrize("fate", ["attempt=4, deaths_alone=3", "stop_by='42'"])
async def test_steering_is_remembered_when_the_turn_is_given_up_or_stopped(
    enter: Open, model: FakeModel, fate: str
) -> None:
    """The service ends during the second call; then the attempts are exhausted, or a user stopped the turn."""
    answers = iter([Answer(calls=call_of("look", text="a"), delay=0.5), Answer("never", delay=60)])
    model.script = lambda body: next(answers, Answer("fine"))
    async with enter() as harness:
        await written_into(harness, model)
    async with rehearsed_database(harness.store._path) as store:
        await store.run(lambda execute: execute(f"UPDATE runs SET {fate}", {}))  # noqa: S608  a constant
    async with enter() as harness:
        await harness.threads.wait_until_idle()
        assert await harness.states() in (["failed"], ["stopped"])
        await harness.say("go on", "k3")
    said = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "user"]
    assert [text.splitlines()[-1] for text in said] == ["do it", "BUT NOT ON PRODUCTION", "go on"]


# ---------------------------------------------------------------- titles


def titled(body: dict[str, Any]) -> bool:
    return bool(body["model"] == "small")


async def test_a_title_slower_than_its_turn_is_still_recorded(enter: Open, model: FakeModel) -> None:
    """The reply does not wait for it, later turns do not request a second one, and its tokens count."""
    model.script = lambda body: Answer("A fine title", delay=1.0) if titled(body) else Answer("hello")
    wall = Reader()
    async with enter(wall=wall, title="small") as harness:
        await harness.say("what is this about?", "k1")
        await harness.say("and this?", "k2")
        assert await harness.states() == ["done", "done"]
        assert harness.rows("SELECT title FROM conversations") == [("",)]
        await until(lambda: harness.rows("SELECT title FROM conversations") == [("A fine title",)], what="the title")
        await harness.say("and that?", "k3")
        assert harness.rows("SELECT run, model, kind FROM usage ORDER BY run, kind") == [
            (1, "small", "title"),
            (1, "main", "turn"),
            (2, "main", "turn"),
            (3, "main", "turn"),
        ]
        assert harness.rows("SELECT 1 FROM usage WHERE input=0 OR output=0 OR seconds<=0 OR at<=0") == []
    assert sum(len(request.messages) == 1 for request in model.requests()) == 1
    assert wall.earlier == [0, 0, 0], "a direct chat has no talk above"


async def test_a_made_title_is_shown_once_unless_a_person_named_the_thread(enter: Open, model: FakeModel) -> None:
    model.script = lambda body: Answer("A fine title", delay=0.5) if titled(body) else Answer("hello")
    wall = Titled()
    async with enter(wall=wall, title="small") as harness:
        await harness.say("hi", "k1")
        await until(lambda: wall.titles, what="the title")
        await harness.say("hi again", "k2")
        await until(lambda: harness.rows("SELECT kind FROM jobs") == [], what="the end of all jobs")
        assert wall.titles == [(HELLO.thread, "A fine title")]
        other = replace(HELLO, thread=replace(HELLO.thread, topic="2"), key="k3")
        await harness.inbox.receive([other])
        await harness.threads.wait_until_idle()
        await harness.inbox.receive([replace(other, key="k4", kind=Kind.TITLE, text="Mine")])
        await until(lambda: harness.rows("SELECT kind FROM jobs") == [], what="the end of all jobs")
        assert harness.rows("SELECT title FROM conversations ORDER BY key") == [("A fine title",), ("Mine",)]
        assert len(wall.titles) == 1


async def test_a_refused_title_disturbs_nothing(enter: Open, model: FakeModel) -> None:
    model.script = lambda body: Answer("A fine title") if titled(body) else Answer("hello")
    wall = Titled(refuses=1)
    async with enter(wall=wall, title="small") as harness:
        await harness.say("hi", "k1")
        await until(lambda: not wall.refuses, what="the refusal")
        await until(lambda: harness.rows("SELECT kind FROM jobs") == [], what="the end of the job")
        assert await harness.states() == ["done"]
        assert wall.titles == []


async def test_a_title_cancelled_by_a_shutdown_is_made_after_the_next_start(enter: Open, model: FakeModel) -> None:
    model.script = lambda body: Answer("A fine title", delay=60.0) if titled(body) else Answer("hello")
    async with enter(title="small") as harness:
        await harness.say("what is this about?", "k1")
        await until(lambda: any(len(request.messages) == 1 for request in model.requests()), what="the title's request")
    assert harness.rows("SELECT attempts, owner, error FROM jobs") == [(0, None, "")]
    model.script = lambda body: Answer("A fine title") if titled(body) else Answer("hello")
    async with enter(title="small") as harness:
        await until(lambda: harness.rows("SELECT title FROM conversations") == [("A fine title",)], what="the title")


# ---------------------------------------------------------------- usage


async def test_the_usage_of_every_attempt_is_recorded_with_its_model(
    enter: Open, model: FakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    """The usage before a suspended attempt is kept, and the log has the sum."""
    caplog.set_level("INFO")
    answers = iter([Answer(calls=call_of("effect", text="a")), Answer("never", delay=60), Answer("fine")])
    model.script = lambda body: next(answers)
    async with enter() as harness:
        await harness.say("do it", "k1", wait=False)
        await until(lambda: len(model.requests()) == 2, what="the second model call")
        assert harness.rows("SELECT model FROM usage") == [("main",)], "with the commit that followed the call"
    async with rehearsed_database(harness.store._path) as store:
        await store.run(lambda execute: execute("UPDATE conversations SET model='small'", {}))
    async with enter() as harness:
        await harness.threads.wait_until_idle()
        assert await harness.states() == ["done"]
        assert harness.rows("SELECT model FROM usage ORDER BY id") == [("main",), ("main",), ("small",)]
        [(input_, output)] = harness.rows("SELECT sum(input), sum(output) FROM usage")
    assert f"input={input_} output={output} calls=3" in caplog.text


async def test_the_usage_of_a_stopped_turn_is_recorded(enter: Open, model: FakeModel) -> None:
    answers = iter([Answer(calls=call_of("look", text="a")), Answer("never", delay=60)])
    model.script = lambda body: next(answers)
    async with enter() as harness:
        await harness.say("do it", "k1", wait=False)
        await until(lambda: len(model.requests()) == 2, what="the second model call")
        [live] = harness.threads.running_turns
        live.stop("42")
        await harness.threads.wait_until_idle()
        assert await harness.states() == ["stopped"]
        assert harness.rows("SELECT agent, model, kind FROM usage") == [("lead", "main", "turn")] * 2, (
            "also what was cut off"
        )


# ---------------------------------------------------------------- invalid characters


# Case 71 of docs/cases.md
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ask_clarification", '{"question": "\\ud83d which?", "options": ["\\ude00", "\\ud83d\\ude00"]}'),
        ("present_files", '{"paths": ["/mnt/user-data/outputs/\\ud83d"]}'),
        ("look", '{"text": "\\ud83d"}'),
        ("effect", '{"text": "\\ud83d", "\\ud83d": 1}'),
        ("read_file", '{"path": "x", "offset": 100000000000000000000}'),
        ("look", '{"text": 1' + "0" * 5000 + "}"),
    ],
)
async def test_invalid_tool_arguments_of_a_model_do_not_break_a_turn(
    enter: Open, model: FakeModel, name: str, arguments: str
) -> None:
    answers = iter([Answer(calls=(ToolCall(name, arguments),))])
    model.script = lambda body: next(answers, Answer("fine"))
    async with enter() as harness:
        await harness.say("do it", "k1")
        assert await harness.states() == ["waiting" if name == "ask_clarification" else "done"]
    async with enter() as harness:
        await harness.say("this one", "k2")
        assert (await harness.states())[-1] == "done"
    assert not any(request.rejected for request in model.requests())


# Case 71 of docs/cases.md
async def test_invalid_text_and_titles_of_a_model_do_not_break_a_turn(enter: Open, model: FakeModel) -> None:
    model.script = lambda body: Answer("half \ud83d and whole \ud83d\ude00")
    async with enter(title="small") as harness:
        await harness.say("say it", "k1")
        assert await harness.states() == ["done"]
        await until(lambda: harness.rows("SELECT title FROM conversations") != [("",)], what="the title")
        assert harness.rows("SELECT title FROM conversations") == [("half � and whole 😀",)]
        [(payload,)] = harness.rows("SELECT payload FROM outbox WHERE kind='reply'")
        assert json.loads(payload)["text"] == "half � and whole 😀"


# ---------------------------------------------------------------- a configuration that is replaced


async def test_a_running_turn_keeps_the_configuration_it_began_with(enter: Open, model: FakeModel) -> None:
    """The next turn has the new one, and the old connections close after the last turn that uses them."""
    names: list[str] = []
    gate = asyncio.Event()

    @tool_with()
    async def held() -> str:
        """Wait for the gate."""
        await gate.wait()
        return "open"

    def answer(body: dict[str, Any]) -> Answer:
        names.append(body["model"])
        return Answer(calls=call_of("held")) if len(names) == 1 else Answer("fine")

    model.script = answer
    new = ModelSettings("new", model="new", base_url=f"{model.base_url}/v1")
    async with enter(held) as harness:
        old = harness.current.agent
        clients = [entry.model.root_async_client for entry in old.models.values()]
        await harness.say("do it", "k1", wait=False)
        await until(lambda: len(model.requests()) == 1, what="the first model call")
        await harness.configure([new], ServiceLimits(attempts=7))
        assert not any(client.is_closed() for client in clients)
        gate.set()
        await until(lambda: all(client.is_closed() for client in clients), what="the end of the turn")
        assert await harness.states() == ["done"]
        assert not harness.current._uses, "no turn is running"
        await harness.say("and now?", "k2")
        assert names == ["main", "main", "new"]
        assert harness.rows("SELECT DISTINCT run, model FROM usage ORDER BY run") == [(1, "main"), (2, "new")]
        unused = [entry.model.root_async_client for entry in harness.current.agent.models.values()]
        await harness.configure([replace(new, name="newer", model="newer")], ServiceLimits())
        assert all(client.is_closed() for client in unused), "no turn used it"
        await harness.say("and then?", "k3")
        assert names[-1] == "newer"


async def test_limits_and_access_are_read_when_they_are_needed(enter: Open, model: FakeModel) -> None:
    async with enter() as harness:
        await harness.say("hello", "k1")
        closed = replace(harness.current.config, channels=())
        await harness.current.replace(closed, harness.current.agent)
        await harness.say("hello", "k2")
        assert await harness.states() == ["done"], "the person may no longer talk"
        assert len(model.requests()) == 1
