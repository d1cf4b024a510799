"""What Discord refuses, the fake Discord refuses too. Each test names its source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from channels.discord.setup import REQUIRED_PERMISSIONS
from tests.fakes.discord import CHANNEL, GUILD, JANE, TOKEN, FakeDiscord
from tests.fakes.discord_world import PERMISSIONS, guide_permissions
from tests.fakes.server import Json

MESSAGES = f"channels/{CHANNEL}/messages"
BITS = {  # discord.com/developers/docs/topics/permissions#permissions-bitwise-permission-flags
    "view": 10,
    "send": 11,
    "embeds": 14,
    "files": 15,
    "history": 16,
    "manage threads": 34,
    "threads": 35,
    "send in threads": 38,
}
BUTTON = {"type": 2, "style": 4, "label": "Deny", "custom_id": "x"}


class Client:
    """Bare calls without an SDK; returns (status, answer)."""

    def __init__(self, server: FakeDiscord, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Json]:
        headers = {"Authorization": f"Bot {TOKEN}"}
        data = body if isinstance(body, aiohttp.FormData) else None
        async with self._session.request(
            method, f"{self.server.api_url}/{path}", json=None if data else body, data=data, headers=headers
        ) as response:
            return response.status, await response.json() or {}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with FakeDiscord() as server, aiohttp.ClientSession() as session:
        yield Client(server, session)


def test_the_guide_asks_for_the_permissions_of_the_install_link() -> None:
    assert guide_permissions() == set(PERMISSIONS.values()) == BITS.keys()
    assert sum(1 << bit for bit in BITS.values()) == REQUIRED_PERMISSIONS


async def test_the_bot_may_do_only_what_the_guide_asks_for(client: Client) -> None:
    """discord.com/developers/docs/topics/permissions."""
    starter = client.server.say("look", CHANNEL)
    thread = client.server.thread(CHANNEL, "look", id=starter["id"])
    file = aiohttp.FormData()
    file.add_field("payload_json", "{}")
    file.add_field("files[0]", b"x", filename="x.txt")
    calls: dict[str, tuple[str, str, Any]] = {
        "send": ("POST", MESSAGES, {"content": "x"}),
        "send in threads": ("POST", f"channels/{thread.id}/messages", {"content": "x"}),
        "threads": ("POST", f"{MESSAGES}/{client.server.say('x', CHANNEL)['id']}/threads", {"name": "x"}),
        "history": ("GET", MESSAGES, None),
        "files": ("POST", MESSAGES, file),
    }
    for permission, (method, path, body) in calls.items():
        client.server.granted = guide_permissions() - {permission}
        assert (await client(method, path, body))[1]["code"] == 50013, permission
    client.server.granted = set()
    assert (await client("POST", MESSAGES, {"content": "x"}))[1]["code"] == 50001


async def test_embeds_vanish_without_the_permission(client: Client) -> None:
    """discord.com/developers/docs/resources/message#create-message."""
    client.server.granted.discard("embeds")
    _, message = await client("POST", MESSAGES, {"content": "x", "embeds": [{"description": "y"}]})
    assert message["embeds"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"content": "x" * 2001},
        {"embeds": [{"description": "x" * 4097}]},
        {"embeds": [{"description": "x" * 4000}] * 2},
        {"content": "x", "nonce": "x" * 26},
        {"content": "x", "components": [{"type": 1, "components": []}]},
        {"content": "x", "components": [{"type": 1, "components": [{**BUTTON, "label": "x" * 81}]}]},
    ],
)
async def test_sizes_are_limited(client: Client, body: Json) -> None:
    """discord.com/developers/docs/resources/message#create-message and #embed-object-embed-limits, …/components."""
    status, answer = await client("POST", MESSAGES, body)
    assert (status, answer["code"]) == (400, 50035)


async def test_an_enforced_nonce_returns_the_first_message_and_is_in_its_event(client: Client) -> None:
    """discord.com/developers/docs/resources/message#create-message, `enforce_nonce`; #message-object, `nonce`."""
    first, second = [
        (await client("POST", MESSAGES, {"content": text, "nonce": "n1", "enforce_nonce": True}))[1] for text in "ab"
    ]
    assert (second["id"], second["content"], second["nonce"]) == (first["id"], "a", "n1")
    assert [shown.text for shown in client.server.visible(CHANNEL)] == ["a"]


async def test_a_button_has_one_of_four_styles_and_a_short_id(client: Client) -> None:
    """discord.com/developers/docs/components/reference#button: styles 1 to 4, `custom_id` of 1 to 100 characters."""
    for changed, status in (({}, 200), ({"style": 5}, 400), ({"style": 0}, 400), ({"custom_id": "x" * 101}, 400)):
        row = {"type": 1, "components": [{**BUTTON, **changed}]}
        assert (await client("POST", MESSAGES, {"content": "?", "components": [row]}))[0] == status


async def test_members_and_strangers_of_a_server_have_codes_of_their_own(client: Client) -> None:
    """…/docs/resources/guild#get-guild-member; …/docs/topics/opcodes-and-status-codes: 10004, 10007, 10013."""
    status, member = await client("GET", f"guilds/{GUILD}/members/{JANE}")
    assert (status, member["user"]["id"]) == (200, JANE)
    client.server.left.add((GUILD, JANE))
    for path, code in (
        (f"{GUILD}/members/{JANE}", 10007),
        (f"{GUILD}/members/404", 10013),
        (f"404/members/{JANE}", 10004),
    ):
        status, answer = await client("GET", f"guilds/{path}")
        assert (status, answer["code"]) == (404, code)


async def test_the_list_of_servers_has_at_most_200_a_page(client: Client) -> None:
    """discord.com/developers/docs/resources/user#get-current-user-guilds."""
    for number in range(201):
        client.server.server(str(7000000000000000 + number))
    _, first = await client("GET", "users/@me/guilds")
    _, rest = await client("GET", "users/@me/guilds?after=7000000000000198")
    assert (len(first), len(rest)) == (200, 2)
    assert (await client("GET", "users/@me/guilds?limit=201"))[0] == 400
