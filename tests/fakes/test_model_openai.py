"""The scripted model against the real openai SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.fakes.model import Answer, FakeModel, ToolCall, words
from tests.fakes.model_script import without_directives
from tests.fakes.server import Json, until

LS: ChatCompletionToolParam = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


@pytest.fixture
async def client(model: FakeModel) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{model.base_url}/v1", api_key="k", max_retries=0, timeout=5) as made:
        yield made


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


async def streamed(client: openai.AsyncOpenAI, text: str) -> str:
    """Return the text of a streamed answer, as a client assembles it."""
    stream = await client.chat.completions.create(model="m", messages=[user(text)], stream=True, tools=[LS])
    return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


async def test_text_is_streamed_word_by_word_at_its_pace(model: FakeModel, client: openai.AsyncOpenAI) -> None:
    assert await streamed(client, 'go ::{"tokens": 20, "tok_ms": 5, "word": "x", "id": "a"}') == words(20, "x")
    [request] = model.requests("a")
    assert request.at <= request.first <= request.end
    assert request.end - request.first >= 0.09
    assert request.messages[0]["content"].startswith("go")
    assert await streamed(client, '::{"text": "exact  text\\n\\n- here"}') == "exact  text\n\n- here"
    assert await streamed(client, '::{"text": ""}') == ""
    assert await streamed(client, '::{"text": " \\n "}') == " \n "
    assert await streamed(client, "plain") == "You said: plain"


async def test_tool_calls_come_in_steps_then_the_answer(model: FakeModel, client: openai.AsyncOpenAI) -> None:
    asked = user('::{"steps": [{"calls": [{"name": "ls", "args": {"path": "/"}}, {"name": "ls", "args": "{"}]}]}')
    first = await client.chat.completions.create(model="m", messages=[asked], tools=[LS])
    calls = first.choices[0].message.tool_calls or []
    assert first.choices[0].finish_reason == "tool_calls"
    given = [call.function.arguments for call in calls if call.type == "function"]
    assert given == ['{"path":"/"}', "{"]
    history: list[ChatCompletionMessageParam] = [
        asked,
        {
            "role": "assistant",
            "tool_calls": [
                {"id": c.id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for c in calls
            ],
        },
        {"role": "tool", "tool_call_id": calls[0].id, "content": "a"},
    ]
    with pytest.raises(openai.BadRequestError, match=calls[1].id):
        await client.chat.completions.create(model="m", messages=history, tools=[LS])
    history.append({"role": "tool", "tool_call_id": calls[1].id, "content": "b"})
    last = await client.chat.completions.create(model="m", messages=history, tools=[LS])
    assert last.choices[0].message.content == words(5)
    assert last.usage
    assert last.usage.prompt_tokens_details
    assert last.usage.prompt_tokens_details.cached_tokens


async def test_a_streamed_tool_call_sends_its_name_before_its_arguments(client: openai.AsyncOpenAI) -> None:
    asked = [user('::{"seq": 1, "tool": "ls", "args": {"path": "/tmp"}}')]
    stream = await client.chat.completions.create(
        model="m", messages=asked, tools=[LS], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    parts = [c for chunk in chunks if chunk.choices for c in chunk.choices[0].delta.tool_calls or []]
    functions = [part.function for part in parts if part.function]
    assert functions[0].name == "ls"
    assert not functions[0].arguments
    assert "".join(f.arguments or "" for f in functions) == '{"path":"/tmp"}'
    assert chunks[-1].usage


async def test_scripted_errors_come_before_the_answer(model: FakeModel, client: openai.AsyncOpenAI) -> None:
    text = '::{"errors": [500, 429], "retry_after": 2, "text": "at last"}'
    with pytest.raises(openai.InternalServerError):
        await streamed(client, text)
    with pytest.raises(openai.RateLimitError) as limited:
        await streamed(client, text)
    assert limited.value.response.headers["Retry-After"] == "2"
    assert await streamed(client, text) == "at last"
    assert [request.status for request in model.requests()] == [500, 429, 200]


async def test_a_scripted_cut_applies_once(model: FakeModel, client: openai.AsyncOpenAI) -> None:
    aborted = '::{"tokens": 5, "abort_at": 2}'
    with pytest.raises((openai.APIConnectionError, Exception), match=r"(?i)connection|peer|incomplete|closed"):
        await streamed(client, aborted)
    assert await streamed(client, aborted) == words(5)
    ended = '::{"tokens": 5, "cut_at": 2}'
    assert await streamed(client, ended) == "w0 w1 "
    assert await streamed(client, ended) == words(5)
    broken = '::{"tokens": 5, "garbage_at": 2}'
    with pytest.raises(ValueError, match=r"(?i)expect"):
        await streamed(client, broken)
    silent = '::{"tokens": 5, "hang_at": 2}'
    asked = len(model.requests())
    hanging = asyncio.create_task(streamed(client, silent))
    await until(lambda: len(model.requests()) > asked and model.requests()[-1].first, what="the first words")
    await asyncio.wait({hanging}, timeout=0.1)
    assert not hanging.done()
    hanging.cancel()
    await asyncio.wait({hanging})
    assert await streamed(client, silent) == words(5)


async def test_summaries_keep_names_and_carry_no_directive(client: openai.AsyncOpenAI) -> None:
    asked = user('Summarize the conversation:\nHuman: deploy build-4711 to /srv/app ::{"tokens": 3}')
    answer = await client.chat.completions.create(model="m", messages=[asked])
    text = answer.choices[0].message.content or ""
    assert "build-4711" in text
    assert "/srv/app" in text
    assert "::" not in text


async def test_a_test_can_script_with_a_function_and_require_a_key() -> None:
    def script(body: Json) -> Answer | None:
        return Answer(calls=(ToolCall("ls", "{}"),)) if body["messages"][-1]["content"] == "list" else None

    async with FakeModel(script, api_key="right") as model:
        async with openai.AsyncOpenAI(base_url=f"{model.base_url}/v1", api_key="right", max_retries=0) as client:
            listed = await client.chat.completions.create(model="m", messages=[user("list")], tools=[LS])
            assert listed.choices[0].message.tool_calls
            assert await streamed(client, "other") == "You said: other"
        async with openai.AsyncOpenAI(base_url=f"{model.base_url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await streamed(client, "x")


@pytest.mark.parametrize(
    ("quote", "rest"),
    [
        ('got it: ::{"text": "done"}\n\nfirst', "got it: \n\nfirst"),
        ('“::{"steps": [{"text": "done"}]}”: Done. “::{}” ends', "“”: Done. “” ends"),
        ('“::{"text": "do…”: Done.', "“…”: Done."),
        ('a ::{"text": "do\nnext', "a \nnext"),
        ("done", "done"),
    ],
)
def test_a_quoted_directive_is_left_out(quote: str, rest: str) -> None:
    assert without_directives(quote) == rest
