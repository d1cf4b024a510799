"""The built-in demo: a real streaming chat model that needs no account and plays honest, labelled scenarios.

It answers when no model is configured, so that a newcomer sees streaming, steps, a file coming back, a question and
/stop in the first minute, offline. It chooses by simple words in the person's message and thinks nothing.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agent.demo.scenes import Line, Scene, ask, explain, fail, plot, slow

SCENES: tuple[tuple[str, Callable[[Scene], Line]], ...] = (
    (r"slow|long|sleep|wait", slow),
    (r"plot|chart|graph|diagram|files?|png|csv|program", plot),
    (r"ask|question|clarify|choose", ask),
    (r"fail|fails|error|broken|recover", fail),
)
WORD_SECONDS = 0.025


class DemoModel(BaseChatModel):
    """A chat model without a model. `word_seconds` is the pace of its speech."""

    word_seconds: float = WORD_SECONDS

    @property
    def _llm_type(self) -> str:
        return "fawn-demo"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """It only needs their names."""
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
        line = perform(messages, kwargs.get("tool_names", ()))
        calls = [{"name": line.tool, "args": line.args, "id": _call_id(), "type": "tool_call"}] if line.tool else []
        return ChatResult(generations=[ChatGeneration(message=AIMessage(line.text, tool_calls=calls))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        line = perform(messages, kwargs.get("tool_names", ()))
        for chunk in _chunks(line):
            if chunk.text:
                await asyncio.sleep(self.word_seconds)
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation


def perform(messages: Sequence[BaseMessage], tools: Sequence[str]) -> Line:
    """What the demo says or does next, from the conversation alone."""
    if not tools:  # a summary or a title is wanted
        return Line("The built-in demo does not summarize; this was a conversation with it.")
    begin = 0
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage) and not message.tool_calls:
            begin = index + 1
    turn = messages[begin:]
    spoken = next((index for index, message in enumerate(turn) if isinstance(message, AIMessage)), len(turn))
    asked = "\n".join(_words(message) for message in turn[:spoken] if isinstance(message, HumanMessage))
    meanwhile = tuple(_words(message) for message in turn[spoken:] if isinstance(message, HumanMessage))
    results = tuple(message for message in turn if isinstance(message, ToolMessage))
    scene = Scene(asked, meanwhile, results, frozenset(tools))
    line = _choose(scene.words)(scene)
    return line if line.tool or not scene.meanwhile else Line(line.text + _heard(scene.meanwhile))


def _choose(words: str) -> Callable[[Scene], Line]:
    return next((scene for pattern, scene in SCENES if re.search(rf"\b({pattern})\b", words.lower())), explain)


def _heard(meanwhile: Sequence[str]) -> str:
    return "\n\nWhile I worked you also wrote: " + "; ".join(f"“{words}”" for words in meanwhile) + ". I heard it."


def _words(message: HumanMessage) -> str:
    """What the person wrote, without the line that says who and when."""
    return re.sub(r"^\[[^\]\n]*\]\n?", "", message.text).strip()


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _chunks(line: Line) -> list[AIMessageChunk]:
    chunks = [AIMessageChunk(content=word) for word in re.findall(r"\S+\s*|\s+", line.text)]
    if line.tool:
        args = line.dump()
        first = tool_call_chunk(name=line.tool, args="", id=_call_id(), index=0)
        rest = tool_call_chunk(name=None, args=args, id=None, index=0)
        chunks += [
            AIMessageChunk(content="", tool_call_chunks=[first]),
            AIMessageChunk(content="", tool_call_chunks=[rest]),
        ]
    return chunks
