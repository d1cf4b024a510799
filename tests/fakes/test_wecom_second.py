"""The fake WeCom against a second, independent client: @wecom/aibot-node-sdk, the vendor's own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.fakes.node import Client, running
from tests.fakes.server import until
from tests.fakes.wecom import EXPIRED, JANE, FakeWeCom

DIRECT = f"@{JANE}"


def client(server: FakeWeCom) -> AbstractAsyncContextManager[Client]:
    return running("wecom.js", server.ws_url, lambda: server.line, "@wecom/aibot-node-sdk")


async def test_a_second_client_answers_posts_and_sends_files() -> None:
    async with FakeWeCom() as server, client(server) as js:
        server.send("hello 中文")
        assert await js.says() == {"text": "hello 中文", "after": EXPIRED, "refused": 40008}
        shown = [(one.kind, one.text or one.name) for one in server.visible(DIRECT)]
        assert shown == [("stream", "done"), ("file", "a.bin"), ("template_card", "Which?")]
        assert server.shown[1].data == b"\x07" * 1_300_000


async def test_a_second_client_reads_files_presses_and_feedback() -> None:
    async with FakeWeCom() as server, client(server) as js:
        server.upload("报告.csv", b"a,b\n1,2\n")
        assert await js.says() == {"name": "报告.csv", "bytes": "a,b\n1,2\n"}
        server.send("ask me")
        await js.says()
        server.press("red", DIRECT)
        assert await js.says() == {"pressed": "r"}
        await until(lambda: server.shown[-1].text == "red it is")
        server.rate("s1", 1, DIRECT)
        assert await js.says() == {"feedback": 1}


async def test_a_second_client_that_connects_later_takes_the_line() -> None:
    async with FakeWeCom() as server, client(server):
        first = server.line
        async with client(server):
            await until(lambda: server.line not in (None, first))
            await until(lambda: first is not None and first.closed)
