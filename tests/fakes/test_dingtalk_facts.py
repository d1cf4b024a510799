"""What DingTalk refuses, the fake refuses too. Each test names its source.

Pages named "…/x" are open.dingtalk.com/document/development/x.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from tests.fakes.dingtalk import CLIENT, JANE, SECRET, TEMPLATE, FakeDingTalk, group
from tests.fakes.dingtalk_methods import CARD_BYTES, CARD_CHARS, MESSAGE_BYTES, QPS, RECALL_SECONDS, VALUE_BYTES
from tests.fakes.server import Json, until


class Client:
    """Bare calls; returns (status, answer)."""

    def __init__(self, server: FakeDingTalk, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def __call__(self, method: str, path: str, body: Json, token: str = "") -> tuple[int, Json]:
        headers = {"x-acs-dingtalk-access-token": token or self.server.token}
        async with self.session.request(method, self.server.base_url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def code(self, method: str, path: str, body: Json) -> str:
        """Make a call and return the code of its refusal, "" for none."""
        return str((await self(method, path, body))[1].get("code", ""))

    async def create(self, track: str = "t1", **more: Any) -> str:
        return await self.code("POST", "/v1.0/card/instances/createAndDeliver", {**CARD, "outTrackId": track, **more})

    async def stream(self, content: str = "Hi", **more: Any) -> str:
        frame = {"outTrackId": "t1", "guid": f"g{time.monotonic_ns()}", "key": "content", "content": content}
        return await self.code("PUT", "/v1.0/card/streaming", {**frame, "isFull": True, **more})

    async def send(self, text: str, **more: Any) -> tuple[int, Json]:
        param = orjson.dumps({"title": "t", "text": text}).decode()
        body = {"robotCode": CLIENT, "msgKey": "sampleMarkdown", "msgParam": param, "openConversationId": group(1)}
        return await self("POST", "/v1.0/robot/groupMessages/send", {**body, **more})


CARD: Json = {
    "cardTemplateId": TEMPLATE,
    "cardData": {"cardParamMap": {"content": ""}},
    "callbackType": "STREAM",
    "imGroupOpenSpaceModel": {"supportForward": True},
    "openSpaceId": f"dtv1.card//IM_GROUP.{group(1)}",
    "imGroupOpenDeliverModel": {"robotCode": CLIENT},
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with FakeDingTalk() as server, aiohttp.ClientSession() as session:
        yield Client(server, session)


async def test_a_wrong_token_is_refused(client: Client) -> None:
    """…/server-api-error-codes-1: InvalidAuthentication with status 400."""
    status, answer = await client("PUT", "/v1.0/card/streaming", {}, token="old")
    assert (status, answer["code"]) == (400, "InvalidAuthentication")


async def test_a_missing_permission_is_named(client: Client) -> None:
    """github.com/open-dingtalk/dingtalk-stream-sdk-python/issues/20: 403, with the required scopes."""
    client.server.scopes.remove("Card.Streaming.Write")
    status, answer = await client("PUT", "/v1.0/card/streaming", {})
    assert (status, answer["code"]) == (403, "Forbidden.AccessDenied.AccessTokenPermissionDenied")
    assert answer["accessdenieddetail"] == {"requiredScopes": ["Card.Streaming.Write"]}


async def test_too_many_calls_of_a_method_are_refused(client: Client) -> None:
    """…/server-api-error-codes-1: QpsLimitForAppkeyAndApi with status 403, without a time."""
    codes = [await client.stream() for _ in range(int(QPS) + 1)]
    assert codes[-1] == "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"
    assert codes[0] != codes[-1]


async def test_an_out_track_id_makes_one_card(client: Client) -> None:
    """…/create-and-deliver-cards: param.cardAlreadyExist; a new card needs a new outTrackId."""
    assert await client.create() == ""
    assert await client.create() == "param.cardAlreadyExist"
    assert client.server.visible(group(1)) == ["(processing)"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cardTemplateId": "x.schema"}, "param.templateNotExist"),
        ({"openSpaceId": group(1)}, "param.openSpaceIdInvalid"),
        ({"imGroupOpenDeliverModel": None}, "param.openDeliverModelEmpty"),
        ({"imGroupOpenDeliverModel": {"robotCode": "x"}}, "param.openDeliverModelError"),
        ({"openSpaceId": "dtv1.card//IM_ROBOT.nobody"}, "param.openDeliverModelEmpty"),
        ({"cardData": {"cardParamMap": {"content": "x" * (VALUE_BYTES + 1)}}}, "param.invalid"),
        ({"cardData": {"cardParamMap": {"buttons": []}}}, "param.invalid"),
    ],
)
async def test_a_wrong_card_is_refused(client: Client, wrong: Json, code: str) -> None:
    """…/create-and-deliver-cards: its error codes; values are text of at most 1 KB."""
    assert await client.create(**wrong) == code


async def test_streaming_needs_a_card_and_whole_markdown(client: Client) -> None:
    """…/api-streamingupdate: the card must exist, Markdown needs isFull, and nothing is empty."""
    assert await client.stream() == "param.stream.outTrackId"
    await client.create()
    assert await client.stream(isFull=False) == "param.stream.isFull"
    assert await client.stream("") == "param.stream.contentEmpty"
    assert await client.stream(guid="") == "param.stream.guidEmpty"


@pytest.mark.parametrize("text", ["x" * (CARD_CHARS + 1), "中" * (CARD_BYTES // 3 + 1), "🙂" * (CARD_BYTES // 4 + 1)])
async def test_a_long_card_is_taken_and_stays_blank(client: Client, text: str) -> None:
    """github.com/soimy/openclaw-channel-dingtalk/issues/615: the call succeeds, and clients show an empty card."""
    fake = client.server
    await client.create()
    assert await client.stream(text[:-1]) == ""
    assert [fake.text_of(shown) for shown in fake.shown] == [text[:-1]]
    assert await client.stream(text, guid="g2") == ""
    assert [fake.text_of(shown) for shown in fake.shown] == [""]


async def test_a_guid_takes_effect_once(client: Client) -> None:
    """…/api-streamingupdate: guid is the key of idempotency."""
    await client.create()
    assert await client.stream("one", guid="g") == ""
    assert await client.stream("two", guid="g") == ""
    assert client.server.visible(group(1)) == ["one"]


async def test_a_finished_card_takes_variables_but_no_frames(client: Client) -> None:
    """…/ai-card-template: the states go from processing to typing to finished; …/interactive-card-update-interface."""
    await client.create()
    assert await client.stream("one", isFinalize=True) == ""
    assert await client.stream("two") == "param.invalid"
    update = {"outTrackId": "t1", "cardData": {"cardParamMap": {"content": "three"}}}
    assert await client.code("PUT", "/v1.0/card/instances", update) == ""
    assert client.server.visible(group(1)) == ["three"]


async def test_an_error_frame_hides_the_text(client: Client) -> None:
    """…/ai-card-template: the failed state shows DingTalk's own text."""
    await client.create()
    await client.stream("the reason", isError=True)
    assert client.server.visible(group(1)) == ["(failed)"]


async def test_messages_have_a_size_and_a_group(client: Client) -> None:
    """…/the-robot-sends-a-group-message: msgParam of at most 15,000 bytes, and its error codes."""
    assert (await client.send("x" * MESSAGE_BYTES))[1]["code"] == "invalidParameter.msgParam.tooLong"
    assert (await client.send("x", openConversationId="cid?"))[1]["code"] == "invalid.openConversationId"
    assert (await client.send("x", robotCode="other"))[1]["code"] == "invalidParameter.robotCode.notExsit"
    client.server.dissolved.add(group(1))
    assert (await client.send("x"))[1]["code"] == "group.disbanded"


async def test_a_message_is_recalled_within_a_day(client: Client) -> None:
    """…/batch-message-recall-chat: 24 hours, listed per message."""
    _, answer = await client.send("x")
    keys = [answer["processQueryKey"]]
    body = {"robotCode": CLIENT, "openConversationId": group(1), "processQueryKeys": keys}
    client.server.shown[0].at -= RECALL_SECONDS + 1
    _, answer = await client("POST", "/v1.0/robot/groupMessages/recall", body)
    assert list(answer["failedResult"]) == keys
    client.server.shown[0].at = time.time()
    _, answer = await client("POST", "/v1.0/robot/groupMessages/recall", body)
    assert answer["successResult"] == keys
    assert client.server.visible(group(1)) == []


async def test_the_stream_repeats_what_is_not_acknowledged_in_new_frames(client: Client) -> None:
    """github.com/DingTalk-Real-AI/dingtalk-openclaw-connector, src/core/connection.ts: the frame's id is new, msgId the
    same. A ticket opens one connection."""
    client.server.patience = 0.05
    subscriptions = [
        {"type": "CALLBACK", "topic": topic} for topic in ("/v1.0/im/bot/messages/get", "/v1.0/card/instances/callback")
    ]
    body = {"clientId": CLIENT, "clientSecret": SECRET, "subscriptions": subscriptions}
    _, opened = await client("POST", "/v1.0/gateway/connections/open", body)
    url = f"{opened['endpoint']}?ticket={opened['ticket']}"
    async with client.session.ws_connect(url) as socket:
        client.server.send("hello", sender=JANE)
        frames = [await socket.receive_json() for _ in range(4)]
        first, second = (frame for frame in frames if frame["type"] == "CALLBACK")
        assert first["headers"]["messageId"] != second["headers"]["messageId"]
        assert first["data"] == second["data"]
        headers = {"messageId": second["headers"]["messageId"], "contentType": "application/json"}
        await socket.send_json({"code": 200, "headers": headers, "message": "OK", "data": '{"response": null}'})
        await until(lambda: client.server.pushed[0].answers)
        sent = len(client.server.pushed[0].frames)
        await asyncio.sleep(0.15)
        assert len(client.server.pushed[0].frames) == sent
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await client.session.ws_connect(url)
