"""Matrix: mentions, threads, edits of other people, invitations, questions by reactions, and a stranger's attacks.

All of it against a real homeserver.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest

from agent.blocks import Ask, Done, Final, Text, View
from agent.messages import ANYWHERE, Kind, Message, Unreadable
from agent.setting import Secret
from channels.base import ChatGone, Receipt
from channels.matrix import MatrixSettings
from channels.matrix.events import MatrixAccount, read_event
from channels.matrix.html import to_html
from channels.matrix.reply import MatrixMessage, message_content
from channels.matrix.rooms import Known, Rooms
from channels.matrix.sender import MAX_EVENT_BYTES
from channels.matrix.setup import probe_matrix_account
from tests.support.encrypting_person import EncryptingPerson
from tests.support.rigs.matrix import MatrixRig
from tests.support.rigs.registry import Memory, heard, ready, settled, until
from tests.support.synapse import C, Person, shared_synapse

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MatrixRig]:
    async with MatrixRig.start(tmp_path) as made:
        await ready(made)
        yield made


def text(body: str, **more: object) -> dict[str, object]:
    return {"msgtype": "m.text", "body": body, "m.mentions": {}, **more}


def joined(person: Person) -> list[str]:
    return [str(room) for room in person.call("GET", f"{C}/joined_rooms")["joined_rooms"]]


# ---------------------------------------------------------------- what people write


async def test_a_person_who_mentions_by_an_old_client_is_understood(rig: MatrixRig) -> None:
    pill = f'<a href="https://matrix.to/#/{rig.bot}">Fawn</a>: sum this up'
    content = {"msgtype": "m.text", "body": "Fawn: sum this up", "formatted_body": pill}
    event = rig.jane.send(rig.group, content)
    message = await rig.box.next()
    assert (message.text, message.addressed, message.thread.topic) == ("sum this up", True, event)


async def test_a_reply_to_the_bot_counts_and_continues_its_thread(rig: MatrixRig) -> None:
    asked = await rig.say("look into it", 3)
    posts = Memory()
    await rig.channel.reply(asked.thread, posts, to=asked.id).finish(Final("It is done."))
    await rig.leave()
    await rig.back()  # what was said before is known to the server alone
    relation = {"m.in_reply_to": {"event_id": posts.rows[0]}}
    rig.jane.send(rig.group, text("> <@x:y> It is done.\n\nand now?", **{"m.relates_to": relation}))
    further = await rig.box.next(2)
    assert (further.text, further.to_bot, further.addressed) == ("and now?", True, True)
    assert further.thread == asked.thread


async def test_a_reply_to_a_person_brings_their_words(rig: MatrixRig) -> None:
    said = rig.jane.send(rig.group, text("the beamer is broken"))
    relation = {"m.in_reply_to": {"event_id": said}}
    mention = {"m.mentions": {"user_ids": [rig.bot]}, "m.relates_to": relation}
    rig.kim.send(rig.group, text("Fawn, who repairs it?") | mention)
    message = await rig.box.next(2)
    quotes = (await rig.channel.enrich(message, 0)).quotes
    assert [(quote.kind, quote.text, quote.author_id) for quote in quotes] == [
        ("reply", "the beamer is broken", rig.jane.id)
    ]


async def test_an_edit_by_another_person_is_dropped(rig: MatrixRig) -> None:
    """The server takes it: whoever may write into a room could change what others asked for."""
    asked = await rig.say("delete the old report", 4)
    new = text("delete everything")
    relation = {"rel_type": "m.replace", "event_id": asked.id}
    rig.kim.send(rig.group, text("* delete everything", **{"m.new_content": new, "m.relates_to": relation}))
    await rig.leave()
    await rig.back()
    rig.kim.send(rig.group, text("* delete all", **{"m.new_content": new, "m.relates_to": relation}))
    own = text("delete the old reports")
    rig.jane.send(rig.group, text("* …", **{"m.new_content": own, "m.relates_to": relation}))
    edit = await rig.box.next(kind=Kind.EDIT)
    assert (edit.author.id, edit.text, edit.target) == (rig.jane.id, "delete the old reports", asked.key)
    assert len(rig.box.messages) == 2


async def test_a_mention_that_an_edit_adds_is_addressed(rig: MatrixRig) -> None:
    said = rig.jane.send(rig.group, text("what is the plan?"))
    new = text("Fawn, what is the plan?") | {"m.mentions": {"user_ids": [rig.bot]}}
    relation = {"rel_type": "m.replace", "event_id": said}
    rig.jane.send(rig.group, text("* …", **{"m.new_content": new, "m.relates_to": relation}))
    edit = await rig.box.next(kind=Kind.EDIT)
    assert (edit.addressed, edit.id, edit.thread.topic) == (True, said, said)
    assert edit.text == "what is the plan?"


async def test_what_is_written_before_the_bot_enters_is_answered_and_older_history_is_not(rig: MatrixRig) -> None:
    room = rig.kim.create_room(name="Old")
    rig.kim.send(room, text("Fawn, this was before you were invited", **{"m.mentions": {"user_ids": [rig.bot]}}))
    rig.kim.call("POST", f"{C}/rooms/{quote(room)}/invite", {"user_id": rig.bot})
    rig.kim.send(room, text("Fawn, and this after", **{"m.mentions": {"user_ids": [rig.bot]}}))
    message = await rig.box.next(2)
    assert [each.kind for each in rig.box.messages] == [Kind.INVITE, Kind.CHAT]
    assert message.text == "and this after"
    assert message.private


async def test_more_than_one_answer_can_hold_is_read_in_order_after_downtime(rig: MatrixRig) -> None:
    await rig.say("before")
    await rig.leave()
    for number in range(120):
        rig.mutter(f"missed {number}")
    await rig.back()
    await heard(rig, "after")
    assert [message.text for message in rig.box.messages][1:-1] == [f"missed {number}" for number in range(120)]


# ---------------------------------------------------------------- rooms


@pytest.mark.parametrize("direct", [True, False])
async def test_an_invitation_is_accepted_or_declined_as_the_inbox_says(rig: MatrixRig, direct: bool) -> None:
    bot = Person(rig.proxy.target, {"user_id": rig.bot, "access_token": "", "device_id": ""})
    room = rig.kim.create_room(rig.bot, direct=direct)
    invite = await rig.box.next(kind=Kind.INVITE)
    assert (invite.thread.chat, invite.author.id, invite.private) == (room, rig.kim.id, direct)

    def membership(room: str) -> str:
        state = rig.kim.call("GET", f"{C}/rooms/{quote(room)}/state/m.room.member/{quote(rig.bot)}")
        return str(state["membership"])

    await until(lambda: membership(room) == "join", what="the bot to enter")
    rig.box.refuses = lambda message: message.kind is Kind.INVITE
    other = rig.kim.create_room(rig.bot, direct=direct)
    await until(lambda: membership(other) == "leave", what="the bot to decline")
    assert rig.box.receipts[-1] is Receipt.IGNORED
    bot.close()


async def test_a_room_that_the_bot_was_removed_from_is_gone(rig: MatrixRig) -> None:
    asked = await rig.say("hello", 4)
    rig.jane.call("POST", f"{C}/rooms/{quote(rig.group)}/kick", {"user_id": rig.bot})
    with pytest.raises(ChatGone):
        await rig.channel.reply(asked.thread, Memory()).finish(Final("Nobody hears."))


async def test_nothing_goes_open_in_a_room_that_becomes_encrypted(rig: MatrixRig) -> None:
    await rig.say("hello")
    path = f"{C}/rooms/{quote(rig.direct)}/state/m.room.encryption/"
    rig.jane.call("PUT", path, {"algorithm": "m.megolm.v1.aes-sha2"})
    rig.mutter("in anybody's name")
    said = await rig.box.next(2)
    assert (said.kind, said.text) == (Kind.UNSUPPORTED, "this message: the room is encrypted, and it is not")
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("a secret"))
    rig.jane.sync()
    kinds = [event["type"] for event in rig.jane.events[rig.direct] if event["sender"] == rig.bot]
    assert kinds[-1] == "m.room.encrypted"
    assert "m.room.message" not in kinds


@pytest.mark.parametrize("rule", ["public", "invite"])
async def test_an_upgraded_room_moves_with_its_chat(rig: MatrixRig, rule: str) -> None:
    await rig.say("hello", 4)
    rig.jane.call("PUT", f"{C}/rooms/{quote(rig.group)}/state/m.room.join_rules/", {"join_rule": rule})
    version = rig.jane.call("GET", f"{C}/capabilities")["capabilities"]["m.room_versions"]["default"]
    answer = rig.jane.call("POST", f"{C}/rooms/{quote(rig.group)}/upgrade", {"new_version": version})
    new = str(answer["replacement_room"])
    if rule == "invite":
        rig.jane.call("POST", f"{C}/rooms/{quote(new)}/invite", {"user_id": rig.bot})
    moved = await rig.box.next(kind=Kind.MOVED)
    assert (moved.thread.chat, moved.text) == (rig.group, new)
    later = rig.channel.reply(replace(rig.thread(4), chat=new), Memory())
    await later.finish(Final("The thread's beginning is elsewhere."))
    assert rig.jane.visible(new, rig.bot)[0]["content"]["body"] == "The thread's beginning is elsewhere."


async def test_a_tombstone_to_a_room_that_does_not_name_the_old_one_moves_nothing(rig: MatrixRig) -> None:
    await rig.say("hello", 4)
    trap = rig.kim.create_room(preset="public_chat")
    path = f"{C}/rooms/{quote(rig.group)}/state/m.room.tombstone/"
    rig.jane.call("PUT", path, {"body": "moved", "replacement_room": trap})
    members = f"{C}/rooms/{quote(trap)}/joined_members"
    await until(lambda: rig.bot in rig.kim.call("GET", members)["joined"], what="the bot to look")
    await rig.say("still here", 4)
    assert not [message for message in rig.box.messages if message.kind is Kind.MOVED]


# ---------------------------------------------------------------- questions


async def test_a_question_is_answered_by_a_keycap_after_a_restart(rig: MatrixRig) -> None:
    view, posts = View(), Memory()
    view.add(Text("The report is ready."))
    view.add(Ask("ask-1", "Which format?", ("csv", "pdf")))
    view.add(Done("waiting"))
    await rig.channel.reply(rig.thread(), posts).finish(view.final())

    def keycaps() -> list[str]:
        rig.jane.sync()
        found = [each for each in rig.jane.events[rig.direct] if each["type"] == "m.reaction"]
        return [each["content"]["m.relates_to"]["key"] for each in found]

    await until(lambda: keycaps() == ["1\ufe0f\u20e3", "2\ufe0f\u20e3"], what="the keycaps")
    await rig.leave()
    await rig.back()
    relation = {"rel_type": "m.annotation", "event_id": posts.rows[0], "key": "2\ufe0f\u20e3"}
    rig.jane.send(rig.direct, {"m.relates_to": relation}, "m.reaction")
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text, click.reply_to) == ("ask-1", "pdf", posts.rows[0])
    assert click.author.id == rig.jane.id
    wrong = {"rel_type": "m.annotation", "event_id": posts.rows[0], "key": "3\ufe0f\u20e3"}
    rig.jane.send(rig.direct, {"m.relates_to": wrong}, "m.reaction")
    await rig.say("and on")
    assert [message.kind for message in rig.box.messages] == [Kind.CLICK, Kind.CHAT]


# ---------------------------------------------------------------- attacks


def test_no_shape_of_an_event_stops_the_others() -> None:
    rooms, me = Rooms(), MatrixAccount("@bot:localhost", "Fawn")
    rooms.join("!r:x").joined = 2
    odd: list[object] = [None, 1, [], "x", {}, {"user_ids": 3}, {"event_id": []}, {"m.in_reply_to": 4}]
    kinds = ("m.room.message", "m.reaction", "m.room.redaction", "m.room.encrypted", "m.sticker", "x")
    fields = ("body", "msgtype", "m.relates_to", "m.mentions", "m.new_content", "info", "file", "url", "formatted_body")
    for kind in kinds:
        for field in fields:
            for value in odd:
                for content in ({field: value}, {"msgtype": "m.file", "body": "x", field: value}, value):
                    event = {"type": kind, "event_id": "$e", "sender": "@a:b", "content": content}
                    found = read_event(event, "!r:x", rooms, me)
                    assert found is None or isinstance(found, Message | Unreadable)
    assert isinstance(read_event({"type": "m.room.message"}, "!r:x", rooms, me), Unreadable)


def test_what_a_person_claims_of_others_does_not_count() -> None:
    rooms, me = Rooms(), MatrixAccount("@bot:localhost", "Fawn")
    rooms.join("!r:x").joined = 9
    rooms.events["$bot"], rooms.events["$jane"] = Known("@bot:localhost", "$root"), Known("@jane:localhost")
    mark = {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$jane", "key": "❌"}}
    event = {"type": "m.reaction", "event_id": "$1", "sender": "@m:localhost", "content": mark}
    assert read_event(event, "!r:x", rooms, me) is None, "a reaction on a person's message stops nothing"
    new = {"msgtype": "m.text", "body": "changed"}
    edit = {"m.new_content": new, "m.relates_to": {"rel_type": "m.replace", "event_id": "$jane"}}
    event = {"type": "m.room.message", "event_id": "$2", "sender": "@m:localhost", "content": edit}
    assert read_event(event, "!r:x", rooms, me) is None
    for name in ("@bot:localhost:evil", "@Bot:localhost", "@bot:localhost ", "＠bot:localhost"):
        content = {"msgtype": "m.text", "body": "hi", "m.mentions": {"user_ids": [name]}}
        event = {"type": "m.room.message", "event_id": "$3", "sender": "@jane:localhost", "content": content}
        found = read_event(event, "!r:x", rooms, me)
        assert isinstance(found, Message)
        assert not found.addressed
    far = {"type": "m.room.message", "event_id": "$4", "sender": "@jane:evil", "content": new}
    found = read_event({**far, "origin_server_ts": 9e15}, "!r:x", rooms, me)
    assert isinstance(found, Message)
    assert found.author.guest
    assert found.time < 1e10, "a server cannot date its messages into the future"
    gone = {"type": "m.room.redaction", "event_id": "$5", "sender": "@m:localhost", "redacts": "$unknown"}
    found = read_event(gone, "!r:x", rooms, me)
    assert isinstance(found, Message)
    assert found.thread.topic == ANYWHERE


HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)>\n\n[x](javascript:alert(1)) ![y](https://evil.example/t.png)\n\n"
    '[z](https://a.example/"onmouseover="x) [@jane](https://matrix.to/#/@jane:localhost)\n\n'
    '```a"><b\ncode</code></pre><script>\n```\n\n| <b>a</b> | b |\n|---|---|\n| <i>1</i> | 2 |\n'
)


def test_html_of_a_model_is_escaped_and_links_to_nobody() -> None:
    html = to_html(HOSTILE)
    for bad in (
        "<script",
        "<img",
        'javascript:alert(1)"',
        "onerror=alert(1)>",
        "<i>",
        "<b>",
        'matrix.to/#/@jane:localhost"',
    ):
        assert bad not in html, bad
    assert "<table>" in html
    assert 'href="https://evil.example/t.png"' in html, "a picture from elsewhere is a link"
    assert to_html("> " * 5000 + "deep") == ""


def test_no_content_is_larger_than_an_event() -> None:
    for bad in ('"' * 11_000, "<" * 11_000, "中" * 4000, "|" * 11_000, "`a`" * 4000, "*a*" * 4000):
        content = message_content(MatrixMessage(bad, summary="s", fold="<" * 4000, options=("x" * 1000,) * 9))
        assert len(orjson.dumps(content)) <= MAX_EVENT_BYTES
        assert content["body"].startswith(bad)


async def test_a_flood_of_unknown_targets_costs_few_calls(rig: MatrixRig) -> None:
    await rig.say("hello", 2)
    await rig.leave()
    real = rig.jane.send(rig.group, text("x"))
    for _number in range(45):
        relation = {"rel_type": "m.replace", "event_id": real}
        rig.kim.send(rig.group, text("* y", **{"m.new_content": text("y"), "m.relates_to": relation}))
    before = rig.wire.count("any")
    await rig.back()
    await rig.say("still there?", 2)
    assert rig.wire.count("any") - before < 30


async def test_giant_texts_and_control_characters_arrive_and_are_answered(rig: MatrixRig) -> None:
    rig.mutter("x" * 60_000 + "\u0000\u202e")
    message = await rig.box.next()
    assert len(message.text) > 50_000
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("a\u0000b\ud800 \u0007c"))
    assert await settled(rig, "c") == "ab? c"


async def test_a_message_of_the_bot_in_another_program_is_not_answered(rig: MatrixRig) -> None:
    account = rig.channel.readiness().detail
    assert account == rig.bot
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("my own words"))
    await asyncio.sleep(0)
    await rig.say("and on")
    assert [message.text for message in rig.box.messages] == ["and on"]


# ---------------------------------------------------------------- fawn check


async def test_the_check_names_server_rooms_keys_and_pace(rig: MatrixRig) -> None:
    said = await probe_matrix_account(MatrixSettings(rig.proxy.base_url, Secret(rig.token)))
    assert said.startswith(f"connected as {rig.bot} to a server of API v1.")
    assert "in 2 rooms; its device is signed" in said
    assert "Fawn sends 0.2 events a second" in said


async def test_the_check_of_an_admin_knows_the_limit_and_one_before_the_first_start_has_no_keys() -> None:
    server = shared_synapse()
    bot = Person(server.url, server.register(f"admin{secrets.token_hex(4)}", admin=True))
    settings = MatrixSettings(server.url, Secret(bot.token))
    path = f"/_synapse/admin/v1/users/{bot.id}/override_ratelimit"
    bot.call("POST", path, {"messages_per_second": 0, "burst_count": 0})
    said = await probe_matrix_account(settings)
    assert "in 0 rooms; the keys of its device are made at the first start; the server does not limit it" in said
    bot.call("POST", path, {"messages_per_second": 3, "burst_count": 9})
    assert "the server allows 3 events a second" in await probe_matrix_account(settings)
    bot.close()


async def test_the_check_says_that_clients_refuse_a_device_which_nobody_signed() -> None:
    server = shared_synapse()
    bot = EncryptingPerson(server.url, server.register(f"unsigned{secrets.token_hex(4)}"))
    assert "NOBODY signed its device" in await probe_matrix_account(MatrixSettings(server.url, Secret(bot.token)))
    bot.close()
