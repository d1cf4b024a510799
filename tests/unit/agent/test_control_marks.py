"""What a model writes for its server, left in the text by a server that does not know the dialect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.blocks import Failed, Text
from agent.models.control_marks import MarkGate, clean_marks
from agent.policies.retry import is_blank
from agent.settings.models import ModelSettings
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop, view
from tests.unit.agent.test_openai_stream import delta, serving, sse
from tests.unit.agent.test_wire import Json, Strict, run

CALL = '{"name": "look", "arguments": {"text": "a"}}'
CALLS = [
    f"I will look.\n<tool_call>\n{CALL}\n</tool_call>",
    "<tool_call>\n<function=look>\n<parameter=text>\na\n</parameter>\n</function>\n</tool_call>",
    "<function=look>\n<parameter=text>a</parameter>\n</function>",
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="look">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{}\n```<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    '<minimax:tool_call>\n<invoke name="look">\n<parameter name="text">a</parameter>\n</invoke>\n</minimax:tool_call>',
    '[TOOL_CALLS]look[ARGS]{"text": "a"}',
    f"Let me see. [TOOL_CALLS][{CALL}]",
    '```tool_code\nlook(text="a")\n```',
    '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"text": "a"}<|call|>',
    "<tool_call>look\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
    '<|python_tag|>look.call(text="a")',
    '<|tool_call>call:look{text:<|"|>a<|"|>}<tool_call|>',
    f"<function_calls>{CALL}</function_calls>",
    f"<toolcall>{CALL}</toolcall>",
    f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    '<|START_ACTION|>[{"tool_name": "look", "parameters": {"text": "a"}}]<|END_ACTION|>',
    CALL,
    f"[{CALL}]",
    f"```json\n{CALL}\n```",
    '{"name": "look", "parameters": {"text": "a"}}',
    'look(text="a")',
    "[look(text='a')]",
    'default_api.look(text="a")',
]
SIGNS = ("tool", "<", "｜", "ARGS", "DSML")


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("text", CALLS)
async def test_a_call_written_as_text_is_asked_for_once_and_never_posted(make: Workshop, text: str, size: int) -> None:
    pieces = sse(*(delta(content=text[at : at + size]) for at in range(0, len(text), size)), delta("stop"))
    async with serving(kind=Strict) as wire:
        bench = await run(make, wire, lambda body: None if "as text" in str(body["messages"][-1]) else pieces)
        blocks = await bench.run(say("go"))
        assert view(blocks).final().text == "hello"
        if "<" in text or "TOOL" in text or "tool_code" in text:
            posted = [block.delta for block in blocks if isinstance(block, Text)]
            assert [each for each in posted for sign in SIGNS if sign in each] == []
        assert isinstance(wire, Strict)
        wire.refuses, wire.bodies = lambda body: pieces, []
        told = await bench.run(say("go on", "m2"))
        [failed] = [block for block in told if isinstance(block, Failed)]
        assert failed.what == "My model wrote a call of a tool as text, twice, so nothing ran."
        assert len(wire.bodies) == 2


ANSWERS = [
    "Sure.\n<think>secret</think>\n\nHello world",
    "secret.</think>Hello world",
    "secret\n</think>\n\nHello world",
    "<think>secret</think>\n\n<think>secret</think>\n\nHello world",
    "<reasoning>secret</reasoning>\nHello world",
    "<Think>secret</Think>\nHello world",
    "<THINKING>\nsecret\n</THINKING>\nHello world",
    "<reflection>secret</reflection>Hello world",
    "<think>secret</think><answer>Hello world</answer>",
    "<final_answer>\nHello world\n</final_answer>",
    "Hello world<|im_end|>",
    "Hello world<|eot_id|><|start_header_id|>",
    "Hello world</s>",
    "Hello world<end_of_turn>\n",
    "Hello world<｜end▁of▁sentence｜>",
    "Hello world<|endoftext|>",
    "<|im_start|>assistant\nHello world<|im_end|>",
    "<|channel|>analysis<|message|>secret<|end|><|start|>assistant<|channel|>final<|message|>Hello world<|return|>",
    "<|channel|>final <|constrain|>text<|message|>Hello world",
]


@pytest.mark.parametrize("text", ANSWERS)
async def test_thoughts_and_end_tokens_are_not_shown(make: Workshop, text: str) -> None:
    pieces = [delta(content=text[at : at + 5]) for at in range(0, len(text), 5)]
    async with serving(sse(*pieces, delta("stop"), b"[DONE]")) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url),))
        shown = view(await bench.run(say("hi"))).final().text
    assert shown.replace("Sure.\n\n", "") == "Hello world"


WORDS = [
    "Use `<tool_call>` for it.",
    "```xml\n<tool_call>\n{}\n</tool_call>\n```",
    "The <|im_end|> token ends a turn.",
    "a <think>b</think>",
    "`</think>` ends it",
    "The tag </think> closes it.",
    "1 < 2 and [TOOL] is a word",
    "<b>bold</b>\n<function-like>",
    "```python\nlook(text='a')\n```",
    "a |> b <| c",
    '{"name": "Jane", "arguments": {}}',
    "<details>\n<summary>x</summary>\n</details>",
    "if x<y|z>w: pass",
    "<think>unclosed",
]


@pytest.mark.parametrize("text", WORDS)
def test_words_about_marks_and_code_stay(text: str) -> None:
    assert clean_marks(text).text == text
    assert not clean_marks(text).has_call


@given(st.text(st.sampled_from("a <>|｜/`\n[]_TOLCthinks0="), max_size=80), st.integers(1, 9))
def test_what_a_gate_shows_is_the_beginning_of_the_text(text: str, size: int) -> None:
    gate = MarkGate()
    assert text.startswith("".join(gate.take(text[at : at + size]) for at in range(0, len(text), size)))


@given(st.text(max_size=60))
def test_text_without_signs_is_not_touched(text: str) -> None:
    if not any(sign in text for sign in "<[`"):
        assert clean_marks(text).text == text


@pytest.mark.parametrize(
    "code", [0x20, 0xA0, 0x200B, 0xFEFF, 0x3164, 0x2800, 0xAD, 0x200E, 0x3000, 0x1D, 0xE0001, 0x2066]
)
async def test_an_answer_that_nobody_can_see_is_none(make: Workshop, code: int) -> None:
    assert is_blank(chr(code) * 3 + "\n")
    async with serving(kind=Strict) as wire:
        blank = sse(delta(content=chr(code)), delta("stop"))
        bench = await run(make, wire, lambda body: None if "empty" in str(body["messages"][-1]) else blank)
        assert view(await bench.run(say("hi"))).final().text == "hello"


MESSAGE = {"role": "assistant", "content": "hello"}
FORMS = {
    "a message": sse({"choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}, b"[DONE]"),
    "a text": sse({"choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}]}, b"[DONE]"),
    "data twice": sse(delta(content="hello"), delta("stop"), b"[DONE]").replace(b"data:", b"data: data:"),
    "the message again": sse(
        delta(content="hello"), {"choices": [{"index": 0, "delta": {}, "message": MESSAGE, "finish_reason": "stop"}]}
    ),
}


@pytest.mark.parametrize("name", FORMS)
async def test_other_forms_of_an_answer_are_read(make: Workshop, name: str) -> None:
    async with serving(FORMS[name]) as wire:
        bench = await make(settings=(ModelSettings("m", base_url=wire.url, retries=0),))
        assert view(await bench.run(say("hi"))).final().text == "hello"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_an_answer_that_stands_only_in_the_thoughts_is_shown(make: Workshop, field: str) -> None:
    def thinks(body: Json) -> bytes:
        return sse(delta(**{field: "Hello "}), delta(content="", **{field: "world"}), delta("stop"))

    async with serving(kind=Strict) as wire:
        bench = await run(make, wire, thinks)
        assert view(await bench.run(say("hi"))).final().text == "Hello world"
        assert isinstance(wire, Strict)
        assert len(wire.bodies) == 2
