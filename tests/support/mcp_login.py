"""Run `fawn mcp login` as its own process, with a browser that follows the address it prints."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from tests.support.forked_services import PROGRAM
from tests.support.service_process import Service


class Login:
    """The running command. `address` is the one that it has printed; `lines` are all lines so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self.address = ""

    async def read_until(self, text: str) -> str:
        """Return the next line that contains the text."""
        assert self._process.stdout
        while line := (await self._process.stdout.readline()).decode():
            self.lines.append(line.rstrip())
            if line.startswith("  http"):
                self.address = line.strip()
            if text in line:
                return line
        raise AssertionError(f"{text!r} is missing in {self.lines}")

    def paste(self, address: str) -> None:
        """Write a line into the terminal."""
        assert self._process.stdin
        self._process.stdin.write(f"{address}\n".encode())

    async def end(self) -> tuple[int, str]:
        """Return the exit code and the whole output."""
        assert self._process.stdout
        rest = (await self._process.stdout.read()).decode()
        return await self._process.wait(), "\n".join([*self.lines, rest])


async def begin_login(service: Service, name: str) -> Login:
    """Start `fawn mcp login NAME`, and wait until it has printed the address."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *("mcp", "login", name, "--config", "config.yaml"),
        cwd=service.folder,
        env=service.environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    login = Login(process)
    await login.read_until("I wait for")
    return login


async def redirect_of(address: str) -> str:
    """Open the address as a browser would, and return where the authorization server redirects to."""
    async with httpx2.AsyncClient() as browser:
        response = await browser.get(address)
    assert response.status_code == 302, response.text
    return response.headers["Location"]


async def open_page(address: str) -> str:
    """Follow a redirect to the command, and return the text of its page."""
    async with httpx2.AsyncClient() as browser:
        return (await browser.get(address)).text


async def log_in(service: Service, name: str) -> str:
    """Sign in with a browser of this machine. Returns the output."""
    login = await begin_login(service, name)
    await open_page(await redirect_of(login.address))
    code, output = await login.end()
    assert code == 0, output
    return output


def tokens_file(service: Service, name: str) -> Path:
    """Return the file of the tokens of a server."""
    return service.data / "mcp" / f"{name}.json"
