"""The section `http:` of config.yaml: the address where machines ask about the service."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.setting import setting
from bot.config.document import Document
from catalogue import N_, _

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """Who is signed in to the page, as a proxy in front of it says (docs/page.md)."""

    header: str = setting(
        "", "the header in which the proxy names who is signed in, such as X-Forwarded-Email; empty: it names nobody"
    )
    peers: tuple[str, ...] = setting(
        (), "addresses and networks of the proxy; from others the header counts nothing. The proxy must set it itself"
    )
    people: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "what the proxy calls people, and who they are: `jane@example.com: slack/U0123ABCD`",
            "keys": r"[^\x00-\x20\x7f]{1,200}",
            "key_wrong": N_("cannot be what a header names somebody"),
            "key_example": "jane@example.com",
            "values": r"[^\x00-\x20\x7f]{1,230}",
        },
    )

    @property
    def networks(self) -> Networks:
        """The networks of `peers`. Raises ValueError."""
        return tuple(map(ipaddress.ip_network, self.peers))


ORIGIN = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]{1,5})?|https?://\[[0-9a-f:]+\](?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The listener for machines: probes (docs/operations.md) and the HTTP API (docs/api.md)."""

    listen: str = setting("", "address and port, such as 127.0.0.1:8080; empty: no listener", example="127.0.0.1:8080")
    peers: tuple[str, ...] = setting(
        (),
        "addresses and networks that may ask the probes and the metrics beside this machine, such as 10.0.0.0/8 in a"
        " cluster; an address that is not this machine's own needs them or `proxies`",
    )
    proxies: tuple[str, ...] = setting(
        (),
        "addresses and networks of proxies with TLS on other machines, through which keys and messages may come; they"
        " must set `X-Forwarded-Proto`",
    )
    origins: tuple[str, ...] = setting(
        (), "pages of other addresses that may call the API with a key, such as https://chat.example.com (CORS)"
    )
    hosts: tuple[str, ...] = setting((), "names that requests may address it by, beside localhost and addresses")
    identity: IdentityConfig = setting(IdentityConfig(), "a proxy that signs people in to the page")

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port of `listen`. Raises ValueError where it is not HOST:PORT."""
        return split_address(self.listen)

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where to listen: at the first one that is free."""
        return (self.address,)

    @property
    def networks(self) -> Networks:
        """The networks of `peers` and `proxies`. Raises ValueError."""
        return tuple(map(ipaddress.ip_network, (*self.peers, *self.proxies)))

    @property
    def proxy_networks(self) -> Networks:
        """The networks of `proxies`. Raises ValueError."""
        return tuple(map(ipaddress.ip_network, self.proxies))


DEMO_PORT = 8484


@dataclass(frozen=True, slots=True, eq=False)
class DemoHttpConfig(HttpConfig):
    """The listener of a first try, which serves the page to this machine while nothing is configured.

    It takes another port where its own is in use. To a reload it is the section that names no address.
    """

    opens: bool = False  # the page, on the desktop of who started it

    @classmethod
    def on_loopback(cls, *, opens: bool) -> DemoHttpConfig:
        """Return the one of this machine."""
        return cls(f"127.0.0.1:{DEMO_PORT}", opens=opens)

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where to listen: at its own port, or else at any."""
        return (self.address, ("127.0.0.1", 0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HttpConfig) and (isinstance(other, DemoHttpConfig) or not other.listen)

    def __hash__(self) -> int:
        return hash(HttpConfig())


def split_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`, in which the host is an address or `localhost`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdecimal() else -1
    if not colon or not 0 <= number <= 65535:
        raise ValueError(text)
    if host != "localhost":
        ipaddress.ip_address(host)
    return host, number


def is_this_machine(host: str) -> bool:
    """Return whether only this machine reaches this address."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def check_http(document: Document, section: object) -> None:
    """The address is one, peers and proxies are networks, and an address that others reach names some."""
    values = section if isinstance(section, dict) else {}
    listen, identity = values.get("listen"), values.get("identity")
    peers = values.get("peers") or values.get("proxies")
    for name in ("peers", "proxies"):
        _check_networks(document, ("http", name), values.get(name))
    _check_origins(document, values.get("origins"))
    if isinstance(identity, dict):
        _check_networks(document, ("http", "identity", "peers"), identity.get("peers"))
        if identity.get("header") and not identity.get("peers"):
            fix = _("name the address of the proxy that sets it, such as 10.0.0.7")
            document.fault(("http", "identity", "peers"), _("is missing: everybody could send this header"), fix)
    if not listen or not isinstance(listen, str):
        return
    try:
        host, _port = split_address(listen)
    except ValueError:
        document.fault(("http", "listen"), _("is no address with a port"), _("such as 127.0.0.1:8080"))
        return
    if not is_this_machine(host) and not peers:
        wrong = _("would let every machine that reaches this one connect")
        fix = _("write 127.0.0.1:PORT, or name the proxy with TLS in `http.proxies`, or the probes in `http.peers`")
        document.fault(("http", "listen"), wrong, fix)


def _check_origins(document: Document, origins: object) -> None:
    """Each entry is what a browser sends as the origin of a page."""
    entries: Iterable[object] = origins if isinstance(origins, list) else ()
    for i, origin in enumerate(entries):
        if not ORIGIN.fullmatch(str(origin)):
            fix = _("write scheme and name as browsers send them, such as https://chat.example.com")
            document.fault(("http", "origins", i), _("is no origin of a page"), fix)


def _check_networks(document: Document, path: tuple[str, ...], peers: object) -> None:
    """Each entry is an address or a network."""
    entries: Iterable[object] = peers if isinstance(peers, list) else ()
    for i, peer in enumerate(entries):
        try:
            ipaddress.ip_network(str(peer))
        except ValueError:
            fix = _("write an address such as 10.0.0.7, or a network such as 10.0.0.0/8")
            document.fault((*path, i), _("is no address and no network"), fix)
