"""Alertmanager itself, as Debian ships it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.support.ports import free_port

PROGRAM, TOOL = (shutil.which(name) or name for name in ("prometheus-alertmanager", "amtool"))
needs_alertmanager = pytest.mark.skipif(
    not shutil.which("prometheus-alertmanager") and not os.environ.get("FAWN_REQUIRE_ENGINES"),
    reason="apt install prometheus-alertmanager",
)


@asynccontextmanager
async def alertmanager(folder: Path, hook: str, token: str) -> AsyncIterator[str]:
    """Run it with one receiver; yields its address."""
    config = {
        "route": {"receiver": "fawn", "group_by": ["alertname"], "group_wait": "100ms", "group_interval": "1s"},
        "receivers": [
            {
                "name": "fawn",
                "webhook_configs": [{"url": hook, "http_config": {"authorization": {"credentials": token}}}],
            }
        ],
    }
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await asyncio.wait_for(_ready(f"http://127.0.0.1:{port}"), 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def _ready(address: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{address}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def tell(address: str, *words: str) -> None:
    """Run amtool, as an operator or a script does."""
    process = await asyncio.create_subprocess_exec(
        *(TOOL, f"--alertmanager.url={address}", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _none = await process.communicate()
    assert process.returncode == 0, said.decode()
