"""The REST methods of the fake Feishu that a bot needs: im/v1, cardkit/v1, contact/v3, bot/v3."""

from __future__ import annotations

import copy
import itertools
import time
import uuid
from collections import defaultdict, deque
from typing import Any

import orjson

from tests.fakes.feishu_world import APP, BOT, EDITS, TENANT, Card, Refusal, Said, World, checked, checked_text
from tests.fakes.server import Json

UPLOAD, IMAGE = 30 << 20, 10 << 20
CHANGES = 10  # of a card in a second
STREAMS = 600.0  # seconds after which a card stops streaming by itself
CALLS_A_MINUTE, CALLS_A_SECOND = 1000, 50  # of one API of an app (open.feishu.cn, rate limits: "1000/min, 50/s")

Files = dict[str, tuple[str, bytes]]


class Rates:
    """The calls of each API in the last minute; `factor` times the documented limits are allowed."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor
        self._calls: defaultdict[str, deque[float]] = defaultdict(deque)

    def exceeds(self, name: str) -> bool:
        """Count a call, and return whether it exceeds a limit."""
        calls, now = self._calls[name], time.monotonic()
        while calls and now - calls[0] > 60:
            calls.popleft()
        recent = sum(1 for _ in itertools.takewhile(lambda at: now - at < 1, reversed(calls)))
        if len(calls) >= CALLS_A_MINUTE * self._factor or recent >= CALLS_A_SECOND * self._factor:
            return True
        calls.append(now)
        return False


class Methods(World):
    """One Python method per platform method, named `m_…`; each returns the answer's data or raises Refusal."""

    enforce_cards = True  # ten changes a second
    tells_names = True  # of senders, with their messages

    # ------------------------------------------------------------ messages

    def m_send(self, body: Json, query: Json, **_: Any) -> Json:
        chat = str(body["receive_id"])
        if query["receive_id_type"] == "open_id":
            chat = self.direct(chat)
        if chat not in self.chats:
            raise Refusal(230001, "Your request contains an invalid request parameter: receive_id")
        return self._post(chat, body, {})

    def m_reply(self, body: Json, id: str, **_: Any) -> Json:
        parent = self.messages.get(id)
        if parent is None or parent.deleted:
            raise Refusal(230011, "The message was withdrawn.")
        if self.chats.get(parent.chat) is None:
            raise Refusal(230002, "The bot can not be outside the group.")
        return self._post(parent.chat, body, self.reply_to(parent, bool(body.get("reply_in_thread"))))

    def _post(self, chat: str, body: Json, place: Json) -> Json:
        key = str(body.get("uuid", ""))
        if len(key) > 50:
            raise Refusal(99992402, "field validation failed: uuid")
        known = next((said for said in self.messages.values() if key and said.uuid == key), None)
        if known is None:
            content = orjson.loads(body["content"])
            known = self.add(chat, APP, body["msg_type"], content, uuid=key, **place)
            if known.kind == "interactive":
                try:
                    self._attach(known)
                except Refusal:
                    del self.messages[known.id]
                    raise
        return self.item(known)

    def _attach(self, said: Said) -> None:
        """Bind a message to its card entity, which may be sent once."""
        if said.content.get("type") != "card":
            said.card = f"75{uuid.uuid4().int % 10**17:017}"
            self.cards[said.card] = Card(checked(orjson.dumps(said.content).decode()))
            return
        said.card = str(said.content["data"]["card_id"])
        card = self.cards.get(said.card)
        if card is None or card.sent:
            raise Refusal(230099, "Failed to create card content, ext=ErrCode: 11307; ErrMsg: cardid is invalid")
        card.sent = True

    def m_update(self, body: Json, id: str, **_: Any) -> Json:
        said = self._own(id)
        if said.kind not in ("text", "post"):
            raise Refusal(230054, "This operation is not supported for this message type.")
        if said.edits >= EDITS:
            raise Refusal(230072, "The message has reached the number of times it can be edited.")
        said.edits += 1
        said.content = orjson.loads(body["content"])
        return self.item(said)

    def m_recall(self, id: str, **_: Any) -> Json:
        self._own(id).deleted = True
        return {}

    def _own(self, message_id: str) -> Said:
        said = self.messages.get(message_id)
        if said is None or said.deleted or said.sender != APP:
            raise Refusal(230011, "The message was withdrawn.")
        return said

    def m_react(self, body: Json, id: str, **_: Any) -> Json:
        said = self.messages.get(id)
        if said is None or said.deleted:
            raise Refusal(231003, "The message is not found.")
        said.reactions.append((APP, body["reaction_type"]["emoji_type"]))
        return {"reaction_id": f"{said.id}-{body['reaction_type']['emoji_type']}", **body}

    def m_unreact(self, id: str, reaction: str, **_: Any) -> Json:
        """Delete a reaction of the bot (…/reference/im-v1/message-reaction/delete)."""
        own = (APP, reaction.removeprefix(f"{id}-"))
        if own not in self.messages[id].reactions:
            raise Refusal(231011, "The reaction is not found.")
        self.messages[id].reactions.remove(own)
        return {}

    # ------------------------------------------------------------ history

    def m_get(self, id: str, query: Json, **_: Any) -> Json:
        said = self.messages.get(id)
        if said is None:
            raise Refusal(230110, "The message has been deleted.")
        self._check_group(said.chat)
        inside = [other for other in self.messages.values() if other.inside == id]
        return {"items": [self.item(one, query) for one in (said, *inside)]}

    def _check_group(self, chat: str) -> None:
        """Messages of a group that do not name the bot need a scope of their own (…/reference/im-v1/message/list and
        …/message/get: "Get all messages in the group"; without it the code is 230027)."""
        if self.chats[chat] != "p2p" and "im:message.group_msg" not in self.scopes:
            raise Refusal(230027, "Lack of necessary permissions, ext=need scope: im:message.group_msg")

    def m_list(self, query: Json, **_: Any) -> Json:
        threads = {said.thread: said.chat for said in self.messages.values() if said.thread}
        container = str(query["container_id"])
        self._check_group(threads.get(container) or container)
        if query["container_id_type"] == "thread":
            if "start_time" in query:
                raise Refusal(230001, "start_time is not supported for threads")
            found = [said for said in self.messages.values() if said.thread == query["container_id"]]
        else:  # of a topic only its root
            since, until = int(query.get("start_time", 0)) * 1000, int(query.get("end_time", 1 << 40)) * 1000
            found = [
                said
                for said in self.messages.values()
                if said.chat == query["container_id"]
                and not (said.thread and said.root)
                and since <= said.time <= until
            ]
        found = [said for said in found if not said.inside]
        if query.get("sort_type") == "ByCreateTimeDesc":
            found.reverse()
        start, size = int(query.get("page_token") or 0), int(query.get("page_size", 20))
        if not 1 <= size <= 50:
            raise Refusal(230001, "page_size")
        items = [self.item(said, query) for said in found[start : start + size]]
        more = start + size < len(found)
        return {"items": items, "has_more": more, "page_token": str(start + size) if more else ""}

    def item(self, said: Said, query: Json | None = None) -> Json:
        """A message in the format of the history, which differs from the event's."""
        bot = said.sender == APP
        sender = {
            "id": said.sender,
            "id_type": "app_id" if bot else "open_id",
            "sender_type": "app" if bot else "user",
            "tenant_key": TENANT,
        }
        if self.tells_names and query and query.get("with_sender_name") == "true" and said.sender in self.names:
            sender["sender_name"] = self.names[said.sender]
        made = {
            "message_id": said.id,
            "msg_type": said.kind,
            "create_time": str(said.time),
            "update_time": str(said.time),
            "deleted": said.deleted,
            "updated": said.edits > 0,
            "chat_id": said.chat,
            "sender": sender,
            "body": {"content": orjson.dumps(self.as_asked(said, query or {})).decode()},
        }
        if said.mentions:
            made["mentions"] = [
                {"key": m["key"], "id": m["id"]["open_id"], "id_type": "open_id", "name": m["name"]}
                for m in said.mentions
            ]
        places = {"root_id": said.root, "parent_id": said.parent, "thread_id": said.thread}
        return {**made, **{key: value for key, value in places.items() if value}}

    def as_asked(self, said: Said, query: Json) -> Json:
        """The content of a message: a card of JSON 2.0 is whole only for who asks for it (issues/78289 of
        github.com/openclaw/openclaw, issues/95 of github.com/larksuite/oapi-sdk-python)."""
        whole = query.get("card_msg_content_type") == "user_card_content"
        if said.kind != "interactive" or whole or said.content.get("schema") != "2.0":
            return said.content
        shown = [{"tag": "img", "image_key": "img_v3_x"}, {"tag": "text", "text": "请升级至最新版本客户端，以查看内容"}]
        return {"title": None, "elements": [shown]}

    def m_chat(self, id: str, **_: Any) -> Json:
        if id not in self.chats:
            raise Refusal(232006, "Your request specifies a chat_id which is invalid.")
        return {"chat_mode": self.chats[id], "name": id}

    def direct(self, person: str) -> str:
        """The direct chat with a person."""
        chat = f"oc_direct{'' if person == 'ou_jane' else person[2:]}"
        self.chats.setdefault(chat, "p2p")
        return chat

    def m_user(self, id: str, **_: Any) -> Json:
        """Fields need permissions of their own (open.feishu.cn/document/server-docs/contact-v3/user/get)."""
        if id not in self.names:
            raise Refusal(41050, "no user authority error")
        user: Json = {"open_id": id}
        if "contact:user.base:readonly" in self.scopes:
            user["name"] = self.names[id]
        if "contact:user.employee:readonly" in self.scopes:
            states = ("is_frozen", "is_resigned", "is_activated", "is_exited", "is_unjoin")
            user["status"] = dict.fromkeys(states, False) | {"is_activated": True} | self.statuses.get(id, {})
        return {"user": user}

    def m_scopes(self, **_: Any) -> Json:
        return {"scopes": [{"scope_name": name, "grant_status": 1} for name in sorted(self.scopes)]}

    def m_bot(self, **_: Any) -> Json:
        return {"bot": {"app_name": "Fawn", "open_id": BOT, "activate_status": 2}}

    # ------------------------------------------------------------ cards

    def m_card_create(self, body: Json, **_: Any) -> Json:
        if body["type"] != "card_json":
            raise Refusal(300101, "type")
        card_id = f"75{uuid.uuid4().int % 10**17:017}"
        self.cards[card_id] = Card(checked(body["data"]))
        return {"card_id": card_id}

    def m_card_find(self, body: Json, **_: Any) -> Json:
        said = self.messages.get(str(body["message_id"]))
        if said is None or said.deleted or not said.card:
            raise Refusal(200740, "the message shows no card")
        return {"card_id": said.card}

    def m_card_replace(self, id: str, body: Json, **_: Any) -> Json:
        self._changing(id, body).json = checked(body["card"]["data"])
        return {}

    def m_card_write(self, id: str, element: str, body: Json, **_: Any) -> Json:
        card = self.cards.get(id)
        if card and not card.streaming:
            raise Refusal(300309, "Card streaming mode is closed.")
        card = self._changing(id, body)
        checked_text(str(body["content"]))
        card.element(element)["content"] = body["content"]
        if len(orjson.dumps(card.json)) > 30 << 10:
            raise Refusal(200860, "card over max size")
        card.writes.append(str(body["content"]))
        return {}

    def m_card_settings(self, id: str, body: Json, **_: Any) -> Json:
        card = self._changing(id, body)
        card.json.setdefault("config", {}).update(orjson.loads(body["settings"])["config"])
        return {}

    def m_card_element(self, id: str, element: str, body: Json, **_: Any) -> Json:
        card = self._changing(id, body)
        new = orjson.loads(body["element"])
        old = card.element(element)
        old.clear()
        old.update(new)
        return {}

    def _changing(self, card_id: str, body: Json) -> Card:
        """Check an update of a card: its sequence rises, and it is not too frequent."""
        card = self.cards.get(card_id)
        if card and any(card is clicked for clicked, _ in self.clicks.values()):
            card = copy.deepcopy(card)  # the answer to the click restores what this changes
        if card is None or any(said.card == card_id and said.deleted for said in self.messages.values()):
            raise Refusal(300306, "card not found")
        sequence = body["sequence"]
        if not isinstance(sequence, int) or not 1 <= sequence <= 2**31 - 1:
            raise Refusal(99992402, "field validation failed: sequence")
        if sequence <= card.sequence:
            raise Refusal(300317, "sequence number compare failed")
        now = time.monotonic()
        card.at = [*(at for at in card.at if now - at < 60), now]
        if self.enforce_cards and len([at for at in card.at if now - at < 1]) > CHANGES:
            raise Refusal(99991400, "request trigger frequency limit", 429)
        card.sequence = sequence
        return card

    # ------------------------------------------------------------ files

    def m_file(self, body: Json, files: Files, **_: Any) -> Json:
        data = files.get("file", ("", b""))[1]
        if not data:
            raise Refusal(234010, "File's size can't be 0.")
        if len(data) > UPLOAD:
            raise Refusal(234006, "The file size exceed the max value.")
        if body.get("file_type") not in ("opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"):
            raise Refusal(234001, "Invalid request param.")
        key = f"file_v3_{uuid.uuid4().hex}"
        self.files[key] = (str(body["file_name"]), data)
        return {"file_key": key}

    def m_image(self, body: Json, files: Files, **_: Any) -> Json:
        name, data = files.get("image", ("", b""))
        if body.get("image_type") != "message" or not data:
            raise Refusal(234001, "Invalid request param.")
        if len(data) > IMAGE:
            raise Refusal(234006, "The file size exceed the max value.")
        if data[:4] not in (b"\x89PNG", b"\xff\xd8\xff\xe0", b"GIF8", b"RIFF"):
            raise Refusal(234011, "Can't recognize image format.")
        key = f"img_v3_{uuid.uuid4().hex}"
        self.files[key] = (name, data)
        return {"image_key": key}
