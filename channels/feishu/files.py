"""Upload files to Feishu and download attachments."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import PurePath

import aiohttp

from agent.messages import Attachment
from channels.base import OutgoingFile, Refused
from channels.feishu.api import ApiRefusal, FeishuApi, check_answer
from channels.shared.file_limits import multipart_file_name, too_large
from channels.shared.http_client import opened_file

MAX_UPLOAD_BYTES = 30 << 20  # open.feishu.cn/document/server-docs/im-v1/file/create
MAX_IMAGE_BYTES = 10 << 20  # …/image/create
MAX_DOWNLOAD_BYTES = 100 << 20  # …/message/get-2
PHOTO_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"})
_FILE_TYPES = {suffix: suffix[1:4] for suffix in (".pdf", ".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx")}
_TOO_LARGE_CODE = 234037


async def upload_file(api: FeishuApi, file: OutgoingFile) -> tuple[str, dict[str, str]]:
    """Upload a file, as an image where possible. Returns the type and content of its message."""
    suffix = PurePath(file.name).suffix.lower()
    if suffix in PHOTO_SUFFIXES and file.size <= MAX_IMAGE_BYTES:
        try:
            image = await _upload_as(api, file, "images", "image", {"image_type": "message"})
            return "image", {"image_key": image["image_key"]}
        except ApiRefusal:
            pass  # Feishu does not take it as an image, but as a file
    fields = {"file_type": _FILE_TYPES.get(suffix, "stream"), "file_name": file.name}
    return "file", {"file_key": (await _upload_as(api, file, "files", "file", fields))["file_key"]}


async def _upload_as(
    api: FeishuApi, file: OutgoingFile, path: str, field: str, fields: dict[str, str]
) -> dict[str, str]:
    async with opened_file(file.path) as content:
        form = aiohttp.FormData(fields, quote_fields=False)
        form.add_field(field, content, filename=multipart_file_name(file), content_type="application/octet-stream")
        return await api("POST", f"im/v1/{path}", form=form, repeatable=True)  # an upload is invisible


async def open_download(api: FeishuApi, attachment: Attachment) -> AsyncGenerator[bytes, None]:
    message_id, key, kind = attachment.ref.split("/")
    path = f"im/v1/messages/{message_id}/resources/{key}"
    return await api.download_resource(path, {"type": kind}, _check_download)


async def _check_download(answer: aiohttp.ClientResponse) -> None:
    try:
        await check_answer(answer)
    except ApiRefusal as error:
        if error.code == _TOO_LARGE_CODE:
            raise too_large(MAX_DOWNLOAD_BYTES) from None
        raise Refused(f"cannot be fetched: {error}") from None
