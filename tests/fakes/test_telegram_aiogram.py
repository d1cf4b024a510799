"""The fake Telegram against a second, independent client: aiogram parses everything it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession

from tests.fakes.telegram import JANE, TOKEN, FakeTelegram
from tests.support.lazy_modules import lazy_module

if TYPE_CHECKING:
    import aiogram
    from aiogram import Bot
    from aiogram.types import Update
else:
    aiogram = lazy_module("aiogram")  # it takes 2.6 s of CPU

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 300
GROUP = -1_001_234_567_890
DRAFT = 7


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
async def bot(telegram: FakeTelegram) -> AsyncIterator[Bot]:
    session = aiogram.client.session.aiohttp.AiohttpSession(
        api=aiogram.client.telegram.TelegramAPIServer.from_base(telegram.base_url)
    )
    async with aiogram.Bot(TOKEN, session=session).context() as made:
        yield made


class Reader:
    """Reads updates as a bot does: the offset moves past what was read."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._offset = 0

    async def read(self, count: int = 1) -> list[Update]:
        updates: list[Update] = []
        while len(updates) < count:
            updates += await self._bot.get_updates(offset=self._offset, timeout=2)
            self._offset = updates[-1].update_id + 1
        return updates


async def test_texts_commands_and_mentions_arrive_with_their_entities(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.send("你好 @fawn_bot and /new@fawn_bot x")
    [update] = await Reader(bot).read()
    assert update.message
    assert update.message.from_user
    assert update.message.from_user.first_name == "Jane"
    found = [(e.type, e.extract_from(update.message.text or "")) for e in update.message.entities or []]
    assert found == [("mention", "@fawn_bot"), ("bot_command", "/new@fawn_bot")]


async def test_every_kind_of_message_is_parsed(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.send_photo(PNG, caption="look /at")
    telegram.send_document("a.csv", b"1,2\n", caption="csv")
    telegram.send_voice(b"OggS")
    telegram.send_audio(b"ID3")
    telegram.send_video(b"mp4", caption="clip")
    telegram.send_video_note(b"mp4")
    telegram.send_sticker()
    telegram.send_poll()
    telegram.send_contact()
    telegram.send_location()
    updates = await Reader(bot).read(10)
    messages = [update.message for update in updates if update.message]
    assert [m.content_type for m in messages] == [
        "photo",
        "document",
        "voice",
        "audio",
        "video",
        "video_note",
        "sticker",
        "poll",
        "contact",
        "location",
    ]
    sizes = messages[0].photo or []
    assert [size.width for size in sizes] == sorted(size.width for size in sizes)
    assert len(sizes) == 3


async def test_reactions_are_sent_on_request_and_mentions_name_people(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.person(77, "Kim")
    telegram.chat(GROUP).admin = True
    link = aiogram.types.MessageEntity(type="text_link", offset=6, length=2, url="tg://user?id=77")
    said = await bot.send_message(GROUP, "@jane me `@jane` a@jane.org", entities=[link])
    assert [(mark.type, mark.offset, mark.user and mark.user.id) for mark in said.entities or []] == [
        ("text_mention", 6, 77),
        ("mention", 0, None),
        ("mention", 10, None),  # Markdown is not code without an entity
    ]
    telegram.person(JANE)
    assert telegram.visible(GROUP)[0].pings == ("77", str(JANE), str(JANE))
    assert (await bot.get_chat_member(GROUP, 77)).user.first_name == "Kim"
    telegram.react("👎", said.message_id, chat=GROUP, user=77)
    assert await bot.get_updates(timeout=0) == []
    [update] = await bot.get_updates(timeout=2, allowed_updates=["message_reaction"])
    assert update.message_reaction
    assert update.message_reaction.user
    assert (update.message_reaction.message_id, update.message_reaction.user.id) == (said.message_id, 77)
    [mark] = update.message_reaction.new_reaction
    assert isinstance(mark, aiogram.types.ReactionTypeEmoji)
    assert mark.emoji == "👎"


async def test_albums_topics_replies_quotes_and_forwards(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.forum(GROUP, 5)
    telegram.send_album([PNG, PNG, PNG], caption="three", chat=GROUP, topic=5, user=7)
    first = telegram.send("the first word", chat=GROUP, topic=5, user=7)
    telegram.send("why?", chat=GROUP, topic=5, user=8, reply_to=first["message_id"], quote="first")
    telegram.send("seen?", forward_from="Kim")
    telegram.edit("the last word", first["message_id"], chat=GROUP)
    album1, album2, album3, text, reply, forward, edited = await Reader(bot).read(7)
    groups = {u.message.media_group_id for u in (album1, album2, album3) if u.message}
    assert len(groups) == 1
    assert None not in groups
    assert text.message
    assert text.message.is_topic_message
    assert text.message.message_thread_id == 5
    assert text.message.text == "the first word"  # as it was when it was sent
    assert text.message.from_user
    assert text.message.from_user.id == 7
    assert reply.message
    assert reply.message.reply_to_message
    assert reply.message.reply_to_message.message_id == first["message_id"]
    assert reply.message.quote
    assert reply.message.quote.text == "first"
    assert forward.message
    assert forward.message.forward_origin
    assert forward.message.forward_origin.type == "hidden_user"
    assert edited.edited_message
    assert edited.edited_message.text == "the last word"


async def test_replies_outside_forums_carry_a_thread_id_that_is_not_a_topic(telegram: FakeTelegram, bot: Bot) -> None:
    first = telegram.send("one", chat=GROUP)
    telegram.send("two", chat=GROUP, reply_to=first["message_id"])
    _, update = await Reader(bot).read(2)
    assert update.message
    assert update.message.message_thread_id == first["message_id"]
    assert not update.message.is_topic_message
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message thread not found"):
        await bot.send_message(GROUP, "x", message_thread_id=first["message_id"])


async def test_membership_and_migration_arrive(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.send("hi", chat=-77)
    telegram.migrate(-77, GROUP)
    telegram.membership(JANE, "kicked")
    _, left, joined, blocked = await Reader(bot).read(4)
    assert left.message
    assert left.message.migrate_to_chat_id == GROUP
    assert joined.message
    assert joined.message.migrate_from_chat_id == -77
    assert blocked.my_chat_member
    assert blocked.my_chat_member.new_chat_member.status == "kicked"
    with pytest.raises(aiogram.exceptions.TelegramMigrateToChat) as moved:
        await bot.send_message(-77, "x")
    assert moved.value.migrate_to_chat_id == GROUP
    with pytest.raises(aiogram.exceptions.TelegramForbiddenError, match="bot was blocked by the user"):
        await bot.send_message(JANE, "x")


async def test_a_reply_is_posted_edited_and_deleted(telegram: FakeTelegram, bot: Bot) -> None:
    asked = telegram.send("hi")
    keyboard = aiogram.types.InlineKeyboardMarkup(
        inline_keyboard=[[aiogram.types.InlineKeyboardButton(text="Yes", callback_data="yes")]]
    )
    answer = aiogram.types.ReplyParameters(message_id=asked["message_id"])
    sent = await bot.send_message(JANE, "  draft ", reply_markup=keyboard, reply_parameters=answer)
    assert telegram.texts(JANE) == ["draft"]
    query = telegram.click("yes", sent.message_id)
    bold = aiogram.types.MessageEntity(type="bold", offset=0, length=2)
    await bot.edit_message_text("你好 done", chat_id=JANE, message_id=sent.message_id, entities=[bold])
    [shown] = telegram.visible(JANE)
    assert (shown.text, shown.edits, shown.reply_to, shown.buttons) == ("你好 done", 1, asked["message_id"], ())
    assert shown.entities[0]["type"] == "bold"
    assert await bot.answer_callback_query(query, text="ok")
    assert telegram.answers == {query: "ok"}
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="query is too old"):
        await bot.answer_callback_query(query)
    await bot.edit_message_reply_markup(chat_id=JANE, message_id=sent.message_id, reply_markup=keyboard)
    assert telegram.visible(JANE)[0].buttons == (("Yes", "yes"),)
    assert await bot.delete_message(JANE, sent.message_id)
    assert telegram.visible(JANE) == []
    _, clicked = await Reader(bot).read(2)
    assert clicked.callback_query
    assert clicked.callback_query.data == "yes"


async def test_files_are_downloaded_and_uploaded(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.send_document("a.csv", b"1,2\n")
    telegram.send_document("big.iso", b"", size=21_000_000)
    small, big = await Reader(bot).read(2)
    assert small.message
    assert small.message.document
    file = await bot.get_file(small.message.document.file_id)
    assert file.file_path
    content = await bot.download_file(file.file_path)
    assert content
    assert content.read() == b"1,2\n"
    assert big.message
    assert big.message.document
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="file is too big"):
        await bot.get_file(big.message.document.file_id)
    await bot.send_document(JANE, aiogram.types.BufferedInputFile(b"out", "out.txt"), caption="here")
    await bot.send_photo(JANE, aiogram.types.BufferedInputFile(PNG, "p.png"))
    pair = [
        aiogram.types.InputMediaDocument(media=aiogram.types.BufferedInputFile(name.encode(), name))
        for name in ("b.txt", "c.txt")
    ]
    await bot.send_media_group(JANE, list(pair))
    shown = telegram.visible(JANE)
    assert [(s.kind, s.file_name, s.file) for s in shown] == [
        ("document", "out.txt", b"out"),
        ("photo", "p.png", PNG),
        ("document", "b.txt", b"b.txt"),
        ("document", "c.txt", b"c.txt"),
    ]
    assert shown[0].text == "here"
    assert shown[2].album == shown[3].album != ""
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="IMAGE_PROCESS_FAILED"):
        await bot.send_photo(JANE, aiogram.types.BufferedInputFile(b"not a picture", "p.png"))
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="file must be non-empty"):
        await bot.send_document(JANE, aiogram.types.BufferedInputFile(b"", "e.txt"))
    with pytest.raises(aiogram.exceptions.TelegramEntityTooLarge):
        await bot.send_document(JANE, aiogram.types.BufferedInputFile(bytes(70_000_000), "e.bin"))


async def test_topics_keep_their_messages_apart(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.forum(GROUP, 5, 6)
    await bot.send_message(GROUP, "five", message_thread_id=5)
    await bot.send_message(GROUP, "six", message_thread_id=6)
    await bot.send_message(GROUP, "general")
    await bot.send_chat_action(GROUP, "typing", message_thread_id=1)
    assert telegram.texts(GROUP, 5) == ["five"]
    assert telegram.texts(GROUP, 6) == ["six"]
    assert telegram.texts(GROUP, 0) == ["general"]
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message thread not found"):
        await bot.send_message(GROUP, "x", message_thread_id=1)
    telegram.delete_topic(GROUP, 6)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message thread not found"):
        await bot.send_message(GROUP, "x", message_thread_id=6)
    assert telegram.texts(GROUP, 6) == []
    assert (await bot.get_chat(GROUP)).is_forum


async def test_drafts_reactions_and_commands_work(telegram: FakeTelegram, bot: Bot) -> None:
    asked = telegram.send("hi")
    assert (await bot.get_me()).username == "fawn_bot"
    assert await bot.send_message_draft(JANE, DRAFT, text="half")
    assert telegram.drafts == {(JANE, 0): "half"}
    await bot.send_message(JANE, "whole")
    assert telegram.drafts == {}
    await bot.set_message_reaction(JANE, asked["message_id"], [aiogram.types.ReactionTypeEmoji(emoji="👀")])
    assert telegram.reactions == {(JANE, asked["message_id"]): ["👀"]}
    await bot.set_my_commands([aiogram.types.BotCommand(command="new", description="Start again")])
    assert [c.command for c in await bot.get_my_commands()] == ["new"]
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="BOT_COMMAND_INVALID"):
        await bot.set_my_commands([aiogram.types.BotCommand(command="New!", description="x")])
    telegram.chat(GROUP)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="private chats"):
        await bot.send_message_draft(GROUP, DRAFT, text="half")


@pytest.mark.parametrize(
    ("text", "entity", "words"),
    [
        ("", None, "message text is empty"),
        (" \n", None, "message text is empty"),
        ("🦌" * 2049, None, "message is too long"),
        ("hello", ("bold", 0, 100), "ends after the end of the text at UTF-16 offset 100"),
        ("hello", ("bold", 9, 1), "entity begins after the end of the text"),
        ("🦌", ("bold", 1, 1), "entity begins in a middle of a UTF-16 symbol"),
        ("hello", ("sparkle", 0, 1), "Unsupported type specified"),
    ],
)
async def test_bad_texts_are_refused_in_telegrams_words(
    telegram: FakeTelegram, bot: Bot, text: str, entity: tuple[str, int, int] | None, words: str
) -> None:
    """Offsets count UTF-16 units; the words are those of td/telegram/MessageEntity.cpp."""
    telegram.chat(JANE)
    entities = None
    if entity:
        entities = [aiogram.types.MessageEntity(type=entity[0], offset=entity[1], length=entity[2])]
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match=words):
        await bot.send_message(JANE, text, entities=entities)
    assert telegram.visible(JANE) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("/home/fawn/notes.md", "URL host is empty"),
        ("http://localhost:3000/app", "Wrong HTTP URL"),
        ("tel:+49301234", "Wrong port number specified in the URL"),
        ("D:/notes/a.md:1", "Wrong port number specified in the URL"),
        ("ftp://example.com/a", "Unsupported URL protocol"),
        ("https://<host>.example.com", "Disallowed character in URL host"),
        ("tg://re.solve", "Unallowed characters in URL host"),
    ],
)
async def test_a_link_that_is_no_web_link_refuses_the_whole_message(
    telegram: FakeTelegram, bot: Bot, url: str, words: str
) -> None:
    """The server checks each entity's URL: td/telegram/LinkManager.cpp (check_link_impl), tdutils/td/utils/HttpUrl.cpp
    (parse_url). As reported: github.com/banteg/takopi/pull/214, github.com/littlebearapps/untether/issues/157."""
    telegram.chat(JANE)
    link = aiogram.types.MessageEntity(type="text_link", offset=0, length=4, url=url)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match=f"entity URL '.*' is invalid: {words}"):
        await bot.send_message(JANE, "here", entities=[link])
    assert telegram.visible(JANE) == []


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://Example.com", "https://Example.com/"),
        ("example.com/a?b#c", "http://example.com/a?b#c"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("TG:resolve?domain=fawn", "tg://resolve?domain=fawn"),
        ("mailto:jane@example.com", "http://mailto:jane@example.com/"),
    ],
)
async def test_a_link_is_kept_as_an_address_of_the_web(telegram: FakeTelegram, bot: Bot, url: str, kept: str) -> None:
    """An address without "://" counts as http, even of mail: github.com/yagop/node-telegram-bot-api/issues/295."""
    telegram.chat(JANE)
    await bot.send_message(
        JANE, "here", entities=[aiogram.types.MessageEntity(type="text_link", offset=0, length=4, url=url)]
    )
    assert [entity["url"] for entity in telegram.visible(JANE)[0].entities] == [kept]


async def test_names_inside_links_and_code_are_no_mentions(telegram: FakeTelegram, bot: Bot) -> None:
    """Server-side entities never overlap given ones, and a URL wins over a name in it: td/telegram/MessageEntity.cpp
    (find_entities, fix_entities)."""
    telegram.chat(GROUP)
    await bot.send_message(GROUP, "https://medium.com/@john and @jane")
    [mention] = [entity for entity in telegram.visible(GROUP)[0].entities if entity["type"] == "mention"]
    assert (mention["offset"], mention["length"]) == (29, 5)


async def test_an_unknown_method_is_not_found(telegram: FakeTelegram) -> None:
    """The words of tdlib/telegram-bot-api, Client.cpp: 404 for a method that the server does not know."""
    async with ClientSession() as session, session.post(f"{telegram.base_url}/bot{TOKEN}/sendNothing") as answer:
        assert (answer.status, (await answer.json())["description"]) == (404, "Not Found: method not found")


async def test_the_answer_to_a_press_is_limited(telegram: FakeTelegram, bot: Bot) -> None:
    """core.telegram.org/bots/api#answercallbackquery: 0-200 characters."""
    button = aiogram.types.InlineKeyboardButton(text="yes", callback_data="a|0")
    keyboard = aiogram.types.InlineKeyboardMarkup(inline_keyboard=[[button]])
    sent = await bot.send_message(telegram.chat(JANE).id, "?", reply_markup=keyboard)
    query = telegram.click("a|0", sent.message_id)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="MESSAGE_TOO_LONG"):
        await bot.answer_callback_query(query, text="x" * 201)
    assert await bot.answer_callback_query(query, text="x" * 200)


async def test_anonymous_people_write_as_their_chat(telegram: FakeTelegram, bot: Bot) -> None:
    """`from` then is @GroupAnonymousBot or @Channel_Bot, for compatibility (core.telegram.org/bots/api#message)."""
    reader = Reader(bot)
    telegram.send("as the group", chat=GROUP, sent_as=GROUP)
    telegram.send("as a channel", chat=GROUP, sent_as=-1_009_999_999_999)
    for update, sender, kind in zip(
        await reader.read(2), (GROUP, -1_009_999_999_999), ("supergroup", "channel"), strict=True
    ):
        assert update.message
        assert update.message.from_user
        assert update.message.from_user.is_bot
        assert update.message.sender_chat
        assert (update.message.sender_chat.id, update.message.sender_chat.type) == (sender, kind)


async def test_markup_is_parsed_or_refused(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.chat(JANE)
    await bot.send_message(JANE, "a <b>b</b> &amp; <a href='http://x.y'>c</a>", parse_mode="HTML")
    [shown] = telegram.visible(JANE)
    assert shown.text == "a b & c"
    assert [e["type"] for e in shown.entities] == ["bold", "text_link"]
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="can't parse entities"):
        await bot.send_message(JANE, "<b>open", parse_mode="HTML")
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match=r"Character '\.' is reserved"):
        await bot.send_message(JANE, "end.", parse_mode="MarkdownV2")


async def test_the_longest_text_fits_by_utf16(telegram: FakeTelegram, bot: Bot) -> None:
    """4,096 UTF-16 units (core.telegram.org/bots/api#sendmessage, core.telegram.org/api/entities#entity-length)."""
    telegram.chat(JANE)
    sent = await bot.send_message(JANE, "🦌" * 2048)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="MESSAGE_TOO_LONG"):
        await bot.edit_message_text("🦌" * 2049, chat_id=JANE, message_id=sent.message_id)


async def test_edits_are_refused_in_telegrams_words(telegram: FakeTelegram, bot: Bot) -> None:
    mine = telegram.send("hi")
    sent = await bot.send_message(JANE, "same")
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message is not modified"):
        await bot.edit_message_text("same\n", chat_id=JANE, message_id=sent.message_id)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message can't be edited"):
        await bot.edit_message_text("x", chat_id=JANE, message_id=mine["message_id"])
    telegram.remove(JANE, sent.message_id)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message to edit not found"):
        await bot.edit_message_text("x", chat_id=JANE, message_id=sent.message_id)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message to delete not found"):
        await bot.delete_message(JANE, sent.message_id)
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="message to be replied not found"):
        await bot.send_message(JANE, "x", reply_parameters=aiogram.types.ReplyParameters(message_id=sent.message_id))
    with pytest.raises(aiogram.exceptions.TelegramBadRequest, match="chat not found"):
        await bot.send_message(999, "x")


async def test_tokens_webhooks_and_floods_are_checked(telegram: FakeTelegram, bot: Bot) -> None:
    session = aiogram.client.session.aiohttp.AiohttpSession(
        api=aiogram.client.telegram.TelegramAPIServer.from_base(telegram.base_url)
    )
    async with aiogram.Bot("1:WRONG", session=session).context() as stranger:
        with pytest.raises(aiogram.exceptions.TelegramUnauthorizedError):
            await stranger.get_me()
    telegram.webhook = True
    with pytest.raises(aiogram.exceptions.TelegramConflictError, match="webhook is active"):
        await bot.get_updates()
    assert await bot.delete_webhook()
    assert await bot.get_updates() == []
    telegram.fault("flood", "getMe", seconds=3)
    with pytest.raises(aiogram.exceptions.TelegramRetryAfter) as flood:
        await bot.get_me()
    assert flood.value.retry_after == 3
    with pytest.raises(aiogram.exceptions.TelegramNotFound):
        await bot.get_business_connection("x")


async def test_a_button_has_one_of_three_styles(telegram: FakeTelegram) -> None:
    """core.telegram.org/bots/api#inlinekeyboardbutton: danger, success or primary."""
    telegram.chat(JANE)
    async with ClientSession() as session:
        for style, status in (("danger", 200), ("success", 200), ("primary", 200), ("red", 400)):
            button = {"text": "x", "callback_data": "x", "style": style}
            body = {"chat_id": JANE, "text": "?", "reply_markup": {"inline_keyboard": [[button]]}}
            async with session.post(f"{telegram.base_url}/bot{TOKEN}/sendMessage", json=body) as answer:
                assert answer.status == status
