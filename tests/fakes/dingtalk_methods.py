"""The state and the API methods of the fake DingTalk: robot messages, cards, files.

Pages named "…/x" are open.dingtalk.com/document/development/x.
"""

from __future__ import annotations

import re
import sys
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.fakes.server import Json

CLIENT, SECRET, CORP = "dingfawn0123456789", "client-secret-for-tests", "dingcorp1"
TEMPLATE = "8aebdfb9-28f4-4a98-98f5-396c3dde41a0.schema"
JANE, KIM = "manager0001", "0002kim"
GROUP = "cidGROUP{}=="
BOT = "$:LWCP_v1:$bot"
GUIDE = Path(__file__).parents[2] / "docs" / "setup-dingtalk.md"
SPACES = {"IM_GROUP": "imGroupOpenDeliverModel", "IM_ROBOT": "imRobotOpenDeliverModel"}
VARIABLES = frozenset({"content", "buttons", "ask", "choice"})  # of the template that the guide describes
MESSAGE_BYTES = 15_000  # …/the-robot-sends-a-group-message: msgParam
# …/api-streamingupdate recommends "no more than 3 K in all" and takes more. From about 3,000 characters on, clients
# show a blank card (github.com/soimy/openclaw-channel-dingtalk/issues/615: Chinese ones, of 3 bytes).
CARD_CHARS, CARD_BYTES = 3 << 10, 9_000
VALUE_BYTES = 1 << 10  # …/create-and-deliver-cards: of a variable
UPLOAD_BYTES = 20 << 20  # …/upload-media-files
RECALL_SECONDS = 24 * 3600.0  # …/batch-message-recall-chat
QPS = 20.0  # calls of one method in a second: the error names no limit; integrators report 20 to 40

Files = dict[str, tuple[str, bytes]]


class Refusal(Exception):
    """A documented error."""

    def __init__(self, code: str, words: str = "", status: int = 400, **more: Any) -> None:
        super().__init__(code)
        self.code, self.words, self.status, self.more = code, words or code, status, more


@dataclass(slots=True)
class Card:
    """A card, identified by the outTrackId that the app chose. `state`: processing, typing, finished, failed."""

    template: str
    variables: dict[str, str]
    state: str = "processing"
    guids: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Shown:
    """A visible message of the bot: a card's delivery, or a message."""

    key: str
    chat: str
    text: str = ""
    card: str = ""
    pings: tuple[str, ...] = ()
    at: float = field(default_factory=time.time)


class Methods:
    """One Python method per platform method, named `m_…`; each returns the answer or raises Refusal."""

    recalls_cards = True
    enforce_rates = True
    calls_a_second = QPS

    def __init__(self) -> None:
        self.names = {JANE: "Jane", KIM: "Kim"}
        self.dissolved: set[str] = set()
        self.cards: dict[str, Card] = {}
        self.shown: list[Shown] = []
        self.media: Files = {}
        self.codes: Files = {}  # download code → file of a person
        self.heard: dict[str, str] = {}  # message id of a person → conversation
        self.reactions: dict[str, list[str]] = {}
        self.scopes = set(re.findall(r"`(qyapi_\w+|Card\.\w+\.\w+)`", GUIDE.read_text()))
        self._recent: dict[str, deque[float]] = {}

    def check(self, name: str, scope: str) -> None:
        """Refuse a call without its permission, or above the rate limit (…/server-api-error-codes-1)."""
        if scope and scope not in self.scopes:
            detail = {"requiredScopes": [scope]}
            code = "Forbidden.AccessDenied.AccessTokenPermissionDenied"
            raise Refusal(code, "no permission for this API", 403, accessdenieddetail=detail)
        now, recent = time.monotonic(), self._recent.setdefault(name, deque())
        while recent and now - recent[0] > 1:
            recent.popleft()
        recent.append(now)
        if self.enforce_rates and len(recent) > self.calls_a_second:
            raise Refusal("Forbidden.AccessDenied.QpsLimitForAppkeyAndApi", "too many calls", 403)

    # ------------------------------------------------------------ messages of the robot

    def m_group_send(self, body: Json, **_: Any) -> Json:
        """Send to a group (…/the-robot-sends-a-group-message). There is no idempotency key."""
        self._check_robot(body)
        return {"processQueryKey": self._show(self._group(body.get("openConversationId")), self._message_text(body))}

    def m_oto_send(self, body: Json, **_: Any) -> Json:
        """Send to persons (…/chatbots-send-one-on-one-chat-messages-in-batches): unknown ones are only listed."""
        if not body.get("userIds"):
            raise Refusal("invalidParameter.userIds.empty")
        if len(body["userIds"]) > 20:
            raise Refusal("invalidParameter.userIds.overMax")
        self._check_robot(body)
        text, key = self._message_text(body), ""
        for person in body["userIds"]:
            if person in self.names:
                key = self._show(f"@{person}", text)
        unknown = [person for person in body["userIds"] if person not in self.names]
        return {"processQueryKey": key, "invalidStaffIdList": unknown, "flowControlledStaffIdList": []}

    def _message_text(self, body: Json) -> str:
        """Check a message and return what people see (…/robot-message-type)."""
        param = body.get("msgParam")
        if not isinstance(param, str):
            raise Refusal("invalidParameter.msgParam.invalid")
        if len(param.encode()) > MESSAGE_BYTES:
            raise Refusal("invalidParameter.msgParam.tooLong")
        try:
            content = orjson.loads(param)
        except orjson.JSONDecodeError:
            raise Refusal("invalidParameter.msgParam.invalid") from None
        match body.get("msgKey"):
            case "sampleMarkdown":
                if not content.get("title") or not content.get("text"):
                    raise Refusal("miss.param.markdownTotitle")
                return str(content["text"])
            case "sampleFile":
                if content.get("mediaId") not in self.media or not content.get("fileName"):
                    raise Refusal("miss.param.file")
                return str(content["fileName"])
            case "sampleImageMsg":
                if content.get("photoURL") not in self.media:
                    raise Refusal("miss.param.photoTophotoUrl")
                return self.media[content["photoURL"]][0]
        raise Refusal("invalidParameter.msgKey.invalid")

    def m_group_recall(self, body: Json, **_: Any) -> Json:
        """Recall messages in a group (…/enterprise-chatbot-withdraws-internal-group-messages)."""
        return self._recall(body, self._group(body.get("openConversationId")))

    def m_oto_recall(self, body: Json, **_: Any) -> Json:
        """Recall messages to persons within 24 hours (…/batch-message-recall-chat)."""
        return self._recall(body, "@")

    def _recall(self, body: Json, chat: str) -> Json:
        self._check_robot(body)
        if not body.get("processQueryKeys"):
            raise Refusal("invalidParameter.processQueryKey.missing")
        if len(body["processQueryKeys"]) > 20:
            raise Refusal("invalidParameter.processQueryKeys.overMax")
        done, failed = [], {}
        for key in body["processQueryKeys"]:
            shown = next((one for one in self.shown if one.key == key and one.chat.startswith(chat)), None)
            if shown is None or (shown.card and not self.recalls_cards):
                raise Refusal("invalid.processQueryKey")
            if time.time() - shown.at > RECALL_SECONDS:
                failed[key] = "robot.processQueryKey.expired"
                continue
            self.shown.remove(shown)
            done.append(key)
        return {"successResult": done, "failedResult": failed}

    def m_react(self, body: Json, **_: Any) -> Json:
        """Add the reaction of the clients' own shape to a person's message (not documented; used by
        github.com/DingTalk-Real-AI/dingtalk-openclaw-connector)."""
        self._check_emotion(body).append(str(body["emotionName"]))
        return {"success": True}

    def m_unreact(self, body: Json, **_: Any) -> Json:
        given = self._check_emotion(body)
        if body["emotionName"] not in given:
            raise Refusal("param.invalid", "no such reaction")
        given.remove(body["emotionName"])
        return {"success": True}

    def _check_emotion(self, body: Json) -> list[str]:
        self._check_robot(body)
        if self.heard.get(str(body.get("openMsgId"))) != body.get("openConversationId"):
            raise Refusal("param.invalid", "message not found")
        if body.get("emotionType") != 2 or body["textEmotion"].keys() < {"emotionId", "emotionName", "text"}:
            raise Refusal("param.invalid", "emotionType")
        return self.reactions.setdefault(body["openMsgId"], [])

    # ------------------------------------------------------------ cards

    def m_card_create(self, body: Json, **_: Any) -> Json:
        """Create and deliver a card (…/create-and-deliver-cards)."""
        track, deliver = self._delivery(body)
        if not body.get("cardTemplateId"):
            raise Refusal("param.cardTemplateIdEmpty")
        if body["cardTemplateId"] != TEMPLATE:
            raise Refusal("param.templateNotExist")
        variables = (body.get("cardData") or {}).get("cardParamMap")
        if variables is None:
            raise Refusal("param.cardPublicDataEmpty")
        _check_variables(variables, VALUE_BYTES)
        if not isinstance((body.get("imGroupOpenSpaceModel") or {}).get("supportForward"), bool):
            raise Refusal("param.openSpaceModelInvalid")
        if track in self.cards:
            raise Refusal("param.cardAlreadyExist")
        self.cards[track] = Card(TEMPLATE, dict(variables))
        if body.get("callbackType") != "STREAM":
            self.cards[track].template = ""  # its buttons call nobody
        return {"success": True, "result": {"outTrackId": track, "deliverResults": deliver()}}

    def m_card_deliver(self, body: Json, **_: Any) -> Json:
        """Deliver a card (…/delivery-card-interface). Whether a second delivery to a chat is shown again is not
        documented: here it is."""
        track, deliver = self._delivery(body)
        if track not in self.cards:
            raise Refusal("param.cardNotExist")
        return {"success": True, "result": deliver()}

    def _delivery(self, body: Json) -> tuple[str, Any]:
        """Check the address of a card; return the card's id and the delivery."""
        track = str(body.get("outTrackId") or "")
        if not track:
            raise Refusal("param.outTrackIdEmpty")
        if not body.get("openSpaceId"):
            raise Refusal("param.openSpaceIdEmpty")
        found = re.fullmatch(r"dtv1\.card//(IM_GROUP|IM_ROBOT)\.(.+)", str(body["openSpaceId"]))
        if not found:
            raise Refusal("param.openSpaceIdInvalid")
        space, id = found[1], found[2]
        model = body.get(SPACES[space])
        if not model:
            raise Refusal("param.openDeliverModelEmpty")
        if model.get("robotCode") != CLIENT or (space == "IM_ROBOT" and model.get("spaceType") != "IM_ROBOT"):
            raise Refusal("param.openDeliverModelError")
        if body.get("userIdType", 1) != 1 or (space == "IM_ROBOT" and id not in self.names):
            raise Refusal("param.userIdNotExist")
        chat = self._group(id) if space == "IM_GROUP" else f"@{id}"

        def deliver() -> list[Json]:
            result: Json = {"spaceType": space, "spaceId": id, "success": True, "errorMsg": ""}
            return [{**result, "carrierId": self._show(chat, "", track, tuple(model.get("atUserIds") or ()))}]

        return track, deliver

    def m_card_stream(self, body: Json, **_: Any) -> Json:
        """Stream the text of a card (…/api-streamingupdate). A finished card takes no more frames: the page does not
        say so, but its states have no way back."""
        for name in ("key", "content", "guid"):
            if not body.get(name):
                raise Refusal(f"param.stream.{name}Empty")
        card = self.cards.get(str(body.get("outTrackId")))
        if card is None:
            raise Refusal("param.stream.outTrackId", "card is not exist")
        if body.get("isFull") is not True:  # the variable is Markdown
            raise Refusal("param.stream.isFull", "streaming update the parameter isFull is null")
        if body["key"] != "content":
            raise Refusal("param.stream.keyEmpty")
        if body["guid"] in card.guids:
            return {"success": True, "result": True}
        if card.state in ("finished", "failed"):
            raise Refusal("param.invalid", "the card is finished")
        card.guids.add(str(body["guid"]))
        card.variables["content"] = str(body["content"])
        card.state = "failed" if body.get("isError") else "finished" if body.get("isFinalize") else "typing"
        return {"success": True, "result": True}

    def m_card_update(self, body: Json, **_: Any) -> Json:
        """Set variables of a card in any state (…/interactive-card-update-interface). The page limits a value to 1 KB;
        DingTalk's own connector sets whole answers, so that the text may be as long as a streamed one."""
        if not body.get("outTrackId"):
            raise Refusal("param.outTrackIdEmpty")
        variables = (body.get("cardData") or {}).get("cardParamMap")
        if not variables:
            raise Refusal("param.cardDataAndPrivateDataBothEmpty")
        if body["outTrackId"] not in self.cards:
            raise Refusal("param.cardNotExist")
        _check_variables({name: value for name, value in variables.items() if name != "content"}, VALUE_BYTES)
        _check_variables({"content": variables.get("content", "")}, sys.maxsize)
        self.set_variables(body["outTrackId"], body)
        return {"success": True, "result": True}

    def set_variables(self, track: str, update: Json) -> None:
        """Apply an update, or the answer to a click: without `updateCardDataByKey` it replaces all variables."""
        card = self.cards[track]
        by_key = (update.get("cardUpdateOptions") or {}).get("updateCardDataByKey")
        card.variables = {**(card.variables if by_key else {}), **update["cardData"]["cardParamMap"]}

    # ------------------------------------------------------------ files

    def m_upload(self, query: Json, files: Files, **_: Any) -> Json:
        """Upload a file (…/upload-media-files). The page lists few types; DingTalk's own connector sends all."""
        if query.get("type") not in ("image", "voice", "video", "file") or "media" not in files:
            raise Refusal("40035", "unsupported parameter")
        name, data = files["media"]
        if not data or len(data) > UPLOAD_BYTES:
            raise Refusal("40006", "the file has no permitted size")
        media = f"@{uuid.uuid4().hex}"
        self.media[media] = (name, data)
        return {"errcode": 0, "errmsg": "ok", "media_id": media, "type": query["type"]}

    # ------------------------------------------------------------ state

    def _group(self, id: object) -> str:
        if id in self.dissolved:
            raise Refusal("group.disbanded")
        if not re.fullmatch(r"cidGROUP\d+==", str(id)):
            raise Refusal("invalid.openConversationId")
        return str(id)

    def _check_robot(self, body: Json) -> None:
        if body.get("robotCode") != CLIENT:
            raise Refusal("invalidParameter.robotCode.notExsit")

    def _show(self, chat: str, text: str, card: str = "", pings: tuple[str, ...] = ()) -> str:
        self.shown.append(Shown(uuid.uuid4().hex, chat, text, card, pings))
        return self.shown[-1].key

    def text_of(self, shown: Shown) -> str:
        """Return what people see: a card shows <br> as a line break, a choice below, and a long text not at all."""
        if not shown.card:
            return shown.text
        card = self.cards[shown.card]
        if card.state == "processing" and not card.variables.get("content"):
            return "(processing)"
        if card.state == "failed":
            return "(failed)"
        text = card.variables.get("content", "")
        if len(text) > CARD_CHARS or len(text.encode()) > CARD_BYTES:
            return ""
        text = text.replace("<br>", "\n")
        return f"{text}\n{card.variables['choice']}" if card.variables.get("choice") else text

    def visible(self, chat: str) -> list[str]:
        """The bot's visible messages in a chat: a group's conversation id, or "@" and a person's id."""
        return [self.text_of(shown) for shown in self.shown if shown.chat == chat]

    def pinged(self, chat: str) -> list[str]:
        return [person for shown in self.shown if shown.chat == chat for person in shown.pings]

    def buttons(self, shown: Shown) -> list[Json]:
        """The buttons of a card. They exist only in a finished one (…/ai-card-template)."""
        card = self.cards.get(shown.card)
        if card is None or card.state != "finished":
            return []
        buttons: list[Json] = orjson.loads(card.variables.get("buttons") or "[]")
        return buttons


def _check_variables(variables: Json, limit: int) -> None:
    for name, value in variables.items():
        if name not in VARIABLES or not isinstance(value, str) or len(value.encode()) > limit:
            raise Refusal("param.invalid", f"{name}: {len(str(value))} characters")
