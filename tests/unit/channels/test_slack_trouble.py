"""Faults of Slack, the network and the disk; user classification; several workspaces."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final, Text
from agent.messages import Attachment, Kind, Thread, Unreadable
from agent.setting import Secret
from channels import slack
from channels.base import ChannelError, Health, OutgoingFile, Receipt, Refused, TryLater
from channels.slack.api import WRONG_KIND
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, JANE, OPS, TEAM, FakeSlack, Workspace
from tests.support.recording_inbox import Box, Memory, Rows, Service
from tests.support.rigs.registry import deliver, ready, until
from tests.support.rigs.slack import DIRECT, SlackRig

DAY = 86_400.0


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    async with SlackRig.start(tmp_path) as made:
        await ready(made)
        await until(lambda: made.server.calls_of("users.list"), what="the members, who are listed once")
        yield made


@asynccontextmanager
async def service(settings: slack.SlackSettings, box: Box) -> AsyncIterator[Service]:
    """Run a channel under supervision."""
    made = Service(lambda: slack.connect(settings), box)
    await made.begin()
    try:
        yield made
    finally:
        await made.end()


def settings(server: FakeSlack, bot: str = BOT_TOKEN, app: str = APP_TOKEN) -> slack.SlackSettings:
    return slack.SlackSettings(Secret(bot), Secret(app), base_url=server.api_url, ping_seconds=1.0)


# ---------------------------------------------------------------- tokens


# Case 14 of docs/cases.md
@pytest.mark.parametrize(
    ("bot", "app", "words"),
    [
        (BOT_TOKEN, "xapp-wrong", "Slack rejects app_token: copy it again from the app's settings."),
        ("xoxb-wrong", APP_TOKEN, "Slack rejects bot_token: copy it again from the app's settings."),
        (APP_TOKEN, BOT_TOKEN, WRONG_KIND.format("bot_token") + "."),
        (BOT_TOKEN, BOT_TOKEN, WRONG_KIND.format("app_token") + "."),
    ],
    ids=["app token", "bot token", "swapped", "twice the same"],
)
async def test_a_wrong_token_is_reported_within_seconds(bot: str, app: str, words: str) -> None:
    async with FakeSlack() as server, service(settings(server, bot, app), Box()) as made:
        await until(lambda: made.channel.readiness().health is Health.DOWN)
        assert made.channel.readiness().detail == words
        opens = len(server.calls)
        await asyncio.sleep(0.3)
        assert len(server.calls) - opens <= 2  # with back-off
        with pytest.raises(Refused) as told:
            await slack.probe(settings(server, bot, app))
        assert str(told.value) == words


async def test_the_probe_reports_the_account_or_the_fix(rig: SlackRig) -> None:
    assert await slack.probe(rig.settings) == "connected as @fawn in Acme (T1)"
    rig.server.scopes -= {"assistant:write"}
    assert await slack.probe(rig.settings) == "connected as @fawn in Acme (T1) without assistant:write"
    rig.server.scopes -= {"files:read", "im:history"}
    with pytest.raises(Refused, match="In Acme the app lacks files:read, im:history: add the scopes"):
        await slack.probe(rig.settings)
    rig.server.names_scopes = False
    rig.server.app_scopes.clear()
    with pytest.raises(Refused, match="lacks the scope connections:write: add it and install the app again"):
        await slack.probe(rig.settings)
    with pytest.raises(Refused, match=r"cannot be reached.*Check base_url, proxy and the network"):
        await slack.probe(replace(rig.settings, base_url="http://127.0.0.1:9/api/"))
    with pytest.raises(Refused, match=r"`ca_file` cannot be used \(FileNotFoundError\): name a PEM file"):
        await slack.probe(replace(rig.settings, ca_file="/nowhere.pem"))
    with pytest.raises(Refused, match="a proxy of kind socks5 cannot be used"):
        await slack.probe(replace(rig.settings, proxy="socks5://127.0.0.1:9"))
    with pytest.raises(Refused, match="the answer is not from Slack"):
        await slack.probe(replace(rig.settings, base_url=f"{rig.server.base_url}/nowhere/"))


async def test_tokens_are_not_in_logs_errors_or_reprs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with SlackRig.start(tmp_path) as rig:
        said = [repr(rig.settings), str(rig.channel.readiness())]
        for kind in ("drop", "error", "flood"):
            rig.server.fault(kind, "chat.postMessage", seconds=1)
            with pytest.raises(ChannelError) as told:
                await rig.channel.reply(rig.thread(), Memory()).finish(Final("x"))
            said.append(repr(told.value))
        rig.server.refuse_handshakes = 1
        rig.server.abort()
        await rig.server.stop()
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        said += [rig.channel.readiness().detail, caplog.text]
        for secret in (BOT_TOKEN, APP_TOKEN, "ticket="):
            assert secret not in "\n".join(said)


# ---------------------------------------------------------------- limits


# Case 13 of docs/cases.md
@pytest.mark.slow
async def test_after_a_flood_wait_the_message_is_shown_once(rig: SlackRig) -> None:
    rig.server.fault("flood", "chat.postMessage", seconds=2)
    assert await deliver(rig, Final("Here."), Memory()) == 2
    first, second = rig.server.calls_of("chat.postMessage")
    assert second.at - first.at >= 2.0
    assert rig.visible() == ["Here."]


async def test_a_flood_wait_pauses_only_its_method(rig: SlackRig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("one"))
    await until(lambda: rig.visible() == ["one"])
    rig.server.fault("flood", "chat.update", seconds=60)
    reply.show(Text(" two"))
    await until(lambda: rig.server.calls_of("chat.update"))
    await rig.channel.reply(rig.thread(7), Memory("r2")).finish(Final("Posts go on."))
    reply.show(Text(" three"))
    with pytest.raises(TryLater) as told:
        await reply.finish(Final("one two three"))
    assert told.value.after > 50
    with pytest.raises(TryLater):  # a tier counts the method in the workspace
        await rig.channel.reply(rig.thread(8), Memory("r3", Rows({0: posts.rows[0]}))).finish(Final("x"))
    assert len(rig.server.calls_of("chat.update")) == 1


async def test_slack_limits_are_kept_without_flood_waits(rig: SlackRig) -> None:
    rig.server.limits = True
    message = await rig.say("tell me", 7)
    reply = rig.channel.reply(message.thread, Memory(), to=message.id, asker=JANE)
    for number in range(60):
        reply.show(Text(f"w{number} "))
        await asyncio.sleep(0.02)
    await reply.finish(Final(" ".join(f"w{number}" for number in range(60))))
    assert not [call for call in rig.server.calls if call.status == 429]


# ---------------------------------------------------------------- storage


@pytest.mark.slow
async def test_an_event_that_is_not_stored_is_not_acknowledged(rig: SlackRig) -> None:
    rig.box.broken = True
    rig.mutter("keep me", 7, mention=True)
    await until(lambda: rig.box.offered >= 3)
    envelopes = list(rig.server.envelopes.values())
    assert not [envelope for envelope in envelopes if envelope.acks]
    await until(lambda: all(len(envelope.ids) > 1 for envelope in envelopes), what="a redelivery")
    rig.box.broken = False
    message = await rig.box.next()
    assert message.text == "keep me"
    await until(lambda: all(envelope.acks for envelope in envelopes))
    assert len(rig.box.messages) == 1
    apologies = [text for text in rig.visible(7) if "can't save" in text]
    assert len(apologies) == 1


@pytest.mark.parametrize("kind", ["team_join", "emoji_changed", "message", "app_home_opened"])
async def test_every_envelope_is_acknowledged(rig: SlackRig, kind: str) -> None:
    key = rig.server.event({"type": kind, "user": "U5", "channel": OPS, "text": "", "ts": rig.server.ts()})
    await until(lambda: rig.server.acked(key))


async def test_edits_of_unrelated_messages_cause_no_calls(rig: SlackRig) -> None:
    changed = rig.server.send("lunch?", user="U2", silent=True)
    before = len(rig.server.calls)
    rig.server.edit(changed, "lunch at one?")
    deleted = {"type": "message", "subtype": "message_deleted", "channel": OPS, "deleted_ts": changed}
    rig.server.event({**deleted, "ts": rig.server.ts()})  # Slack does not have to name its author
    await until(lambda: all(envelope.acks for envelope in rig.server.envelopes.values()))
    assert len(rig.server.calls) == before


async def test_an_unreadable_event_is_stored_and_does_not_block_others(rig: SlackRig) -> None:
    key = rig.server.event({"type": "message", "text": "no channel", "user": JANE})
    await until(lambda: rig.server.acked(key))
    assert isinstance(rig.box.events[0], Unreadable)
    assert (await rig.say("and on")).text == "and on"


# Case 59 of docs/cases.md
async def test_parallel_deliveries_are_one_message_and_one_reaction(rig: SlackRig) -> None:
    rig.mutter("once", 7, mention=True)
    for _ in range(5):
        rig.redeliver()
    await until(lambda: len(rig.box.receipts) >= 7)
    assert len(rig.box.messages) == 1
    assert rig.box.receipts.count(Receipt.ACCEPTED) == 1
    await until(lambda: rig.server.calls_of("agents.sessions.setStatus"), what="the status of the thread")
    assert len(rig.server.calls_of("agents.sessions.setStatus")) == 1


# ---------------------------------------------------------------- people


async def test_people_are_classified_as_members_guests_or_bots(rig: SlackRig) -> None:
    rig.server.person("U5", profile={"display_name": "", "real_name": "Kim 金"})
    rig.server.person("U6", is_restricted=True)
    rig.server.person("U7", is_ultra_restricted=True)
    rig.server.person("U8", team_id="T9")
    rig.server.person("U9", is_stranger=True)
    rig.server.person("U10", is_bot=True)
    rig.server.person("U11", team_id="T9", enterprise_user={"teams": [TEAM, "T9"]})  # one organization, two workspaces
    for number, user in enumerate(("U5", "U6", "U7", "U8", "U9", "U10", "U11"), 1):
        rig.server.send(f"<@{BOT}> hi", user=user, user_team=rig.server.people[user]["team_id"])
        await until(lambda number=number: len(rig.box.messages) == number)  # type: ignore[misc]  # a lambda with a default
    authors = [message.author for message in rig.box.messages]
    assert authors[0].name == "Kim 金"
    assert [author.guest for author in authors] == [False, True, True, True, True, False, False]
    assert [author.bot for author in authors] == [False] * 5 + [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hang", "error", "flood"])
async def test_an_event_waits_while_slack_does_not_answer_the_user_lookup(rig: SlackRig, kind: str) -> None:
    """Access depends on whether the user is a guest, so the event is neither accepted nor lost."""
    rig.server.person("U6", is_restricted=True)
    rig.server.fault(kind, "users.info", times=1, contains="U6")  # type: ignore[arg-type]  # one of the fake's words
    rig.server.send(f"<@{BOT}> from outside", user="U6")
    await until(lambda: rig.server.calls_of("users.info"))
    rig.mutter("hello")
    await until(lambda: len(rig.box.messages) == 2)
    assert {m.author.name: m.author.guest for m in rig.box.messages} == {"Jane": False, "User U6": True}
    assert not [text for text in rig.visible() if "can't save" in text]


async def test_nobody_overtakes_the_message_of_somebody_who_is_looked_up(rig: SlackRig) -> None:
    await rig.say("hello", 7)  # Jane is known from here on
    rig.server.person("U6")
    rig.server.fault("slow", "users.info", seconds=0.5, contains="U6")
    rig.mutter("first", 7, by="U6")
    await until(lambda: [call for call in rig.server.calls_of("users.info") if "U6" in str(call.args)])
    rig.mutter("second", 7)
    rig.mutter("elsewhere", 8)
    await until(lambda: len(rig.box.messages) == 4)
    assert [message.text for message in rig.box.messages] == ["hello", "elsewhere", "first", "second"]


async def test_a_user_whose_lookup_slack_refuses_is_a_guest(rig: SlackRig) -> None:
    rig.server.fault("error", "users.info", code=400, description="missing_scope", times=-1)
    rig.mutter("hello", 7, by="U6")
    assert (await rig.box.next()).author.guest


async def test_names_are_looked_up_once(rig: SlackRig) -> None:
    rig.server.person("U6")
    for number in range(3):
        rig.mutter(f"hello {number}", 7, by="U6")
        await until(lambda number=number: len(rig.box.messages) == number + 1)  # type: ignore[misc]  # a lambda with a default
    assert len(rig.server.calls_of("users.info")) == 1


async def test_channels_in_a_text_reach_the_model_by_name(rig: SlackRig) -> None:
    rig.server.conversation(OPS).name = "ops"
    rig.server.conversation("G7").member = False
    shared = {"is_share": True, "author_name": "Kim", "text": f"posted in <#{OPS}>"}
    rig.server.send(f"compare <#{OPS}> and <#G7> and <#{OPS}|>", DIRECT, attachments=[shared])
    message = await rig.channel.enrich(await rig.box.next(), 0)
    assert message.text == "compare #ops and #G7 and #ops"
    assert message.quotes[0].text == "posted in #ops"
    await rig.channel.enrich(message, 0)
    assert len(rig.server.calls_of("conversations.info")) == 2


# Case 82 of docs/cases.md
async def test_earlier_messages_have_names_and_are_marked(rig: SlackRig) -> None:
    root = rig.server.send("the beamer is broken", user="U2", silent=True)
    for number in range(30):
        rig.server.send(f"idea {number}", user="U3", thread=root, silent=True)
    rig.server.send("<@U2>: see log", thread=root, silent=True, files={"log.txt": b"x"})
    rig.server.send(f"<@{BOT}> who repairs it?", thread=root)
    message = await rig.channel.enrich(await rig.box.next(), 5)
    root_quote, gap, *latest = message.quotes
    assert (root_quote.text, root_quote.author, root_quote.id) == ("the beamer is broken", "User U2", root)
    assert (gap.kind, gap.text) == ("omitted", "26")
    assert [quote.text for quote in latest] == [
        "idea 26",
        "idea 27",
        "idea 28",
        "idea 29",
        "<@U2|User U2>: see log\n[log.txt]",
    ]
    assert [quote.author for quote in latest] == ["User U3"] * 4 + ["Jane"]
    assert {quote.kind for quote in (root_quote, *latest)} == {"earlier"}


@pytest.mark.parametrize(
    ("count", "seconds", "reads"),
    [(900, 3600.0, 5), (1000, 3600.0, 7), (2200, 3600.0, 3), (1300, 100 * 86400.0, 7), (1500, 1000.0, 6)],
)
async def test_of_a_thread_of_any_length_the_root_and_the_end_are_read(
    rig: SlackRig, count: int, seconds: float, reads: int
) -> None:
    """Slack gives the oldest first: the end of a long thread is not behind a thousand messages."""
    now = time.time()
    root = rig.server.send("the beamer is broken", user="U2", silent=True, at=now - seconds - 60)
    for number in range(count):
        at = now - seconds * (count - number) / count - 1
        rig.server.send(f"idea {number}", user="U3", thread=root, silent=True, at=at)
    rig.server.send(f"<@{BOT}> who repairs it?", thread=root)
    message = await rig.channel.enrich(await rig.box.next(), 5)
    root_quote, gap, *latest = message.quotes
    assert root_quote.text == "the beamer is broken"
    assert (gap.kind, gap.text) == ("omitted", f"{count - 5}" if count < 1000 else "")
    assert [quote.text for quote in latest] == [f"idea {number}" for number in range(count - 5, count)]
    assert len(rig.server.calls_of("conversations.replies")) <= reads


# ---------------------------------------------------------------- files


# Case 11 of docs/cases.md
async def test_a_file_is_downloaded_with_the_token(rig: SlackRig) -> None:
    rig.server.send("see", DIRECT, files={"a.pdf": b"%PDF" * 50_000, "b.txt": b"hi"}, mime="application/pdf")
    message = await rig.box.next()
    assert [file.name for file in message.attachments] == ["a.pdf", "b.txt"]
    chunks = [chunk async for chunk in rig.channel.fetch(message.attachments[0])]
    assert b"".join(chunks) == b"%PDF" * 50_000


async def test_a_login_page_is_not_mistaken_for_the_file(rig: SlackRig) -> None:
    rig.server.send("see", DIRECT, files={"a.pdf": b"%PDF"}, mime="application/pdf")
    [file] = (await rig.box.next()).attachments
    rig.server.login_page = True
    with pytest.raises(Refused, match="needs the scope files:read"):
        _ = [chunk async for chunk in rig.channel.fetch(file)]
    with pytest.raises(Refused, match="no longer available"):
        _ = [chunk async for chunk in rig.channel.fetch(Attachment(f"{TEAM}/F99", "gone.pdf"))]


async def test_a_file_is_sent_to_its_thread_and_an_empty_one_is_refused(rig: SlackRig, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"a,b\n" * 300_000)
    message = await rig.say("a table please", 7)
    file = OutgoingFile(path, "报告.csv", path.stat().st_size, "for <you>")
    await rig.channel.send_files(message.thread, [file], Memory())
    [shown] = rig.server.visible(OPS, rig.root(7))
    assert (shown.file_name, shown.file, shown.text) == ("报告.csv", path.read_bytes(), "for <you>")
    path.write_bytes(b"")
    with pytest.raises(Refused, match=r"报告\.csv: it is empty"):
        await rig.channel.send_files(message.thread, [replace(file, size=0)], Memory())


async def test_a_file_whose_sharing_was_not_confirmed_is_sent_once(rig: SlackRig, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"a,b")
    message = await rig.say("a table please", 7)
    rig.server.fault("drop", "files.completeUploadExternal", after=True)
    await rig.channel.send_files(message.thread, [OutgoingFile(path, "a.csv", 3)], Memory())
    assert len(rig.server.calls_of("files.info")) > 1  # Slack shares some time after the call
    assert [shown.file_name for shown in rig.server.visible(OPS, rig.root(7))] == ["a.csv"]


# ---------------------------------------------------------------- connections


@pytest.mark.slow
async def test_a_stale_ticket_is_discarded(tmp_path: Path) -> None:
    async with SlackRig.start(tmp_path, ping_seconds=30.0) as rig:
        await ready(rig)
        rig.server.refuse_handshakes = 1
        opens = rig.server.opens
        rig.server.abort()
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        await until(lambda: rig.server.opens >= opens + 2, what="a second ticket")
        await ready(rig)
        assert (await rig.say("are you back?")).text == "are you back?"


async def test_a_requested_reconnect_loses_no_event(rig: SlackRig) -> None:
    opens = rig.server.opens
    for number in range(5):
        if number == 2:
            rig.server.refresh()
        rig.mutter(f"message {number}")
        await asyncio.sleep(0.05)
    await until(lambda: rig.server.opens == opens + 1 and len(rig.server.sockets) == 1)
    await until(lambda: len(rig.box.messages) == 5)
    assert rig.channel.readiness().health is Health.READY
    assert (await rig.say("after")).text == "after"


# Case 60 of docs/cases.md
@pytest.mark.slow
async def test_after_an_hour_of_downtime_each_is_answered_once_and_two_days_old_ones_are_not(rig: SlackRig) -> None:
    now = time.time()
    root = rig.server.send(f"<@{BOT}> old thread", at=now - 3 * DAY)
    thread = (await rig.box.next()).thread
    await rig.say("hello")
    rig.box.events[0] = replace(rig.box.messages[0], time=now - 3 * DAY)
    rig.box.events[1] = replace(rig.box.messages[1], time=now - 3 * DAY)
    await rig.leave()
    rig.server.send(f"<@{BOT}> two days old", at=now - 2 * DAY, silent=True)
    rig.server.send("also old", DIRECT, at=now - 2 * DAY, silent=True)
    rig.server.send(f"<@{BOT}> an hour old", at=now - 3500, silent=True)
    rig.server.send("not for the bot", at=now - 3400, silent=True)
    rig.server.send("go on", thread=root, at=now - 3300, silent=True)
    fresh = rig.server.send("a lunch thread", user="U2", at=now - 3200, silent=True)
    rig.server.send(f"<@{BOT}> where?", thread=fresh, at=now - 3100, silent=True)
    rig.server.send(f"<@{BOT}> in private", "G5", at=now - 3000, silent=True)
    rig.server.send("direct", DIRECT, at=now - 2900, silent=True)
    rig.server.fault("flood", "conversations.history", seconds=1)
    rig.server.fault("error", "users.conversations", code=500)
    await rig.back()
    await until(lambda: len(rig.box.messages) >= 7)
    await rig.say("after")
    texts = sorted(message.text for message in rig.box.messages[2:])
    assert texts == ["after", "an hour old", "direct", "go on", "in private", "where?"]
    [onward] = [message for message in rig.box.messages if message.text == "go on"]
    assert (onward.thread, onward.follow_up, onward.author.name) == (thread, True, "Jane")


async def test_a_missed_message_of_agent_view_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    async with SlackRig.start(tmp_path, agent_view=True) as rig:
        root = rig.server.send("hello", DIRECT)
        await rig.box.next()
        await rig.leave()
        missed = rig.server.send("are you there?", DIRECT, silent=True)
        rig.server.send("and more", DIRECT, thread=root, silent=True)
        await rig.back()
        await until(lambda: len(rig.box.messages) == 3)
        assert [message.thread.topic for message in rig.box.messages] == [root, missed, root]


# ---------------------------------------------------------------- several workspaces


# Case 7 of docs/cases.md
async def test_two_workspaces_with_the_same_ids_are_separate(tmp_path: Path) -> None:
    second = Workspace("T2", "Other", "U2FAWN", "B2FAWN", "xoxb-2", "xapp-2")
    async with FakeSlack(Workspace(), second) as server:
        box = Box()
        pair = slack.WorkspaceTokens(Secret("xoxb-2"), Secret("xapp-2"))
        both = replace(settings(server), workspaces=(pair,))
        assert await slack.probe(both) == "connected as @fawn in Acme (T1), @fawn in Other (T2)"
        async with service(both, box) as made:
            await until(lambda: made.channel.readiness().health is Health.READY)
            for team, bot in (("T1", BOT), ("T2", "U2FAWN")):
                event = {"type": "app_mention", "channel": OPS, "user": JANE, "text": f"<@{bot}> hi", "ts": "9.000001"}
                server.event(event, team)
            await until(lambda: len(box.messages) == 2)
            threads = {message.thread for message in box.messages}
            assert threads == {Thread("slack", "T1", OPS, "9.000001"), Thread("slack", "T2", OPS, "9.000001")}
            server.fault("flood", "chat.postMessage", seconds=60, times=1)
            with pytest.raises(TryLater):
                await made.channel.reply(Thread("slack", "T1", OPS, "9.000001"), Memory()).finish(Final("one"))
            await made.channel.reply(Thread("slack", "T2", OPS, "9.000001"), Memory()).finish(Final("two"))
            assert server.texts(OPS, team="T2") == ["two"]
            assert server.texts(OPS, team="T1") == []


async def test_one_app_in_two_workspaces_has_one_socket(caplog: pytest.LogCaptureFixture) -> None:
    """A third workspace that has removed the app does not affect the other two."""
    caplog.set_level(logging.INFO)
    second = Workspace("T2", "Other", "U2FAWN", "B2FAWN", "xoxb-2", APP_TOKEN)
    async with FakeSlack(Workspace(), second) as server:
        box = Box()
        others = [slack.WorkspaceTokens(Secret(bot), Secret(APP_TOKEN)) for bot in ("xoxb-2", "xoxb-revoked")]
        async with service(replace(settings(server), workspaces=tuple(others)), box) as made:
            await until(lambda: made.channel.readiness().health is Health.READY)
            assert len(server.sockets) == 1
            server.send("<@U2FAWN> hi", team="T2")
            message = await box.next()
            assert (message.thread.workspace, message.text) == ("T2", "hi")
            await made.channel.reply(message.thread, Memory()).finish(Final("Hello."))
            assert server.texts(OPS, team="T2") == ["Hello."]
            assert message.kind is Kind.CHAT
            assert "slack.token_rejected token=3 reason=Slack rejects bot_token" in caplog.text
            assert "slack.shared" not in caplog.text


async def test_two_programs_with_one_app_token_are_a_fault_until_one_stops(
    rig: SlackRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with service(replace(rig.settings, shared_check_seconds=0.1), Box()) as made:
        await until(lambda: "Another program" in made.channel.readiness().detail)
        assert made.channel.readiness().health is Health.DOWN
        assert "slack.shared connections=2" in caplog.text
        await rig.leave()
        await until(lambda: made.channel.readiness().health is Health.READY)
