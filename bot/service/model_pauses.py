"""Have the pause that a model's server asks one process for kept by all that share the database.

A refusal names its end, so it is worth a letter: each process would be refused once more to learn it. That a server
fails is not told: the cause may be the network of one process, and the calls of the others would leave a good server.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from urllib.parse import urlsplit

from bot.base.letters import dump_letter, load_letter
from bot.database.data_lock import kernel_id
from bot.database.database import Database
from bot.rights.current import Current

log = logging.getLogger(__name__)

TOPIC = "models.paused"
LEAST_SECONDS = 0.5  # a shorter pause is over when the others hear of it
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})  # each machine has a server of its own there


def tell_pause(store: Database, server: str, seconds: float) -> None:
    """Tell the other processes, if there are any."""
    if store.is_shared and seconds >= LEAST_SECONDS:
        store.send(TOPIC, dump_letter("pause", server=_digest(server), seconds=round(seconds, 3)))


def read_pauses(store: Database, current: Current) -> None:
    """Have the calls of this process wait as others say. Its agent is loaded."""

    def take(_sender: str, text: str) -> None:
        letter = load_letter(text)
        server, seconds = letter.get("server"), letter.get("seconds")
        if not isinstance(server, str) or not isinstance(seconds, int | float) or seconds <= 0:
            return
        traffic = current.agent.traffic
        for model in current.agent.models.values():
            if _digest(model.settings.server) == server:
                traffic.endpoint_of(model.settings).pause(seconds)
                log.info("model.paused_elsewhere model=%s seconds=%.1f", model.settings.name, seconds)

    store.read_letters(TOPIC, take)


def _digest(server: str) -> str:
    """Return a server's name in letters: an address may hold what is not for a log of the database."""
    try:
        is_here = urlsplit(server).hostname in LOOPBACK
    except ValueError:  # no address
        is_here = False
    machine = _machine() if is_here else ""
    return hashlib.sha256(f"{machine} {server}".encode()).hexdigest()[:32]


def _machine() -> str:
    try:
        return kernel_id()
    except OSError:  # this system does not say it
        return socket.gethostname()
