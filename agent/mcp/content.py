"""The result of a call as text for the model. Other content becomes a file of the workspace."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import mimetypes
from typing import TYPE_CHECKING, Any

import orjson

from agent.context import TurnContext
from agent.web.quoting import quote_untrusted
from sandbox.base import WORKSPACE, SandboxError

if TYPE_CHECKING:
    from mcp_types import CallToolResult

log = logging.getLogger(__name__)

MAX_CHARS = 1_000_000  # of a result; the truncation policy shows less of it
FOLDER = ".mcp"  # in the workspace


async def result_text(result: CallToolResult, server: str, context: TurnContext) -> str:
    """Return the result as data of strangers, with its server. Never raises for content that it does not know."""
    parts = [await _part(block.model_dump(mode="json", by_alias=True), context) for block in result.content]
    if result.structured_content is not None and not any(parts):
        parts.append(orjson.dumps(result.structured_content, default=str).decode())
    text = "\n\n".join(filter(None, parts)) or "(no content)"
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[… {len(text) - MAX_CHARS} characters left out]"
    return quote_untrusted("mcp-result", text, server=server)


async def _part(block: dict[str, Any], context: TurnContext) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio":
            return await _saved(str(block.get("data", "")), str(block.get("mimeType", "")), context)
        case "resource_link":
            return f"[link: {block.get('name', '')} {block.get('uri', '')}]"
        case "resource":
            resource = block.get("resource") or {}
            if "text" in resource:
                return f"[{resource.get('uri', '')}]\n{resource['text']}"
            return await _saved(str(resource.get("blob", "")), str(resource.get("mimeType") or ""), context)
    return f"[content of the kind {str(block.get('type'))[:40]!r}, which is not shown]"


async def _saved(data: str, mime: str, context: TurnContext) -> str:
    """Store the bytes in the workspace, where other tools can use them."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{mime[:40] or 'a file'}, which is damaged]"
    about = f"{mime[:40] or 'a file'}, {len(content)} bytes"
    path = f"{WORKSPACE}/{FOLDER}/{hashlib.sha256(content).hexdigest()[:16]}{mimetypes.guess_extension(mime) or '.bin'}"
    try:
        sandbox = await context.sandbox.get()
        await sandbox.write(path, content)
    except SandboxError as error:
        log.warning("mcp.file_not_stored problem=%s", error)
        return f"[{about}: could not be stored]"
    hint = "; view_image shows it" if mime.startswith("image/") else ""
    return f"[{about}, stored as {path}{hint}]"
