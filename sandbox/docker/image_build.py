"""Build the sandbox image: `fawn sandbox build`."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from catalogue import N_
from sandbox.base import SandboxError
from sandbox.docker.client import DockerEngine

CONTEXT = ("Dockerfile", "packages.txt", "requirements.lock")  # files beside this one


def build_context(files: Mapping[str, bytes]) -> bytes:
    """Pack the build context: a tar of these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


async def build_image(host: str, image: str, base: str, *, libreoffice: bool = False) -> None:
    """Build `image` from our Dockerfile and print the log. An empty `base` keeps its default. Raises SandboxError."""

    def print_log(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    arguments = {"BASE_IMAGE": base} if base else {}
    engine = DockerEngine(host)
    packed = build_context({name: Path(__file__).with_name(name).read_bytes() for name in CONTEXT})
    try:
        await engine.build(packed, image, arguments | ({"LIBREOFFICE": "yes"} if libreoffice else {}), print_log)
    except SandboxError as error:
        if any(mark in str(error) for mark in ("registry", "pull access", "manifest", "dial tcp", "/v2/")):
            text = N_(
                "{error} If no registry can be reached, name a base image of your own:"
                " `fawn sandbox build --base IMAGE` (docs/sandbox.md)."
            )
            raise SandboxError(text, error=error) from error
        raise
    finally:
        await engine.close()
