"""The Bot API's methods on the fake's state, with the real server's refusals.

Texts of errors: tdlib/telegram-bot-api and the errors people report; limits: core.telegram.org/bots/api.
A method is `m_NAME(arguments, files)`; structured arguments are already parsed, files are (name, bytes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from tests.fakes.server import Json
from tests.fakes.telegram_people import People
from tests.fakes.telegram_text import CAPTION_UNITS, TEXT_UNITS, BadText, RichHtml, formatted, marked
from tests.fakes.telegram_world import BOT, Chat

Files = Mapping[str, tuple[str, bytes]]

DOWNLOAD_BYTES = 20 << 20
UPLOAD_BYTES = 50 * 1000 * 1000
PHOTO_BYTES = 10 * 1000 * 1000
PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a"
    " current content and reply markup of the message"
)


class ApiError(Exception):
    """A refusal: HTTP status, Telegram's description, and its `parameters`."""

    def __init__(self, code: int, description: str, parameters: Json | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


def refuse(description: str, code: int = 400) -> NoReturn:
    raise ApiError(code, {400: "Bad Request: ", 403: "Forbidden: "}.get(code, "") + description)


class Methods(People):
    """The bot's side."""

    username = str(BOT["username"])  # @BotFather may change it

    # ------------------------------------------------------------ the account

    def m_getme(self, args: Json, files: Files) -> Json:
        return {**BOT, "username": self.username}

    def m_setmycommands(self, args: Json, files: Files) -> bool:
        """Register commands: core.telegram.org/bots/api#setmycommands (at most 100) and …#botcommand (the letters)."""
        commands = args.get("commands") or []
        if len(commands) > 100:
            refuse("BOT_COMMANDS_TOO_MUCH")
        for command in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", command["command"]):
                refuse("BOT_COMMAND_INVALID")
            if not 1 <= len(command["description"]) <= 256:
                refuse("BOT_COMMAND_DESCRIPTION_INVALID")
        self.commands[(args.get("scope") or {}).get("type", "default")] = commands
        return True

    def m_getmycommands(self, args: Json, files: Files) -> list[Json]:
        return self.commands.get((args.get("scope") or {}).get("type", "default"), [])

    def m_getchat(self, args: Json, files: Files) -> Json:
        chat = self.addressed(args)
        return {
            **self.chat_object(chat),
            "accent_color_id": 1,
            "max_reaction_count": 11,
            "permissions": {},
            "accepted_gift_types": dict.fromkeys(
                (
                    "unlimited_gifts",
                    "limited_gifts",
                    "unique_gifts",
                    "premium_subscription",
                    "gifts_from_channels",
                ),
                False,
            ),
        }

    def m_getchatmember(self, args: Json, files: Files) -> Json:
        chat, user = self.addressed(args), int(args["user_id"])
        if user not in self.people or (chat.kind == "private" and user != chat.id):
            refuse("PARTICIPANT_ID_INVALID")
        return {"user": self.people[user], "status": "member"}

    # ------------------------------------------------------------ messages

    def m_sendmessage(self, args: Json, files: Files) -> Json:
        chat = self.addressed(args)
        text, entities = self._text(args, "text", "entities", TEXT_UNITS)
        if not text:
            refuse("message text is empty")
        return self._send(chat, args, {"text": text, **({"entities": entities} if entities else {})})

    def m_sendrichmessage(self, args: Json, files: Files) -> Json:
        """core.telegram.org/bots/api#sendrichmessage; a server before Bot API 10.1 does not know the method."""
        if not self.knows_rich:
            raise ApiError(404, "Not Found: method not found")
        chat, parsed = self.addressed(args), self._rich(args)
        message = self._send(chat, args, {"rich_message": as_blocks(parsed)})
        chat.rich[message["message_id"]] = parsed
        return message

    def _rich(self, args: Json) -> RichHtml:
        if not self.knows_rich:
            refuse("message text is empty")
        try:
            parsed = RichHtml(str(args["rich_message"]["html"]))
        except BadText as error:
            refuse(str(error))
        if not parsed.text:
            refuse("message text is empty")
        return parsed

    def m_editmessagetext(self, args: Json, files: Files) -> Json:
        chat, message = self._own_message(args, "edit")
        id = message["message_id"]
        if args.get("rich_message"):
            parsed, markup = self._rich(args), _markup(args)
            before = chat.rich.get(id)
            if before and (before.html, message.get("reply_markup")) == (parsed.html, markup):
                raise ApiError(400, NOT_MODIFIED)
            for gone in ("text", "entities"):
                message.pop(gone, None)
            chat.rich[id], message["rich_message"] = parsed, as_blocks(parsed)
            return self._edited(chat, message, markup)
        text, entities = self._text(args, "text", "entities", TEXT_UNITS, too_long="MESSAGE_TOO_LONG")
        if not text:
            refuse("message text is empty")
        if chat.rich.pop(id, None):
            del message["rich_message"]
            message["text"] = ""
        if "text" not in message:
            refuse("there is no text in the message to edit")
        markup = _markup(args)
        if (text, entities, markup) == (
            message["text"],
            message.get("entities", []),
            message.get("reply_markup"),
        ):
            raise ApiError(400, NOT_MODIFIED)
        message["text"] = text
        _put(message, "entities", entities)
        return self._edited(chat, message, markup)

    def m_editmessagecaption(self, args: Json, files: Files) -> Json:
        chat, message = self._own_message(args, "edit")
        text, entities = self._text(args, "caption", "caption_entities", CAPTION_UNITS)
        markup = _markup(args)
        if (text, markup) == (message.get("caption", ""), message.get("reply_markup")):
            raise ApiError(400, NOT_MODIFIED)
        _put(message, "caption", text)
        _put(message, "caption_entities", entities)
        return self._edited(chat, message, markup)

    def m_editmessagereplymarkup(self, args: Json, files: Files) -> Json:
        chat, message = self._own_message(args, "edit")
        markup = _markup(args)
        if markup == message.get("reply_markup"):
            raise ApiError(400, NOT_MODIFIED)
        return self._edited(chat, message, markup)

    def m_deletemessage(self, args: Json, files: Files) -> bool:
        chat = self.addressed(args)
        if int(args["message_id"]) not in chat.messages:
            refuse("message to delete not found")
        del chat.messages[int(args["message_id"])]
        return True

    def m_sendmessagedraft(self, args: Json, files: Files) -> bool:
        chat = self.addressed(args)
        if chat.kind != "private":
            refuse("method is available only in private chats")
        if not int(args.get("draft_id") or 0):
            refuse("draft identifier must be non-zero")
        text, _ = self._text(args, "text", "entities", TEXT_UNITS)
        if str(args.get("can_stop")).lower() == "true":
            self.stoppable[chat.id, self._topic(chat, args)] = int(args["draft_id"])
        self.drafts[chat.id, self._topic(chat, args)] = text
        return True

    # ------------------------------------------------------------ files

    def m_senddocument(self, args: Json, files: Files) -> Json:
        return self._send_file("document", args, files)

    def m_sendphoto(self, args: Json, files: Files) -> Json:
        return self._send_file("photo", args, files)

    def m_sendmediagroup(self, args: Json, files: Files) -> list[Json]:
        chat = self.addressed(args)
        media = args.get("media") or []
        if not 1 <= len(media) <= 10:
            refuse("wrong number of media to send")
        if len({item["type"] in ("document", "audio") and item["type"] for item in media}) > 1:
            refuse("document can't be mixed with other media types")
        contents = [self._media(item["type"], item, item["media"], files) for item in media]
        album = self.new_album()
        return [self._send(chat, args, {**content, "media_group_id": album}) for content in contents]

    def m_getfile(self, args: Json, files: Files) -> Json:
        file = self.files.get(args["file_id"])
        if not file:
            refuse("wrong file_id or the file is temporarily unavailable")
        if file.size > DOWNLOAD_BYTES:
            refuse("file is too big")
        unique = f"u{args['file_id']}"
        return {"file_id": args["file_id"], "file_unique_id": unique, "file_size": file.size, "file_path": file.path}

    # ------------------------------------------------------------ activity signs

    def m_sendchataction(self, args: Json, files: Files) -> bool:
        chat = self.addressed(args)
        if int(args.get("message_thread_id") or 0) != 1:  # General is a valid place for an action, not for a message
            self._topic(chat, args)
        return True

    def m_setmessagereaction(self, args: Json, files: Files) -> bool:
        chat = self.addressed(args)
        if int(args["message_id"]) not in chat.messages:
            refuse("message to react not found")
        self.reactions[chat.id, int(args["message_id"])] = [r.get("emoji", "") for r in args.get("reaction") or []]
        return True

    def m_answercallbackquery(self, args: Json, files: Files) -> bool:
        if len(str(args.get("text") or "")) > 200:
            refuse("MESSAGE_TOO_LONG")
        if self.queries.pop(str(args["callback_query_id"]), None) is None:
            refuse("query is too old and response timeout expired or query ID is invalid")
        self.answers[str(args["callback_query_id"])] = args.get("text") or ""
        return True

    def m_createforumtopic(self, args: Json, files: Files) -> Json:
        chat = self.addressed(args)
        if chat.topics is None:
            refuse("the chat is not a forum")
        topic = next(chat.ids)
        chat.topics[topic] = args["name"]
        return {"message_thread_id": topic, "name": args["name"], "icon_color": 7322096}

    def m_editforumtopic(self, args: Json, files: Files) -> bool:
        """In a group it needs the right to manage topics, unless the bot created this one."""
        chat = self.addressed(args)
        topic, name = self._topic(chat, args), str(args.get("name") or "")
        if chat.kind != "private":
            refuse("not enough rights to edit the topic")
        if not topic or chat.topics is None:
            refuse("TOPIC_ID_INVALID")
        if len(name) > 128:
            refuse("TOPIC_TITLE_TOO_LONG")
        chat.topics[topic] = name or chat.topics[topic]
        return True

    # ------------------------------------------------------------ helpers

    def addressed(self, args: Json) -> Chat:
        """Return the chat of a call. Raises the refusal if the bot cannot reach it."""
        raw = str(args.get("chat_id") or "")
        if not raw:
            refuse("chat_id is empty")
        chat = self.chats.get(int(raw)) if re.fullmatch(r"-?\d+", raw) else None
        if chat is None:
            refuse("chat not found")
        if chat.moved_to:
            upgraded = "Bad Request: group chat was upgraded to a supergroup chat"
            raise ApiError(400, upgraded, {"migrate_to_chat_id": chat.moved_to})
        if chat.blocked:
            words = "blocked by the user" if chat.kind == "private" else f"kicked from the {chat.kind} chat"
            refuse(f"bot was {words}", 403)
        return chat

    def _topic(self, chat: Chat, args: Json) -> int:
        topic = int(args.get("message_thread_id") or 0)
        if topic and topic not in (chat.topics or {}):  # also General (1): messages there must not name it
            refuse("message thread not found")
        return topic

    def _text(
        self, args: Json, text: str, entities: str, limit: int, too_long: str = "message is too long"
    ) -> tuple[str, list[Json]]:
        given, mode = args.get(entities) or [], args.get("parse_mode") or ""
        try:
            said, marks = formatted(str(args.get(text) or ""), given, mode, limit)
        except BadText as error:
            refuse(too_long if str(error) == "message is too long" else str(error))
        return said, marked(said, marks, self.people)

    def _send(self, chat: Chat, args: Json, content: Json) -> Json:
        topic = self._topic(chat, args)
        reply = args.get("reply_parameters") or {}
        original = None
        if reply or args.get("reply_to_message_id"):
            original = chat.messages.get(int(reply.get("message_id") or args["reply_to_message_id"]))
            optional = reply.get("allow_sending_without_reply", args.get("allow_sending_without_reply"))
            if original is None and str(optional).lower() != "true":
                refuse("message to be replied not found")
        if original:
            content["reply_to_message"] = {k: v for k, v in original.items() if k != "reply_to_message"}
        _put(content, "reply_markup", _markup(args))
        self.drafts.pop((chat.id, topic), None)
        return self.post(chat, BOT, content, topic)

    def _own_message(self, args: Json, verb: str) -> tuple[Chat, Json]:
        chat = self.addressed(args)
        message = chat.messages.get(int(args.get("message_id") or 0))
        if message is None:
            refuse(f"message to {verb} not found")
        if message["from"]["id"] != BOT["id"]:
            refuse("message can't be edited")
        return chat, message

    def _edited(self, chat: Chat, message: Json, markup: Json | None) -> Json:
        _put(message, "reply_markup", markup)
        message["edit_date"] = message["date"]
        chat.edits[message["message_id"]] += 1
        return message

    def _send_file(self, kind: str, args: Json, files: Files) -> Json:
        chat = self.addressed(args)
        return self._send(chat, args, self._media(kind, args, args.get(kind), files))

    def _media(self, kind: str, args: Json, source: object, files: Files) -> Json:
        """The content of a message with a file: uploaded under its own name, or as attach://NAME."""
        key = str(source).removeprefix("attach://") if source else kind
        if key not in files:
            refuse(f"there is no {kind} in the request")
        name, data = files[key]
        if not data:
            refuse("file must be non-empty")
        if len(data) > UPLOAD_BYTES:
            raise ApiError(413, "Request Entity Too Large")
        caption, entities = self._text(args, "caption", "caption_entities", CAPTION_UNITS)
        content: Json = {}
        _put(content, "caption", caption)
        _put(content, "caption_entities", entities)
        if kind == "photo":
            if len(data) > PHOTO_BYTES:
                refuse(
                    f"file of size {len(data)} bytes is too big for a photo; the maximum size is {PHOTO_BYTES} bytes"
                )
            if not data.startswith(PICTURES):
                refuse("IMAGE_PROCESS_FAILED")
            return content | {"photo": [{**self.keep(name, data, "photos/x"), "width": 64, "height": 64}]}
        return content | {kind: {**self.keep(name, data, "documents/x"), "file_name": name}}


def as_blocks(parsed: RichHtml) -> Json:
    """Return a rich message as Telegram does: as blocks, of which this fake makes one."""
    return {"blocks": [{"type": "paragraph", "text": parsed.text}]}


def _put(target: Json, key: str, value: object) -> None:
    """Set a field, or leave it out where Telegram would."""
    if value:
        target[key] = value
    else:
        target.pop(key, None)


def _markup(args: Json) -> Json | None:
    """The inline keyboard of a call, checked; None where there is none.

    Styles: core.telegram.org/bots/api#inlinekeyboardbutton, since Bot API 9.4.
    """
    markup: Json = args.get("reply_markup") or {}
    rows = markup.get("inline_keyboard") or []
    buttons = [button for row in rows for button in row]
    if len(buttons) > 100:
        refuse("reply markup is too long")
    for button in buttons:
        if not button.get("text"):
            refuse("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
        if button.get("style", "primary") not in ("primary", "success", "danger"):
            refuse("can't parse inline keyboard button: Invalid button style specified")
        if "callback_data" in button and not 1 <= len(button["callback_data"].encode()) <= 64:
            refuse("BUTTON_DATA_INVALID")
    return {"inline_keyboard": rows} if buttons else None
