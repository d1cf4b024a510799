"""The fake Feishu against a second, independent client: @larksuiteoapi/node-sdk."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import orjson

from tests.fakes.feishu import BOT, DIRECT, GROUP, FakeFeishu
from tests.fakes.node import Client, running
from tests.fakes.server import until


def client(server: FakeFeishu) -> AbstractAsyncContextManager[Client]:
    return running("feishu.js", server.base_url, lambda: server.sockets, "@larksuiteoapi/node-sdk")


async def test_a_second_client_talks_with_the_fake() -> None:
    async with FakeFeishu() as server, client(server) as js:
        server.scopes.add("cardkit:card:read")
        asked = server.send("hello 中文", chat=GROUP)
        said = await js.says()
        assert orjson.loads(said["text"]) == {"text": "@_user_1 hello 中文"} == orjson.loads(said["read"])
        assert said["mentions"] == [BOT]
        assert (said["once"], said["thread"][:4], said["found"], said["codes"]) == (True, "omt_", True, [0, 0])
        assert (said["reaction"], said["late"], said["closed"]) == (0, 300317, 300309)
        assert said["list"] == 1  # of a topic, a chat's history has the root only
        assert server.reactions(asked.id) == ["OnIt"]
        assert server.visible(GROUP, asked.id) == ["Which?"]
        pressed = server.press("red", chat=GROUP, root=asked.id)
        assert (await js.says())["pressed"] == {"n": 1}
        await until(lambda: server.answer(pressed))
        assert server.answer(pressed) == {"toast": {"type": "success", "content": "done"}}


async def test_a_second_client_gets_and_sends_files() -> None:
    async with FakeFeishu() as server, client(server) as js:
        server.upload("报告.csv", b"a,b\n1,2\n")
        said = await js.says()
        assert said == {"name": "报告.csv", "bytes": "a,b\n1,2\n", "sent": 0, "wrong": 230001}
        assert server.visible(DIRECT) == ["copy.csv"]


async def test_a_second_client_gets_the_other_events_and_fragments() -> None:
    async with FakeFeishu() as server, client(server) as js:
        said = server.message({"text": "x"}, silent=True)
        server.fragments = 3
        server.react(said.id, "No")
        assert await js.says() == {"reacted": "No"}
        server.recall(said.id)
        assert await js.says() == {"recalled": said.id}
        server.choose("new")
        assert await js.says() == {"menu": "new", "person": "Jane"}
        await until(lambda: all(server.acknowledged(event) for event in server.pushed))
