"""Look at a picture."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.tools import ToolException

from agent.core.context import ToolServices
from agent.core.pictures import FOLDER, MAX_BYTES, PICTURES_KEY, scale_picture
from agent.core.tool import AgentTool, Runtime, ToolTraits, absolute_path, describe_as, make_tool
from agent.parsing.child import ParserFailed
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from catalogue import N_
from sandbox.base import WORKSPACE

CHUNK_BYTES = 4 << 20


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it always: which model answers is decided per call."""

    @make_tool(
        ToolTraits(
            describe=describe_as(N_("Looking at {name}")),
            needs_sandbox=True,
            effect="none",
            read_only=True,  # the scaled copy is a cache
            permission="allow",
            subject=Subject("path", "path"),
            brings="files",
        )
    )
    async def view_image(
        path: Annotated[str, "Absolute path of a PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or JPEG 2000 file."],
        runtime: Runtime,
    ) -> tuple[str, dict[str, Any]]:
        """Look at a picture of your sandbox, such as a plot that you made. Pictures that people send are shown to you
        without this tool."""
        context = runtime.context
        if not (context.vision or (context.route and context.route[0].sees_pictures)):
            raise ToolException("You cannot see pictures. A program can inspect the file; or ask the person.")
        path = absolute_path(path)
        sandbox = await context.sandbox.get()

        async def read() -> bytes:
            data = bytearray()
            while chunk := await sandbox.read(path, offset=len(data), limit=CHUNK_BYTES):
                data += chunk
                if len(data) > MAX_BYTES:
                    raise ToolException(f"{path}: is larger than {MAX_BYTES >> 20} MB; scale it down first")
            return bytes(data)

        try:
            picture = await scale_picture(services.parser, read, owner=context.meter.root)
        except ParserFailed as error:
            raise ToolException(f"{path}: {error}") from error
        stored = f"{WORKSPACE}/{FOLDER}/{picture.name}"
        await sandbox.write(stored, picture.data)
        return f"{path}: {picture.width}×{picture.height} pixels. The picture follows.", {PICTURES_KEY: [stored]}

    return view_image
