"""Size limits of files, and the texts when a file cannot be transferred."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from agent.messages import Attachment
from channels.base import OutgoingFile, Refused

CHUNK = 1 << 16  # bytes


def too_large(limit: int) -> Refused:
    """Return the error for an attachment that exceeds the platform's limit."""
    return Refused(f"exceeds the {limit >> 20} MB download limit")


def no_longer_available(platform: str) -> Refused:
    """Return the error for an attachment that the platform has deleted."""
    return Refused(f"is no longer available on {platform}")


async def limit_chunks(
    limit: int, attachment: Attachment, open_download: Callable[[Attachment], Awaitable[AsyncGenerator[bytes, None]]]
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of an attachment. Raises Refused when its declared or real size exceeds `limit`."""
    if (attachment.size or 0) > limit:
        raise too_large(limit)
    received = 0
    async with aclosing(await open_download(attachment)) as chunks:
        async for chunk in chunks:
            received += len(chunk)
            if received > limit:
                raise too_large(limit)
            yield chunk


def check_outgoing_file(file: OutgoingFile, limit: int, platform: str, *, empty: bool = False) -> None:
    """Raise Refused for a file above the platform's limit, or an empty one unless `empty` ones are accepted."""
    unit = 1e6 if limit % 1_000_000 == 0 else 1 << 20
    if file.size > limit:
        raise Refused(f"it has {file.size / unit:.0f} MB; {platform} takes at most {limit / unit:.0f} MB here")
    if not file.size and not empty:
        raise Refused(f"it is empty; {platform} does not accept empty files")


def multipart_file_name(file: OutgoingFile) -> str:
    """Return the name without characters that a multipart header cannot contain."""
    return re.sub(r'[\x00-\x1f"\\/]', "_", file.name) or "file"
