"""Read the messages of an outbox row, as its reply continues them: what is visible, and the handle to answer by."""

from __future__ import annotations

from agent.messages import ReplyHandle
from bot.base.background import PatientStore
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.service.reply_handles import find_handle
from bot.storage.outbox import OutboxItem
from bot.storage.sent_messages import StoredSentMessages, known_messages
from channels.base import SentMessage


async def item_posts(store: Database, current: Current, item: OutboxItem, to: str) -> StoredSentMessages:
    """Return the messages of a row that answers the message `to`."""

    def read(execute: Execute) -> tuple[list[SentMessage], ReplyHandle | None]:
        known = known_messages(execute, item.reply_key)
        return known, find_handle(execute, current.config, item.thread, to)

    known, handle = await store.run(read)
    patient = PatientStore(store, "posts")
    return StoredSentMessages(patient, item.reply_key, item.thread, item.conversation, known, handle)
