"""What a chat shows of a question that is settled."""

from __future__ import annotations

from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_world import JANE, Shown


async def outcome(telegram: FakeTelegram, shown: Shown, chat: int = JANE) -> str:
    """Return the last line of a message, as soon as it has no buttons any more."""

    def now() -> Shown:
        return next(each for each in telegram.visible(chat) if each.id == shown.id)

    await until(lambda: not now().buttons, what="a message without buttons")
    return now().text.strip().splitlines()[-1]
