"""The fake Discord against a second, independent client: hikari parses everything it sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import hikari
import pytest

from tests.fakes.discord import BOT, CHANNEL, GUILD, JANE, TOKEN, FakeDiscord, Rates
from tests.fakes.server import until

INTENTS = (
    hikari.Intents.GUILDS
    | hikari.Intents.GUILD_MESSAGES
    | hikari.Intents.DM_MESSAGES
    | hikari.Intents.GUILD_MESSAGE_REACTIONS
    | hikari.Intents.MESSAGE_CONTENT
)


@dataclass
class Heard:
    """The events that the client received."""

    events: list[hikari.Event] = field(default_factory=list)

    async def next(
        self, kind: type[hikari.Event], check: Callable[[hikari.Event], bool] = lambda _: True
    ) -> hikari.Event:
        def found() -> list[hikari.Event]:
            return [event for event in self.events if isinstance(event, kind) and check(event)]

        await until(found, what=kind.__name__)
        return found()[-1]


@asynccontextmanager
async def connected(server: FakeDiscord) -> AsyncIterator[tuple[hikari.GatewayBot, Heard]]:
    bot = hikari.GatewayBot(TOKEN, banner=None, rest_url=server.api_url, intents=INTENTS, logs=None)
    heard = Heard()

    async def take(event: hikari.Event) -> None:
        heard.events.append(event)

    for kind in (
        hikari.MessageCreateEvent,
        hikari.MessageUpdateEvent,
        hikari.MessageDeleteEvent,
        hikari.InteractionCreateEvent,
        hikari.GuildAvailableEvent,
        hikari.GuildThreadCreateEvent,
        hikari.GuildReactionAddEvent,
        hikari.ExceptionEvent,
    ):
        bot.event_manager.subscribe(kind, take)
    await bot.start(check_for_updates=False)
    try:
        yield bot, heard
    finally:
        await bot.close()
        assert not [event for event in heard.events if isinstance(event, hikari.ExceptionEvent)]


async def test_messages_threads_files_and_edits() -> None:
    async with FakeDiscord() as server, connected(server) as (bot, heard):
        available = await heard.next(hikari.GuildAvailableEvent)
        assert isinstance(available, hikari.GuildAvailableEvent)
        assert (available.guild.id, available.guild.name) == (int(GUILD), "Acme 01")
        said = server.say("look 你好", CHANNEL, mention=True, files=[("报告.txt", b"a,b\n")])
        event = await heard.next(hikari.GuildMessageCreateEvent)
        assert isinstance(event, hikari.GuildMessageCreateEvent)
        assert event.content == f"<@{BOT}> look 你好"
        assert event.author.username == "jane"
        assert event.message.user_mentions_ids == [int(BOT)]
        [file] = event.message.attachments
        assert (file.filename, await file.read()) == ("报告.txt", b"a,b\n")
        thread = await bot.rest.create_message_thread(int(CHANNEL), int(said["id"]), "a task")
        assert thread.id == int(said["id"])
        await heard.next(hikari.GuildThreadCreateEvent)
        answer = await bot.rest.create_message(
            thread.id, "draft", attachment=hikari.Bytes(b"1,2\n", "r.csv"), embed=hikari.Embed(description="working")
        )
        assert answer.attachments[0].filename == "r.csv"
        edited = await bot.rest.edit_message(thread.id, answer.id, "final", embeds=[])
        assert (edited.content, list(edited.embeds)) == ("final", [])
        assert server.visible(str(thread.id))[0].text == "final"
        await heard.next(hikari.GuildMessageUpdateEvent)
        history = [found async for found in bot.rest.fetch_messages(thread.id)]
        assert [found.content for found in history] == ["final", None]
        assert history[1].type is hikari.MessageType.THREAD_STARTER_MESSAGE
        await bot.rest.delete_message(thread.id, answer.id)
        await heard.next(hikari.GuildMessageDeleteEvent)
        with pytest.raises(hikari.NotFoundError):
            await bot.rest.fetch_message(thread.id, answer.id)
        await bot.rest.trigger_typing(thread.id)
        server.react(said["id"], CHANNEL)
        reaction = await heard.next(hikari.GuildReactionAddEvent)
        assert isinstance(reaction, hikari.GuildReactionAddEvent)
        assert str(reaction.emoji_name) == "❌"


async def test_direct_messages_answers_and_forwards() -> None:
    async with FakeDiscord() as server, connected(server) as (_, heard):
        server.say("hello")
        event = await heard.next(hikari.DMMessageCreateEvent)
        assert isinstance(event, hikari.DMMessageCreateEvent)
        reply = await event.message.respond("hi", reply=event.message)
        assert reply.referenced_message
        assert reply.referenced_message.id == event.message_id
        server.say("", forward="somebody else's words", sticker=True)
        forwarded = await heard.next(hikari.DMMessageCreateEvent, lambda each: bool(each.message.message_snapshots))  # type: ignore[attr-defined] # it is of that kind
        assert isinstance(forwarded, hikari.DMMessageCreateEvent)
        assert forwarded.message.message_snapshots[0].content == "somebody else's words"
        assert forwarded.message.stickers[0].name == "Wave"


async def test_commands_buttons_and_menus() -> None:
    async with FakeDiscord() as server, connected(server) as (bot, heard):
        builder = bot.rest.slash_command_builder("status", "What I do").add_option(
            hikari.CommandOption(type=hikari.OptionType.STRING, name="words", description="more", is_required=False)
        )
        [command] = await bot.rest.set_application_commands(int(BOT), [builder])
        assert command.name == "status"
        assert [known.name for known in await bot.rest.fetch_application_commands(int(BOT))] == ["status"]
        token = server.slash("status", "now", CHANNEL)
        event = await heard.next(hikari.InteractionCreateEvent)
        assert isinstance(event, hikari.InteractionCreateEvent)
        asked = event.interaction
        assert isinstance(asked, hikari.CommandInteraction)
        assert asked.options
        assert (asked.command_name, asked.options[0].value) == ("status", "now")
        await asked.create_initial_response(hikari.ResponseType.DEFERRED_MESSAGE_CREATE)
        await asked.edit_initial_response("all is well")
        assert server.visible(CHANNEL)[0].text == "all is well"
        with pytest.raises(hikari.BadRequestError):
            await asked.create_initial_response(hikari.ResponseType.DEFERRED_MESSAGE_CREATE)
        assert len(server.interactions[token]["answers"]) == 1
        row = bot.rest.build_message_action_row().add_interactive_button(hikari.ButtonStyle.PRIMARY, "a|0", label="yes")
        await bot.rest.create_message(int(CHANNEL), "Really?", component=row)
        token = server.press("yes", CHANNEL)
        pressed = await heard.next(
            hikari.InteractionCreateEvent,
            lambda each: isinstance(each.interaction, hikari.ComponentInteraction),  # type: ignore[attr-defined] # it is of that kind
        )
        assert isinstance(pressed, hikari.InteractionCreateEvent)
        button = pressed.interaction
        assert isinstance(button, hikari.ComponentInteraction)
        assert (button.custom_id, button.user.id) == ("a|0", int(JANE))
        await button.create_initial_response(hikari.ResponseType.MESSAGE_UPDATE, "Really? yes", components=[])
        assert server.visible(CHANNEL)[-1].buttons == ()


async def test_a_session_is_resumed() -> None:
    async with FakeDiscord() as server, connected(server) as (_, heard):
        server.abort()
        await until(lambda: not server.connections)
        server.say("while away", CHANNEL, mention=True)
        await heard.next(hikari.GuildMessageCreateEvent)
        assert (server.identifies, server.resumes) == (1, 1)


async def test_rate_limits_are_reported_in_headers() -> None:
    async with FakeDiscord(rates=Rates(limit=3, window=0.5)) as server, connected(server) as (bot, _):
        await asyncio.gather(*(bot.rest.create_message(int(CHANNEL), f"{number}") for number in range(7)))
        posts = [call.at for call in server.calls_of("createMessage") if call.status == 200]
        assert len(posts) == 7
        assert posts[-1] - posts[0] >= 0.9  # the third bucket


async def test_invalid_messages_permissions_and_tokens_are_refused() -> None:
    async with FakeDiscord() as server, connected(server) as (bot, _):
        with pytest.raises(hikari.BadRequestError, match="content"):
            await bot.rest.create_message(int(CHANNEL), "x" * 2001)
        with pytest.raises(hikari.BadRequestError, match="empty"):
            await bot.rest.create_message(int(CHANNEL), " ")
        server.channel(CHANNEL, denied=("send",))
        with pytest.raises(hikari.ForbiddenError):
            await bot.rest.create_message(int(CHANNEL), "x")
        app = hikari.RESTApp(url=server.api_url)
        await app.start()
        async with app.acquire("MTAwMA.Gabcde.wrong", "Bot") as stranger:
            with pytest.raises(hikari.UnauthorizedError):
                await stranger.fetch_my_user()
        await app.close()
