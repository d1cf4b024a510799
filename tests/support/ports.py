"""Ports of this machine that belong to one test, also while nothing listens on them."""

from __future__ import annotations

import atexit
import socket

LOOPBACK = "127.0.0.1"


def hold_port(port: int = 0) -> socket.socket:
    """Bind a port of loopback (0: a free one) without listening: connections are refused, and no other server gets it.

    A server that names it may listen on it meanwhile: both set SO_REUSEADDR (Linux, `inet_csk_bind_conflict`).
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((LOOPBACK, port))
    return held


def free_port() -> int:
    """Return a port of loopback for a server of this test, which this process holds until its end."""
    held = hold_port()
    atexit.register(held.close)
    port: int = held.getsockname()[1]
    return port
