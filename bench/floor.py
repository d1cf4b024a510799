"""Measure the floor: a bare asyncio loop without store, graph, sandbox or formatting.

getUpdates → the model's stream → sendMessage with the first word, an edit a second, a last edit. It loses everything
in a crash, keeps no history and knows no limits: nothing that does the job can be faster.

    python -m bench.floor --telegram URL --model URL
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import uvloop

from tests.fakes.telegram import TOKEN

TOOL = {"type": "function", "function": {"name": "none", "parameters": {"type": "object", "properties": {}}}}
EDIT_SECONDS = 1.0


class Floor:
    """One bot."""

    def __init__(self, session: aiohttp.ClientSession, telegram: str, model: str) -> None:
        self._session = session
        self._telegram = f"{telegram}/bot{TOKEN}"
        self._model = f"{model}/v1/chat/completions"

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
        async for delta in self.stream(text):
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


async def main(telegram: str, model: str) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await Floor(session, telegram, model).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--telegram", required=True)
    parser.add_argument("--model", required=True)
    given = parser.parse_args()
    uvloop.run(main(given.telegram, given.model))
