"""Answers in the forms that real servers send: usage with every chunk, refusals, tags, errors and whole bodies."""

from __future__ import annotations

import pytest
from aiohttp import web
from langchain_core.messages import AIMessage, AIMessageChunk

from agent.blocks import Failed, Notice
from agent.models.errors import classify_error, is_charged
from agent.models.openai_events import ErrorBody, StrangeBody
from agent.models.reasoning import split_thoughts, thinking_of
from agent.models.whole_calls import show_refusal
from agent.settings.models import ModelSettings
from tests.fakes.server import Json
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop, view
from tests.unit.agent.test_openai_stream import STOP, Wire, delta, serving, sse, stream, whole


def so_far(chunk: Json, prompt: int, completion: int) -> Json:
    return {**chunk, "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 0}}


class Body(Wire):
    """A server that answers with this text, whatever was asked."""

    text = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.body = await request.json()
        return web.Response(text=self.text, content_type="application/json")


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize("last", ["with the end", "of its own", "only zeros at the end"])
async def test_usage_so_far_counts_once(last: str) -> None:
    """Gemini's gateway, Perplexity, SiliconFlow and Together send the usage so far with every chunk."""
    chunks = [so_far(delta(content=f"w{n} "), 200, n) for n in range(1, 40)]
    end = {
        "with the end": [so_far(delta("stop"), 200, 40)],
        "of its own": [delta("stop"), so_far({"choices": []}, 200, 40)],
        "only zeros at the end": [so_far(delta("stop"), 200, 40), so_far({"choices": []}, 0, 0)],
    }
    async with serving(sse(*chunks, *end[last], b"[DONE]")) as wire:
        told = whole(await stream(wire)).usage_metadata
    assert told is not None
    assert (told["input_tokens"], told["output_tokens"]) == (200, 40)


STRANGE = {
    "no object": ([1], None),
    "a word": ({"prompt_tokens": "many", "completion_tokens": 3}, (0, 3)),
    "digits as text": ({"prompt_tokens": "12", "completion_tokens": "3"}, (12, 3)),
    "less than nothing": ({"prompt_tokens": -5000, "completion_tokens": -1, "total_tokens": -5001}, None),
    "more than there is": ({"prompt_tokens": 10**14, "completion_tokens": 2}, None),
    "beyond numbers": ({"prompt_tokens": 1e300, "completion_tokens": 2}, (0, 2)),
    "halves": ({"prompt_tokens": 5.7, "completion_tokens": 2.2}, (5, 2)),
    "yes": ({"prompt_tokens": True, "completion_tokens": 2}, (0, 2)),
    "another total": ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 900_000}, (5, 2)),
    "details that are none": ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": "x"}, (5, 2)),
    "more cached than sent": (
        {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 900}},
        (5, 2),
    ),
    "nested": ({"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": [3]}, (5, 2)),
}


@pytest.mark.parametrize("place", ["chunk", "choice"])
@pytest.mark.parametrize("name", STRANGE)
async def test_a_usage_that_cannot_be_true_breaks_nothing_and_gives_nothing_back(
    make: Workshop, name: str, place: str
) -> None:
    usage, counted = STRANGE[name]
    end = {"choices": [], "usage": usage}
    if place == "choice":
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": None, "usage": usage}]}
    async with serving(sse(delta(content="hello"), delta("stop"), end, b"[DONE]")) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url),))
        assert view(await bench.run(say("hi"))).text == "hello"
        [*_, answer] = await bench.state()
    assert isinstance(answer, AIMessage)
    told = answer.usage_metadata
    assert (told and (told["input_tokens"], told["output_tokens"])) == counted
    if told:
        assert told["total_tokens"] == sum(counted or ())
        assert (told.get("input_token_details") or {}).get("cache_read", 0) <= told["input_tokens"]


# ---------------------------------------------------------------- thoughts in tags


TAGGED = "\n<think>\nHmm, <b> or </thin?\n</think>\n\nIt is 4 < 5."


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("names", [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷")])
async def test_thoughts_in_tags_are_no_answer(size: int, names: tuple[str, str]) -> None:
    text = TAGGED.replace("<think>", names[0]).replace("</think>", names[1])
    pieces = [delta(content=text[at : at + size]) for at in range(0, len(text), size)]
    async with serving(sse(*pieces) + STOP) as wire:
        answer = whole(await stream(wire))
    assert answer.content == "It is 4 < 5."
    assert thinking_of(answer).strip() == "Hmm, <b> or </thin?"


@pytest.mark.parametrize(
    "text", ["<", "<thin", "<thinker> is a tag", "a <think>b</think>", "  \n<table>", "`</think>` ends it", " " * 2000]
)
async def test_other_text_stays_as_it_is(text: str) -> None:
    async with serving(sse(*(delta(content=each) for each in text)) + STOP) as wire:
        assert whole(await stream(wire)).content == text
    assert split_thoughts(text) == ("", text)


async def test_thoughts_without_an_end_are_no_answer() -> None:
    async with serving(sse(delta(content="<think>one two </thi"), delta("length"), b"[DONE]")) as wire:
        answer = whole(await stream(wire))
    assert (answer.content, thinking_of(answer)) == ("", "one two </thi")


async def test_a_template_that_opens_the_tag_itself(make: Workshop) -> None:
    async with serving(sse(delta(content="Let me add.\n</think>\n\nIt is 4.")) + STOP) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url),))
        assert view(await bench.run(say("2+2?"))).text == "It is 4."
        [*_, kept] = await bench.state()
    assert (kept.content, thinking_of(kept)) == ("It is 4.", "Let me add.")
    code = "```\nthoughts\n</think>\nanswer\n```"
    assert split_thoughts(code) == ("", code)


async def test_thoughts_in_tags_go_back_as_they_came(make: Workshop) -> None:
    """A server that does not parse them refuses fields that it does not know, and its template reads the tags."""
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"text": "a"}'}}
    first = sse(delta(content="<think>\nlook first\n</think>\n\nI look."), delta("tool_calls", tool_calls=[call]))
    async with serving(first + sse(b"[DONE]")) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url, retries=0),), max_model_calls=2)
        await bench.run(say("hi"))
        [sent] = [message for message in wire.body["messages"] if message["role"] == "assistant"][:1]
    assert sent["content"].split() == ["<think>", "look", "first", "</think>", "I", "look."]
    assert not {"tagged_thoughts", "reasoning_content", "reasoning"} & sent.keys()


# ---------------------------------------------------------------- refusals


async def test_the_words_of_a_refusal_are_shown_once(make: Workshop) -> None:
    refusal = sse(delta(refusal="I can't "), delta(refusal="help with that.")) + STOP
    async with serving(refusal) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url),))
        assert view(await bench.run(say("bad"))).text == "I can't help with that."


def test_every_form_of_a_refusal_is_a_text() -> None:
    for answer in (
        AIMessage("", additional_kwargs={"refusal": "I can't."}),
        AIMessage([{"type": "refusal", "refusal": "I can't."}]),
        AIMessageChunk(content=[{"type": "refusal", "refusal": "I can't.", "index": 0}]),
    ):
        show_refusal(answer)
        assert answer.text == "I can't."


async def test_a_filtered_answer_is_paid_once(make: Workshop) -> None:
    async with serving(sse(delta("content_filter"), b"[DONE]")) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url),))
        blocks = await bench.run(say("bad"))
    [failed] = [block for block in blocks if isinstance(block, Failed)]
    assert "filtered" in failed.what
    assert not [block for block in blocks if isinstance(block, Notice)]


# ---------------------------------------------------------------- bodies that are no stream


WHOLE = """{
  "id": "x", "model": "m",
  "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "I look.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"text": "a"}}}]}}],
  "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
}"""


def body(text: str) -> type[Wire]:
    return type("Given", (Body,), {"text": text})


async def test_a_server_that_ignores_stream_is_read() -> None:
    async with serving(kind=body(WHOLE)) as wire:
        answer = whole(await stream(wire))
    assert answer.text == "I look."
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("look", {"text": "a"})]
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] == 9


CREDIT, OWN, BUSY = "run out of credit", "reported an error in place of", "busy"
ERRORS = {
    '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}': CREDIT,
    '{"error": "quota exceeded"}': CREDIT,
    '[{"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}]': BUSY,
    '{"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}, "choices": null}': CREDIT,
    '{"code": 20012, "message": "Model does not exist", "data": null}': OWN,
    '{"detail": "not here"}': OWN,
    '{\n  "object": "error",\n  "message": "maximum context length is 10 tokens"\n}': "too long",
}


@pytest.mark.parametrize("text", ERRORS)
async def test_an_error_with_the_status_of_an_answer(text: str) -> None:
    async with serving(kind=body(text)) as wire:
        with pytest.raises(ErrorBody) as raised:
            await stream(wire)
    verdict = classify_error(raised.value)
    assert verdict is not None
    assert ERRORS[text] in verdict.what
    assert not is_charged(raised.value)


@pytest.mark.parametrize("text", ["<html><body>Please log in</body></html>", '"hello"', "{" * 5000])
async def test_a_page_in_place_of_an_answer(text: str) -> None:
    async with serving(kind=body(text)) as wire:
        with pytest.raises(StrangeBody) as raised:
            await stream(wire)
    verdict = classify_error(raised.value)
    assert verdict is not None
    assert "couldn't read" in verdict.what


async def test_arguments_as_an_object_without_streaming(make: Workshop) -> None:
    async with serving(kind=body(WHOLE)) as wire:
        options = {"disable_streaming": True}
        bench = await make(settings=(ModelSettings("m", base_url=wire.url, options=options),), max_model_calls=2)
        await bench.run(say("hi"))
        assert "seen a" in [message.content for message in await bench.state()]
