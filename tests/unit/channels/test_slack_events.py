"""Slack's payloads as Fawn's messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.messages import ANYWHERE, Attachment, Kind, Message, Thread, Unreadable
from channels.slack.events import SlackAccount, candidate_workspaces, parse_payload

ME = SlackAccount("T1", "UBOT", "BBOT", "fawn", "Acme")


def said(text: str = "hi", **more: Any) -> dict[str, Any]:
    """A message of Jane in a channel."""
    event = {
        "type": "message",
        "channel": "C1",
        "channel_type": "channel",
        "user": "U1",
        "text": text,
        "ts": "10.000001",
    }
    return {"event": {"event_ts": "10.000001", **event, **more}, "event_id": "Ev1", "team_id": "T1"}


def message(text: str = "hi", **more: Any) -> Message:
    """Parse such a message; a direct message unless stated otherwise."""
    found = parse_payload(said(text, **{"channel": "D1", "channel_type": "im", **more}), ME)
    assert isinstance(found, Message)
    return found


def channel(text: str, **more: Any) -> Message:
    return message(text, **{"channel": "C1", "channel_type": "channel", **more})


# Case 1 of docs/cases.md
def test_a_mention_with_a_command_is_a_command() -> None:
    for text in ("<@UBOT> /new", "<@UBOT|fawn>: !new", "<@UBOT>   /NEW  "):
        found = channel(text, type="app_mention")
        assert (found.kind, found.text, found.addressed) == (Kind.COMMAND, "new", True)


# Case 2 of docs/cases.md
def test_only_the_mention_of_the_bot_is_removed() -> None:
    found = channel("<@UBOT|fawn> <@U2> hi")
    assert (found.text, found.addressed) == ("<@U2> hi", True)
    assert channel("ask <@UBOT> again").text == "ask again"


# Case 7 of docs/cases.md
def test_workspaces_do_not_share_keys() -> None:
    other = parse_payload(said("<@UBOT> hi"), SlackAccount("T2", "UBOT", "BBOT", "fawn", "Other"))
    first = parse_payload(said("<@UBOT> hi"), ME)
    assert isinstance(first, Message)
    assert isinstance(other, Message)
    assert first.key != other.key
    assert first.thread != other.thread


def test_both_events_of_one_message_have_one_key() -> None:
    assert channel("<@UBOT> hi").key == channel("<@UBOT> hi", type="app_mention").key == "slack:T1:C1:10.000001"


# Case 10 of docs/cases.md
def test_a_message_of_agent_view_is_the_root_of_a_conversation() -> None:
    root = Thread("slack", "T1", "D1", "10.000001")
    assert message("hi", thread_ts="10.000001").thread == root
    assert message("hi", app_context={"entities": []}).thread == root
    assert message("and more", ts="11.1", thread_ts="10.000001", app_context={}).thread == root
    assert not message("hi", thread_ts="10.000001").follow_up
    bare = parse_payload(said("hi", channel="D1", channel_type="im"), replace(ME, direct_threads=True))
    assert isinstance(bare, Message)
    assert bare.thread == root, "Slack need not say anything"


def test_direct_messages_are_one_conversation_and_a_thread_another() -> None:
    assert (
        message("remember 7", ts="1.1").thread
        == message("which number?", ts="2.2").thread
        == Thread("slack", "T1", "D1")
    )
    assert message("hi", thread_ts="1.1").thread == Thread("slack", "T1", "D1", "1.1")
    assert message("hi").private


def test_a_mention_starts_or_continues_a_thread() -> None:
    assert channel("<@UBOT> hi").thread == Thread("slack", "T1", "C1", "10.000001")
    assert channel("<@UBOT> hi", thread_ts="9.1").thread == Thread("slack", "T1", "C1", "9.1")


def test_chatter_is_ignored_and_a_follow_up_counts() -> None:
    assert parse_payload(said("lunch?"), ME) is None
    assert parse_payload(said("<@U2> lunch?", thread_ts="9.1"), ME) is None
    found = channel("and now?", thread_ts="9.1")
    assert (found.follow_up, found.addressed) == (True, False)
    command = channel("!stop", thread_ts="9.1")
    assert (command.kind, command.text, command.follow_up) == (Kind.COMMAND, "stop", True)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a &lt;b&gt; &amp;lt; &amp; c", "a <b> &lt; & c"),
        ("see <https://x.example/?a=1&amp;b=2>", "see https://x.example/?a=1&b=2"),
        ("see <https://x.example|the page>", "see the page (https://x.example)"),
        ("<mailto:a@x.example|a@x.example>", "a@x.example"),
        (
            "<#C7|ops> <#C8> <#C9|> <!here> <!subteam^S1|@team> <!date^1^{date}|today>",
            "#ops <#C8> <#C9> @here @team today",
        ),
        ("<@U2|kim> and <@U3>", "<@U2|kim> and <@U3>"),
        ("你好 😀 :tada:", "你好 😀 :tada:"),
    ],
)
def test_slack_tokens_are_converted_to_visible_text(raw: str, text: str) -> None:
    assert message(raw).text == text


# Case 11 of docs/cases.md
def test_files_are_attached_to_the_message() -> None:
    files: list[dict[str, Any]] = [
        {"id": "F1", "name": "报告.pdf", "mimetype": "application/pdf", "size": 12, "mode": "hosted"},
        {"id": "F2", "name": "a.png", "mimetype": "image/png", "size": 3, "mode": "hosted"},
        {"id": "F3", "name": "gone", "mode": "tombstone"},
        {"id": "F4", "name": "Plan", "is_external": True, "url_private": "https://docs.example/1"},
    ]
    found = message("look", subtype="file_share", files=files)
    assert found.attachments == (
        Attachment("T1/F1", "报告.pdf", "application/pdf", 12),
        Attachment("T1/F2", "a.png", "image/png", 3, "image"),
    )
    assert found.text == "look\nPlan (https://docs.example/1)"
    assert found.kind is Kind.CHAT


def test_a_shared_message_is_a_quote() -> None:
    shared = [{"is_share": True, "author_name": "Kim", "text": "the <https://x.example|page> is down"}]
    found = message("", attachments=shared)
    [quote] = found.quotes
    assert (quote.author, quote.text, quote.kind) == ("Kim", "the page (https://x.example) is down", "forward")


def test_own_messages_are_ignored() -> None:
    assert parse_payload(said("<@UBOT> hi", user="UBOT"), ME) is None
    assert parse_payload(said("<@UBOT> hi", user="", bot_id="BBOT"), ME) is None


def test_another_bot_is_marked_as_a_bot() -> None:
    found = channel("<@UBOT> hi", subtype="bot_message", user=None, bot_id="B7", username="deploy")
    assert (found.author.id, found.author.name, found.author.bot) == ("B7", "deploy", True)


def test_an_edit_and_a_deletion_name_their_message() -> None:
    old = {"user": "U1", "text": "<@UBOT> 2+2", "ts": "5.1"}
    new = {**old, "text": "<@UBOT> 2+3", "edited": {"user": "U1", "ts": "6.1"}}
    edit = channel("", subtype="message_changed", message=new, previous_message=old)
    assert (edit.kind, edit.text, edit.target, edit.addressed) == (Kind.EDIT, "2+3", "slack:T1:C1:5.1", True)
    assert edit.key == "slack:T1:C1:5.1:edit:6.1"
    deletion = channel("", subtype="message_deleted", deleted_ts="5.1", previous_message=old)
    assert (deletion.kind, deletion.target, deletion.author.id) == (Kind.DELETE, "slack:T1:C1:5.1", "U1")
    grave = {"subtype": "tombstone", "ts": "5.1", "text": "This message was deleted.", "user": "USLACKBOT"}
    withdrawn = channel("", subtype="message_changed", message=grave, previous_message=old)
    assert (withdrawn.kind, withdrawn.target) == (Kind.DELETE, "slack:T1:C1:5.1")


@pytest.mark.parametrize(("at", "addressed"), [("6.2", True), ("3500.1", True), ("3700.1", False)])
def test_a_mention_that_an_edit_adds_counts_for_an_hour(at: str, addressed: bool) -> None:
    old = {"user": "U1", "text": "2+2", "ts": "5.1"}
    new = {**old, "text": "<@UBOT> 2+2", "edited": {"user": "U1", "ts": at}}
    edit = channel("", subtype="message_changed", message=new, previous_message=old, ts=at)
    assert (edit.kind, edit.text, edit.target, edit.addressed) == (Kind.EDIT, "2+2", "slack:T1:C1:5.1", addressed)
    assert edit.thread.topic == "5.1"


def test_a_linked_message_that_slack_shows_later_is_a_change_with_a_quote() -> None:
    old = {"user": "U1", "text": "<@UBOT> see <https://a.slack.com/archives/C2/p1>", "ts": "5.1"}
    shown = {"is_msg_unfurl": True, "author_name": "Ann", "author_id": "U2", "text": "port 5433"}
    event = channel("", subtype="message_changed", message={**old, "attachments": [shown]}, previous_message=old)
    assert (event.kind, event.target) == (Kind.EDIT, "slack:T1:C1:5.1")
    assert [(quote.author, quote.text, quote.kind) for quote in event.quotes] == [("Ann", "port 5433", "forward")]


def test_link_previews_and_own_edits_are_ignored() -> None:
    old = {"user": "U1", "text": "<@UBOT> see x", "ts": "5.1"}
    previewed = {**old, "attachments": [{"text": "x"}]}
    assert parse_payload(said("", subtype="message_changed", message=previewed, previous_message=old), ME) is None
    ours = {"user": "UBOT", "bot_id": "BBOT", "ts": "5.1"}
    assert (
        parse_payload(said("", subtype="message_changed", message={**ours, "text": "b"}, previous_message=ours), ME)
        is None
    )


@pytest.mark.parametrize("subtype", ["channel_join", "channel_topic", "pinned_item", "bot_add"])
def test_channel_events_are_ignored(subtype: str) -> None:
    assert parse_payload(said("<@UBOT> has joined", subtype=subtype), ME) is None


def test_only_a_cross_on_a_message_of_the_bot_is_stop() -> None:
    def reaction(**more: Any) -> object:
        item = {"type": "message", "channel": "C1", "ts": "7.1"}
        event = {"type": "reaction_added", "reaction": "x", "user": "U1", "item_user": "UBOT", "item": item}
        return parse_payload({"event": {**event, "event_ts": "8.1", **more}, "team_id": "T1"}, ME)

    found = reaction()
    assert isinstance(found, Message)
    assert (found.kind, found.text, found.to_bot, found.reply_to) == (Kind.COMMAND, "stop", True, "7.1")
    assert found.thread == Thread("slack", "T1", "C1", ANYWHERE)
    assert reaction(reaction="tada") is None
    assert reaction(item_user="U2") is None


def test_the_native_stop_button_is_stop() -> None:
    event = {"type": "agent_session_stopped", "channel": "C1", "thread_ts": "1.1", "user": "U1", "event_ts": "8.1"}
    found = parse_payload({"event": {**event, "streaming_message_ts": ["7.1"]}, "event_id": "Ev9"}, ME)
    assert isinstance(found, Message)
    assert (found.kind, found.text, found.reply_to) == (Kind.COMMAND, "stop", "7.1")
    assert found.thread == Thread("slack", "T1", "C1", "1.1")
    silent = parse_payload({"event": {**event, "streaming_message_ts": []}, "event_id": "Ev9"}, ME)
    assert isinstance(silent, Message)
    assert (silent.addressed, silent.to_bot) == (True, False)


def test_events_that_cannot_be_parsed_are_kept() -> None:
    found = parse_payload({"event": {"type": "message", "user": "U1", "text": "hi"}, "event_id": "Ev1"}, ME)
    assert isinstance(found, Unreadable)
    assert found.key == "slack:T1:Ev1"
    assert b"hi" in found.raw


def test_an_empty_message_is_unsupported() -> None:
    assert message("").kind is Kind.UNSUPPORTED
    assert channel("<@UBOT>").kind is Kind.CHAT


def test_events_are_assigned_to_their_thread() -> None:
    shared = {"team_id": "T9", "authorizations": [{"team_id": "T1"}]}
    assert next(candidate_workspaces(shared)) == "T1"
    assert "T5" in list(candidate_workspaces({"user": {"team_id": "T5"}}))


def test_the_address_of_a_message_is_that_of_its_permalink() -> None:
    account = replace(ME, url="https://acme.slack.com/")
    root, inside = Thread("slack", "T1", "C1", "1700.000100"), "https://acme.slack.com/archives/C1/p1700000200"
    assert account.message_link(root, "1700.000100") == "https://acme.slack.com/archives/C1/p1700000100"
    assert account.message_link(root, "1700.000200") == f"{inside}?thread_ts=1700.000100&cid=C1"
    assert account.message_link(Thread("slack", "T1", "D1", ""), "17.1") == "https://acme.slack.com/archives/D1/p171"
    assert ME.message_link(root, "17.1") == ""


WORDS = {"type": "text", "text": "see the plan"}
BLOCKS = [
    {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [WORDS]}]},
    {"type": "section", "text": {"type": "mrkdwn", "text": "see the plan"}},
    {"type": "header", "text": {"type": "plain_text", "text": "see the plan"}},
    {"type": "context", "elements": [{"type": "mrkdwn", "text": "see the plan"}]},
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block["type"]))
def test_a_message_of_a_person_that_has_only_blocks_is_read(block: dict[str, Any]) -> None:
    assert "see the plan" in message("", blocks=[block]).text
    assert message("in words", blocks=[block]).text == "in words"
