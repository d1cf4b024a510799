"""The fake Slack against a second, independent client: @slack/socket-mode and @slack/web-api."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.fakes.node import Client, running
from tests.fakes.server import until
from tests.fakes.slack import BOT, JANE, OPS, TEAM, FakeSlack

BUTTON = {"type": "button", "action_id": "a", "value": "1", "text": {"type": "plain_text", "text": "One"}}


def client(server: FakeSlack) -> AbstractAsyncContextManager[Client]:
    packages = "@slack/socket-mode", "@slack/web-api"
    return running("slack.js", server.base_url, lambda: server.sockets, *packages)


async def test_a_second_client_talks_with_the_fake() -> None:
    async with FakeSlack() as server, client(server) as js:
        ts = server.send(f"<@{BOT}> hello 中文", twice=False)
        said = await js.says()
        assert said == {
            "text": f"<@{BOT}> hello 中文",
            "me": [TEAM, BOT],
            "thread": [0, 1, 0],
            "channels": 1,
            "name": "Jane",
            "refusals": ["message_not_in_streaming_state", "already_reacted", "no_text", "invalid_arguments"],
        }
        posted, streamed, uploaded = server.visible(OPS, ts)
        assert (posted.text, posted.edits) == ("**js**", 1)
        assert (streamed.text, streamed.state, streamed.tasks) == ("**stream**", "stopped", ("Look: complete",))
        assert (uploaded.file_name, uploaded.file) == ("r.csv", b"a,b\n")
        assert server.conversation(OPS).posts[ts].reactions == {"eyes": [BOT]}
        assert server.conversation(OPS).sessions == {ts: "suspended"}
        assert all(envelope.acks for envelope in server.envelopes.values())


async def test_a_second_client_gets_files_commands_and_presses() -> None:
    async with FakeSlack(redeliver_after=0.3) as server, client(server) as js:
        server.send("see", f"D{JANE}", files={"a.csv": b"1,2"}, mime="text/csv")
        assert await js.says() == {"subtype": "file_share", "retry": 0, "file": "1,2", "stranger": 302}
        server.send("later", f"D{JANE}")
        assert await js.says() == {"retry": 1}
        key = server.slash("status now")
        assert await js.says() == {"command": "/fawn", "words": "status now", "answers": [200]}
        await until(lambda: server.acked(key))
        [told] = server.visible(OPS)
        assert (told.text, told.only_for) == ("well", JANE)
        ts = server.send("Which?", user=BOT, silent=True)
        server.conversation(OPS).posts[ts].blocks = [{"type": "actions", "block_id": "b", "elements": [BUTTON]}]
        server.click("One", ts)
        assert await js.says() == {"type": "block_actions", "value": "1", "about": "Which?"}
        server.shortcut(ts)
        assert await js.says() == {"type": "message_action", "about": "Which?"}


async def test_a_second_client_reconnects_when_asked() -> None:
    async with FakeSlack() as server, client(server) as js:
        opens = server.opens
        server.refresh()
        await until(lambda: server.opens > opens and server.sockets)
        server.send("hi", f"D{JANE}")
        assert await js.says() == {"retry": 0}
