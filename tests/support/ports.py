"""Ports of this machine for servers that cannot choose one themselves."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of loopback on which nothing listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
