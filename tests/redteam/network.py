"""A network of the red team's own: this machine's loopback is not in it, and a public-looking net holds the sites.

The service refuses local addresses as always. A process in a second namespace answers for the whole net, so nothing is
weakened for the tests, and nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.redteam.texts import NETWORK

OWN = "FAWN_REDTEAM_NETWORK"  # set in the namespace


def network_problem() -> str:
    """Return why there can be no such network, with the fix; "" if there can."""
    if os.geteuid() != 0:
        return "Hostile pages need root, for their own network: run it as root"
    missing = [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]
    return f"{', '.join(missing)}: missing (on Debian: apt install iproute2 util-linux)" if missing else ""


def enter_network() -> None:
    """Replace this process by the same one in its own network, unless it is there."""
    if OWN not in os.environ and not network_problem():
        program = ["unshare", "--net", sys.executable, "-m", "tests.redteam", *sys.argv[1:]]
        os.execvpe(program[0], program, {**os.environ, OWN: "1"})  # noqa: S606 — no shell


@asynccontextmanager
async def hostile_sites() -> AsyncIterator[bool]:
    """Serve the hostile pages on all addresses of the net; yield whether there are any."""
    if OWN not in os.environ:
        yield False
        return
    await _run("ip", "link", "set", "lo", "up")
    site = await asyncio.create_subprocess_exec(
        "unshare", "--net", sys.executable, "-m", "tests.redteam.site", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert site.stdout
        async with asyncio.timeout(30):
            assert await site.stdout.readline()
        await _run("ip", "link", "add", "fawn0", "type", "veth", "peer", "name", "fawn1", "netns", str(site.pid))
        await _run("ip", "address", "add", "10.99.0.1/30", "dev", "fawn0")
        await _run("ip", "link", "set", "fawn0", "up")
        await _run("ip", "route", "add", f"{NETWORK}.0/24", "dev", "fawn0")
        inside = ("nsenter", "--net", "--target", str(site.pid), "ip")
        await _run(*inside, "link", "set", "lo", "up")
        await _run(*inside, "address", "add", "10.99.0.2/30", "dev", "fawn1")
        await _run(*inside, "link", "set", "fawn1", "up")
        await _run(*inside, "route", "add", "local", f"{NETWORK}.0/24", "dev", "lo")
        yield True
    finally:
        if site.returncode is None:
            site.kill()
        await site.wait()


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, words = await process.communicate()
    assert process.returncode == 0, f"{' '.join(command)}: {words.decode()}"
