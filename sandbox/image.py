"""Making the sandbox's image with the engine: `fawn sandbox build`."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.docker_engine import Engine

DOCKERFILE = Path(__file__).with_name("Dockerfile")


def context(files: Mapping[str, bytes]) -> bytes:
    """What the engine is sent to build from: a tar of these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


async def build(host: str, image: str, base: str, say: Callable[[str], None]) -> None:
    """Build `image` of our Dockerfile; `base` "" keeps the Dockerfile's own. `say` gets the engine's log, from another
    thread. Raises SandboxError."""
    engine = Engine(host)
    try:
        await engine.build(
            context({"Dockerfile": DOCKERFILE.read_bytes()}), image, {"BASE_IMAGE": base} if base else {}, say
        )
    finally:
        await engine.close()
