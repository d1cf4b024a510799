"""What the platform refuses, the fake Feishu refuses too. Each test names its source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from tests.fakes.feishu import DIRECT, GROUP, JANE, FakeFeishu
from tests.fakes.feishu_world import guide_scopes
from tests.fakes.server import Json, until

CARD: Json = {
    "schema": "2.0",
    "body": {
        "elements": [
            {"tag": "markdown", "element_id": "text", "content": "Which?"},
            {
                "tag": "button",
                "element_id": "choices",
                "text": {"tag": "plain_text", "content": "red"},
                "behaviors": [{"type": "callback", "value": {}}],
            },
        ]
    },
}


class Client:
    """Bare calls without an SDK; returns (status, answer)."""

    def __init__(self, server: FakeFeishu, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def __call__(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Json]:
        headers = {"Authorization": f"Bearer {self.server.token}"}
        url = f"{self.server.base_url}/open-apis/{path}"
        async with self._session.request(method, url, json=body, params=query, headers=headers) as response:
            return response.status, await response.json()

    async def post_card(self, card_id: str, uuid: str) -> str:
        content = orjson.dumps({"type": "card", "data": {"card_id": card_id}}).decode()
        body = {"receive_id": DIRECT, "msg_type": "interactive", "content": content, "uuid": uuid}
        _, answer = await self("POST", "im/v1/messages", body, receive_id_type="chat_id")
        return str(answer["data"]["message_id"])

    async def create_card(self) -> str:
        body = {"type": "card_json", "data": orjson.dumps(CARD).decode()}
        return str((await self("POST", "cardkit/v1/cards", body))[1]["data"]["card_id"])


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with FakeFeishu() as server, aiohttp.ClientSession() as session:
        server.direct(JANE)
        yield Client(server, session)


async def test_the_app_may_do_only_what_the_guide_asks_for(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/application-v6/scope/list needs no permission itself."""
    _, answer = await client("GET", "application/v6/scopes")
    assert {scope["scope_name"] for scope in answer["data"]["scopes"]} == guide_scopes() == client.server.scopes
    client.server.scopes.discard("im:message")
    assert (await client("GET", "im/v1/messages/om_0"))[1]["code"] == 99991672


async def test_the_card_of_a_message_needs_a_permission_of_its_own(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/cardkit-v1/card/id_convert: cardkit:card:read, deprecated."""
    message_id = await client.post_card(await client.create_card(), "u1")
    assert (await client("POST", "cardkit/v1/cards/id_convert", {"message_id": message_id}))[1]["code"] == 99991672


async def test_names_need_a_permission_for_the_call_and_one_for_the_field(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/reference/contact-v3/user/get."""
    assert (await client("GET", f"contact/v3/users/{JANE}"))[1]["data"]["user"]["name"] == "Jane"
    client.server.scopes.remove("contact:user.base:readonly")
    assert "name" not in (await client("GET", f"contact/v3/users/{JANE}"))[1]["data"]["user"]
    client.server.scopes |= {"contact:user.base:readonly"}
    client.server.scopes.remove("contact:contact.base:readonly")
    assert (await client("GET", f"contact/v3/users/{JANE}"))[1]["code"] == 99991672


async def test_messages_of_groups_need_a_permission_of_their_own(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/reference/im-v1/message/get."""
    said = client.server.send("hello", chat=GROUP, silent=True)
    assert (await client("GET", f"im/v1/messages/{said.id}"))[1]["code"] == 0
    client.server.scopes.remove("im:message.group_msg")
    assert (await client("GET", f"im/v1/messages/{said.id}"))[1]["code"] == 230027


async def test_direct_chats_cannot_be_looked_up_by_an_app(client: Client) -> None:
    """open.feishu.cn/.well-known/skills/lark-im: chat_p2p/batch_query "requires user identity"."""
    assert (await client("POST", "im/v1/chat_p2p/batch_query", {"chatter_ids": [JANE]}))[0] == 404
    body = {"receive_id": JANE, "msg_type": "text", "content": '{"text": "hi"}'}
    _, answer = await client("POST", "im/v1/messages", body, receive_id_type="open_id")
    assert answer["data"]["chat_id"] == DIRECT


async def test_a_repeated_uuid_returns_the_first_message_with_the_first_card(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/reference/im-v1/message/create, parameter `uuid`."""
    first, second = await client.create_card(), await client.create_card()
    message_id = await client.post_card(first, "u1")
    assert await client.post_card(second, "u1") == message_id
    assert client.server.messages[message_id].card == first


async def test_a_card_is_sent_once(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/cardkit-v1/card/create."""
    card_id = await client.create_card()
    await client.post_card(card_id, "u1")
    content = orjson.dumps({"type": "card", "data": {"card_id": card_id}}).decode()
    body = {"receive_id": DIRECT, "msg_type": "interactive", "content": content, "uuid": "u2"}
    assert (await client("POST", "im/v1/messages", body, receive_id_type="chat_id"))[1]["code"] == 230099


async def test_only_the_own_reaction_can_be_deleted_once(client: Client) -> None:
    """open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/reference/im-v1/message-reaction/delete."""
    said = client.server.send("hello", silent=True)
    path = f"im/v1/messages/{said.id}/reactions"
    _, added = await client("POST", path, {"reaction_type": {"emoji_type": "OnIt"}})
    assert (await client("DELETE", f"{path}/{added['data']['reaction_id']}"))[1]["code"] == 0
    assert (await client("DELETE", f"{path}/{added['data']['reaction_id']}"))[0] == 400


async def test_a_card_changed_before_the_answer_to_its_click_is_restored(client: Client) -> None:
    """open.feishu.cn/document/ukTMukTMukTM/uMDO1YjLzgTN24yM4UjN: such a change fails or is undone at once."""
    card_id = await client.create_card()
    await client.post_card(card_id, "u1")
    pressed = client.server.press("red")
    element = orjson.dumps({"tag": "markdown", "element_id": "choices", "content": "red"}).decode()
    body = {"element": element, "sequence": 1}
    path = f"cardkit/v1/cards/{card_id}/elements/choices"
    await client("PUT", path, body)
    client.server.end_click(pressed, None)
    assert client.server.visible() == ["Which?"]
    await client("PUT", path, body)
    await until(lambda: client.server.visible() == ["Which?\n\nred"])


async def test_a_card_has_only_known_elements(client: Client) -> None:
    """open.feishu.cn/document/feishu-cards/card-json-v2-components: `type` of a button, `header` of a panel."""
    button = CARD["body"]["elements"][1]
    text = {"tag": "plain_text", "content": "Steps"}
    panel = {"tag": "collapsible_panel", "expanded": False, "elements": [{"tag": "div", "text": text}]}
    whole = {**panel, "header": {"title": text}}
    cases = [({**button, "type": "danger"}, 0), ({**button, "type": "success"}, 300301), (whole, 0), (panel, 300301)]
    for element, code in cases:
        data = orjson.dumps({"schema": "2.0", "body": {"elements": [element]}}).decode()
        assert (await client("POST", "cardkit/v1/cards", {"type": "card_json", "data": data}))[1]["code"] == code


async def test_the_status_of_an_account_needs_a_permission_of_its_own(client: Client) -> None:
    """open.feishu.cn/document/server-docs/contact-v3/user/get: the rows of `name` and `status`."""
    path = f"contact/v3/users/{JANE}"
    _, answer = await client("GET", path, user_id_type="open_id")
    states = {"is_frozen": False, "is_resigned": False, "is_activated": True, "is_exited": False, "is_unjoin": False}
    assert answer["data"]["user"]["status"] == states
    client.server.scopes.remove("contact:user.employee:readonly")
    _, answer = await client("GET", path, user_id_type="open_id")
    assert answer["data"]["user"] == {"open_id": JANE, "name": "Jane"}
