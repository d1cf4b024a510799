"""The policies around model and tool calls, tested by their visible effects."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from email.utils import formatdate
from typing import Any

import httpx2
import openai
import pytest
from langchain_core.messages import ToolMessage

from agent.blocks import Block, Done, Failed, Notice, Text, command_hint
from agent.messages import UserInput
from agent.models.errors import classify_error
from agent.policies.outcomes import loggable_arguments
from agent.policies.retry import RetryPolicy
from agent.policies.tool_calls import call_fingerprint, failure_mark
from agent.settings.models import ModelSettings
from tests.fakes.model import Answer, FakeModel, ToolCall, words
from tests.fakes.model_dialects import Dialect
from tests.fakes.server import until
from tests.support.agent_tools import tool_with
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, steps, texts, view
from tests.unit.agent.test_resume import call, end, script

# ---------------------------------------------------------------- the log


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
async def test_each_tool_call_is_logged_and_its_arguments_for_debugging_only(
    bench: Bench, model: FakeModel, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level, "agent")
    await bench.run(say(script([call("look", text="a"), call("broken", kind="sandbox")])))
    lines = [record.getMessage() for record in caplog.records if record.name == "agent.policies.outcomes"]
    assert "tool.begin tool=look characters=1" in lines
    assert ('tool.arguments tool=look arguments={"text":"a"}' in lines) == (level == logging.DEBUG)
    ends = {line.partition(" seconds=")[0] for line in lines if line.startswith("tool.end")}
    assert ends == {"tool.end tool=look status=success", "tool.end tool=broken status=error"}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: Bearer ***' x"),
        ("API_KEY=hunter2 ./run --password hunter3 -v", "API_KEY=*** ./run --password *** -v"),
        ("mysql --token=hunter2; echo ok", "mysql --token=***; echo ok"),
        ("x" * 400, "x" * 300 + "… (400 characters)"),
    ],
)
def test_logged_arguments_are_cut_and_show_no_secrets(command: str, shown: str) -> None:
    assert json.loads(loggable_arguments({"command": command, "timeout": 5})) == {"command": shown, "timeout": 5}


# ---------------------------------------------------------------- model errors


def notices(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, Notice)]


def failed(blocks: list[Block]) -> Failed:
    [found] = [block for block in blocks if isinstance(block, Failed)]
    assert end(blocks) == "failed"
    return found


async def test_three_errors_are_retried_with_visible_notices(bench: Bench, model: FakeModel) -> None:
    blocks = await bench.run(say('::{"errors": [500, 503, 429], "tokens": 4}'))
    assert view(blocks).final().text == words(4)
    assert notices(blocks) == [
        "My model's server has a problem (500). Trying again in 1 s (2 of 4).",
        "My model's server has a problem (503). Trying again in 1 s (3 of 4).",
        "My model is busy (429). Trying again in 1 s (4 of 4).",
    ]
    assert len(model.requests()) == 4


async def test_retries_are_not_stacked_and_the_failure_is_clear(make: Workshop, model: FakeModel) -> None:
    bench = await make(retries=2)
    blocks = await bench.run(say(f'::{{"errors": {[500] * 50}}}'))
    assert len(model.requests()) == 3
    assert failed(blocks).what == "My model's server has a problem (500). I tried 3 times."
    assert command_hint("model") in failed(blocks).what_to_do


@pytest.mark.parametrize("fault", ["abort_at", "cut_at", "garbage_at"])
async def test_a_broken_stream_is_retracted_and_retried(bench: Bench, model: FakeModel, fault: str) -> None:
    blocks = await bench.run(say(f'::{{"{fault}": 3, "tokens": 6, "tok_ms": 2}}'))
    shown = texts(blocks)
    parts = list(dict.fromkeys(text.part for text in shown))
    assert len(parts) == 2
    assert Text("", parts[0], replace=True) in shown
    assert view(blocks).texts == {parts[0]: "", parts[1]: words(6)}
    assert len(notices(blocks)) == 1
    assert [m.text for m in await bench.state() if m.type == "ai"] == [words(6)]


async def test_a_hanging_model_call_is_retried(make: Workshop, model: FakeModel) -> None:
    url = f"{model.base_url}/v1"
    bench = await make(settings=(ModelSettings("m", base_url=url, read_seconds=0.2),))
    blocks = await bench.run(say('::{"hang_at": 2, "tokens": 4}'))
    assert view(blocks).final().text == words(4)
    assert notices(blocks)[0].startswith("My model didn't answer in time. Trying again")


async def test_an_unreachable_server_is_reported_as_such(make: Workshop, unused_tcp_port: int) -> None:
    settings = ModelSettings("m", base_url=f"http://127.0.0.1:{unused_tcp_port}/v1", retries=1)
    blocks = await (await make(settings=(settings,))).run(say("hello"))
    assert failed(blocks).what == "My model's server can't be reached. I tried 2 times."


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (401, "refused its key"),
        (403, "refused its key"),
        (404, "doesn't know this model"),
        (400, "refused the request (400)"),
    ],
)
async def test_permanent_errors_are_not_retried(bench: Bench, model: FakeModel, status: int, what: str) -> None:
    blocks = await bench.run(say(f'::{{"errors": [{status}]}}'))
    assert len(model.requests()) == 1
    assert what in failed(blocks).what
    assert failed(blocks).what_to_do


def refusal(status: int, headers: dict[str, str] | None = None, **error: Any) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://m/v1")
    response = httpx2.Response(status, headers=headers, request=request)
    kind = openai.RateLimitError if status == 429 else openai.BadRequestError
    return kind(str(error.get("message", "")), response=response, body=error)


def test_retry_after_is_parsed_in_all_forms_and_limited() -> None:
    forms: list[tuple[dict[str, str], float | None]] = [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": formatdate(time.time() + 30, usegmt=True)}, 30.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ]
    for headers, seconds in forms:
        verdict = classify_error(refusal(429, headers))
        assert verdict is not None
        assert verdict.action == "retry"
        assert verdict.retry_after_seconds == (seconds if seconds is None else pytest.approx(seconds, abs=2))
    retry = RetryPolicy(first_seconds=1.0, max_seconds=60.0)
    assert 7 <= retry._wait_seconds(0, 7.0) <= 7.2
    assert 60 <= retry._wait_seconds(0, 3600.0) <= 61
    for asked in (None, 0.0, 7.0, 3600.0):
        assert len({retry._wait_seconds(0, asked) for _ in range(50)}) > 1, "turns that failed together are spread"
    assert all(6.4 <= retry._wait_seconds(3, None) <= 9.6 for _ in range(50))
    assert all(retry._wait_seconds(20, None) <= 36 for _ in range(50))


def test_exhausted_credit_and_long_conversations_are_not_treated_as_rate_limits() -> None:
    assert (verdict := classify_error(refusal(429, code="insufficient_quota"))) is not None
    assert verdict.action == "fail"
    for message in (
        "This model's maximum context length is 8192 tokens",
        "the request exceeds the available context size",
    ):
        assert (verdict := classify_error(refusal(400, message=message))) is not None
        assert verdict.action == "shorten"
    assert classify_error(ValueError("a fault of ours")) is None


# ---------------------------------------------------------------- empty answers


@pytest.mark.parametrize("text", ["", " \\n "])
async def test_an_empty_answer_is_retried_once(bench: Bench, model: FakeModel, text: str) -> None:
    blocks = await bench.run(say(f'::{{"text": "{text}", "id": "x"}}'))
    assert len(model.requests()) == 2
    assert model.requests()[-1].messages[-1]["content"].endswith("call a tool properly.)")
    assert view(blocks).final().text.startswith("You said: (Your last message was empty")  # the scripted model echoes
    assert [m.type for m in await bench.state()] == ["human", "ai"]


async def test_repeated_empty_answers_end_in_a_clear_sentence(make: Workshop, model: FakeModel) -> None:
    model.script = lambda body: Answer("  ")
    blocks = await (await make()).run(say("hello"))
    assert failed(blocks).what == "I got no answer from my model, twice."
    assert not view(blocks).text
    assert len(model.requests()) == 2


async def test_invalid_arguments_do_not_end_the_turn(bench: Bench, model: FakeModel) -> None:
    broken = '::{"steps": [{"calls": [{"name": "look", "args": "{\\"text\\": "}]}], "tokens": 3}'
    blocks = await bench.run(say(broken))
    assert end(blocks) == "done"
    assert view(blocks).final().text


# ---------------------------------------------------------------- loops and limits


# Case 81 of docs/cases.md
async def test_a_repeated_call_gets_a_warning_and_is_then_stopped(bench: Bench, model: FakeModel) -> None:
    blocks = await bench.run(say(script(*[[call("look", text="a")]] * 20)))
    final = view(blocks).final().text
    assert final.startswith("I stopped because I was going in circles: I called `look` 5 times")
    assert end(blocks) == "done"
    assert len(model.requests()) == 5
    results = [m.text for m in await bench.state() if m.type == "tool"]
    assert [("same result" in text) for text in results] == [False, False, True, True, True]
    again = await bench.run(say(script([call("look", text="a")], tokens=2), "m2"))
    assert view(again).final().text == words(2)  # a person's word begins the count anew


# Case 81 of docs/cases.md
async def test_parallel_and_different_calls_are_not_a_loop(bench: Bench) -> None:
    blocks = await bench.run(say(script(*[[call("look", text=f"{n}")] for n in range(8)], tokens=3)))
    assert view(blocks).final().text == words(3)
    blocks = await bench.run(say(script([call("look", text="a")] * 5, tokens=3), "m2"))
    assert "in circles" in view(blocks).final().text


# Case 81 of docs/cases.md
async def test_reading_further_in_a_file_is_not_a_loop(bench: Bench) -> None:
    windows = [[call("read_file", path="/f", offset=200 * n)] for n in range(8)]
    assert view(await bench.run(say(script(*windows, tokens=3)))).final().text == words(3)
    within = [[call("read_file", path="/f", offset=n)] for n in range(8)]
    assert "in circles" in view(await bench.run(say(script(*within), "m2"))).final().text


async def test_equal_looking_failures_have_the_model_reflect_once(bench: Bench, model: FakeModel) -> None:
    """Different calls that fail the same way are one approach; the calls after the reflection may differ."""
    failing = [[call("fails", line=n)] for n in range(6)]
    blocks = await bench.run(say(script(*failing, text="I found another way")))
    assert view(blocks).final().text == "I found another way"
    results = [m.text for m in await bench.state() if m.type == "tool"]
    assert [("Before you call another tool" in text) for text in results] == [False, False, True, False, False, False]
    again = [[call("fails", line=n)] for n in range(3)]
    await bench.run(say(script(*again, text="ok"), "m2"))  # a person's word begins the count anew
    assert "Before you call another tool" in [m.text for m in await bench.state() if m.type == "tool"][-1]


def test_failures_look_equal_if_only_details_differ() -> None:
    def mark(text: str, status: str = "success") -> str:
        return failure_mark(ToolMessage(text, tool_call_id="1", name="bash", status=status))

    missing = "Traceback …\nModuleNotFoundError: No module named 'pandas'\n[exit code 1]"
    assert mark(missing) == mark(missing.replace("pandas", "numpy"))
    assert mark("cat: /a/b: No such file\n[exit code 1]") == mark("cat: /c: No such file\n[exit code 1]")
    assert mark(missing) != mark("SyntaxError: invalid syntax\n[exit code 1]")
    assert mark("bash failed: no such file", "error")
    assert [mark("fine"), mark("[exit code 1]"), mark("[exit code 0, no output]")] == ["", "", ""]


def test_a_fingerprint_covers_tool_arguments_and_output() -> None:
    assert call_fingerprint("bash", {"a": 1, "b": 2}, "x") == call_fingerprint("bash", {"b": 2, "a": 1}, "x")
    different = {
        call_fingerprint("bash", {"a": 1}, "x"),
        call_fingerprint("bash", {"a": 2}, "x"),
        call_fingerprint("bash", {"a": 1}, "y"),
        call_fingerprint("ls", {"a": 1}, "x"),
        call_fingerprint("read_file", {"path": "p", "start_line": 1}, "x", paged=True),
        call_fingerprint("read_file", {"path": "p", "start_line": 201}, "x", paged=True),
    }
    assert len(different) == 6
    first, near = (call_fingerprint("read_file", {"start_line": n}, "x", paged=True) for n in (201, 399))
    assert first == near


async def test_a_turn_has_a_maximum_number_of_model_calls(make: Workshop, model: FakeModel) -> None:
    bench = await make(max_model_calls=4)
    blocks = await bench.run(say(script(*[[call("look", text=f"{n}")] for n in range(20)])))
    assert view(blocks).final().text.startswith("I stopped after 4 steps")
    assert len(model.requests()) == 4
    assert end(await bench.run(say("go on", "m2"))) == "done"


# ---------------------------------------------------------------- effects


async def test_a_call_in_the_ledger_does_not_run_again(bench: Bench) -> None:
    text = script([call("effect", text="once")], tokens=2)
    await bench.run(say(text))
    rows = await bench.database.run(lambda execute: execute("SELECT call, result FROM ledger", {}))
    [(key, result)] = [(row["call"], row["result"]) for row in rows]
    assert json.loads(result)["content"] == "did once"
    message = next(m for m in await bench.state() if m.type == "ai")
    assert key == f"{message.id}/{message.tool_calls[0]['id']}"


# ---------------------------------------------------------------- steering


async def test_a_message_during_the_work_is_taken_into_account(bench: Bench, model: FakeModel) -> None:
    text = script([call("slow", seconds=0.3)], tokens=3)
    task = asyncio.create_task(bench.run(say(text)), name="turn")
    await until(lambda: model.requests(), what="the first call, which has not read the second message")
    bench.waiting.inputs.append(say("also do B", "m2", name="Ann"))
    blocks = await task
    assert end(blocks) == "done"
    assert [m.type for m in await bench.state()] == ["human", "ai", "tool", "human", "ai"]
    assert model.requests()[-1].messages[-1]["content"].endswith("· Ann]\nalso do B")
    assert len(model.requests()) == 2


async def test_a_steering_message_is_not_injected_twice(bench: Bench, model: FakeModel) -> None:
    extra: list[UserInput] = [say("also B", "m2"), say("also B", "m2")]
    bench.waiting.inputs = extra[:1]
    await bench.run(say(script([call("look", text="a")], tokens=3)))
    bench.waiting.inputs = extra[1:]  # after a crash it is unread again
    await bench.run(say("next", "m3"))
    assert [m.id for m in await bench.state() if m.type == "human"] == ["m1", "m2", "m3"]


async def test_steering_survives_a_retry_and_an_empty_answer(bench: Bench, model: FakeModel) -> None:
    bench.waiting.inputs = [say('also B ::{"errors": [500], "text": ""}', "m2")]
    await bench.run(say("first"))
    assert [m.type for m in await bench.state()] == ["human", "human", "ai"]
    assert all(any("also B" in str(m["content"]) for m in request.messages) for request in model.requests())


async def test_a_message_after_the_last_model_call_is_left_to_the_next_turn(bench: Bench) -> None:
    """Also if the record of the first turn was lost and it is entered again: each turn has its own answer."""
    await bench.run(say("first"))
    bench.waiting.inputs = [say("second", "m2")]
    blocks = await bench.run(say("first"))
    assert "first" in view(blocks).final().text
    assert len(bench.waiting.inputs) == 1


# ---------------------------------------------------------------- summaries


async def test_a_long_conversation_is_condensed_in_the_same_step(make: Workshop, model: FakeModel) -> None:
    bench = await make(trigger_messages=8, keep_messages=3)
    for number in range(3):
        await bench.run(say(f"look at /mnt/user-data/uploads/f{number}.csv and AB-{number}77", f"m{number}"))
    blocks = await bench.run(say(script([call("look", text="z")], tokens=2), "m8"))
    assert view(blocks).final().text == words(2)
    assert sum(isinstance(block, Notice) for block in blocks) == 1
    state = await bench.state()
    assert state[0].additional_kwargs.get("summary")
    assert len(state) <= 8
    for exact in ("/mnt/user-data/uploads/f0.csv", "AB-077"):
        assert exact in state[0].text
    assert not any(request.rejected for request in model.requests())
    assert "m8" in [m.id for m in state]  # by it an interrupted turn is recognised
    done = blocks[-1]
    assert isinstance(done, Done)
    assert done.usage.calls == 3  # two answers and the summary


async def test_tool_calls_and_results_stay_together(make: Workshop, model: FakeModel) -> None:
    numbers = iter(range(9))

    def work(body: dict[str, Any]) -> Answer | None:
        if not body.get("tools"):
            return None
        number = next(numbers, None)
        if number is None:
            return Answer("done")
        return Answer(calls=tuple(ToolCall("look", json.dumps({"text": f"{number}{side}"})) for side in "ab"))

    model.script = work
    bench = await make(trigger_messages=6, keep_messages=2)
    blocks = await bench.run(say("go"))
    assert view(blocks).final().text == "done"
    assert len(steps(blocks)) == 36
    assert not any(request.rejected for request in model.requests())
    assert len(await bench.state()) <= 10
    assert "m1" in [m.id for m in await bench.state()]


async def test_a_summary_names_the_skills_in_use(make: Workshop, model: FakeModel) -> None:
    numbers = iter(range(9))

    def work(body: dict[str, Any]) -> Answer | None:
        if not body.get("tools"):
            return None
        number = next(numbers)
        args = {"path": f"/mnt/skills/plot{number // 4}/SKILL.md"}
        return Answer(calls=(ToolCall("read_file", json.dumps(args)),)) if number < 8 else Answer("done")

    model.script = work
    bench = await make(trigger_messages=6, keep_messages=2)
    assert view(await bench.run(say("go"))).final().text == "done"
    note = (await bench.state())[0].text
    assert "Skills in use; read them again" in note
    assert "/mnt/skills/plot0/SKILL.md, /mnt/skills/plot1/SKILL.md" in note  # the first survived an earlier summary


async def test_a_conversation_that_is_too_long_is_shortened_once(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    for number in range(6):
        await bench.run(say(f"part {number} {'lorem ' * 200}", f"m{number}"))

    def short_of_memory(body: dict[str, Any]) -> Answer | None:
        return Answer(status=413) if body.get("tools") and len(body["messages"]) > 8 else None

    model.script = short_of_memory
    blocks = await bench.run(say("go on", "m8"))
    assert end(blocks) == "done"
    state = await bench.state()
    assert state[0].additional_kwargs.get("summary")
    model.script = lambda body: Answer(status=413) if body.get("tools") else None
    assert failed(await bench.run(say("and now", "m9"))).what == "The conversation is too long for my model."


async def test_the_turn_continues_when_the_summary_fails(make: Workshop, model: FakeModel) -> None:
    bench = await make(trigger_messages=4, keep_messages=2)
    model.script = lambda body: None if body.get("tools") else Answer(status=500)
    for number in range(4):
        assert end(await bench.run(say("hello", f"m{number}"))) == "done"
    assert len(await bench.state()) == 8


async def test_a_long_request_is_not_summarized_at_every_step(make: Workshop, model: FakeModel) -> None:
    bench = await make(trigger_tokens=2000, trigger_messages=100, keep_messages=2, keep_tokens=500)
    steps_of_work = [[call("look", text=str(number))] for number in range(6)]
    blocks = await bench.run(say("word " * 3000 + script(*steps_of_work, text="done")))
    assert view(blocks).text == "done"
    assert len([block for block in blocks if isinstance(block, Notice) and block.kind == "summary"]) <= 1


@tool_with(effect="none", paged=True)
async def page(size: int) -> str:
    """Return as much as a file of this size has."""
    return "x" * size


async def test_results_larger_than_the_window_are_shortened(make: Workshop, model: FakeModel) -> None:
    bench = await make(tools=[page])
    model.dialect, model.window_bytes = Dialect(), 60_000
    blocks = await bench.run(say(script([call("page", size=80_000), call("page", size=80_001)], text="done")))
    assert view(blocks).text == "done"
    results = [message for message in await bench.state() if isinstance(message, ToolMessage)]
    for result, size in zip(results, (80_000, 80_001), strict=True):
        assert f"The whole output of {size} characters is in " in str(result.content)
    files = [*(bench.folder / "workspace/.outputs").iterdir()]
    assert sorted(file.stat().st_size for file in files) == [80_000, 80_001]
    assert "continues" in view(await bench.run(say('::{"text": "continues"}', "m2"))).text
