"""The result of a call as text for the model. Other content becomes a file of the workspace."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import mimetypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from agent.core.context import TurnContext
from agent.web.quoting import quote_untrusted
from sandbox.base import WORKSPACE, SandboxError

if TYPE_CHECKING:
    from mcp_types import CallToolResult, PromptMessage, ResourceContents

log = logging.getLogger(__name__)

MAX_CHARS = 1_000_000  # of a result that the truncation policy shows; a longer one goes to a file
HEAD_CHARS = 4_000  # of one in a file
FOLDER = ".mcp"  # in the workspace


async def result_text(result: CallToolResult, server: str, context: TurnContext) -> str:
    """Return the result as data of strangers, with its server. Never raises for content that it does not know."""
    parts = [await _part(block.model_dump(mode="json", by_alias=True), context) for block in result.content]
    if result.structured_content is not None and not any(parts):
        parts.append(orjson.dumps(result.structured_content, default=str).decode())
    return await _quoted("mcp-result", parts, server, context)


async def resource_text(contents: Sequence[ResourceContents], server: str, context: TurnContext) -> str:
    """Return what a resource holds, as data of strangers."""
    resources = [each.model_dump(mode="json", by_alias=True) for each in contents]
    parts = [await _part({"type": "resource", "resource": each}, context) for each in resources]
    return await _quoted("mcp-resource", parts, server, context)


def prompt_text(messages: Sequence[PromptMessage]) -> str:
    """Return the messages of a prompt as one text. What is no text is named."""
    lines = []
    for each in messages:
        block = each.content.model_dump(mode="json", by_alias=True)
        resource = block.get("resource") or {}
        text = block.get("text") or resource.get("text") or f"[{str(block.get('type'))[:40]}, which is not shown]"
        lines.append(str(text) if each.role == "user" else f"[an answer that the server gives as an example]\n{text}")
    return "\n\n".join(lines)


async def _quoted(tag: str, parts: Sequence[str], server: str, context: TurnContext) -> str:
    text, note = "\n\n".join(filter(None, parts)) or "(no content)", ""
    if len(text) > MAX_CHARS:
        text, note = await _shortened(text, context)
    return quote_untrusted(tag, text, server=server) + note


async def _shortened(text: str, context: TurnContext) -> tuple[str, str]:
    """Store a long text in the workspace. Returns its head, and where the whole is. A message has 4 MB at most."""
    content = text.encode("utf-8", "replace")
    try:
        path = await _store(content, ".txt", context)
    except SandboxError as error:
        log.warning("mcp.result_not_stored problem=%s", error)
        return text[:MAX_CHARS], f"\n[… {len(text) - MAX_CHARS} characters left out: they could not be stored]"
    where = f"The whole result of {len(text)} characters is in {path}: use grep or read_file on it."
    return text[:HEAD_CHARS], f"\n[… {len(text) - HEAD_CHARS} characters left out. {where}]"


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
    try:
        path = await _store(content, mimetypes.guess_extension(mime) or ".bin", context)
    except SandboxError as error:
        log.warning("mcp.file_not_stored problem=%s", error)
        return f"[{about}: could not be stored]"
    hint = "; view_image shows it" if mime.startswith("image/") else ""
    return f"[{about}, stored as {path}{hint}]"


async def _store(content: bytes, ending: str, context: TurnContext) -> str:
    """Write a file of the workspace. Returns its path. Raises SandboxError."""
    path = f"{WORKSPACE}/{FOLDER}/{hashlib.sha256(content).hexdigest()[:16]}{ending}"
    await (await context.sandbox.get()).write(path, content)
    return path
