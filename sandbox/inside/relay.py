"""Relay bytes between the sandbox's loopback and its proxy's unix socket.

A child process of the command server carries each connection, so traffic does not delay commands. Standard library
only, Python 3.9+.
"""

from __future__ import annotations

import contextlib
import select
import socket

CHUNK_BYTES = 1 << 16
PROXY_PORT = 3128
DIAL_ACCEPTED = b"+"  # the host accepts the connection with this byte


def open_listener() -> socket.socket:
    """Listen on the sandbox's loopback. Raises OSError if a command has taken the port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(64)
    listener.setblocking(False)
    return listener


def relay_to_proxy(client: socket.socket, path: str) -> None:
    """Connect a client to the host's proxy at `path`."""
    with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as host:
        host.connect(path)
        copy_both_ways(client, host)


def dial_port(port: int, path: str, ticket: str) -> None:
    """Connect a port of the sandbox with the host, which waits at `path` for this ticket. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), 10) as client, socket.socket(socket.AF_UNIX) as host:
        host.connect(path)
        host.sendall(b"DIAL %s HTTP/1.0\r\n\r\n" % ticket.encode())
        with contextlib.suppress(OSError):
            if host.recv(1) == DIAL_ACCEPTED:
                copy_both_ways(client, host)


def copy_both_ways(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes both ways until both ends close. Reads only after the other end took the bytes before."""
    ends = {one.fileno(): one, other.fileno(): other}
    peer = {one.fileno(): other.fileno(), other.fileno(): one.fileno()}
    waiting = dict.fromkeys(ends, b"")  # bytes to write, by destination
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
                data = ends[fd].recv(CHUNK_BYTES)
                waiting[peer[fd]] = data
                if not data:
                    reading.discard(fd)
                    ends[peer[fd]].shutdown(socket.SHUT_WR)
            elif event & (select.POLLERR | select.POLLNVAL):
                return
