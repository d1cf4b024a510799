"""Only whole tool calls run, and reading them takes time in proportion to their length."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from agent.blocks import Approve, Block, Notice, Step
from agent.models.arguments import BadArguments, mark_arguments, parse_arguments
from agent.models.whole_calls import cut_reason, meant_tool, settle_calls
from agent.outcomes import Used
from agent.permissions.rules import RulePermissions, parse_rules
from agent.settings.models import ModelSettings
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.server import Json
from tests.support.growth import grows_in_proportion
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_providers import Provider, double
from tests.unit.agent.test_resume import end

KINDS = ["openai", "anthropic", "openai-responses"]  # one of each wire format
SAVE = "/mnt/user-data/workspace"


@pytest.fixture(params=KINDS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    async with double(request.param) as server:
        yield Provider(request.param, server)


@pytest.fixture
async def bench(provider: Provider, make: Workshop) -> Bench:
    return await make(settings=(provider.settings(),))


def steps_of(*steps: Json, **more: Any) -> str:
    return "::" + json.dumps({"steps": list(steps), **more})


def raw(name: str, args: str, id_: str = "") -> Json:
    return {"name": name, "args": args, **({"id": id_} if id_ else {})}


async def results(bench: Bench) -> list[ToolMessage]:
    return [message for message in await bench.state() if isinstance(message, ToolMessage)]


def kept_notices(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, Notice) and block.kept]


# ---------------------------------------------------------------- what runs


CUT = '{"text": "rm -rf /mnt/user-data/workspace'
FAULTY = {
    "cut off": (raw("effect", CUT), {}, "not valid JSON"),
    "cut off, and says so": (raw("effect", CUT), {"finish": "length"}, "output limit"),
    "filtered": (raw("effect", '{"text": "a"}'), {"finish": "content_filter"}, "content filter"),
    "whole, of an answer that was cut off": (raw("effect", '{"text": "a"}'), {"finish": "length"}, "output limit"),
    "a wrong escape": (raw("effect", '{"text": "\\d"}'), {}, "escape"),
    "a list": (raw("effect", '["a"]'), {}, "must be a JSON object"),
    "no number of JSON": (raw("effect", '{"text": NaN}'), {}, "not valid JSON"),
    "nested deeply": (raw("effect", '{"text": ' + "[" * 400 + "]" * 400 + "}"), {}, "nested too deeply"),
    "brackets without end": (raw("effect", "[" * 200_000), {}, "nested too deeply"),
    "not of the schema": (raw("effect", '{"texts": "a"}'), {}, "do not fit the tool"),
    "no arguments": (raw("effect", ""), {}, "do not fit the tool"),
}


@pytest.mark.parametrize("case", FAULTY)
async def test_a_call_that_is_not_whole_goes_back_to_the_model(provider: Provider, bench: Bench, case: str) -> None:
    call, wire, told = FAULTY[case]
    blocks = await bench.run(say(steps_of({"calls": [call], **wire}, text="I see")))
    assert (end(blocks), view(blocks).text) == ("done", "I see")
    [result] = await results(bench)
    assert (result.status, result.name) == ("error", "effect")
    assert told in str(result.content)
    assert not (bench.folder / "workspace/effects").exists(), "it did not run"
    assert [block.state for block in blocks if isinstance(block, Step)] == ["failed"], "it did not begin"
    assert not any(request.rejected for request in provider.server.requests())


async def test_a_whole_call_beside_a_broken_one_runs(provider: Provider, bench: Bench) -> None:
    calls = [raw("look", '{"text": "a"}'), raw("look", '{"text": "'), raw("look", '{"text": "c"}')]
    blocks = await bench.run(say(steps_of({"calls": calls}, text="done")))
    assert view(blocks).text == "done"
    assert sorted(str(result.content) for result in await results(bench) if result.status == "success") == [
        "seen a",
        "seen c",
    ]
    assert provider.server.requests()[-1].rejected == ""


async def test_no_person_is_asked_about_a_call_that_is_cut_off(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    context = await bench.context()
    context.permissions = RulePermissions(parse_rules(ask=["effect"]))
    blocks = await bench.run(say(steps_of({"calls": [raw("effect", CUT)]}, text="I see")), context=context)
    assert not [block for block in blocks if isinstance(block, Approve)]


async def test_a_tool_that_a_model_invents_is_not_counted(bench: Bench) -> None:
    context = await bench.context()
    made = [raw("invented", "{}"), raw("effect", '{"text": "a"}')]
    await bench.run(say(steps_of({"calls": made}, text="I see")), context=context)
    assert [outcome.name for outcome in context.meter.outcomes if outcome.used is Used.TOOL] == ["effect"]


async def test_a_model_that_only_makes_broken_calls_is_stopped(bench: Bench, provider: Provider) -> None:
    step = {"calls": [raw("effect", CUT)], "finish": "length"}
    blocks = await bench.run(say(steps_of(*[step] * 20)))
    assert "in circles" in view(blocks).text
    assert len(provider.server.requests()) == 5


async def test_names_of_providers_for_cut_answers() -> None:
    for metadata, reason in [
        ({"finish_reason": "length"}, "length"),
        ({"finish_reason": "MAX_TOKENS"}, "length"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"stop_reason": "refusal"}, "filter"),
        ({"finish_reason": "stop", "incomplete_details": None}, ""),
    ]:
        assert cut_reason(AIMessage("", response_metadata=metadata)) == reason


@pytest.mark.parametrize(("finish", "told"), [("length", "output limit"), ("content_filter", "filtered")])
async def test_a_text_that_is_cut_off_says_so(bench: Bench, finish: str, told: str) -> None:
    blocks = await bench.run(say("::" + json.dumps({"text": "one two", "finish": finish})))
    [notice] = kept_notices(blocks)
    assert told in notice
    assert view(blocks).text == "one two"


# ---------------------------------------------------------------- bounds


async def test_only_so_many_calls_of_one_answer_run(provider: Provider, bench: Bench) -> None:
    calls = [raw("look", json.dumps({"text": str(number)})) for number in range(200)]
    blocks = await bench.run(say(steps_of({"calls": calls}, text="I see")))
    assert view(blocks).text == "I see"
    *ran, refused = await results(bench)
    assert [str(result.content) for result in ran] == [f"seen {number}" for number in range(64)]
    assert refused.status == "error"
    assert "At most 64 calls of one answer run." in str(refused.content)
    assert not any(request.rejected for request in provider.server.requests())


async def test_only_so_many_arguments_of_one_answer_are_read(provider: Provider, bench: Bench) -> None:
    small, long = '{"text": "small"}', json.dumps({"text": "x" * 4_000_000})
    calls = [raw("effect", small), raw("effect", long), raw("effect", small)]
    provider.server.script = _once(Answer(calls=tuple(ToolCall(c["name"], c["args"]) for c in calls), piece=500_000))
    blocks = await bench.run(say("go"))
    assert view(blocks).text == "I see"
    found = await results(bench)
    assert [result.status for result in found] == ["success", "error", "error"]
    assert all("4,000,000 characters together" in str(result.content) for result in found[1:])
    assert (bench.folder / "workspace/effects").read_text() == "small\n"


def _once(answer: Answer) -> Callable[[Json], Answer]:
    """Return the script of a model that gives this answer first."""
    answers = [answer]
    return lambda body: answers.pop() if answers else Answer("I see")


# ---------------------------------------------------------------- ids


async def test_equal_ids_in_one_answer_and_in_later_ones(provider: Provider, bench: Bench) -> None:
    equal = {"calls": [raw("effect", json.dumps({"text": text}), "call_0") for text in ("a", "b")]}
    blocks = await bench.run(say(steps_of(equal, equal, text="done")))
    assert view(blocks).text == "done"
    found = await results(bench)
    assert len({result.tool_call_id for result in found}) == 4
    assert [str(result.content) for result in found] == ["did a", "did b"] * 2
    done = [block for block in blocks if isinstance(block, Step) and block.state == "done"]
    assert len({block.id for block in done}) == 4
    assert [request.rejected for request in provider.server.requests()] == [""] * 3


async def test_an_id_of_an_earlier_turn_is_not_used_again(provider: Provider, bench: Bench) -> None:
    equal = {"calls": [raw("effect", json.dumps({"text": "a"}), "call_0")]}
    for key in ("m1", "m2"):
        await bench.run(say(steps_of(equal, text="done"), key))
    assert len({result.tool_call_id for result in await results(bench)}) == 2


async def test_equal_ids_of_outputs_do_not_share_a_file(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    size = len("".join(f"line {number}\n" for number in range(9000)))
    step = {"calls": [raw("big", '{"size": 9000}', "functions.big:0")]}
    await bench.run(say(steps_of(step, step, text="done")))
    await bench.run(say(steps_of(step, text="done"), "m2"))
    files = [*(bench.folder / "workspace/.outputs").iterdir()]
    assert [file.stat().st_size for file in files] == [size] * 3


def test_ids_keep_their_form() -> None:
    taken = {"functions.bash:0", "functions.bash:1"}
    answer = AIMessage(
        "",
        tool_calls=[{"name": "bash", "args": {}, "id": "functions.bash:0"}, {"name": "bash", "args": {}, "id": None}],
    )
    settle_calls(answer, taken)
    first, second = (call["id"] for call in answer.tool_calls)
    assert first == "functions.bash:2"
    assert str(second).startswith("call_")


# ---------------------------------------------------------------- time


def bad_escape(size: int) -> str:
    return json.dumps({"text": "x" * size})[:-2] + '\\d"}'


WORST: dict[str, Callable[[int], str]] = {
    "a wrong escape at the end": bad_escape,
    "brackets": lambda size: "[" * size,
    "open objects": lambda size: '{"a":' * (size // 5),
    "quotes": lambda size: '{"text": "' + '\\"' * (size // 2),
    "closing brackets": lambda size: "{" + "}" * size,
}


def calling(arguments: str, piece: int) -> Callable[[Json], Answer]:
    """Return the script of a model that makes one call with these arguments, streamed in such pieces."""

    def script(body: Json) -> Answer:
        called = any(message["role"] == "tool" for message in body["messages"])
        return Answer("ok") if called else Answer(calls=(ToolCall("look", arguments),), piece=piece)

    return script


@pytest.fixture
def collector() -> Iterator[None]:
    """Keep the garbage collector out of what is measured: it walks all objects of the test process."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(("worst", "piece"), [*((each, 40) for each in WORST), ("quotes", 16_000)])
async def test_reading_a_call_takes_time_in_proportion(
    provider: Provider, bench: Bench, worst: str, piece: int
) -> None:
    seconds: list[float] = []
    for number, size in enumerate((10_000, 20_000, 80_000)):
        provider.server.script = calling(WORST[worst](size), piece)
        before = time.thread_time()
        blocks = await bench.run(say("go", f"m{number}"), conversation=f"c{number}")
        seconds.append(time.thread_time() - before)
        assert view(blocks).text == "ok"
    assert seconds[2] < 6 * seconds[1] + 0.3, "four times the text"


@pytest.mark.parametrize("worst", WORST)
def test_parsing_is_linear(worst: str) -> None:
    def parse(size: int) -> None:
        with pytest.raises(BadArguments):
            parse_arguments(WORST[worst](size))

    assert grows_in_proportion(parse, 100_000)


# ---------------------------------------------------------------- servers that speak oddly


ODD = {
    "null": ("null", 2),
    "a text": ('"hello"', 2),
    "a list": ("[]", 2),
    "choices without content": ('{"choices": [null]}', 1),
    "no choices": ('{"choices": null}', 1),
    "a number of choices": ('{"choices": 5}', 2),
    "calls without content": ('{"choices": [{"delta": {"tool_calls": [null]}}]}', 1),
    "a text as delta": ('{"choices": [{"delta": "hello"}]}', 2),
    "a usage in words": ('{"choices": [], "usage": "none"}', 1),
    "a usage of words": ('{"choices": [], "usage": {"prompt_tokens": "five"}}', 1),
    "a deep event": ('{"choices": ' + "[" * 5000 + "]" * 5000 + "}", 2),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_event_is_ignored_or_the_answer_asked_for_again(
    make: Workshop, model: FakeModel, odd: str
) -> None:
    event, requests = ODD[odd]
    bench = await make()
    model.script = lambda body: Answer("hello", events=(event,) if len(model.requests()) == 1 else ())
    assert view(await bench.run(say("hi"))).text == "hello"
    assert len(model.requests()) == requests


async def test_a_server_that_only_sends_nonsense_is_replaced(make: Workshop, model: FakeModel) -> None:
    async with FakeModel(script=lambda body: Answer("from the backup")) as backup:
        entries = [
            ModelSettings(name, base_url=f"{server.base_url}/v1", retries=1, display_name=name)
            for name, server in (("main", model), ("backup", backup))
        ]
        bench = await make(settings=tuple(entries), fallback=("backup",))
        model.script = lambda body: Answer("hello", events=("null",))
        blocks = await bench.run(say("hi"))
        assert view(blocks).text == "from the backup"
        assert not bench.agent.models["main"].endpoint.failures, "it breaks streams, but it is there"
        model.script = lambda body: Answer(status=402)
        [notice] = kept_notices(await bench.run(say("hi", "m2")))
        assert notice == "My account at the model's provider has run out of credit. backup answers instead."


async def test_a_name_in_each_delta_is_one_name(make: Workshop, model: FakeModel) -> None:
    bench = await make()
    step = {"calls": [raw("look", '{"text": "abcdef"}'), raw("look", '{"text": "g"}')], "piece": 3, "names": True}
    await bench.run(say(steps_of(step, text="done")))
    assert [str(result.content) for result in await results(bench)] == ["seen abcdef", "seen g"]


# ---------------------------------------------------------------- what can be read in one way only

ARGS = '{"text": "a b"}'
READABLE = {
    "whole": ARGS,
    "JSON in JSON": json.dumps(ARGS),
    "in JSON twice, with its own tail": json.dumps(ARGS) + "</tool_call>",
    "a tag behind": ARGS + "\n</tool_call>",
    "a token behind": ARGS + "<|tool_call_end|>",
    "a fullwidth token": ARGS + "<｜tool▁call▁end｜>",
    "a semicolon": ARGS + ";",
    "a comma at the end": '{"text": "a b",}',
    "a comma in a list": '{"text": "a b", "more": [1, 2, ], }',
    "single quotes": "{'text': 'a b'}",
    "words of Python": "{'text': 'a b', 'on': True, 'off': None}",
    "fenced": f"```json\n{ARGS}\n```",
    "fenced without a name": f"```\n{ARGS}\n```",
    "a fence behind": f"{ARGS}\n```",
    "a mark of bytes": "\ufeff" + ARGS,
    "an empty object before": "{}" + ARGS,
    "breaks written out": '{"text": \\n"a b"\\n}',
    "names without quotes": '{text: "a b", more_2: 1}',
    "a space around": f"  \n{ARGS} \n",
}


@pytest.mark.parametrize("name", READABLE)
def test_arguments_that_can_mean_one_thing_only_are_read(name: str) -> None:
    assert parse_arguments(READABLE[name])["text"] == "a b"
    assert json.loads(mark_arguments(READABLE[name]))["text"] == "a b"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"text": "it\'s"}', "it's"),
        (r'{"text": "a\\nb, }"}', "a\\nb, }"),
        ('{"text": "x: {y: 1,}",}', "x: {y: 1,}"),
        ('{"text": "a\nb"}', "a\nb"),
    ],
)
def test_what_stands_in_strings_stays(text: str, value: str) -> None:
    assert parse_arguments(text)["text"] == value


@pytest.mark.parametrize("text", ["", "null", "None", " "])
def test_no_arguments_are_none(text: str) -> None:
    assert parse_arguments(text) == {}


BROKEN: tuple[str, ...] = (
    '{"text": "a',
    '{"text": "a b"',
    ARGS + ARGS,
    ARGS + " and more",
    "{'text': 'it's'}",
    '["a"]',
    "text",
)
BROKEN += ('{"a": 1 "b": 2}', '"text"', '{"text" "a"}', "{'a': {1, 2}}", "{'a': print('os')}", ARGS + '"x"')
BROKEN += (r'{"text": "\d"}', "{1: 2 3}", "[" * 500)


@pytest.mark.parametrize("text", BROKEN)
def test_arguments_that_are_cut_or_could_mean_two_things_are_refused(text: str) -> None:
    with pytest.raises(BadArguments):
        parse_arguments(text)


OFFERED = ["look", "read_file", "mcp__gh__get_issue", "mcp__lab__get_issue", "mcp__gh__list_repos", "web_search"]
MEANT = {
    **dict.fromkeys(
        ["look", "Look", "LOOK", " look", "functions.look", "functions.look:0", "default_api.look"], "look"
    ),
    **dict.fromkeys(["tool.look", "look_tool", "look<|channel|>commentary", "lo-ok", "look()", "tools/look"], "look"),
    **dict.fromkeys(["ReadFile", "readFile", "read-file", "READ_FILE", "functions.read_file:12"], "read_file"),
    **dict.fromkeys(["list_repos", "gh.list_repos", "mcp__gh__List_Repos", "mcp_gh_list_repos"], "mcp__gh__list_repos"),
    **dict.fromkeys(["get_issue", "lookup", "search", "", ":", "__", "tool", "web", "read", "look.read_file"], ""),
}


@pytest.mark.parametrize("name", MEANT)
def test_a_name_that_can_mean_one_tool_only_is_that_tool(name: str) -> None:
    assert meant_tool(name, OFFERED) == MEANT[name]
