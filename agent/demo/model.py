"""The built-in demo: a streaming chat model that plays labelled scenes, offline and without an account.

It answers if no model is configured, and shows a newcomer streaming, steps, a file, a question and /stop. Keywords in
the person's message select the scene.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import orjson
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agent.core.user_message import MODE_NOTES
from agent.demo.scenes import (
    PLAN_FIRST,
    DemoLine,
    DemoScene,
    approve_scene,
    ask_scene,
    delegate_scene,
    explain_scene,
    fail_scene,
    plan_scene,
    plot_scene,
    schedule_scene,
    skill_scene,
    slow_scene,
    subtask_scene,
)
from agent.policies.goal import EVALUATION_PROMPT
from catalogue import _, list_items

DEMO_SCENES: tuple[tuple[str, Callable[[DemoScene], DemoLine]], ...] = (
    (r"skills?", skill_scene),
    (r"demo-task", subtask_scene),
    (r"remind(?:er)?|schedules?", schedule_scene),
    (r"delegate|sub-?agents?", delegate_scene),
    (r"plan|todo", plan_scene),
    (r"slow|long|sleep|wait", slow_scene),
    (r"approve|approval|permission", approve_scene),
    (r"plot|chart|graph|diagram|files?|png|csv|program", plot_scene),
    (r"ask|question|clarify|choose", ask_scene),
    (r"fail|fails|error|broken|recover", fail_scene),
)
WORD_SECONDS = 0.025


class DemoModel(BaseChatModel):
    """A chat model that plays scenes; it streams one word per `word_seconds`."""

    word_seconds: float = WORD_SECONDS

    @property
    def _llm_type(self) -> str:
        return "fawn-demo"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind the names of the tools."""
        names = [
            convert_to_openai_tool(tool)["function"]["name"] for tool in tools if isinstance(tool, (BaseTool, dict))
        ]
        return self.bind(tool_names=names, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        line = next_line(messages, kwargs.get("tool_names", ()))
        calls = [{"name": line.tool, "args": args, "id": _call_id(), "type": "tool_call"} for args in line.calls()]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(line.text, tool_calls=calls))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        line = next_line(messages, kwargs.get("tool_names", ()))
        for chunk in _stream_chunks(line):
            if chunk.text:
                await asyncio.sleep(self.word_seconds)
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation


def next_line(messages: Sequence[BaseMessage], tools: Sequence[str]) -> DemoLine:
    """Return the next line, given the conversation."""
    if not tools:  # a request for a summary, a title or a verdict
        if messages[-1].text.startswith(EVALUATION_PROMPT[:20]):
            return DemoLine(_("MET: the built-in demo is content with itself."))
        return DemoLine(_("The built-in demo does not summarize; this was a conversation with it."))
    begin = 0
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage) and not message.tool_calls:
            begin = index + 1
    turn = messages[begin:]
    first = next((index for index, message in enumerate(turn) if isinstance(message, AIMessage)), len(turn))
    asked = "\n".join(_text_without_header(message) for message in turn[:first] if isinstance(message, HumanMessage))
    meanwhile = tuple(_text_without_header(message) for message in turn[first:] if isinstance(message, HumanMessage))
    results = tuple(message for message in turn if isinstance(message, ToolMessage))
    scene = DemoScene(asked, meanwhile, results, frozenset(tools))
    line = _choose_scene(scene.words)(scene)
    return line if line.tool or not scene.meanwhile else DemoLine(line.text + _acknowledge_steering(scene.meanwhile))


def _choose_scene(words: str) -> Callable[[DemoScene], DemoLine]:
    return next(
        (scene for pattern, scene in DEMO_SCENES if re.search(rf"\b({pattern})\b", words.lower())), explain_scene
    )


def _acknowledge_steering(meanwhile: Sequence[str]) -> str:
    texts = list_items(_("“{title}”", title=text) for text in meanwhile)
    return "\n\n" + _("While I worked, you also wrote: {texts}. I have seen it.", texts=texts)


def _text_without_header(message: HumanMessage) -> str:
    """Return the person's text without its header line, and with a word for the note of its mode."""
    text = message.text.replace(MODE_NOTES["plan"], PLAN_FIRST).replace(MODE_NOTES["goal"], "")
    return re.sub(r"^\[[^\]\n]*\]\n?", "", text).strip()


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _stream_chunks(line: DemoLine) -> list[AIMessageChunk]:
    chunks = [AIMessageChunk(content=word) for word in re.findall(r"\S+\s*|\s+", line.text)]
    for index, args in enumerate(line.calls()):
        first = tool_call_chunk(name=line.tool, args="", id=_call_id(), index=index)
        rest = tool_call_chunk(name=None, args=orjson.dumps(args).decode(), id=None, index=index)
        chunks += [
            AIMessageChunk(content="", tool_call_chunks=[first]),
            AIMessageChunk(content="", tool_call_chunks=[rest]),
        ]
    return chunks
