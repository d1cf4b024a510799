"""An MCP server of the protocol 2026-07-28, on the SDK: stdio, or streamable HTTP with `--port N`.

It writes each effect as a line into the file NOTES. A tool dies in its first call if the file NOTES + ".die" exists.
MANY adds so many tools with long descriptions.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import AudioContent, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
READS, AGAIN = ToolAnnotations(read_only_hint=True), ToolAnnotations(idempotent_hint=True)

server = MCPServer("modern")


@server.resource("note://greeting", mime_type="text/plain")
def greeting() -> str:
    """A note that greets."""
    return "hello from a resource"


@server.resource("note://logo", mime_type="image/png")
def logo() -> bytes:
    """A picture."""
    return base64.b64decode(PIXEL)


@server.resource("note://by/{name}")
def note_of(name: str) -> str:
    """The note of somebody."""
    return f"a note of {name}"


@server.prompt()
def review(repo: str, focus: str = "bugs") -> str:
    """Review a repository."""
    return f"Review {repo} with a focus on {focus}."


@server.prompt(name="say hello")
def say_hello() -> str:
    return "Say hello."


class Colour(BaseModel):
    colour: str = Field(description="any colour")


def write(line: str) -> str:
    """Note an effect, then die if the test wants it."""
    path = Path(os.environ["NOTES"])
    with path.open("a") as file:
        file.write(f"{line}\n")
    die = path.with_name(f"{path.name}.die")
    if die.exists():
        die.unlink()
        os._exit(9)
    return line


@server.tool()
def note(text: str) -> str:
    """Write a note."""
    return write(text)


@server.tool(annotations=AGAIN)
def put(text: str) -> str:
    """Write a note, which may be repeated."""
    return write(text)


@server.tool(annotations=READS)
async def wait(seconds: float) -> str:
    """Wait."""
    write("wait")
    await asyncio.sleep(seconds)
    return "waited"


@server.tool(annotations=READS)
async def count(ctx: Context, upto: int = 3) -> str:
    """Count, and report the progress."""
    for number in range(1, upto + 1):
        await ctx.report_progress(number, upto, f"part {number}")
    return "counted"


@server.tool(annotations=READS)
async def build(ctx: Context) -> str:
    """Report the first of three parts, and wait for the file NOTES + ".go"."""
    await ctx.report_progress(1, 3, "compiling the hull")
    while not Path(f"{os.environ['NOTES']}.go").exists():
        await asyncio.sleep(0.05)
    return "built"


@server.tool(annotations=READS)
def long(chars: int) -> str:
    """Return a long text, whose last word is the end."""
    return f"{'word ' * (chars // 5)}the end"


@server.tool(annotations=READS)
def fetch() -> str:
    """Say which server this is."""
    return "modern"


@server.tool(annotations=READS)
def environment() -> dict[str, str]:
    """Return the environment."""
    return dict(os.environ)


@server.tool(annotations=READS)
def exists(path: str) -> bool:
    """Return whether a file exists."""
    return Path(path).exists()


@server.tool(annotations=READS)
def wrong() -> str:
    """Fail."""
    raise ToolError("the moon is closed")


@server.tool(annotations=READS)
def runtime(runtime: str, config: str = "", self: str = "") -> str:
    """Take arguments with names that langchain uses."""
    return f"{runtime} {config} {self}"


@server.tool(annotations=READS)
def media() -> list[TextContent | ImageContent | AudioContent]:
    """Return a text, a picture and a sound."""
    picture = ImageContent(data=PIXEL, mime_type="image/png")
    return [TextContent(text="look"), picture, AudioContent(data=PIXEL, mime_type="audio/wav")]


async def ask_colour() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


@server.tool()
def paint(wall: str, answer: Annotated[Colour, Resolve(ask_colour)]) -> str:
    """Paint a wall; asks for the colour."""
    return write(f"{wall} {answer.colour}")


def _add(number: int) -> None:
    async def tool(text: str) -> str:
        return f"{number} {text}"

    about = "finds zebras" if number == 7 else "does nothing"
    server.add_tool(tool, name=f"tool_{number:02}", description=f"This tool {about}. " + "Long words. " * 30)


if __name__ == "__main__":
    for each in range(int(os.environ.get("MANY", "0"))):
        _add(each)
    if "--port" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("--port") + 1]))
    else:
        server.run("stdio")
