"""Relay bytes between the sandbox's loopback and the host, over the unix socket of its proxy.

A child process of the command server carries each connection, so that heavy traffic never holds up a command and
nothing costs anything while it is idle. Standard library only, Python 3.9+.
"""

from __future__ import annotations

import contextlib
import select
import socket

CHUNK = 1 << 16
PORT = 3128
TAKEN = b"+"  # the host's word that it took over a connection


def listen() -> socket.socket:
    """Take connections on the sandbox's loopback. Raises OSError when somebody inside has the port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(64)
    listener.setblocking(False)
    return listener


def carry(client: socket.socket, path: str) -> None:
    """Give a connection to the host's proxy at `path`."""
    with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as host:
        host.connect(path)
        pump(client, host)


def dial(port: int, path: str, ticket: str) -> None:
    """Connect a port of the sandbox with the host, who waits at `path` for this ticket. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), 10) as client, socket.socket(socket.AF_UNIX) as host:
        host.connect(path)
        host.sendall(b"DIAL %s HTTP/1.0\r\n\r\n" % ticket.encode())
        with contextlib.suppress(OSError):
            if host.recv(1) == TAKEN:
                pump(client, host)


def pump(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until both have ended. Nothing is read for one who does not take what is there already."""
    ends = {one.fileno(): one, other.fileno(): other}
    peer = {one.fileno(): other.fileno(), other.fileno(): one.fileno()}
    waiting = dict.fromkeys(ends, b"")  # what is to be written, by whom it goes to
    reading = set(ends)
    for end in ends.values():
        end.setblocking(False)
    while reading or any(waiting.values()):
        poll = select.poll()
        for fd in ends:
            events = (select.POLLIN if fd in reading and not waiting[peer[fd]] else 0) | (
                select.POLLOUT if waiting[fd] else 0
            )
            if events:
                poll.register(fd, events)
        for fd, event in poll.poll():
            if event & select.POLLOUT and waiting[fd]:
                waiting[fd] = waiting[fd][ends[fd].send(waiting[fd]) :]
            elif fd in reading and not waiting[peer[fd]]:
                data = ends[fd].recv(CHUNK)
                waiting[peer[fd]] = data
                if not data:
                    reading.discard(fd)
                    ends[peer[fd]].shutdown(socket.SHUT_WR)
            elif event & (select.POLLERR | select.POLLNVAL):
                return
