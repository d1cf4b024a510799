"""CardKit calls: create cards and change them with rising sequence numbers."""

from __future__ import annotations

import time
from typing import Any

import orjson

from channels.base import Refused
from channels.feishu.api import ApiRefusal, FeishuApi
from channels.shared.caches import LatestDict

SEQUENCE_EPOCH = 1_767_225_600.0  # 2026-01-01
MAX_KNOWN_CARDS = 2_000
MAX_KNOWN_QUESTIONS = 200  # cards with buttons, each up to 30 KB
STALE_SEQUENCE_CODE = 300317  # the sequence number is not above the last one
SEQUENCE_STEPS = (1, 3_000, 36_000, 864_000)  # next; five minutes, an hour, a day: for a clock that was set back


class CardApi:
    """The cards of the app, by card id. Raises ChannelError.

    Every change of a card needs a higher int32 sequence number, also after a restart. The number is the time in tenths
    of a second, which needs no store: a card takes at most ten changes a second, so its numbers never run far ahead of
    the clock. The numbers restart every seven years; a card can be changed for 14 days.
    """

    def __init__(self, api: FeishuApi) -> None:
        self._api = api
        self._sequences: LatestDict[str, int] = LatestDict(MAX_KNOWN_CARDS)  # card → number of its last change
        self.questions: LatestDict[str, Any] = LatestDict(MAX_KNOWN_QUESTIONS)  # card → its JSON, while it has buttons

    async def create_card(self, json: Any) -> str:
        """Create a card entity that no message shows yet; return its id."""
        body = {"type": "card_json", "data": dump_json(json)}
        answer = await self._api("POST", "cardkit/v1/cards", body, repeatable=True)  # invisible so far
        return str(answer["card_id"])

    async def replace_card(self, card_id: str, json: Any) -> None:
        await self._change_card(card_id, "PUT", "", {"card": {"type": "card_json", "data": dump_json(json)}})

    async def stream_text(self, card_id: str, element: str, text: str) -> None:
        """Set the whole text of an element. Raises Refused when the card no longer streams."""
        await self._change_card(card_id, "PUT", f"/elements/{element}/content", {"content": text})

    async def change_settings(self, card_id: str, config: Any) -> None:
        await self._change_card(card_id, "PATCH", "/settings", {"settings": dump_json({"config": config})})

    async def replace_element(self, card_id: str, element: str, json: Any) -> None:
        await self._change_card(card_id, "PUT", f"/elements/{element}", {"element": dump_json(json)})

    async def _change_card(self, card_id: str, method: str, path: str, body: dict[str, Any]) -> None:
        for step in SEQUENCE_STEPS:
            clock = int((time.time() - SEQUENCE_EPOCH) * 10) % 2**31
            sequence = max(self._sequences.get(card_id, 0) + step, clock)
            self._sequences[card_id] = sequence
            try:
                await self._api(method, f"cardkit/v1/cards/{card_id}{path}", {**body, "sequence": sequence})
            except ApiRefusal as error:
                if error.code != STALE_SEQUENCE_CODE:
                    raise
            else:
                return
        raise Refused("Feishu takes no more changes of this card")


def dump_json(json: Any) -> str:
    """Return JSON as text, as the platform wants it inside of JSON."""
    return orjson.dumps(json).decode()
