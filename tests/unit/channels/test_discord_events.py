"""Discord's events as Fawn's messages: pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from agent.messages import ANYWHERE, Kind, Message, Quote, Thread
from channels.discord import events
from channels.discord.events import DiscordAccount
from channels.discord.guild_cache import snowflake_from_time, snowflake_time
from channels.discord.markdown import RULE, to_discord_markdown, without_previews
from channels.discord.threads import thread_title

ME = DiscordAccount("1000", bot_role="5000")
ROOM = Thread("discord", "3000", "4000")
INSIDE = Thread("discord", "3000", "4000", "4500")
DIRECT = Thread("discord", "@me", "6000")
JANE = {"id": "2000", "username": "jane", "global_name": "Jane"}
FAWN = {"id": "1000", "username": "fawn", "bot": True}


def said(content: str = "", **more: Any) -> dict[str, Any]:
    plain = {"id": "175928847299117063", "channel_id": "4000", "author": JANE, "content": content, "type": 0}
    return plain | {"mentions": [], "mention_roles": [], "attachments": []} | more


def read(event: dict[str, Any], thread: Thread = ROOM, me: DiscordAccount = ME) -> Message:
    found = events.parse_message(event, thread, me)
    assert found
    return found


def test_ids_contain_their_time() -> None:
    assert snowflake_time("175928847299117063") == pytest.approx(1462015105.796)
    assert snowflake_time(snowflake_from_time(1462015105.796)) == pytest.approx(1462015105.796)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<@1000> do it", "do it"),
        ("<@!1000>, do it", "do it"),
        ("<@&5000>: do it", "do it"),
        ("do it <@1000>", "do it"),
        ("hey <@1000> do it", "hey do it"),
        ("<@1000>", ""),
    ],
)
def test_the_mention_of_the_bot_is_removed(content: str, text: str) -> None:
    message = read(said(content, mentions=[FAWN]))
    assert (message.text, message.addressed) == (text, True)
    assert message.thread.topic == message.id


def test_other_mentions_are_written_as_people_see_them() -> None:
    message = read(said("ask <@2001> <:party:77> <a:go:78>", mentions=[{"id": "2001", "username": "max"}]), INSIDE)
    assert message.text == "ask @max :party: :go:"
    assert not message.follow_up


def test_authors_have_their_server_names() -> None:
    assert read(said("x", member={"nick": "Janey"})).author.name == "Janey"
    assert read(said("x")).author.name == "Jane"
    assert read(said("x", author={"id": "9", "username": "hook"}, webhook_id="9")).author.bot
    assert read(said("x", member={"flags": 16})).author.guest


def test_messages_of_the_bot_and_the_system_are_ignored() -> None:
    assert events.parse_message(said("x", author=FAWN), ROOM, ME) is None
    assert events.parse_message(said("Jane pinned a message", type=6), ROOM, ME) is None
    assert events.parse_message(said(author={**JANE, "bot": True}), DIRECT, ME) is None
    assert read(said(), DIRECT).kind is Kind.UNSUPPORTED, "a person may have sent what is not known yet"


@pytest.mark.parametrize(("field", "what"), [("sticker_items", "a sticker")])
def test_unsupported_content_is_named(field: str, what: str) -> None:
    message = read(said("<@1000>", mentions=[FAWN], **{field: [{"name": "x"}]}))
    assert (message.kind, message.text, message.addressed) == (Kind.UNSUPPORTED, what, True)
    inside = read(said("", **{field: [{"name": "x"}]}), INSIDE)
    assert (inside.kind, inside.addressed, inside.follow_up) == (Kind.UNSUPPORTED, False, True)
    assert read(said("see", **{field: [{"name": "x"}]})).kind is Kind.CHAT


def test_replies_to_the_bot_are_for_it_and_others_are_quotes() -> None:
    reference = {"message_id": "111", "type": 0}
    own = said("more", message_reference=reference, referenced_message=said("mine", author=FAWN), mentions=[FAWN])
    assert (read(own).to_bot, read(own).reply_to, read(own).thread.topic, read(own).quotes) == (
        True,
        "111",
        ANYWHERE,
        (),
    )
    assert read(own, ROOM, DiscordAccount("1000", opens_threads=False)).thread == ROOM
    theirs = said("<@1000> is it?", message_reference=reference, referenced_message=said("so it is"))
    assert read(theirs).quotes == (Quote("Jane", "so it is", author_id="2000", member=True),)
    gone = said("<@1000> is it?", message_reference=reference, referenced_message=None)
    assert read(gone).quotes == ()


def test_forwards_are_quotes() -> None:
    snapshot = {"message": {"content": "/stop everything", "attachments": [FILE]}}
    message = read(said(message_reference={"message_id": "1", "type": 1}, message_snapshots=[snapshot]), DIRECT)
    assert (message.kind, message.text, message.reply_to) == (Kind.CHAT, "", "")
    assert message.quotes == (Quote("somebody", "/stop everything", "forward"),)
    assert message.attachments[0].ref == "4000/175928847299117063/88 https://cdn/x"


FILE = {
    "id": "88",
    "filename": "1.csv",
    "title": "报告 1",
    "url": "https://cdn/x",
    "size": 3,
    "content_type": "text/csv; x",
}


def test_files_keep_their_original_name() -> None:
    [file] = read(said(attachments=[FILE])).attachments
    assert (file.name, file.mime, file.kind, file.size) == ("报告 1.csv", "text/csv", "file", 3)
    [plain] = read(said(attachments=[FILE | {"title": None, "content_type": "image/png"}])).attachments
    assert (plain.name, plain.kind) == ("1.csv", "image")


def test_only_known_commands_count_without_a_mention() -> None:
    me = DiscordAccount("1000", command_names=frozenset({"stop"}))
    assert read(said("!stop now"), INSIDE, me).kind is Kind.COMMAND
    assert read(said("!play"), INSIDE, me).kind is Kind.CHAT
    assert read(said("!play"), DIRECT, me).kind is Kind.COMMAND
    assert read(said("<@1000> /play", mentions=[FAWN]), ROOM, me).kind is Kind.COMMAND


def test_edits_count_and_link_previews_do_not() -> None:
    edited = said("<@1000> better", edited_timestamp="2026-11-22T07:00:00.123000+00:00", mentions=[FAWN])
    found = events.parse_edit(edited, ROOM, ME)
    assert found
    assert (found.kind, found.text, found.target) == (Kind.EDIT, "better", "discord:4000:175928847299117063")
    assert found.key.startswith(f"{found.target}:edit:")
    assert events.parse_edit(said("x", edited_timestamp=None), ROOM, ME) is None
    assert events.parse_edit(edited | {"author": FAWN}, ROOM, ME) is None


@pytest.mark.parametrize(
    ("content", "thread", "addressed"),
    [
        ("<@1000> better", ROOM, True),
        ("<@1000> better", INSIDE, True),
        ("better", ROOM, False),
        ("<@2000> better", ROOM, False),
        ("better", DIRECT, True),
    ],
)
def test_a_mention_that_an_edit_adds_is_addressed_and_begins_its_thread(
    content: str, thread: Thread, addressed: bool
) -> None:
    posted = "2016-04-30T11:18:25.796000+00:00"
    edited = said(content, edited_timestamp=posted, mentions=[FAWN] if "1000" in content else [])
    found = events.parse_edit(edited, thread, ME)
    assert found
    assert (found.kind, found.addressed, found.text[-6:]) == (Kind.EDIT, addressed, "better")
    assert found.thread.topic == ("175928847299117063" if addressed and thread is ROOM else thread.topic)
    late = events.parse_edit(edited | {"edited_timestamp": "2016-04-30T12:18:26.796000+00:00"}, thread, ME)
    assert late
    assert late.addressed is (thread is DIRECT)


def test_a_bulk_deletion_deletes_every_message() -> None:
    found = events.parse_delete({"ids": ["1", "2"], "channel_id": "4000"}, ROOM, 1.0)
    assert [each.target for each in found] == ["discord:4000:1", "discord:4000:2"]


def test_a_cross_stops_only_on_messages_of_the_bot() -> None:
    event = {"user_id": "2000", "channel_id": "4500", "message_id": "7", "emoji": {"name": "❌"}}
    found = events.parse_reaction(event | {"message_author_id": "1000"}, INSIDE, ME, 5.0)
    assert found
    assert (found.text, found.kind, found.reply_to, found.author.id) == ("stop", Kind.COMMAND, "7", "2000")
    assert events.parse_reaction(event | {"message_author_id": "2000"}, INSIDE, ME, 5.0) is None
    assert events.parse_reaction(event | {"message_author_id": "1000", "user_id": "1000"}, INSIDE, ME, 5.0) is None
    assert (
        events.parse_reaction(event | {"message_author_id": "1000", "emoji": {"name": "🔥"}}, INSIDE, ME, 5.0) is None
    )
    assert events.parse_reaction(event, INSIDE, ME, 5.0, Kind.FEEDBACK_REMOVED) is None


def test_thumbs_of_every_colour_are_feedback() -> None:
    event = {"user_id": "2000", "channel_id": "4500", "message_id": "7"}
    for kind in (Kind.FEEDBACK, Kind.FEEDBACK_REMOVED):
        for emoji, text in (("👍", "up"), ("👎🏽", "down")):
            found = events.parse_reaction(event | {"emoji": {"name": emoji}}, INSIDE, ME, 5.0, kind)
            assert found
            assert (found.text, found.kind, found.reply_to, found.author.id) == (text, kind, "7", "2000")


def test_tables_become_aligned_code_and_other_text_is_unchanged() -> None:
    table = "| 名 | n |\n|---|---|\n| 你好 | `x` |\n| [a](https://b.c) | \\| |"
    fence = "```\n| no | table |\n|---|---|\n```"
    assert to_discord_markdown(f"before\n\n{table}\n\n{fence}").split("\n") == [
        "before",
        "",
        "```",
        "名              | n",
        "----------------+--",
        "你好            | x",
        "a (https://b.c) | |",
        "```",
        "",
        *fence.split("\n"),
    ]
    assert to_discord_markdown("a | b") == "a | b"
    wide = "a | b\n--|--\n|| 2 | 3 | 4|"  # more cells than the head has
    assert to_discord_markdown(wide).split("\n") == ["```", "a | b |   |", "--+---+---+--", "  | 2 | 3 | 4", "```"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# a\n### b\n#### Deep **c** ##\n- ###### d", "# a\n### b\n**Deep c**\n- **d**"),
        ("Title\n=====\nmore\n\nSub\n---\nItems:\n-", "# Title\nmore\n\n## Sub\nItems:\n-"),
        ("a\n\n---\n> * * *", f"a\n\n{RULE}\n> {RULE}"),
        ("- [ ] a\n  - [x] b\n1. [X] c\n- [d](http://e)", "- ☐ a\n  - ☑ b\n1. ☑ c\n- [d](http://e)"),
        ("![a](http://b) ![](c) `![d](e)`", "[a](http://b) [image](c) `![d](e)`"),
        ("- x\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n- y", "- x\n\n```\na | b\n--+--\n1 | 2\n```\n- y"),
        ("> | a | b |\n> |---|---|\n> | 1 | 2 |", "> ```\n> a | b\n> --+--\n> 1 | 2\n> ```"),
        ("```\n#### a\n---\n- [ ] b\n![c](d)\n```", "```\n#### a\n---\n- [ ] b\n![c](d)\n```"),
    ],
)
def test_markdown_that_discord_does_not_know_is_written_in_what_it_knows(text: str, shown: str) -> None:
    """support.discord.com/hc/articles/210298617: headings of three levels, lists, links, quotes and code."""
    assert to_discord_markdown(text) == shown


def test_links_outside_code_have_no_preview() -> None:
    assert (
        without_previews("https://a.b [x](https://c.d) <https://e.f>")
        == "<https://a.b> [x](<https://c.d>) <https://e.f>"
    )
    code = "`https://a.b`\n```\nhttps://c.d\n```"
    assert without_previews(code) == code
    assert without_previews("````https://a.b ``") == "````<https://a.b> ``"  # a longer run of backticks begins no code


@pytest.mark.parametrize(
    ("text", "name"),
    [("fix  the\nbuild", "fix the build"), ("", "Fawn"), ("x" * 200, "x" * 99 + "…"), ("a b " * 50, "…")],
)
def test_thread_titles_are_the_first_words(text: str, name: str) -> None:
    assert len(thread_title(text)) <= 100
    assert thread_title(text) == name or (thread_title(text).endswith("…") and name == "…")
