"""CardKit calls: create cards and change them with rising sequence numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import orjson

from channels.base import OutcomeUnknown, Refused, TryLater
from channels.feishu.api import ApiRefusal, FeishuApi

SEQUENCE_EPOCH = 1_767_225_600.0  # 2026-01-01
MAX_KNOWN_CARDS = 2_000  # kept in memory; others are looked up
STALE_SEQUENCE_CODE = 300317  # the sequence number is not above the last one
SEQUENCE_STEPS = (1, 3_000, 36_000, 864_000)  # next; five minutes, an hour, a day: for a clock that was set back


@dataclass(slots=True)
class CardEntity:
    """A card entity and the sequence number of its last change."""

    id: str
    sequence: int = 0


class CardApi:
    """The cards of messages, by message id. Raises ChannelError.

    Every change of a card needs a higher int32 sequence number, also after a restart. The number is the time in tenths
    of a second, which needs no store: a card takes at most ten changes a second, so its numbers never run far ahead of
    the clock. The numbers restart every seven years; a card can be changed for 14 days.
    """

    def __init__(self, api: FeishuApi) -> None:
        self._api = api
        self._known: dict[str, CardEntity] = {}

    async def create_card(self, json: Any) -> str:
        """Create a card entity that no message shows yet; return its id."""
        body = {"type": "card_json", "data": dump_json(json)}
        try:
            return str((await self._api("POST", "cardkit/v1/cards", body))["card_id"])
        except OutcomeUnknown as error:  # invisible so far, so that another one may be created
            raise TryLater(str(error)) from None

    def remember_card(self, message_id: str, card_id: str) -> None:
        """Store which card a message shows."""
        self._known[message_id] = CardEntity(card_id)
        if len(self._known) > MAX_KNOWN_CARDS:
            del self._known[next(iter(self._known))]

    async def find_card(self, message_id: str) -> str:
        """Ask the platform for the card of a message. Raises Refused when it shows none."""
        card_id = str((await self._api("POST", "cardkit/v1/cards/id_convert", {"message_id": message_id}))["card_id"])
        self.remember_card(message_id, card_id)
        return card_id

    async def replace_card(self, message_id: str, json: Any) -> None:
        """Replace the whole card of a message."""
        await self._change_card(message_id, "PUT", "", {"card": {"type": "card_json", "data": dump_json(json)}})

    async def stream_text(self, message_id: str, element: str, text: str) -> None:
        """Set the whole text of an element. Raises Refused when the card no longer streams."""
        await self._change_card(message_id, "PUT", f"/elements/{element}/content", {"content": text})

    async def change_settings(self, message_id: str, config: Any) -> None:
        """Change only the settings of a card."""
        await self._change_card(message_id, "PATCH", "/settings", {"settings": dump_json({"config": config})})

    async def replace_element(self, message_id: str, element: str, json: Any) -> None:
        """Replace one element of a card."""
        await self._change_card(message_id, "PUT", f"/elements/{element}", {"element": dump_json(json)})

    async def _change_card(self, message_id: str, method: str, path: str, body: dict[str, Any]) -> None:
        if message_id not in self._known:
            await self.find_card(message_id)
        card = self._known[message_id]
        for step in SEQUENCE_STEPS:
            card.sequence = max(card.sequence + step, int((time.time() - SEQUENCE_EPOCH) * 10) % 2**31)
            try:
                await self._api(method, f"cardkit/v1/cards/{card.id}{path}", {**body, "sequence": card.sequence})
            except ApiRefusal as error:
                if error.code != STALE_SEQUENCE_CODE:
                    raise
            else:
                return
        raise Refused("Feishu takes no more changes of this card")


def dump_json(json: Any) -> str:
    """Return JSON as text, as the platform wants it inside of JSON."""
    return orjson.dumps(json).decode()
