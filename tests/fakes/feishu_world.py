"""The state of the fake Feishu: chats, messages, cards, files, and their visible form."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.fakes.server import Json

APP, SECRET = "cli_a0123456789abcde", "s3cretOfTheApp"
TENANT = "tenant0001"
BOT, JANE, KIM = "ou_bot", "ou_jane", "ou_kim"
DIRECT, GROUP = "oc_direct", "oc_group"

CARD_BYTES = 30 * 1024
CARD_TABLES = 5
EDITS = 20
_ELEMENT = re.compile(r"[A-Za-z]\w{0,19}")
_AT = re.compile(r"<at id=[\"']?([\w-]+)[\"']?>\s*</at>")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)]*)\)")


class Refusal(Exception):
    """An error response of the platform."""

    def __init__(self, code: int, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self.status = status


@dataclass(slots=True)
class Said:
    """A message."""

    id: str
    chat: str
    sender: str  # an open id, or the app's id
    kind: str
    content: Json
    time: int  # milliseconds
    root: str = ""
    parent: str = ""
    thread: str = ""
    mentions: list[Json] = field(default_factory=list)
    uuid: str = ""
    deleted: bool = False
    edits: int = 0
    card: str = ""
    inside: str = ""  # the bundle it was forwarded in
    reactions: list[tuple[str, str]] = field(default_factory=list)  # (person, emoji)


_PERSON = re.compile(r"<person id='([\w-]+)'[^<>]*></person>")  # a name that notifies nobody
_TAGS = frozenset({"markdown", "div", "collapsible_panel", "column_set", "column", "button", "hr", "img"})
_BUTTON_TYPES = frozenset({"default", "primary", "danger", "text", "primary_text", "danger_text", "primary_filled"})


@dataclass(slots=True)
class Card:
    """A card entity."""

    json: Json
    sequence: int = 0
    sent: bool = False
    writes: list[str] = field(default_factory=list)  # texts that were streamed
    at: list[float] = field(default_factory=list)  # times of its changes

    @property
    def streaming(self) -> bool:
        return bool(self.json.get("config", {}).get("streaming_mode"))

    def elements(self) -> list[Json]:
        """Return every element, with those in panels and columns."""
        return _flat(self.json["body"]["elements"])

    def element(self, element_id: str) -> Json:
        for element in self.elements():
            if element.get("element_id") == element_id:
                return element
        raise Refusal(300313, "element not found")

    def folded(self) -> list[str]:
        """Return title and texts of the collapsed panels."""
        panels = [element for element in self.elements() if element["tag"] == "collapsible_panel"]
        return [
            text
            for panel in panels
            if not panel["expanded"]
            for text in (panel["header"]["title"]["content"], *(each["text"]["content"] for each in panel["elements"]))
        ]


def _flat(elements: list[Json]) -> list[Json]:
    found: list[Json] = []
    for element in elements:
        found += [element, *_flat(element.get("elements", [])), *_flat(element.get("columns", []))]
    return found


def checked(text: str) -> Json:
    """Validate a card's JSON. Raises Refusal.

    Of the components (open.feishu.cn/document/feishu-cards/card-json-v2-components) it knows those that Fawn uses; the
    types of a button are on the page interactive-components/button there.
    """
    json: Json = orjson.loads(text)
    if json.get("schema") != "2.0" or not isinstance(json.get("body", {}).get("elements"), list):
        raise Refusal(200610, "body is nil")
    if json.get("config", {}).get("update_multi") is False:
        raise Refusal(300120, "update_multi must be true")
    if len(text.encode()) > CARD_BYTES:
        raise Refusal(200860, "card over max size")
    known: set[str] = set()
    for element in _flat(json["body"]["elements"]):
        if element["tag"] not in _TAGS or (
            element["tag"] == "button" and element.get("type", "default") not in _BUTTON_TYPES
        ):
            raise Refusal(300301, f"bad element {element['tag']}")
        if element["tag"] == "collapsible_panel" and not element.get("header", {}).get("title", {}).get("content"):
            raise Refusal(300301, "a panel without a title")
        if element_id := element.get("element_id"):
            if not _ELEMENT.fullmatch(element_id) or element_id in known:
                raise Refusal(300301, f"bad element id {element_id}")
            known.add(element_id)
    checked_text("\n".join(str(element.get("content", "")) for element in _flat(json["body"]["elements"])))
    return json


def checked_text(text: str) -> None:
    """Validate the Markdown of a card. Raises Refusal."""
    prose = re.sub(r"(?ms)^( *)(`{3,}|~{3,}).*?^ *\2 *$", "", text)
    if len(re.findall(r"(?m)^.*\|.*\n[ >]*\|?( *:?-+:? *\|)+.*$", prose)) > CARD_TABLES:
        raise Refusal(230099, "Failed to create card content, ext=ErrCode: 11310; ErrMsg: card table number over limit")
    if any(not link.startswith("img_") for link in _IMAGE.findall(re.sub(r"`[^`\n]*`", "", prose))):
        raise Refusal(230099, "Failed to create card content, ext=ErrCode: 11311; ErrMsg: invalid image keys")


# Permissions of which one allows a method; each is on the method's page under open.feishu.cn/document/server-docs
_MESSAGE = frozenset({"im:message"})
_READ = _MESSAGE | {"im:message:readonly"}
_SEND = _MESSAGE | {"im:message:send_as_bot"}
_CONTACT = {"access_as_app", "readonly", "readonly_as_app"}
SCOPES: dict[str, frozenset[str]] = {
    "message.send": _SEND,
    "message.list": _READ,
    "message.get": _READ,
    "message.update": _SEND | {"im:message:update"},
    "message.recall": _SEND | {"im:message:recall"},
    "reaction": _MESSAGE | {"im:message.reactions:write_only"},
    "reaction.delete": _MESSAGE | {"im:message.reactions:write_only"},
    "resource": _READ,
    "chat": frozenset({"im:chat", "im:chat:read", "im:chat:readonly"}),
    "file.upload": frozenset({"im:resource", "im:resource:upload"}),
    "user": frozenset({"contact:contact.base:readonly", *(f"contact:contact:{each}" for each in _CONTACT)}),
    "card.find": frozenset({"cardkit:card:read"}),
    **dict.fromkeys(("card.create", "card.replace", "card.settings"), frozenset({"cardkit:card:write"})),
    **dict.fromkeys(("card.element", "card.write"), frozenset({"cardkit:card:write"})),
}
GUIDE = Path(__file__).parents[2] / "docs" / "setup-feishu.md"


def guide_scopes() -> set[str]:
    """Return the permissions that the guide asks for."""
    [block] = re.findall(r"(?s)```json\n(.*?)```", GUIDE.read_text())
    return set(orjson.loads(block)["scopes"]["tenant"])


REACTIONS = ("im.message.reaction.created_v1", "im.message.reaction.deleted_v1")
REACTION_SCOPES = _READ | {"im:message.reactions:read"}  # …/server-docs/im-v1/message-reaction/events/created


def guide_events() -> set[str]:
    """Return the events and callbacks that the guide subscribes to."""
    return set(re.findall(r"`((?:im|application|card)\.[\w.]+)`", GUIDE.read_text()))


class World:
    """The state of the tenant."""

    def __init__(self) -> None:
        self.names = {JANE: "Jane", KIM: "Kim"}
        self.statuses: dict[str, dict[str, bool]] = {}  # person → what differs from an active account
        self.chats: dict[str, str] = {DIRECT: "p2p", GROUP: "group"}  # → its mode
        self.messages: dict[str, Said] = {}  # in order of time
        self.cards: dict[str, Card] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.scopes = guide_scopes()  # what the app may do
        self.events = guide_events()  # that the app has subscribed to
        self.denied: set[str] = set()  # names of methods that are refused all the same
        self.clicks: dict[str, tuple[Card, Json]] = {}  # clicks without an answer → the card, and what it showed
        self._times: int = 0

    def now(self) -> int:
        """Return unique milliseconds, so that messages are ordered by time."""
        self._times = max(self._times + 1, int(time.time() * 1000))
        return self._times

    def add(self, chat: str, sender: str, kind: str, content: Json, **more: Any) -> Said:
        made = Said(f"om_{uuid.uuid4().hex}", chat, sender, kind, content, self.now(), **more)
        self.messages[made.id] = made
        return made

    def reply_to(self, parent: Said, in_thread: bool) -> Json:
        """Return where an answer to `parent` belongs."""
        root = parent.root or parent.id
        if in_thread and not self.messages[root].thread:
            self.messages[root].thread = f"omt_{root[3:19]}"
        thread = parent.thread or (self.messages[root].thread if in_thread else "")
        return {"root": root, "parent": root if thread else parent.id, "thread": thread}

    def may_call(self, method: str) -> bool:
        return method not in self.denied and (method not in SCOPES or bool(SCOPES[method] & self.scopes))

    def end_click(self, event_id: str, answer: Json | None) -> None:
        """Show the card of the answer to a click; without one, the card that was clicked."""
        if clicked := self.clicks.pop(event_id, None):
            card, before = clicked
            new = (answer or {}).get("card")
            if new and new["type"] != "raw":
                raise Refusal(200673, "the card of the answer is invalid")
            card.json = checked(orjson.dumps(new["data"]).decode()) if new else before
            for other, (clicked_card, _) in self.clicks.items():
                if clicked_card is card:
                    self.clicks[other] = card, card.json

    # ------------------------------------------------------------ visible messages

    def bot_messages(self, chat: str, root: str = "") -> list[Said]:
        """The bot's messages, in a topic or outside of all."""
        return [
            said
            for said in self.messages.values()
            if (said.sender, said.chat, said.deleted) == (APP, chat, False)
            and (said.root if said.thread else "") == root
        ]

    def visible(self, chat: str = DIRECT, root: str = "") -> list[str]:
        """The bot's messages as text."""
        return [self.shown(said) for said in self.bot_messages(chat, root)]

    def shown(self, said: Said) -> str:
        match said.kind:
            case "interactive":
                folded = set(self.cards[said.card].folded())
                elements = self.cards[said.card].elements()
                texts = [element.get("text", element) for element in elements if element["tag"] in ("markdown", "div")]
                lines = [str(text["content"]) for text in texts if text["content"] not in folded]
            case "text":
                lines = [str(said.content["text"])]
            case "post":
                parts = [part for line in said.content["zh_cn"]["content"] for part in line]
                lines = [self.files[part["image_key"]][0] if part["tag"] == "img" else part["text"] for part in parts]
            case _:
                key = str(said.content.get("file_key") or said.content.get("image_key"))
                lines = [self.files[key][0]]
        text = "\n\n".join(line for line in lines if line)
        text = _AT.sub(lambda found: f"@{self.names.get(found[1], found[1])}", text)
        text = _PERSON.sub(lambda found: self.names.get(found[1], found[1]), text)
        return text.replace("\u200b", "").strip()

    def folded(self, chat: str = DIRECT, root: str = "") -> list[str]:
        """The lines of the collapsed panels in the bot's cards, with their titles."""
        cards = [self.cards[said.card] for said in self.bot_messages(chat, root) if said.card]
        return [line for card in cards for text in card.folded() for line in text.split("\n")]

    def pinged(self, chat: str = DIRECT, root: str = "") -> list[str]:
        """Return whom the bot's messages notified by name."""
        found: list[str] = []
        for said in self.bot_messages(chat, root):
            raw = orjson.dumps(self.cards[said.card].json if said.card else said.content).decode()
            found += re.findall(r"<at (?:id|user_id)=[\\\"']*([\w-]+)", raw)
        return found

    def buttons(self, chat: str = DIRECT, root: str = "") -> list[Json]:
        """The buttons of the bot's last card."""
        shown = [said for said in self.bot_messages(chat, root) if said.card]
        return [e for e in self.cards[shown[-1].card].elements() if e["tag"] == "button"] if shown else []

    def reactions(self, message_id: str) -> list[str]:
        """The bot's reactions on a message."""
        return [emoji for who, emoji in self.messages[message_id].reactions if who == APP]
