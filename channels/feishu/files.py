"""Send files to Feishu and fetch attachments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import PurePath
from typing import BinaryIO

import aiohttp

from agent.messages import Attachment
from channels.base import OutcomeUnknown, OutgoingFile, Refused, SentMessages, TryLater, first_sent_message
from channels.feishu.api import ApiRefusal, FeishuApi
from channels.feishu.card_renderer import without_mentions
from channels.feishu.reply import MessageSender
from channels.shared.file_limits import check_outgoing_file, limit_chunks, multipart_file_name, too_large
from channels.shared.rate_limit import Priority, RateLimitScope
from channels.shared.reply_writer import MOST_REPEATS, post_once

MAX_UPLOAD_BYTES = 30 << 20  # bytes (open.feishu.cn/document/server-docs/im-v1/file/create)
MAX_IMAGE_BYTES = 10 << 20  # bytes (…/image/create)
MAX_DOWNLOAD_BYTES = 100 << 20  # bytes (…/message/get-2)
PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"})
_KINDS = {".pdf": "pdf", ".doc": "doc", ".docx": "doc", ".xls": "xls", ".xlsx": "xls", ".ppt": "ppt", ".pptx": "ppt"}
_TOO_BIG = 234037


async def send_file(
    calls: FeishuApi, sender: MessageSender, place: RateLimitScope, file: OutgoingFile, posts: SentMessages
) -> None:
    """Upload one file and show it, as a picture where it is one; its caption follows as text."""
    if (known := first_sent_message(posts)) and known.id:
        return
    check_outgoing_file(file, MAX_UPLOAD_BYTES, "Feishu")

    async def post() -> str:
        message_id = await sender.send(*await _upload_file(calls, file), "file")
        if file.caption:
            await sender.send("text", {"text": without_mentions(file.caption)}, "caption")
        return message_id

    await place.acquire(Priority.FINAL)
    try:
        await post_once(posts, post, MOST_REPEATS)
    except TryLater as error:
        place.pause(error.after)
        raise


async def _upload_file(calls: FeishuApi, file: OutgoingFile) -> tuple[str, dict[str, str]]:
    suffix = PurePath(file.name).suffix.lower()
    if suffix in PICTURE_SUFFIXES and file.size <= MAX_IMAGE_BYTES:
        try:
            key = await _upload_as(calls, file, "images", "image", {"image_type": "message"})
            return "image", {"image_key": key["image_key"]}
        except ApiRefusal:  # no picture to Feishu's taste: a file, then
            pass
    words = {"file_type": _KINDS.get(suffix, "stream"), "file_name": file.name}
    return "file", {"file_key": (await _upload_as(calls, file, "files", "file", words))["file_key"]}


async def _upload_as(
    calls: FeishuApi, file: OutgoingFile, path: str, field: str, words: dict[str, str]
) -> dict[str, str]:
    handle: BinaryIO = await asyncio.to_thread(file.path.open, "rb")
    try:
        form = aiohttp.FormData(words, quote_fields=False)
        form.add_field(field, handle, filename=multipart_file_name(file), content_type="application/octet-stream")
        return await calls("POST", f"im/v1/{path}", form=form)
    except OutcomeUnknown as error:  # nobody sees an upload: it may be done twice
        raise TryLater(str(error)) from None
    finally:
        await asyncio.to_thread(handle.close)


def fetch_attachment(calls: FeishuApi, attachment: Attachment) -> AsyncGenerator[bytes, None]:
    """The bytes of an attachment."""
    return limit_chunks(MAX_DOWNLOAD_BYTES, attachment, _download_chunks(calls, attachment))


async def _download_chunks(calls: FeishuApi, attachment: Attachment) -> AsyncGenerator[bytes, None]:
    message, key, kind = attachment.ref.split("/")
    try:
        path = f"im/v1/messages/{message}/resources/{key}"
        async with aclosing(calls.download(path, {"type": kind})) as chunks:
            async for chunk in chunks:
                yield chunk
    except ApiRefusal as error:
        raise (
            too_large(MAX_DOWNLOAD_BYTES) if error.code == _TOO_BIG else Refused(f"cannot be fetched: {error}")
        ) from None
