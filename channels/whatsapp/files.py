"""Say which files WhatsApp takes, and as what (developers.facebook.com/docs/whatsapp/cloud-api/reference/media)."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from pathlib import PurePath

from catalogue import N_, _
from channels.base import OutgoingFile, Refused
from channels.shared.files import check_outgoing_file

IMAGE_BYTES, MEDIA_BYTES, DOCUMENT_BYTES = 5 << 20, 16 << 20, 100 << 20
TYPES: Mapping[str, tuple[str, int]] = {  # MIME type → kind of message, bytes
    **dict.fromkeys(("image/jpeg", "image/png"), ("image", IMAGE_BYTES)),
    **dict.fromkeys(("video/mp4", "video/3gpp"), ("video", MEDIA_BYTES)),
    **dict.fromkeys(("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"), ("audio", MEDIA_BYTES)),
    **dict.fromkeys(
        (
            "application/pdf",
            "application/msword",
            "application/vnd.ms-excel",
            "application/vnd.ms-powerpoint",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            "text/plain",
        ),
        ("document", DOCUMENT_BYTES),
    ),
}
TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-sh", "application/sql"})
TEXT_SUFFIXES = frozenset({".md", ".yaml", ".yml", ".toml", ".ini", ".log", ".ts", ".go", ".rs", ".sql", ".ipynb"})
NOT_TAKEN = N_("WhatsApp takes no files of this kind: only pictures, sound, videos, PDF, Office documents and texts.")


def kind_of(file: OutgoingFile) -> tuple[str, str]:
    """Return the kind of message and the MIME type with which a file is sent. Raises Refused for what is not taken.

    A picture or video that is too large for one goes as a document, where its type may be one.
    """
    check_outgoing_file(file, DOCUMENT_BYTES, "WhatsApp")
    suffix = PurePath(file.name).suffix.lower()
    guessed = mimetypes.guess_type(f"file{suffix}", strict=False)[0] or ""
    if guessed.startswith("text/") or guessed in TEXTS or suffix in TEXT_SUFFIXES:
        return "document", "text/plain"  # whatever its name says: a table, a program
    if guessed not in TYPES:
        raise Refused(_(NOT_TAKEN))
    kind, limit = TYPES[guessed]
    check_outgoing_file(file, limit, "WhatsApp")
    return kind, guessed
