"""Bundles: an album or a long paste arrives in pieces that count as one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.messages import Message
from bot.storage.inbox import InboxRow


def bundle_key(row: InboxRow) -> str:
    """Return what the pieces of one bundle have in common."""
    return row.bundle or row.key


def merge_bundles(rows: Sequence[InboxRow]) -> dict[str, Message]:
    """Merge the pieces of each bundle: texts joined, files together, under the key of the first piece."""
    merged: dict[str, Message] = {}
    for row in rows:
        message, name = row.message, bundle_key(row)
        if name not in merged:
            merged[name] = message
            continue
        whole = merged[name]
        between = "" if len(whole.text.encode("utf-16-le")) // 2 % 4096 == 0 else "\n"  # cut at the platform's limit
        merged[name] = replace(
            whole,
            text=between.join(part for part in (whole.text, message.text) if part),
            attachments=whole.attachments + message.attachments,
            quotes=whole.quotes + message.quotes,
        )
    return merged
