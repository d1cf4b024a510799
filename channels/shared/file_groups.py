"""Send several files in few messages, each file once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from channels.base import ChatGone, FilesRefused, OutgoingFile, Refused, SentMessages, Unconfirmed, find_sent_message

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
        raise FilesRefused({name: str(error) for name, error in refused.items()})


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
