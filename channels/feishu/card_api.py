"""CardKit calls: create cards and change them in rising sequence."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import orjson

from channels.base import OutcomeUnknown, Refused, TryLater
from channels.feishu.api import ApiRefusal, FeishuApi

SEQUENCE_EPOCH = 1_767_225_600.0  # 2026-01-01
MAX_KNOWN_CARDS = 2_000  # cards remembered; any other is looked up
STALE_SEQUENCE_CODE = 300317  # the sequence is not above the last one
SEQUENCE_LEAPS = (
    1,
    3_000,
    36_000,
    864_000,
)  # the next one; five minutes, an hour, a day: for a clock that was set back


@dataclass(slots=True)
class CardEntity:
    """An entity and the sequence of its last change."""

    id: str
    sequence: int = 0


class CardApi:
    """Cards by the message that shows them. Raises ChannelError.

    The platform wants a strictly rising int32 with every change of a card, also after a restart. It is the time in
    tenths of a second, which needs no store: a card takes ten changes a second at most, so that the clock is never
    behind by more than the changes of a moment. It begins anew every seven years, a card can be changed for 14 days.
    """

    def __init__(self, calls: FeishuApi) -> None:
        self._calls = calls
        self._known: OrderedDict[str, CardEntity] = OrderedDict()

    async def create_entity(self, json: Any) -> str:
        """A new entity, not shown anywhere yet; gives its id."""
        body = {"type": "card_json", "data": _dump_json(json)}
        try:
            return str((await self._calls("POST", "cardkit/v1/cards", body))["card_id"])
        except OutcomeUnknown as error:  # nobody sees it yet: another one may be made
            raise TryLater(str(error)) from None

    def remember(self, message_id: str, card_id: str) -> None:
        """This message shows this card."""
        self._known[message_id] = CardEntity(card_id)
        while len(self._known) > MAX_KNOWN_CARDS:
            self._known.popitem(last=False)

    async def find_entity(self, message_id: str) -> str:
        """The card that a message shows, asked of the platform. Raises Refused where it shows none."""
        card_id = str((await self._calls("POST", "cardkit/v1/cards/id_convert", {"message_id": message_id}))["card_id"])
        self.remember(message_id, card_id)
        return card_id

    async def replace_card(self, message_id: str, json: Any) -> None:
        """Show another card in a message."""
        await self._change_entity(message_id, "PUT", "", {"card": {"type": "card_json", "data": _dump_json(json)}})

    async def write_text(self, message_id: str, element: str, text: str) -> None:
        """The whole text of an element of a card that streams; refused when it does not any more."""
        await self._change_entity(message_id, "PUT", f"/elements/{element}/content", {"content": text})

    async def change_settings(self, message_id: str, config: Any) -> None:
        """Change a card's settings only."""
        await self._change_entity(message_id, "PATCH", "/settings", {"settings": _dump_json({"config": config})})

    async def replace_element(self, message_id: str, element: str, json: Any) -> None:
        """Another element in the place of one."""
        await self._change_entity(message_id, "PUT", f"/elements/{element}", {"element": _dump_json(json)})

    async def _change_entity(self, message_id: str, method: str, path: str, body: dict[str, Any]) -> None:
        if message_id not in self._known:
            await self.find_entity(message_id)
        card = self._known[message_id]
        for leap in SEQUENCE_LEAPS:
            card.sequence = max(card.sequence + leap, int((time.time() - SEQUENCE_EPOCH) * 10) % 2**31)
            try:
                await self._calls(method, f"cardkit/v1/cards/{card.id}{path}", {**body, "sequence": card.sequence})
            except ApiRefusal as error:
                if error.code != STALE_SEQUENCE_CODE:
                    raise
            else:
                return
        raise Refused("Feishu takes no more changes of this card")


def _dump_json(json: Any) -> str:
    return orjson.dumps(json).decode()
