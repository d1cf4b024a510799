"""The fake Slack refuses what Slack refuses. Each test names the source of its fact."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.server import until
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, JANE, OPS, TEAM, FakeSlack

DIRECT = f"D{JANE}"


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as server:
        yield server


async def call(server: FakeSlack, method: str, /, token: str = BOT_TOKEN, **arguments: Any) -> dict[str, Any]:
    """Call a method with the real SDK; return the answer, of a refusal {"error": …}."""
    try:
        answer = await AsyncWebClient(token=token, base_url=server.api_url).api_call(method, json=arguments)
    except SlackApiError as error:
        answer = error.response
    assert isinstance(answer.data, dict)
    return answer.data


async def begin(server: FakeSlack) -> dict[str, Any]:
    """Start a stream in a thread; return its address."""
    root = server.send("about it", silent=True)
    recipient = {"recipient_user_id": JANE, "recipient_team_id": TEAM}
    started = await call(server, "chat.startStream", channel=OPS, thread_ts=root, **recipient)
    return {"channel": OPS, "ts": started["ts"]}


def task(title: str, **more: str) -> dict[str, str]:
    return {"type": "task_update", "id": "1", "title": title, "status": "in_progress", **more}


async def test_an_edit_takes_4000_bytes_of_text_beside_any_blocks(slack: FakeSlack) -> None:
    """github.com/openclaw/openclaw/pull/115027 (measured: 4,000 bytes ok, 4,002 `msg_too_long`, escapes count);
    github.com/pymc-labs/daimon/issues/106 (the same beside a markdown block of 11,800 characters; posting takes more).
    """
    blocks = [{"type": "markdown", "text": "x" * 11_800}]
    posted = await call(slack, "chat.postMessage", channel=OPS, text="x" * 5000, blocks=blocks)
    edit = {"channel": OPS, "ts": posted["ts"], "blocks": blocks}
    assert (await call(slack, "chat.update", **edit, text="值" * 1333))["ok"]
    for text in ("值" * 1334, "x" * 4001, "&lt;" * 1001):
        assert (await call(slack, "chat.update", **edit, text=text))["error"] == "msg_too_long"


async def test_a_streamed_message_holds_10600_weighted_bytes(slack: FakeSlack) -> None:
    """github.com/openclaw/openclaw/pull/143882 (probes: text + titles + 2 x details, in UTF-8 bytes, about 10,600 to
    11,300 once there is text); github.com/vercel/chat/issues/617, github.com/paradigmxyz/centaur/pull/418 (refused at
    chat.stopStream).
    """
    stream = await begin(slack)
    assert (await call(slack, "chat.appendStream", **stream, chunks=[task("t" * 6000, details="d" * 6000)]))["ok"]
    chunks = [{"type": "markdown_text", "text": "The answer."}]
    assert (await call(slack, "chat.stopStream", **stream, chunks=chunks))["error"] == "msg_too_long"
    assert slack.visible()[0].state == "streaming"
    other = await begin(slack)
    text = {"type": "markdown_text", "text": "值" * 3600}
    assert (await call(slack, "chat.appendStream", **other, chunks=[text]))["error"] == "msg_too_long"


async def test_details_of_a_task_are_appended_and_its_title_is_replaced(slack: FakeSlack) -> None:
    """github.com/openclaw/openclaw/pull/125168 ("completedcompleted…"); python-slack-sdk#1809 relies on it."""
    stream = await begin(slack)
    for number in (1, 2):
        await call(slack, "chat.appendStream", **stream, chunks=[task(f"step {number}", details=f"{number} lines ")])
    [known] = slack.conversation(OPS).posts[stream["ts"]].tasks.values()
    assert (known["title"], known["details"]) == ("step 2", "1 lines 2 lines ")


async def test_text_and_chunks_exclude_each_other(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/methods/chat.appendStream; github.com/NousResearch/hermes-agent/pull/104173."""
    stream = await begin(slack)
    both = await call(slack, "chat.appendStream", **stream, markdown_text="x", chunks=[task("t")])
    assert both["error"] == "cannot_provide_both_markdown_text_and_chunks"


async def test_a_streaming_message_cannot_be_edited_and_a_stopped_one_not_streamed(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/methods/chat.update and chat.appendStream, lists of errors."""
    stream = await begin(slack)
    assert (await call(slack, "chat.update", **stream, text="x"))["error"] == "streaming_state_conflict"
    await call(slack, "chat.stopStream", **stream)
    late = await call(slack, "chat.appendStream", **stream, chunks=[task("t")])
    assert late["error"] == "message_not_in_streaming_state"


async def test_nothing_in_a_message_of_agent_view_says_that_it_is_the_root_of_a_thread(slack: FakeSlack) -> None:
    """docs.slack.dev/ai/migrating-to-agent-messaging; vercel/chat#684 and mecatl#1409 take `thread_ts ?? ts`. Slack
    adds `app_context` only for apps that subscribe app_context_changed (slack-go#1606), not always (openclaw#126872).
    """
    first = slack.send("hello", DIRECT)
    slack.send("and more", DIRECT, thread=first)
    slack.shares_context = True
    slack.send("again", DIRECT)
    events = [envelope.payload["event"] for envelope in slack.envelopes.values()]
    assert [(event.get("thread_ts"), "app_context" in event) for event in events] == [
        (None, False), (first, False), (None, True),
    ]  # fmt: skip
    slack.events.discard("app_context_changed")
    slack.send("hello", DIRECT)
    assert "app_context" not in list(slack.envelopes.values())[-1].payload["event"]


async def test_methods_need_the_scopes_of_the_manifest(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/scopes and each method's page: `missing_scope` with `needed`."""
    root = slack.send("hello", silent=True)
    reaction = {"channel": OPS, "timestamp": root, "name": "eyes"}
    assert (await call(slack, "reactions.add", **reaction))["ok"]
    slack.scopes -= {"reactions:write", "groups:history"}
    refused = await call(slack, "reactions.remove", **reaction)
    assert (refused["error"], refused["needed"]) == ("missing_scope", "reactions:write")
    slack.conversation("G1")
    assert (await call(slack, "conversations.history", channel="G1"))["needed"] == "groups:history"
    assert (await call(slack, "conversations.history", channel=OPS))["ok"]
    slack.app_scopes.clear()
    assert (await call(slack, "apps.connections.open", APP_TOKEN))["needed"] == "connections:write"
    assert (await call(slack, "chat.unknownMethod"))["error"] == "unknown_method"


async def test_only_subscribed_events_are_sent(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/app-manifest: `settings.event_subscriptions.bot_events`."""
    slack.events -= {"message.im", "reaction_added"}
    ts = slack.send("hello", DIRECT)
    slack.react(ts, channel=DIRECT)
    slack.send("hello")
    assert [envelope.payload["event"]["channel"] for envelope in slack.envelopes.values()] == [OPS]


async def test_the_shares_of_a_file_appear_later(slack: FakeSlack) -> None:
    """github.com/slackapi/bolt-js/issues/2115: files.completeUploadExternal shares asynchronously, poll files.info."""
    slack.share_seconds = 3600.0
    file = slack.keep("a.txt", b"x", "text/plain").id
    await call(slack, "files.completeUploadExternal", files=[{"id": file}], channel_id=OPS)

    async def shares() -> dict[str, Any]:
        found: dict[str, Any] = (await call(slack, "files.info", file=file))["file"]["shares"]
        return found

    assert not await shares()
    slack.files[file].shared_at = time.monotonic()
    assert await shares()


async def test_a_reaction_is_removed_once(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/methods/reactions.remove: `no_reaction`."""
    root = slack.send("hello", silent=True)
    reaction = {"channel": OPS, "timestamp": root, "name": "eyes"}
    await call(slack, "reactions.add", **reaction)
    assert (await call(slack, "reactions.remove", **reaction))["ok"]
    assert (await call(slack, "reactions.remove", **reaction))["error"] == "no_reaction"


async def test_a_private_channel_of_others_is_not_found(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/methods/conversations.info."""
    slack.conversation(OPS).name = "ops"
    slack.conversation("G1").member = False
    assert (await call(slack, "conversations.info", channel=OPS))["channel"]["name"] == "ops"
    assert (await call(slack, "conversations.info", channel="G1"))["error"] == "channel_not_found"


async def test_a_method_has_one_limit_in_a_workspace(slack: FakeSlack) -> None:
    """docs.slack.dev/apis/web-api/rate-limits: per method and workspace, with some burst; 429 and Retry-After."""
    slack.limits = True
    streams = [await begin(slack) for _ in range(2)]
    for number in range(40):
        await call(slack, "chat.appendStream", **streams[number % 2], chunks=[task(str(number))])
    await until(lambda: any(known.status == 429 for known in slack.calls))


async def test_blocks_outside_of_block_kit_are_refused(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/block-kit: button-element (`style`), context-block (10 elements), task-card-block
    (`details` is rich_text), and a `block_id` is unique in a message.
    """
    button = {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "x"}, "value": "x"}
    small = {"type": "plain_text", "text": "x"}
    card = {"type": "task_card", "task_id": "1", "title": "x", "status": "complete"}
    refused: list[list[dict[str, Any]]] = [
        [{"type": "actions", "elements": [{**button, "style": "success"}]}],
        [{"type": "actions", "elements": [button, button]}],
        [{"type": "context", "elements": [small] * 11}],
        [{"type": "context", "block_id": "b", "elements": [small]}] * 2,
        [{"type": "plan", "title": "x", "tasks": [{**card, "details": {"type": "mrkdwn", "text": "x"}}]}],
        [{"type": "panel", "elements": [small]}],
    ]
    for blocks in refused:
        answer = await call(slack, "chat.postMessage", channel=OPS, text="x", blocks=blocks)
        assert answer["error"] == "invalid_blocks"
    danger = [{"type": "actions", "elements": [{**button, "style": "danger"}]}]
    assert (await call(slack, "chat.postMessage", channel=OPS, text="x", blocks=danger))["ok"]


async def test_a_deactivated_account_is_kept_and_marked(slack: FakeSlack) -> None:
    """docs.slack.dev/reference/objects/user-object: `deleted` is true for a deactivated user, else false or absent."""
    slack.person("U8")
    assert (await call(slack, "users.info", user="U8"))["user"]["deleted"] is False
    slack.person("U8", deleted=True)
    assert (await call(slack, "users.info", user="U8"))["user"]["deleted"] is True
    assert (await call(slack, "users.info", user="U404"))["error"] == "user_not_found"
