"""Sub-agents: the tool `task` with a scripted model, real graphs, checkpoints and files."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from agent.blocks import Block, Step, View
from agent.core.context import Answer as HumanAnswer
from agent.core.context import Turn
from agent.settings.subagents import KindSettings, SubagentSettings
from agent.subagents.task import make_task_tool
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop
from tests.unit.agent.test_nested_graph import lead_text
from tests.unit.agent.test_resume import asks, end

ROLE = "You are a sub-agent"
OUTPUT = re.compile(r"whole output of (\d+) characters is in (\S+):")


def call(name: str, prompt: str = "", kind: str = "general-purpose", **more: Any) -> ToolCall:
    args = {"description": name, "prompt": prompt or f"do {name}", "kind": kind} | more
    return ToolCall("task", json.dumps(args), id=f"call_{name}")


def use(tool: str, id: str = "call_0", **args: Any) -> Answer:
    return Answer(calls=(ToolCall(tool, json.dumps(args), id=id),))


class Cast:
    """The script of a conversation: the lead's answers in order, and each sub-agent's by the first line of its task."""

    def __init__(self, *lead: Answer, **workers: list[Answer]) -> None:
        self._lead, self._workers = lead, workers

    def __call__(self, body: Any) -> Answer:
        messages = body["messages"]
        done: int = sum(message["role"] == "assistant" for message in messages)
        if not str(messages[0]["content"]).startswith(ROLE):
            return self._lead[done]
        name = str(messages[1]["content"]).split("\n")[0].removeprefix("do ").strip()
        return self._workers[name][done]


async def bench_of(make: Workshop, model: FakeModel, script: Any, **settings: Any) -> Bench:
    config = SubagentSettings(**settings)
    model.script = script
    return await make(tools=[make_task_tool(config.all_kinds())], subagents=config)


def results(model: FakeModel) -> list[str]:
    """Return the results of tools that the lead's last request has."""
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


def task_steps(blocks: list[Block]) -> list[tuple[str, str, str]]:
    """Return the steps of the lead."""
    shown = [block for block in blocks if isinstance(block, Step) and not block.parent]
    return [(block.title, block.state, block.progress) for block in shown]


def inner_steps(blocks: list[Block]) -> list[tuple[str, str, str]]:
    """Return the steps of sub-agents, with the titles of their tasks."""
    titles = {block.id: block.title for block in blocks if isinstance(block, Step)}
    return [(titles[each.parent], each.title, each.state) for each in blocks if isinstance(each, Step) and each.parent]


async def test_a_task_works_with_its_own_context_and_returns_its_result_with_its_usage(
    make: Workshop, model: FakeModel
) -> None:
    cast = Cast(Answer("", (call("dig"),)), Answer("All done."), dig=[use("look", text="a"), Answer("found it")])
    bench = await bench_of(make, model, cast)
    context = await bench.context()
    blocks = await bench.run(say("please"), context=context)
    assert lead_text(blocks) == "All done."
    [result] = results(model)
    assert result.startswith("found it\n\n[general-purpose: 2 model calls, ")
    assert result.endswith(" s; not verified]")
    worker = [each for each in model.requests() if str(each.messages[0]["content"]).startswith(ROLE)]
    assert [m["role"] for m in worker[0].messages] == ["system", "user"]
    assert "please" not in str(worker[0].messages)
    assert "task" not in {tool["function"]["name"] for tool in worker[0].tools}
    assert [each.agent for each in context.meter.take_unrecorded()] == [
        "lead",
        "general-purpose",
        "general-purpose",
        "lead",
    ]
    assert task_steps(blocks) == [
        ("Task: dig", "running", ""),
        ("Task: dig", "running", ""),
        ("Task: dig", "running", "Using look"),
        ("Task: dig", "done", ""),
    ]
    assert inner_steps(blocks) == [("Task: dig", "Using look", "running"), ("Task: dig", "Using look", "done")]
    view = View()
    view.add_all(blocks)
    assert [step.title for step in view.final().steps] == ["Task: dig"], "chats show the task alone"


async def test_tasks_of_one_message_run_at_the_same_time_and_a_fourth_waits_for_a_place(
    make: Workshop, model: FakeModel
) -> None:
    names = ("a", "b", "c", "d")

    def script(body: Any) -> Answer:
        text = str(body["messages"][1]["content"])
        if str(body["messages"][0]["content"]).startswith(ROLE):
            return Answer(f"{text} ended", delay=0.3)
        return Answer("", tuple(map(call, names))) if len(body["messages"]) == 2 else Answer("done")

    bench = await bench_of(make, model, script)
    blocks = await bench.run(say("go"))
    *first, last = [each for each in model.requests() if str(each.messages[0]["content"]).startswith(ROLE)]
    assert max(each.at for each in first) < min(each.end for each in first), "three at once"
    assert last.at > min(each.end for each in first)
    assert "do d" in str(last.messages[1]["content"])
    assert [text.partition("\n")[0] for text in results(model)] == [f"do {name} ended" for name in names]
    assert ("Task: d", "running", "waits for a free place") in task_steps(blocks)


async def test_a_task_above_the_limit_is_refused_where_the_configuration_says_so(
    make: Workshop, model: FakeModel
) -> None:
    cast = Cast(
        Answer("", (call("a"), call("b"))), Answer("done"), a=[Answer("A ended", delay=0.1)], b=[Answer("B ended")]
    )
    bench = await bench_of(make, model, cast, at_once=1, overflow="refuse")
    await bench.run(say("go"))
    first, second = results(model)
    assert first.startswith("A ended")
    assert "At most 1 tasks may run at once" in second


async def test_a_task_reads_the_results_of_the_tasks_that_it_comes_after(make: Workshop, model: FakeModel) -> None:
    """In one message the last ones come first, and a later message names a task of an earlier one."""
    cast = Cast(
        Answer("", (call("c", after=["a", "b"]), call("b", after=["a"]), call("a"))),
        Answer("", (call("d", after=["c"]),)),
        Answer("done"),
        a=[Answer("ra", delay=0.1)],
        b=[Answer("rb", delay=0.1)],
        c=[Answer("rc")],
        d=[Answer("rd")],
    )
    bench = await bench_of(make, model, cast, at_once=1)
    await bench.run(say("go"))
    tasks = {
        str(each.messages[1]["content"]).split("\n")[0]: str(each.messages[1]["content"])
        for each in model.requests()
        if str(each.messages[0]["content"]).startswith(ROLE)
    }
    assert list(tasks) == ["do a", "do b", "do c", "do d"]
    assert "## a\nra" in tasks["do b"]
    assert "## a\nra" in tasks["do c"]
    assert "## b\nrb" in tasks["do c"]
    assert "## c\nrc" in tasks["do d"]


async def test_a_task_does_not_begin_after_one_that_did_not_finish(make: Workshop, model: FakeModel) -> None:
    """In one message, in a later one, and along a chain."""
    stuck = Answer("", (ToolCall("slow", '{"seconds": 30}', id="call_0"),))
    cast = Cast(
        Answer("", (call("b", after=["a"]), call("c", after=["b"]), call("a"))),
        Answer("", (call("d", after=["a"]),)),
        Answer("done"),
        a=[stuck],
        b=[Answer("rb")],
        c=[Answer("rc")],
        d=[Answer("rd")],
    )
    bench = await bench_of(make, model, cast, seconds=1.0)
    await bench.run(say("go"))
    asked = [str(each.messages[1]["content"]) for each in model.requests()]
    assert {text for text in asked if text.startswith("do ")} == {"do a"}
    b, c, _a, d = results(model)
    for told, needed in ((b, "a"), (c, "b"), (d, "a")):
        assert told.startswith(f"Not started: it comes after '{needed}', which did not finish: ")
    assert "it took longer than 1 s" in d


async def test_the_model_is_told_about_cycles_and_unknown_names(make: Workshop, model: FakeModel) -> None:
    cast = Cast(
        Answer("", (call("a", after=["b"]), call("b", after=["a"]), call("c", after=["x"]), call("d", kind="chef"))),
        Answer("done"),
    )
    bench = await bench_of(make, model, cast)
    await bench.run(say("go"))
    a, b, c, d = results(model)
    assert "'a' would wait for itself" in a
    assert "'b' would wait for itself" in b
    assert "there is no task 'x'. Tasks so far: 'a', 'b', 'd'" in c
    assert "There is no kind 'chef'. There are general-purpose, bash." in d


async def test_a_task_that_takes_too_long_is_stopped_with_its_last_words(make: Workshop, model: FakeModel) -> None:
    looked = Answer("I begin. ", (ToolCall("slow", '{"seconds": 30}', id="call_0"),))
    cast = Cast(Answer("", (call("a"),)), Answer("done"), a=[looked])
    bench = await bench_of(make, model, cast, seconds=1.0)
    blocks = await bench.run(say("go"))
    [result] = results(model)
    assert "it took longer than 1 s and was stopped. Its last words: I begin." in result
    assert ("Task: a", "failed", "") in task_steps(blocks)


@pytest.mark.parametrize(("limit", "calls"), [({"max_model_calls": 2}, 2), ({"max_tokens": 500}, 1)])
async def test_the_model_calls_and_tokens_of_a_task_are_limited(
    make: Workshop, model: FakeModel, limit: dict[str, int], calls: int
) -> None:
    cast = Cast(Answer("", (call("a"),)), Answer("done"), a=[use("look", text=str(n)) for n in range(9)])
    bench = await bench_of(make, model, cast, **limit)
    await bench.run(say("go"))
    workers = [each for each in model.requests() if str(each.messages[0]["content"]).startswith(ROLE)]
    assert len(workers) == calls
    assert "without finishing" in results(model)[0]


async def test_a_kind_declares_a_schema_that_its_results_fit(make: Workshop, model: FakeModel) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    replies = iter(["It is three.", '{"n": "3"}', '```json\n{"n": 3}\n```'])
    seen: list[str] = []

    def script(body: Any) -> Answer:
        if str(body["messages"][0]["content"]).startswith(ROLE):
            seen.append(str(body["messages"][-1]["content"]))
            return Answer(next(replies))
        return Answer("", (call("a", kind="counter"),)) if len(body["messages"]) == 2 else Answer("done")

    kind = KindSettings("counter", "counts", tools=("look",), output_schema=schema)
    bench = await bench_of(make, model, script, kinds=(kind,))
    await bench.run(say("go"))
    assert results(model)[0].startswith('{"n": 3}\n\n[counter: 3 model calls')
    assert "it is not JSON" in seen[1]
    assert "the value.n must be of type integer" in seen[2]


async def test_a_kind_may_verify_its_results(make: Workshop, model: FakeModel) -> None:
    def script(body: Any) -> Answer:
        first, messages = str(body["messages"][0]["content"]), body["messages"]
        if first.startswith("You check"):
            return use("look", text="it") if len(messages) == 2 else Answer("FAILED: 2 + 2 is 4.")
        if first.startswith(ROLE):
            return Answer("5")
        return Answer("", (call("a", "What is 2 + 2?", kind="sums"),)) if len(messages) == 2 else Answer("done")

    bench = await bench_of(make, model, script, kinds=(KindSettings("sums", verify=True),))
    await bench.run(say("go"))
    [result] = results(model)
    assert result.startswith("5\n\n[sums: 3 model calls")
    assert result.endswith("verification FAILED: 2 + 2 is 4.]")


async def test_a_result_names_the_files_that_the_task_left(make: Workshop, model: FakeModel) -> None:
    bench = await bench_of(make, model, Cast())
    context = await bench.context()
    sandbox = await context.sandbox.get()
    await sandbox.write("/mnt/user-data/outputs/old.txt", b"x")
    write = use("effect", text="x")
    model.script = Cast(Answer("", (call("a"),)), Answer("done"), a=[write, Answer("written")])
    files = sandbox.ls

    async def write_output() -> None:
        while not (bench.folder / "workspace" / "effects").exists():
            await asyncio.sleep(0.001)
        await sandbox.write("/mnt/user-data/outputs/new.txt", b"x")

    async with asyncio.TaskGroup() as group:
        group.create_task(write_output())
        group.create_task(bench.run(say("go"), context=context))
    assert await files("/mnt/user-data/outputs")
    assert "files: /mnt/user-data/outputs/new.txt]" in results(model)[0]


async def test_a_question_of_one_task_waits_for_the_others_and_then_for_the_person(
    make: Workshop, model: FakeModel
) -> None:
    """Nobody can answer in the process here. A task that comes after the asking one stays open, too."""
    question = use("ask_clarification", question="Which?", options=["x", "y"])
    cast = Cast(
        Answer("", (call("a"), call("b"), call("c", after=["a", "b"]))),
        Answer("done"),
        a=[question, Answer("it is x")],
        b=[use("look", text="b"), Answer("rb", delay=0.2)],
        c=[Answer("rc")],
    )
    bench = await bench_of(make, model, cast)
    blocks = await bench.run(say("go"))
    assert end(blocks) == "waiting"
    [ask] = asks(blocks)
    count = len(model.requests())
    blocks = await bench.run(say("x", "m2"), answers=(HumanAnswer(ask.id, "x", "m2"),))
    assert lead_text(blocks) == "done"
    assert len(model.requests()) == count + 3, "b did not run again"
    assert [text.split("\n")[0] for text in results(model)] == ["it is x", "rb", "rc"]
    c = next(each for each in model.requests() if str(each.messages[1]["content"]).startswith("do c"))
    assert "## a\nit is x" in str(c.messages[1]["content"])
    assert "## b\nrb" in str(c.messages[1]["content"])


async def test_a_stop_ends_all_tasks_with_what_they_run(make: Workshop, model: FakeModel) -> None:
    cast = Cast(
        Answer("", (call("a"), call("b"))),
        a=[use("slow", seconds=30)],
        b=[use("slow", seconds=30)],
    )
    bench = await bench_of(make, model, cast)
    context = await bench.context()
    working = set()
    turn = bench.agent.run(Turn("c", (say("go"),), merge_window_seconds=0.0), context)
    async for block in turn:
        if isinstance(block, Step) and block.progress == "Using slow":
            working.add(block.id)
        if len(working) == 2:
            break
    before = {task.get_name() for task in asyncio.all_tasks()}
    await turn.aclose()
    await bench.agent.repair("c")
    assert not await bench.tasks()
    assert len(asyncio.all_tasks()) < len(before)


async def test_tasks_with_equal_ids_run_both(make: Workshop, model: FakeModel) -> None:
    pair = [ToolCall("task", call(name).arguments, id="call_0") for name in ("one", "two")]
    lead = Cast(Answer(calls=tuple(pair)), Answer("both"), one=[Answer("first result")], two=[Answer("second result")])
    bench = await bench_of(make, model, lead)
    blocks = await bench.run(say("go"))
    assert (end(blocks), lead_text(blocks)) == ("done", "both")
    assert ["first" in results(model)[0], "second" in results(model)[1]] == [True, True]


async def test_equal_ids_of_two_tasks_share_neither_files_nor_steps(make: Workshop, model: FakeModel) -> None:
    ids = "functions.big:0"
    lead = Cast(
        Answer(calls=(call("one"), call("two"))),
        Answer("both"),
        one=[use("big", ids, size=9000), use("look", ids, text="a"), Answer("first")],
        two=[use("big", ids, size=9001), use("look", ids, text="b"), Answer("second")],
    )
    bench = await bench_of(make, model, lead)
    blocks = await bench.run(say("go"))
    assert end(blocks) == "done"
    wanted = {len("".join(f"line {number}\n" for number in range(size))) for size in (9000, 9001)}
    told = [str(m["content"]) for r in model.requests() for m in r.messages if "whole output" in str(m["content"])]
    files = {int(found[1]): found[2] for text in told if (found := OUTPUT.search(text))}
    assert set(files) == wanted
    for size, path in files.items():
        assert (bench.folder / path.removeprefix("/mnt/user-data/")).stat().st_size == size
    done = [block for block in blocks if isinstance(block, Step) and block.state == "done"]
    assert len({block.id for block in done if not block.parent}) == 2, "a step for each task"
    assert len({block.id for block in done if block.parent}) == 4, "and one for each call of a sub-agent"
