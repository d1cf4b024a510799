"""Size limits of files, and the text when a file exceeds them."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent.messages import Attachment
from channels.base import OutgoingFile, Refused

CHUNK = 1 << 16  # bytes


def too_large(limit: int) -> Refused:
    """The refusal of a file that somebody sent."""
    return Refused(f"exceeds the {limit >> 20} MB download limit")


async def limit_chunks(
    limit: int, attachment: Attachment, chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The chunks of an attachment, whatever size was told of it. Raises Refused when they are more than `limit`."""
    if (attachment.size or 0) > limit:
        raise too_large(limit)
    got = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            got += len(chunk)
            if got > limit:
                raise too_large(limit)
            yield chunk


def check_outgoing_file(file: OutgoingFile, limit: int, platform: str, *, empty: bool = False) -> None:
    """Raises Refused for a file that is over the platform's limit, or empty unless it takes `empty` ones."""
    unit = 1e6 if limit % 1_000_000 == 0 else 1 << 20
    if file.size > limit:
        raise Refused(f"{file.name} has {file.size / unit:.0f} MB; {platform} takes at most {limit / unit:.0f} MB here")
    if not file.size and not empty:
        raise Refused(f"{file.name} is empty; {platform} takes no empty files")


def multipart_file_name(file: OutgoingFile) -> str:
    """The name as a part of an upload may carry it."""
    return re.sub(r'[\x00-\x1f"\\/]', "_", file.name) or "file"
