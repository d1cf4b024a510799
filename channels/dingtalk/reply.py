"""Post a reply on DingTalk: AI cards that stream, or messages of the robot without a card template.

Cards: open.dingtalk.com/document/development/create-and-deliver-cards, …/api-streamingupdate and
…/interactive-card-update-interface. Messages: …/robot-message-type.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.blocks import Ask, Final, View
from agent.messages import Thread
from catalogue import _
from channels.base import (
    ChannelError,
    MayPass,
    OutcomeUnknown,
    Refused,
    SentMessages,
    TryLater,
    Unconfirmed,
    find_sent_message,
)
from channels.dingtalk import DingTalkSettings
from channels.dingtalk.api import DingTalkApi, DingTalkChatGone, DingTalkRefusal
from channels.shared import reply_layout, texts
from channels.shared.markdown import images_as_links, split_markdown
from channels.shared.posts import MAX_POSTS, UNCONFIRMED
from channels.shared.reply_layout import button_labels, lay_out
from channels.shared.reply_writer import MessageMissing, MessageRenderer
from channels.shared.robot_chats import is_group

log = logging.getLogger(__name__)

# Of a card's text: 3 K in ASCII, as DingTalk recommends, or 2,500 Chinese characters. From about 3,000 on, clients show
# a blank card, and the call still succeeds (soimy/openclaw-channel-dingtalk#615; its mend, #624, stays at 2,500, too).
MAX_CARD_CHARS = 3_000
CARD_UNITS = 5  # of a character of ASCII; each byte of others counts as 2
MAX_TEXT_BYTES = 14_000  # of a message of the robot: 15,000 with its title
MAX_HEAD_BYTES = 1_200  # of plan and steps above the text
MAX_VALUE_BYTES = 1_000  # of a variable of a card
NOT_ASCII = bytes(range(0x80, 0x100))
MAX_LABEL_CHARS = 60  # of a button
PLAIN = "message:"  # begins the handle of a message of the robot
NO_BUTTONS = {"buttons": "[]", "ask": "", "choice": ""}
_STARTS_BLOCK = re.compile(r"\s*(?:[-*+] |\d+[.)] |#{1,6} |>|\||[-*_]{3}|```|$)| {4}|\t")
_ENDS_BLOCK = re.compile(r"\s*(?:#{1,6} |\||[-*_]{3}|```|$)")


@dataclass(frozen=True, slots=True)
class DingTalkMessage:
    """One message: a card that streams unless it is `final`, or a `plain` message of the robot."""

    text: str
    ask_id: str = ""
    options: tuple[str, ...] = ()
    command: str = ""  # the data of a button that sends a command
    mention: str = ""  # the id of the person to notify
    final: bool = False
    plain: bool = False


class RobotMessenger:
    """Posts messages of the robot into a chat. They cannot be changed, and have no idempotency key."""

    def __init__(self, api: DingTalkApi, settings: DingTalkSettings, thread: Thread) -> None:
        self.api = api
        self.settings = settings
        self.thread = thread

    async def send_message(self, kind: str, content: Mapping[str, str]) -> str:
        """Post a message and return its id for a recall."""
        body: dict[str, Any] = {
            "robotCode": self.settings.robot,
            "msgKey": kind,
            "msgParam": orjson.dumps(content).decode(),
        }
        if is_group(self.thread):
            body["openConversationId"] = self.thread.chat
            return str((await self.api("POST", "/v1.0/robot/groupMessages/send", body))["processQueryKey"])
        body["userIds"] = [self.thread.chat[1:]]
        answer = await self.api("POST", "/v1.0/robot/oToMessages/batchSend", body)
        if answer.get("flowControlledStaffIdList"):
            raise TryLater("DingTalk limits the messages to this person", 10.0)
        if answer.get("invalidStaffIdList"):
            raise DingTalkChatGone("invalidStaffIdList", "the person is not in the organization")
        return str(answer["processQueryKey"])

    async def send_text(self, text: str) -> str:
        """Post Markdown; its title is shown in the list of chats and in notifications."""
        return await self.send_message("sampleMarkdown", {"title": texts.shorten(text, 40) or "…", "text": text})

    async def recall_message(self, key: str) -> None:
        """Take a message back. Raises Refused after 24 hours."""
        body: dict[str, Any] = {"robotCode": self.settings.robot, "processQueryKeys": [key]}
        path = "/v1.0/robot/otoMessages/batchRecall"
        if is_group(self.thread):
            path, body["openConversationId"] = "/v1.0/robot/groupMessages/recall", self.thread.chat
        if failed := (await self.api("POST", path, body)).get("failedResult"):
            reason = ", ".join(map(str, failed.values()))
            raise Refused(_("DingTalk did not recall the message ({reason}).", reason=reason))


class DingTalkRenderer(MessageRenderer[DingTalkMessage]):
    """Renders and posts the messages of one reply.

    The stored id of a card is "outTrackId/processQueryKey": Fawn chooses the first before it posts, the second serves
    for a recall. The id of a message of the robot is "/processQueryKey".
    """

    def __init__(self, sender: RobotMessenger, posts: SentMessages, names: Mapping[str, str]) -> None:
        self._sender = sender
        self._api = sender.api
        self._settings = sender.settings
        self._thread = sender.thread
        self._key = posts.key
        self._posts = posts
        self._names = names
        self._unknown = {post.index for post in posts.known if post.id is None}
        self._streaming: set[str] = set()  # cards of this process without buttons that are not final

    # ------------------------------------------------------------ rendering

    def render(self, view: View) -> list[DingTalkMessage]:
        """Render a running turn; nothing without cards, because messages of the robot cannot be changed."""
        if not self._settings.card_template_id:
            return []
        head = reply_layout.live_head(view, MAX_HEAD_BYTES, _text_bytes)
        text = "\n\n".join(filter(None, (head, view.text, reply_layout.notice_line(view))))
        return [DingTalkMessage(chunk) for chunk in _split_cards(text)]

    def render_final(self, final: Final) -> list[DingTalkMessage]:
        """Render the answer and a line about its steps.

        The options of an open question are buttons on its last card, as is Retry under a failure.
        """
        has_cards = bool(self._settings.card_template_id)
        parts: list[DingTalkMessage] = []
        for text, ask in lay_out(final, self._fits, MAX_LABEL_CHARS, reply_layout.summary_line(final)):
            chunks = (
                _split_cards(text) if has_cards else split_markdown(images_as_links(text), MAX_TEXT_BYTES, _text_bytes)
            )
            parts += [DingTalkMessage(chunk, final=True, plain=not has_cards) for chunk in chunks]
            if ask:
                parts[-1] = replace(parts[-1], ask_id=ask.id, options=ask.options)
        if parts and has_cards:
            parts[-1] = replace(parts[-1], command=reply_layout.final_button(final, self._key))
        if parts and final.mention and is_group(self._thread):
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def _fits(self, ask: Ask) -> bool:
        has_cards = bool(self._settings.card_template_id and ask.options)
        return has_cards and len(_buttons_json(ask.options).encode()) <= MAX_VALUE_BYTES

    def placeholder(self) -> DingTalkMessage | None:
        """Return a card without text, which DingTalk shows as being processed."""
        return DingTalkMessage("") if self._settings.card_template_id else None

    def repeat(self, part: DingTalkMessage) -> DingTalkMessage:
        return replace(part, text=f"{_(texts.REPEAT_MARK)}\n\n{part.text}")

    def plain(self, part: DingTalkMessage) -> DingTalkMessage:
        text = texts.with_options(part.text, part.options) if part.options else part.text
        return replace(part, text=text, ask_id="", options=(), command="", plain=True)

    # ------------------------------------------------------------ calls

    async def prepare_post(self, part: DingTalkMessage, index: int) -> str:
        """Return the handle of a message, which counts its posts: DingTalk recognizes only a repeated card."""
        earlier = find_sent_message(self._posts, index)
        unknown = earlier.handle.removeprefix(PLAIN) if earlier and not earlier.id else ""
        posts = int(unknown) if unknown.isdecimal() else 0
        if not part.plain:
            if posts:
                raise Refused("a message of the robot may stand in place of the card")
            return ""
        if posts >= MAX_POSTS:
            raise Unconfirmed(UNCONFIRMED.format(n=posts))
        return f"{PLAIN}{posts + 1}"

    async def post(self, part: DingTalkMessage, index: int, replaced: str) -> str:
        try:
            if part.plain:  # after a card of unknown outcome, it may repeat that
                shown = self.repeat(part) if self._settings.card_template_id and index in self._unknown else part
                return f"/{await self._sender.send_text(shown.text)}"
            return await self._post_card(part, index, replaced)
        except OutcomeUnknown:
            self._unknown.add(index)
            raise

    async def _post_card(self, part: DingTalkMessage, index: int, replaced: str) -> str:
        """Create a card and stream its text into it.

        The outTrackId is the same in every attempt and process: DingTalk refuses to create the card twice. Then an
        earlier attempt of unknown outcome has delivered it, or it exists without being delivered.
        """
        seed = f"{self._thread} {self._key} {index} {replaced}"
        track = f"{self._key}-{hashlib.blake2b(seed.encode(), digest_size=12).hexdigest()}"
        space, deliver = self._delivery(part)
        card = {
            "cardTemplateId": self._settings.card_template_id,
            "cardData": {"cardParamMap": {"content": "", **NO_BUTTONS}},
            "callbackType": "STREAM",
            "imGroupOpenSpaceModel": {"supportForward": True},
            "imRobotOpenSpaceModel": {"supportForward": True},
        }
        address = {"outTrackId": track, "openSpaceId": space, "userIdType": 1, **deliver}
        key, is_new = "", True
        try:
            answer = await self._api("POST", "/v1.0/card/instances/createAndDeliver", {**card, **address})
            key = _delivered_key((answer.get("result") or {}).get("deliverResults") or ())
        except DingTalkRefusal as error:
            if error.code != "param.cardAlreadyExist":
                raise
            is_new = index not in self._unknown
            if is_new:
                answer = await self._api("POST", "/v1.0/card/instances/deliver", address)
                key = _delivered_key(answer.get("result") or ())
        if is_new:  # an earlier attempt may have finished the card
            self._streaming.add(track)
        try:
            if part.text:
                await self._change_card(track, part)
        except Refused:
            if not is_new and not part.final:
                return f"{track}/{key}"  # it shows what the earlier attempt wrote
            await self._take_back(track, key)
            raise
        except ChannelError as error:  # the card is visible, its text is not
            raise OutcomeUnknown(str(error)) from None
        return f"{track}/{key}"

    async def _take_back(self, track: str, key: str) -> None:
        """Recall a card that was refused its text. Raises OutcomeUnknown if it may still stand there."""
        try:
            if key:
                await self._sender.recall_message(key)
        except Refused as error:
            log.info("dingtalk.not_recalled card=%s reason=%s", track, error)
        except ChannelError as error:
            raise OutcomeUnknown(str(error)) from None

    def _delivery(self, part: DingTalkMessage) -> tuple[str, dict[str, Any]]:
        """Return the address of a card, and how to deliver it. A mention notifies only with the delivery."""
        if not is_group(self._thread):
            model = {"spaceType": "IM_ROBOT", "robotCode": self._settings.robot}
            return f"dtv1.card//IM_ROBOT.{self._thread.chat[1:]}", {"imRobotOpenDeliverModel": model}
        group: dict[str, Any] = {"robotCode": self._settings.robot}
        if part.mention:
            group["atUserIds"] = {part.mention: self._names.get(part.mention, part.mention)}
        return f"dtv1.card//IM_GROUP.{self._thread.chat}", {"imGroupOpenDeliverModel": group}

    async def edit(self, message_id: str, part: DingTalkMessage) -> None:
        track = message_id.partition("/")[0]
        if not track:
            raise Refused(_("DingTalk cannot change a message of the robot."))
        try:
            await self._change_card(track, part)
        except DingTalkRefusal as error:
            if error.code in ("param.cardNotExist", "param.stream.outTrackId"):
                raise MessageMissing(str(error)) from None
            raise

    async def _change_card(self, track: str, part: DingTalkMessage) -> None:
        """Stream the whole text. The last frame finishes the card; buttons are variables, set before it.

        A card of an earlier process, or whose last frame got no answer, may be finished already and have buttons: its
        variables are set, the text too. `isError` is never used, because it shows DingTalk's own text instead.
        """
        is_streaming, text = track in self._streaming, card_markdown(part.text)
        has_buttons = bool(part.options or part.command)
        if part.final and (has_buttons or not is_streaming):
            variables = NO_BUTTONS if is_streaming else {"content": text, **NO_BUTTONS}
            if has_buttons:
                ask = orjson.dumps({"id": part.ask_id, "chat": self._thread.chat}).decode()
                variables = {**variables, "buttons": _buttons_json(part.options, part.command), "ask": ask}
            data = {"cardData": {"cardParamMap": variables}, "cardUpdateOptions": {"updateCardDataByKey": True}}
            await self._api("PUT", "/v1.0/card/instances", {"outTrackId": track, **data})
        if part.final:
            self._streaming.discard(track)
        frame = {"outTrackId": track, "guid": uuid.uuid4().hex, "key": "content", "content": text, "isFull": True}
        try:
            await self._api("PUT", "/v1.0/card/streaming", {**frame, "isFinalize": part.final, "isError": False})
        except DingTalkRefusal:
            if is_streaming or not part.final:
                raise  # else the card is finished, and its variable has the text

    async def delete(self, message_id: str) -> None:
        track, _, key = message_id.partition("/")
        try:
            if key:
                await self._sender.recall_message(key)
                return
        except Refused:  # too old to be recalled
            if not track:
                raise
        await self._change_card(track, DingTalkMessage("·", final=True))


def clicked_card(choice: str) -> dict[str, Any]:
    """Return the answer to a click that shows the choice in place of the buttons; "" removes only the buttons."""
    variables = {"buttons": "[]"} | ({"choice": texts.shorten(choice, 200)} if choice else {})
    return {"cardUpdateOptions": {"updateCardDataByKey": True}, "cardData": {"cardParamMap": variables}}


def card_markdown(text: str) -> str:
    """Convert Markdown for a card: it shows a line break only as <br>, and a table only after a blank line."""
    lines, in_fence = text.split("\n"), False
    kept = lines[:1]
    for before, line in itertools.pairwise(lines):
        in_fence ^= before.lstrip().startswith("```")
        if in_fence or _STARTS_BLOCK.match(line) or _ENDS_BLOCK.match(before):
            starts_table = not in_fence and line.startswith("|") and before.strip() and not before.startswith("|")
            kept.append("\n\n" if starts_table else "\n")
        else:
            kept.append("<br>")
        kept.append(line)
    return "".join(kept)


def _text_bytes(text: str) -> int:
    """Return the size of a text as JSON, with its line breaks as <br>."""
    return len(orjson.dumps(text)) + 3 * (text.count("\n") + 1)


def _card_units(text: str) -> int:
    """Return the size of a text for a card, with its line breaks as <br>."""
    payload = orjson.dumps(text)
    ascii_chars = len(payload.translate(None, NOT_ASCII))
    return CARD_UNITS * (ascii_chars + 3 * (text.count("\n") + 1)) + 2 * (len(payload) - ascii_chars)


def _split_cards(text: str) -> list[str]:
    return split_markdown(images_as_links(text), CARD_UNITS * MAX_CARD_CHARS, _card_units)


def _buttons_json(options: tuple[str, ...], command: str = "") -> str:
    labels = button_labels(options, MAX_LABEL_CHARS)
    shown = [{"text": label, "value": option} for label, option in zip(labels, options, strict=True)]
    if command:
        shown.append({"text": reply_layout.button_label(command), "value": command})
    return orjson.dumps(shown).decode()


def _delivered_key(results: Any) -> str:
    """Return the key of a delivered card. Raises Refused if it was not delivered."""
    for result in results:
        if not result.get("success"):
            raise MayPass(_("DingTalk did not deliver the card ({reason}).", reason=result.get("errorMsg")))
    return next((str(result.get("carrierId") or "") for result in results), "")
