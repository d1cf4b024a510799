"""Send and fetch files within a platform's limits, several in few messages."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

from agent.messages import Attachment
from channels.base import ChatGone, FilesRefused, OutgoingFile, Refused, SentMessages, Unconfirmed, find_sent_message

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


log = logging.getLogger(__name__)

ALONE = 1000  # added to the number of a file that is sent alone, because its group was refused


def group_files(
    files: Iterable[OutgoingFile],
    max_files: int,
    max_bytes: int,
    kind: Callable[[OutgoingFile], str] = lambda file: "",
) -> list[list[OutgoingFile]]:
    """Split files, in their order, into groups of one kind that fit into a message. It depends on nothing else.

    A file above `max_bytes` gets a group of its own.
    """
    groups: list[list[OutgoingFile]] = []
    for file in files:
        last = groups[-1] if groups else []
        fits = sum(each.size for each in last) + file.size <= max_bytes
        if last and len(last) < max_files and fits and kind(last[0]) == kind(file):
            last.append(file)
        else:
            groups.append([file])
    return groups


async def send_groups(
    groups: Iterable[Sequence[OutgoingFile]],
    posts: SentMessages,
    send: Callable[[Sequence[OutgoingFile], int], Awaitable[None]],
) -> None:
    """Send each group with `send(group, index)` as one message, and the files of a refused group one by one.

    The index is the number of the group's first file, or of the single file plus ALONE. Raises FilesRefused when the
    other files are sent, and other ChannelErrors at once: the next call sends what is missing.
    """
    refused: dict[str, Refused] = {}
    number = 0
    for group in groups:
        first, number = number, number + len(group)
        alone = range(ALONE + first, ALONE + number)
        if {message.index for message in posts.known}.isdisjoint(alone):
            error = await _try_sending(group, first, send)
            if error is None:
                continue
            # A group of unknown outcome may be visible: its files are not sent again.
            if len(group) == 1 or find_sent_message(posts, first):
                refused |= dict.fromkeys([file.name for file in group], error)
                continue
            log.info("files.refused count=%d reason=%s", len(group), error)
        for file, index in zip(group, alone, strict=True):
            if error := await _try_sending([file], index, send):
                refused[file.name] = error
    if refused and all(isinstance(error, Unconfirmed) for error in refused.values()):
        raise next(iter(refused.values()))
    if refused:
        raise FilesRefused(refused)


async def _try_sending(
    files: Sequence[OutgoingFile], index: int, send: Callable[[Sequence[OutgoingFile], int], Awaitable[None]]
) -> Refused | None:
    """Send files as one message, and return the refusal. Raises other errors."""
    try:
        await send(files, index)
    except ChatGone:
        raise
    except Refused as error:
        return error
    return None


def joined_captions(files: Sequence[OutgoingFile]) -> str:
    """Return the text of a message with these files: their captions, which name the file where there are several."""
    if len(files) == 1:
        return files[0].caption
    return "\n".join(f"{file.name}: {file.caption}" for file in files if file.caption)
