"""Measure the floor: a bare asyncio loop without store, graph, sandbox or formatting.

getUpdates → the model's stream → sendMessage with the first word, an edit a second, a last edit. It loses everything
in a crash, keeps no history and knows no limits: nothing that does the job can be faster. The rungs above it call the
model as most bots do: by openai's SDK, by langchain, in a graph, and in a graph that remembers, in memory.

    python -m bench.floor --telegram URL --model URL [--rung graph]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import orjson
import uvloop

from tests.fakes.telegram import TOKEN

TOOL = {"type": "function", "function": {"name": "none", "parameters": {"type": "object", "properties": {}}}}
EDIT_SECONDS = 1.0
Stream = Callable[[int, str], AsyncIterator[str]]  # a chat and what was said there → the words of the answer


class Floor:
    """One bot."""

    def __init__(self, session: aiohttp.ClientSession, telegram: str, model: str, stream: Stream | None = None) -> None:
        self._session = session
        self._telegram = f"{telegram}/bot{TOKEN}"
        self._model = f"{model}/v1/chat/completions"
        self._stream: Stream = stream or (lambda _chat, text: self.stream(text))

    async def run(self) -> None:
        """Process updates forever, each in a separate task."""
        offset = 0
        async with asyncio.TaskGroup() as turns:
            while True:
                for update in await self._call("getUpdates", offset=offset, timeout=20):
                    offset = update["update_id"] + 1
                    message = update["message"]
                    turns.create_task(self._turn(message["chat"]["id"], message["text"]), name=f"turn {offset}")

    async def _turn(self, chat: int, text: str) -> None:
        loop = asyncio.get_running_loop()
        shown, message_id, last = "", 0, 0.0
        editing: asyncio.Task[Any] | None = None
        async for delta in self._stream(chat, text):
            shown += delta
            if not message_id:
                message_id = (await self._call("sendMessage", chat_id=chat, text=shown))["message_id"]
                posted, last = shown, loop.time()
            elif loop.time() - last >= EDIT_SECONDS and (editing is None or editing.done()):
                posted, last = shown, loop.time()
                edit = self._call("editMessageText", chat_id=chat, message_id=message_id, text=shown)
                editing = asyncio.create_task(edit, name=f"edit {chat}")
        if editing:
            await editing
        if posted.strip() != shown.strip():
            await self._call("editMessageText", chat_id=chat, message_id=message_id, text=shown)

    async def _call(self, method: str, **args: Any) -> Any:
        async with self._session.post(f"{self._telegram}/{method}", json=args) as response:
            return orjson.loads(await response.read())["result"]

    async def stream(self, text: str) -> AsyncIterator[str]:
        """Yield the words of the model as they come."""
        body = {"model": "any", "messages": [{"role": "user", "content": text}], "stream": True, "tools": [TOOL]}
        async with self._session.post(self._model, data=orjson.dumps(body)) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    choices = orjson.loads(line[6:])["choices"]
                    if choices and (delta := choices[0]["delta"].get("content")):
                        yield delta


def _sdk(model: str) -> Stream:
    """Call the model by openai's SDK."""
    from openai import AsyncOpenAI

    client: Any = AsyncOpenAI(base_url=f"{model}/v1", api_key="none")

    async def stream(_chat: int, text: str) -> AsyncIterator[str]:
        said = [{"role": "user", "content": text}]
        chunks = await client.chat.completions.create(model="any", messages=said, tools=[TOOL], stream=True)
        async for chunk in chunks:
            if chunk.choices and (delta := chunk.choices[0].delta.content):
                yield delta

    return stream


def _chat_model(model: str) -> Any:
    from langchain_openai import ChatOpenAI

    known: dict[str, Any] = {"model": "any", "base_url": f"{model}/v1", "api_key": "none"}
    return ChatOpenAI(**known).bind_tools([TOOL])


def _langchain(model: str) -> Stream:
    """Call it by langchain."""
    chat_model = _chat_model(model)

    async def stream(_chat: int, text: str) -> AsyncIterator[str]:
        async for chunk in chat_model.astream([("user", text)]):
            if chunk.content:
                yield chunk.content

    return stream


def _graph(model: str, *, remembers: bool = False) -> Stream:
    """Call it in the one node of a graph."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    chat_model, saver = _chat_model(model), InMemorySaver() if remembers else None

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await chat_model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile(checkpointer=saver)

    async def stream(chat: int, text: str) -> AsyncIterator[str]:
        asked: Any = {"messages": [("user", text)]}
        thread: Any = {"configurable": {"thread_id": str(chat)}}
        async for chunk, _about in graph.astream(asked, thread, stream_mode="messages"):
            if words := getattr(chunk, "content", ""):
                yield words

    return stream


def make_stream(rung: str, model: str) -> Stream | None:
    """Return how a rung calls the model; None for the floor."""
    match rung:
        case "openai":
            return _sdk(model)
        case "langchain":
            return _langchain(model)
        case "graph":
            return _graph(model)
        case "checkpoints":
            return _graph(model, remembers=True)
    return None


async def main(telegram: str, model: str, rung: str) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await Floor(session, telegram, model, make_stream(rung, model)).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--telegram", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rung", default="floor")
    given = parser.parse_args()
    uvloop.run(main(given.telegram, given.model, given.rung))
