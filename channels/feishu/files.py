"""Files out to Feishu and in from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import PurePath
from typing import BinaryIO

import aiohttp

from agent.conversation import Attachment
from channels.base import OutFile, Posts, Refused, TryLater, Unknown, first_post
from channels.feishu.api import Calls, Said
from channels.feishu.card_renderer import plain
from channels.feishu.reply import Sender
from channels.shared.file_limits import check, over, plain_name, within
from channels.shared.rate_limit import Place, Priority
from channels.shared.reply_writer import MOST_REPEATS, post_once

UPLOAD = 30 << 20  # bytes (open.feishu.cn/document/server-docs/im-v1/file/create)
IMAGE = 10 << 20  # bytes (…/image/create)
DOWNLOAD = 100 << 20  # bytes (…/message/get-2)
PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"})
_KINDS = {".pdf": "pdf", ".doc": "doc", ".docx": "doc", ".xls": "xls", ".xlsx": "xls", ".ppt": "ppt", ".pptx": "ppt"}
_TOO_BIG = 234037


async def send(calls: Calls, sender: Sender, place: Place, file: OutFile, posts: Posts) -> None:
    """Upload one file and show it, as a picture where it is one; its caption follows as text."""
    if (known := first_post(posts)) and known.id:
        return
    check(file, UPLOAD, "Feishu")

    async def post() -> str:
        message_id = await sender.send(*await _upload(calls, file), "file")
        if file.caption:
            await sender.send("text", {"text": plain(file.caption)}, "caption")
        return message_id

    await place.take(Priority.FINAL)
    try:
        await post_once(posts, post, MOST_REPEATS)
    except TryLater as error:
        place.close(error.after)
        raise


async def _upload(calls: Calls, file: OutFile) -> tuple[str, dict[str, str]]:
    suffix = PurePath(file.name).suffix.lower()
    if suffix in PICTURES and file.size <= IMAGE:
        try:
            key = await _put(calls, file, "images", "image", {"image_type": "message"})
            return "image", {"image_key": key["image_key"]}
        except Said:  # no picture to Feishu's taste: a file, then
            pass
    words = {"file_type": _KINDS.get(suffix, "stream"), "file_name": file.name}
    return "file", {"file_key": (await _put(calls, file, "files", "file", words))["file_key"]}


async def _put(calls: Calls, file: OutFile, path: str, field: str, words: dict[str, str]) -> dict[str, str]:
    handle: BinaryIO = await asyncio.to_thread(file.path.open, "rb")
    try:
        form = aiohttp.FormData(words, quote_fields=False)
        form.add_field(field, handle, filename=plain_name(file), content_type="application/octet-stream")
        return await calls("POST", f"im/v1/{path}", form=form)
    except Unknown as error:  # nobody sees an upload: it may be done twice
        raise TryLater(str(error)) from None
    finally:
        await asyncio.to_thread(handle.close)


def fetch(calls: Calls, attachment: Attachment) -> AsyncGenerator[bytes, None]:
    """The bytes of an attachment."""
    return within(DOWNLOAD, attachment, _download(calls, attachment))


async def _download(calls: Calls, attachment: Attachment) -> AsyncGenerator[bytes, None]:
    message, key, kind = attachment.ref.split("/")
    try:
        path = f"im/v1/messages/{message}/resources/{key}"
        async with aclosing(calls.download(path, {"type": kind})) as chunks:
            async for chunk in chunks:
                yield chunk
    except Said as error:
        raise (over(DOWNLOAD) if error.code == _TOO_BIG else Refused(f"cannot be fetched: {error}")) from None
