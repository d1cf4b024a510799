"""Faults of Discord, the network, the disk and a second instance, and what users see."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import discord as sdk
import pytest
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import HTTPClient, Route

from agent.blocks import Ask, Final, Text
from agent.messages import Unreadable
from agent.setting import Secret
from channels import discord
from channels.base import Channel, ChatGone, Health, OutcomeUnknown, Refused, TryLater
from channels.discord import DiscordSettings
from channels.discord.api import NONCE_MARK, TOKEN_SHARED, DiscordApi, account_window
from channels.shared.lifecycle import opened
from channels.shared.rate_limit import Priority, RateLimiter, RateLimits
from tests.fakes.discord import BOT, CHANNEL, GUILD, JANE, MAX, TOKEN, FakeDiscord, Rates
from tests.fakes.server import until
from tests.support.recording_inbox import Box, Memory, listening
from tests.support.rigs.discord import DiscordRig
from tests.unit.channels.test_rate_limit import ClockLoop


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DiscordRig]:
    async with DiscordRig.start(tmp_path) as made:
        yield made


@asynccontextmanager
async def connected(server: FakeDiscord, box: Box, **settings: object) -> AsyncIterator[Channel]:
    """Connect a channel that is not ready yet."""
    plain: dict[str, object] = {"token": Secret(TOKEN), "base_url": server.api_url, "gateway_url": server.gateway_url}
    with warnings.catch_warnings():  # discord.py imports audioop, for voice
        warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
        stack = AsyncExitStack()
        channel = await stack.enter_async_context(discord.connect(DiscordSettings(**{**plain, **settings})))  # type: ignore[arg-type] # by name
    async with stack, listening(channel, box):
        yield channel


def state(channel: Channel) -> tuple[Health, str]:
    told = channel.readiness()
    return told.health, told.detail


# ---------------------------------------------------------------- connections


async def test_a_wrong_token_is_reported_within_seconds(rig: DiscordRig) -> None:
    async with connected(rig.server, Box(), token=Secret("MTAwMA.Gabcde.wrong")) as channel:
        await until(lambda: channel.readiness().health is Health.DOWN)
        assert "token" in channel.readiness().detail
        assert "discord.com/developers" in channel.readiness().detail


async def test_a_missing_intent_is_reported_until_it_is_enabled(rig: DiscordRig) -> None:
    await rig.leave()
    rig.server.content_intent = False
    async with connected(rig.server, Box()) as channel:
        await until(lambda: "Message Content Intent" in channel.readiness().detail)
        assert channel.readiness().health is Health.DOWN
        rig.server.content_intent = True
        await until(lambda: channel.readiness().health is Health.READY)


@pytest.mark.slow
async def test_a_gateway_that_is_down_at_start_is_retried(rig: DiscordRig) -> None:
    await rig.leave()
    rig.server.gateway_down = True
    async with connected(rig.server, Box()) as channel:
        await until(lambda: channel.readiness().health is Health.DOWN)
        assert "cannot be reached" in channel.readiness().detail
        rig.server.gateway_down = False
        await until(lambda: channel.readiness().health is Health.READY)


@pytest.mark.slow
async def test_an_ended_session_is_restarted_and_missed_messages_are_read(rig: DiscordRig) -> None:
    await rig.say("before")
    identifies = rig.server.identifies
    rig.server.forget()
    rig.server.abort()
    rig.server.say("while away")
    assert (await rig.box.next(2)).text == "while away"
    assert rig.server.identifies == identifies + 1


async def test_a_reconnect_that_discord_asks_for_loses_nothing(rig: DiscordRig) -> None:
    rig.server.order(7)
    rig.server.say("meanwhile")
    assert (await rig.box.next()).text == "meanwhile"
    assert rig.server.resumes == 1


async def test_a_closed_session_creates_a_new_client(rig: DiscordRig) -> None:
    await rig.server.hang_up(4008)
    await until(lambda: rig.server.resumes + rig.server.identifies >= 2)
    await rig.server.hang_up(4013)
    await until(lambda: "4013" in rig.channel.readiness().detail)
    await until(lambda: rig.channel.readiness().health is Health.READY)


async def test_an_event_that_cannot_be_parsed_does_not_block_others(rig: DiscordRig) -> None:
    rig.server.poison()
    rig.server.poison("GUILD_UPDATE")
    message = await rig.say("still there?")
    assert message.text == "still there?"
    [broken] = [event for event in rig.box.events if isinstance(event, Unreadable)]
    assert broken.channel == "discord"
    assert b"nobody" in broken.raw
    assert rig.server.identifies == 1


async def test_the_token_is_not_in_logs_or_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with DiscordRig.start(tmp_path) as rig:
        errors: list[BaseException] = []
        for kind in ("drop", "error", "flood"):
            rig.server.fault(kind, "createMessage", seconds=0.1)
            with pytest.raises(Exception) as told:
                await rig.channel.reply(rig.thread(), Memory(kind)).finish(Final("x"))
            errors.append(told.value)
        token = rig.server.slash("status")
        await rig.box.next()
        await rig.server.stop()
        with pytest.raises(TryLater) as down:
            await rig.channel.announce([])
        errors.append(down.value)
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        said = "\n".join([caplog.text, rig.channel.readiness().detail, *map(repr, errors), repr(rig.channel)])
        assert TOKEN not in said
        assert token not in said
    assert TOKEN not in repr(DiscordSettings(token=Secret(TOKEN)))


# ---------------------------------------------------------------- storage and catch-up


# Case 60 of docs/cases.md
async def test_missed_messages_are_answered_once_and_old_ones_are_not(rig: DiscordRig) -> None:
    rig.server.channel("4000000000000002", "secret", denied=("history",))
    rig.server.channel("4000000000000003", "quiet")
    first = await rig.say("in the thread", 7)
    await rig.channel.reply(first.thread, Memory(), to=first.id).finish(Final("Answered."))
    await rig.say("directly")
    await rig.leave()
    rig.server.say("two days old", CHANNEL, mention=True, ago=48 * 3600, quiet=True)
    rig.server.say("no business of ours", CHANNEL, quiet=True)
    rig.server.say("missed in the channel", CHANNEL, mention=True, quiet=True)
    rig.server.say("missed in the thread", rig.room(7), quiet=True)
    rig.server.say("missed in a channel never heard", "4000000000000003", mention=True, quiet=True)
    rig.server.say("missed directly", quiet=True)
    await rig.back()
    rig.server.say("said live", CHANNEL, mention=True)
    await until(lambda: len(rig.box.messages) >= 7)
    assert (await rig.say("the last")).text == "the last"
    texts = [message.text for message in rig.box.messages[2:-1]]
    assert sorted(texts) == [
        "missed directly",
        "missed in a channel never heard",
        "missed in the channel",
        "missed in the thread",
        "said live",
    ]
    assert texts.index("missed in the channel") < texts.index("said live")
    offered = rig.box.offered
    await rig.leave()
    await rig.back()
    assert (await rig.say("after all")).text == "after all"
    assert len(rig.box.messages) == 9
    assert rig.box.offered - offered <= 2


async def test_a_missed_message_of_a_guest_is_a_guests(rig: DiscordRig) -> None:
    rig.server.channel("4000000000000003", "quiet")
    await rig.say("directly")
    await rig.leave()
    rig.server.guests.add((GUILD, MAX))
    for user, channel in ((MAX, CHANNEL), (JANE, CHANNEL), (MAX, "4000000000000003")):
        rig.server.say("missed", channel, mention=True, user=user, quiet=True)
    await rig.back()
    await rig.box.next(4)
    found = sorted((message.author.id, message.author.guest) for message in rig.box.messages[1:])
    assert found == sorted([(MAX, True), (MAX, True), (JANE, False)])
    assert len(rig.server.calls_of("member")) == 2


# Case 60 of docs/cases.md
async def test_messages_missed_in_a_now_archived_thread_are_read(rig: DiscordRig) -> None:
    await rig.say("in the thread", 7)
    await rig.leave()
    rig.server.say("missed", rig.room(7), quiet=True)
    rig.server.archive(rig.room(7))
    await rig.back()
    assert (await rig.box.next(2)).text == "missed"


async def test_messages_that_could_not_be_stored_before_a_restart_are_read_again(rig: DiscordRig) -> None:
    await rig.say("before")
    rig.box.broken = True
    rig.server.say("during")
    await rig.server.wait("can't save")
    await rig.leave()
    rig.box.broken = False
    await rig.back()
    assert (await rig.box.next(2)).text == "during"


async def test_catch_up_is_repeated_when_the_server_becomes_unavailable(rig: DiscordRig) -> None:
    await rig.say("before", 7)
    await rig.leave()
    rig.server.say("missed", rig.room(7), quiet=True)
    rig.server.fault("slow", "getMessages", seconds=1.0, after=True)
    await rig.back()
    await until(lambda: rig.server.calls_of("getMessages"))
    rig.server.push("GUILD_DELETE", {"id": GUILD, "unavailable": True})
    rig.server.say("lost", rig.room(7), quiet=True)
    rig.server.push("GUILD_CREATE", rig.server.guild_json(GUILD))
    assert [(await rig.box.next(number)).text for number in (2, 3)] == ["missed", "lost"]


async def test_a_failed_history_request_is_retried(rig: DiscordRig) -> None:
    await rig.say("before")
    await rig.leave()
    rig.server.say("missed", quiet=True)
    rig.server.fault("error", "getMessages", code=504)
    await rig.back()
    assert (await rig.box.next(2)).text == "missed"
    assert rig.server.identifies == 2


async def test_catch_up_can_be_disabled(rig: DiscordRig) -> None:
    await rig.say("before")
    await rig.leave()
    rig.box.hours = 0
    rig.server.say("missed", quiet=True)
    await rig.back()
    assert (await rig.say("now")).text == "now"
    assert [message.text for message in rig.box.messages] == ["before", "now"]


async def test_a_native_command_that_cannot_be_stored_is_answered_with_a_notice(rig: DiscordRig) -> None:
    rig.box.broken = True
    rig.server.say("first")
    await until(lambda: rig.box.offered)
    token = rig.server.slash("status")
    await until(lambda: rig.server.interactions[token]["whispers"])
    assert "can't save" in rig.server.interactions[token]["whispers"][0]


# ---------------------------------------------------------------- calls


async def test_a_deleted_channel_ends_its_replies(rig: DiscordRig) -> None:
    count = len(rig.box.messages)
    rig.server.say("hello", CHANNEL, mention=True)
    message = await rig.box.next(count + 1)
    posts = Memory()
    await rig.channel.reply(message.thread, posts, to=message.id).finish(Final("Hi."))
    rig.server.close_channel(message.id)
    rig.server.close_channel(CHANNEL)
    with pytest.raises(ChatGone):
        await rig.channel.reply(message.thread, Memory("r2"), to=message.id).finish(Final("Hi."))


async def test_after_a_crash_the_placeholder_is_found_and_edited(rig: DiscordRig) -> None:
    message = await rig.say("think")
    first = rig.channel.reply(message.thread, Memory(), to=message.id)
    await until(lambda: [shown.text for shown in rig.server.visible()] == ["…"])
    await first.close()
    await rig.leave()
    await rig.back()
    await rig.channel.reply(message.thread, Memory(), to=message.id).finish(Final("Thought."))
    assert [shown.text for shown in rig.server.visible()] == ["Thought."]
    assert rig.channel.readiness().health is Health.READY


async def test_an_exhausted_rate_limit_bucket_is_not_used(rig: DiscordRig) -> None:
    rig.server.rates = Rates(limit=2, window=0.6)
    began = time.monotonic()
    for number in range(5):
        await rig.channel.reply(rig.thread(), Memory(f"r{number}")).finish(Final(f"{number}"))
    assert time.monotonic() - began >= 1.2
    assert rig.server.floods == 0


def test_a_refusal_of_the_whole_account_is_known_to_the_scheduler_of_all_chats() -> None:
    async def work() -> None:
        async with FakeDiscord(rates=Rates(overall=1)) as server:
            limiter = RateLimiter(RateLimits(account=account_window(45.0)))
            settings = DiscordSettings(token=Secret(TOKEN), base_url=server.api_url)
            async with opened(DiscordApi(settings, limiter)) as api:
                calls = [api("POST", f"/channels/{CHANNEL}/messages", {"content": f"{n}"}) for n in range(2)]
                _, refused = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(refused, TryLater)
        assert not limiter.try_acquire("another chat", Priority.FINAL)
        assert 0 < limiter.seconds_until_free("another chat") <= refused.after
        await asyncio.sleep(refused.after + 1.06)  # the wait that it asked for, and the window
        allowed = sum(limiter.try_acquire(f"{chat}", Priority.FINAL) for chat in range(60))
        assert allowed == 35  # of 50

    loop = ClockLoop(io_seconds=0.003)
    loop.run_until_complete(work())
    loop.close()


@pytest.mark.parametrize(("kind", "code"), [("drop", 0), ("error", 500), ("error", 504)])
async def test_a_post_without_an_answer_is_shown_once_and_is_not_a_second_instance(
    rig: DiscordRig, kind: str, code: int
) -> None:
    message = await rig.say("go", 7)
    rig.server.fault(kind, "createMessage", after=True, code=code)  # type: ignore[arg-type] # of the table above
    posts = Memory()
    for _ in range(3):
        try:
            await rig.channel.reply(message.thread, Memory(rows=posts.rows), to=message.id).finish(Final("Here."))
            break
        except (TryLater, OutcomeUnknown):
            await asyncio.sleep(0.2)
    assert rig.visible(7) == ["Here."]
    assert rig.channel.readiness().health is Health.READY
    assert len(rig.server.calls_of("createMessage")) == 2


async def test_an_old_message_that_may_not_be_edited_now_is_edited_later(rig: DiscordRig) -> None:
    message, posts = await rig.say("work for two hours"), Memory()
    reply = rig.channel.reply(message.thread, posts, to=message.id)
    reply.show(Text("At it."))
    await until(rig.visible)
    await reply.close()
    words = '{"code": 30046, "message": "Maximum number of edits to messages older than 1 hour reached."}'
    rig.server.fault("error", "editMessage", code=400, body=words)
    with pytest.raises(TryLater) as told:
        await rig.channel.reply(message.thread, Memory(rows=posts.rows), to=message.id).finish(Final("Done."))
    assert told.value.after >= 10
    assert rig.visible() == ["At it."]


async def test_a_redelivered_click_is_not_a_second_instance(rig: DiscordRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("a", "b")),)))
    rig.press("a")
    await until(lambda: not rig.buttons())
    rig.redeliver()
    await until(lambda: len(rig.box.receipts) == 2)
    await rig.say("and on")
    assert rig.channel.readiness().health is Health.READY
    assert not rig.server.interactions[next(iter(rig.server.interactions))]["whispers"]


# Case 59 of docs/cases.md
async def test_the_same_event_five_times_is_one_message(rig: DiscordRig) -> None:
    await rig.say("once")
    for _ in range(4):
        rig.redeliver()
    await rig.say("twice")
    assert [message.text for message in rig.box.messages] == ["once", "twice"]
    assert len(rig.server.calls_of("typing")) == 1


# ---------------------------------------------------------------- two instances


async def test_a_second_program_on_the_token_is_detected_at_a_thread(rig: DiscordRig) -> None:
    """The loser of the race for the thread does not post, reports to the operator, and processes no further events."""
    rig.server.say("one of you", CHANNEL, mention=True)
    message = await rig.box.next()
    room = rig.server.thread(CHANNEL, "the other's", BOT, message.id, quiet=True)
    rig.server.push(
        "MESSAGE_CREATE", rig.server.event(rig.server.message(room, BOT, "…")) | {"nonce": f"{NONCE_MARK}0"}
    )
    reply = rig.channel.reply(message.thread, Memory(), to=message.id)
    reply.show(Text("I do"))
    await until(lambda: state(rig.channel) == (Health.DOWN, TOKEN_SHARED))
    rig.server.push("THREAD_CREATE", rig.server.room_json(room))
    with pytest.raises(ChatGone, match="Another program"):
        await reply.finish(Final("I do."))
    assert [shown.text for shown in rig.server.visible(message.id)] == ["…"]
    rig.server.say("and now?", CHANNEL, mention=True)
    rig.server.slash("status")
    await asyncio.sleep(0.3)
    assert len(rig.box.messages) == 1


async def test_a_second_program_on_the_token_is_detected_at_an_interaction(rig: DiscordRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("a", "b")),)))
    token = rig.server.press("a", rig.room(0))
    rig.server.interactions[token]["answers"].append({"type": 6})  # the other program was faster
    await until(lambda: state(rig.channel) == (Health.DOWN, TOKEN_SHARED))


@pytest.mark.parametrize("nonce", ["", "1234567890"])
async def test_a_script_that_opens_the_thread_and_writes_there_is_not_a_second_fawn(
    rig: DiscordRig, nonce: str
) -> None:
    """The finished answer is posted, and the next message is heard."""
    rig.server.say("a script reacts to mentions", CHANNEL, mention=True)
    message = await rig.box.next()
    room = rig.server.thread(CHANNEL, "by a script", BOT, message.id, quiet=True)
    said = rig.server.event(rig.server.message(room, BOT, "Ticket created."))
    rig.server.push("MESSAGE_CREATE", said | ({"nonce": nonce} if nonce else {}))
    await rig.channel.reply(message.thread, Memory(), to=message.id).finish(Final("Answer."))
    assert [shown.text for shown in rig.server.visible(message.id)] == ["Ticket created.", "Answer."]
    assert rig.channel.readiness().health is Health.READY
    rig.server.say("next", CHANNEL, mention=True)
    assert (await rig.box.next(2)).text == "next"


async def test_a_click_on_a_button_of_a_script_is_acknowledged(rig: DiscordRig) -> None:
    row = {"type": 1, "components": [{"type": 2, "style": 2, "label": "theirs", "custom_id": "ticket"}]}
    rig.server.message(rig.server.direct(), BOT, "Ticket?", components=[row])
    token = rig.server.press("theirs", rig.room(0))
    await until(lambda: rig.server.interactions[token]["answers"])
    assert rig.server.interactions[token]["answers"] == [{"type": 6}]
    answered = rig.server.press("theirs", rig.room(0))
    rig.server.interactions[answered]["answers"].append({"type": 4})  # the script was faster
    await until(lambda: rig.server.calls_of("callback")[-1].status == 400)
    assert rig.channel.readiness().health is Health.READY
    assert not rig.box.messages


def test_the_undocumented_names_of_the_sdk_are_where_they_were() -> None:
    """channels/discord/gateway.py uses them; pyproject.toml binds the minor version."""
    assert sdk.version_info[:2] == (2, 7)
    assert isinstance(Route.BASE, str)
    assert isinstance(DiscordWebSocket.DEFAULT_GATEWAY, yarl.URL)
    assert {"op", "code"} & {*inspect.signature(DiscordWebSocket.close).parameters}
    assert callable(HTTPClient.close)
    assert list(inspect.signature(sdk.Client.dispatch).parameters)[:2] == ["self", "event"]
    assert "client._connection.parsers" in inspect.getsource(DiscordWebSocket.from_client)


async def test_a_message_posted_by_a_script_with_the_token_is_not_a_second_program(rig: DiscordRig) -> None:
    """A script may post with the bot's token."""
    message = await rig.say("question", 7)
    rig.server.say("posted by a script", message.thread.topic, user=BOT)
    await rig.channel.reply(message.thread, Memory(), to=message.id).finish(Final("Answer."))
    assert rig.visible(7)[-1] == "Answer."
    assert rig.channel.readiness().health is Health.READY
    assert (await rig.say("next", 7)).text == "next"


async def test_a_person_who_opens_the_thread_first_is_not_a_second_instance(rig: DiscordRig) -> None:
    rig.server.say("look at this", CHANNEL, mention=True)
    message = await rig.box.next()
    rig.server.thread(CHANNEL, "by hand", MAX, message.id, quiet=True)
    await rig.channel.reply(message.thread, Memory(), to=message.id).finish(Final("Looked."))
    assert [shown.text for shown in rig.server.visible(message.id)] == ["Looked."]
    assert rig.channel.readiness().health is Health.READY


# ---------------------------------------------------------------- fawn check


async def test_the_probe_reports_what_it_found(rig: DiscordRig) -> None:
    plain = DiscordSettings(token=Secret(TOKEN), base_url=rig.server.api_url, gateway_url=rig.server.gateway_url)
    assert await discord.probe(plain) == "connected as @fawn in Acme 01"
    servers, rig.server.guilds = rig.server.guilds, {}
    assert "in no server yet: invite it with https://discord.com/oauth2/" in await discord.probe(plain)
    rig.server.guilds = servers
    rig.server.content_intent = False
    with pytest.raises(Refused, match="Message Content Intent"):
        await discord.probe(plain)
    rig.server.gateway_down = True
    with pytest.raises(Refused, match="the gateway does not answer"):
        await discord.probe(plain)
    wrong = DiscordSettings(token=Secret("x"), base_url=rig.server.api_url, gateway_url=rig.server.gateway_url)
    with pytest.raises(Refused, match=r"token: copy the right one"):
        await discord.probe(wrong)
    away = DiscordSettings(token=Secret(TOKEN), base_url="http://127.0.0.1:9/api/v10")
    with pytest.raises(Refused, match=r"Discord cannot be reached .*base_url"):
        await discord.probe(away)
    with pytest.raises(Refused, match="kind socks5 cannot be used"):
        await discord.probe(DiscordSettings(token=Secret(TOKEN), proxy="socks5://127.0.0.1:9"))
    rig.server.fault("error", "me", code=200, body="<html>Please sign in</html>")
    with pytest.raises(Refused, match=r"the response is not Discord's\. Check `base_url`"):
        await discord.probe(plain)
