"""Upload files to Feishu and download attachments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import PurePath
from typing import Any

import aiohttp

from agent.messages import Attachment
from channels.base import OutgoingFile, Refused
from channels.feishu.api import ApiRefusal, FeishuApi, check_answer
from channels.feishu.card_renderer import without_mentions
from channels.shared.files import multipart_file_name, too_large
from channels.shared.http_client import opened_file

MAX_UPLOAD_BYTES = 30 << 20  # open.feishu.cn/document/server-docs/im-v1/file/create
MAX_PICTURES_PER_MESSAGE = 9
MAX_IMAGE_BYTES = 10 << 20  # …/image/create
MAX_DOWNLOAD_BYTES = 100 << 20  # …/message/get-2
PHOTO_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"})
_FILE_TYPES = {suffix: suffix[1:4] for suffix in (".pdf", ".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx")}
_TOO_LARGE_CODE = 234037


def kind_of_group(file: OutgoingFile) -> str:
    """Return which files may be one message: pictures. Every other file is a message of its own."""
    return "pictures" if _may_be_picture(file) else str(file.path)


def _may_be_picture(file: OutgoingFile) -> bool:
    return PurePath(file.name).suffix.lower() in PHOTO_SUFFIXES and file.size <= MAX_IMAGE_BYTES


def pictures_content(files: Sequence[OutgoingFile], uploads: Sequence[tuple[str, dict[str, str]]]) -> dict[str, Any]:
    """Return a rich message with pictures and their captions (…/im-v1/message-content-description/create_json#post).

    Raises Refused if Feishu did not take one of them as a picture: they are then sent one by one.
    """
    if any(kind != "image" for kind, _ in uploads):
        raise Refused("not all of the files are pictures to Feishu")
    lines: list[list[dict[str, str]]] = []
    for file, (_, content) in zip(files, uploads, strict=True):
        lines.append([{"tag": "img", **content}])
        if file.caption:
            lines.append([{"tag": "text", "text": without_mentions(file.caption)}])
    return {"zh_cn": {"title": "", "content": lines}}


async def upload_file(api: FeishuApi, file: OutgoingFile) -> tuple[str, dict[str, str]]:
    """Upload a file, as an image where possible. Returns the type and content of its message."""
    suffix = PurePath(file.name).suffix.lower()
    if _may_be_picture(file):
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
