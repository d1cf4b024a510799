"""Refuse who may not ask: by the connection's other end, the name it uses, and a browser's page."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from bot.config.http import HttpConfig
from bot.database.audit import use_os_user
from bot.http.route import HttpProblem

if TYPE_CHECKING:  # the command line imports this
    from aiohttp import web

NAME_ADDRESSES = "The operator names addresses in http.peers."
NAME_NAMES = "The operator names names in http.hosts."
NAME_PROXIES = "The operator names the proxy in http.proxies."
SET_PROTO = "The operator has the proxy set X-Forwarded-Proto."
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
OWN_PAGES = ("same-origin", "none")  # of Sec-Fetch-Site: a page of this address, or a person's own hand


def refuse_visitor(config: HttpConfig, request: web.Request) -> None:
    """Raise the refusal of a request over the network that may not be answered, whatever it asks."""
    refuse_strangers(config, request)
    refuse_foreign_pages(config, request)


def admit_user(config: HttpConfig, request: web.Request) -> None:
    """Have a request over the socket count as the user's whom the kernel names (unix(7), SO_PEERCRED).

    Raises the refusal of a user other than the service's own and root, whatever the mode of the socket is, and of a
    page that reaches the socket through a program of that user, such as socat.
    """
    refuse_foreign_names(config, request)
    refuse_foreign_pages(config, request)
    end = request.transport.get_extra_info("socket") if request.transport else None
    if end is None:
        raise HttpProblem(403, "foreign_user", "The user at the other end has gone.")
    raw = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user = int(struct.unpack("3i", raw)[1])
    if user not in (0, os.geteuid()):
        raise HttpProblem(403, "foreign_user", "This user may not ask.", "Ask as the user that the service runs as.")
    use_os_user(user)


def refuse_strangers(config: HttpConfig, request: web.Request) -> None:
    """Raise the refusal of a peer that may not connect, and of a foreign name."""
    if not may_connect(config, str(request.remote)):
        raise HttpProblem(403, "foreign_peer", "This address may not connect.", NAME_ADDRESSES)
    refuse_foreign_names(config, request)


def refuse_foreign_names(config: HttpConfig, request: web.Request) -> None:
    """Raise the refusal of a name of the server that is not its own: a page in a browser can make one lead here."""
    try:
        name = request.url.host or ""
    except ValueError:  # no name at all, such as a port beyond numbers
        name = ""
    if not is_own_name(config, name):
        raise HttpProblem(421, "foreign_host", "This name is not served here.", NAME_NAMES)


def refuse_unencrypted(config: HttpConfig, request: web.Request) -> None:
    """Raise the refusal of what came over a network without TLS: a key would have been readable there."""
    if is_loopback(str(request.remote)):
        return
    if not is_within(str(request.remote), config.proxy_networks):
        raise HttpProblem(403, "no_proxy", "This path answers through a proxy with TLS only.", NAME_PROXIES)
    if request.headers.getall("X-Forwarded-Proto", ()) != ["https"]:
        raise HttpProblem(403, "no_tls", "The proxy does not say that TLS was used.", SET_PROTO)


def refuse_foreign_pages(config: HttpConfig, request: web.Request) -> None:
    """Raise the refusal of what a page of another address sends through its reader's browser.

    A browser names the page in `Origin`, and its relation in `Sec-Fetch-Site` (https://www.w3.org/TR/fetch-metadata/).
    A link of another page may be followed: that page cannot read what it opens.
    """
    headers = request.headers
    followed = (request.method, headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == (
        *("GET", "navigate", "document"),
    )
    from_own_page = all(site in OWN_PAGES for site in headers.getall("Sec-Fetch-Site", ()))
    if names_origin(config, request):
        return
    if not own_origins(request).issuperset(headers.getall("Origin", ())) or not (from_own_page or followed):
        fix = "Ask from a program, or from a page that this address serves."
        raise HttpProblem(403, "foreign_page", "A page of another address sent this.", fix)


def own_origins(request: web.Request) -> set[str]:
    """Return how a browser names the pages of this address in `Origin`: over TLS where a proxy adds that."""
    return {f"{scheme}://{request.host}" for scheme in ("http", "https")}


def may_connect(config: HttpConfig, address: str) -> bool:
    """Return whether the other end of a connection, by its address, is this machine or a peer."""
    return is_loopback(address) or is_within(address, config.networks)


def is_loopback(address: str) -> bool:
    """Return whether the other end of a connection is this machine."""
    return peer_of(address).is_loopback


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether the other end of a connection is in one of the networks."""
    return any(peer_of(address) in network for network in networks)


def names_origin(config: HttpConfig, request: web.Request) -> bool:
    """Return whether a page that may call the API from its own address sent this."""
    origins = request.headers.getall("Origin", ())
    return len(origins) == 1 and origins[0] in config.origins


@lru_cache(maxsize=1024)
def peer_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the other end of a connection by its address: without the zone of a link-local one, IPv4 as such."""
    peer = ipaddress.ip_address(address.partition("%")[0])
    return peer.ipv4_mapped or peer if isinstance(peer, ipaddress.IPv6Address) else peer


@lru_cache(maxsize=1024)
def is_address(name: str) -> bool:
    """Return whether a name of a server is an address: no page can make a browser believe that one is its own."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_own_name(config: HttpConfig, name: str) -> bool:
    """Return whether a request may name its server so."""
    return name in ("localhost", *config.hosts) or is_address(name)
