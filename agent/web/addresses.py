"""Decide which URLs and addresses may be requested, so that a page never leads into a private network."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from catalogue import LocalizedError
from sandbox.rules import WEB_PORTS, is_near, is_public, unwrap_ipv4

MAX_URL_CHARS = 4000


class WebError(LocalizedError):
    """A page or a search is not available. The text is for the model; `fawn check` shows those of searches."""


@dataclass(frozen=True, slots=True)
class AddressGuard(AbstractResolver):
    """Allows public addresses on the web's ports. Is the resolver of the connections it guards.

    The connector uses the addresses that `resolve` returns, so a second lookup cannot return others. Only tests set
    `exempt` (addresses), `ports` and another `resolver`.
    """

    ports: frozenset[int] = frozenset(WEB_PORTS)
    exempt: frozenset[str] = frozenset()
    resolver: AbstractResolver | None = None
    hosts: tuple[str, ...] = ()  # the only ones, with their subdomains
    private: tuple[str, ...] = ()  # those whose address need not be public, in normal form

    def check_url(self, text: str) -> URL:
        """Return the URL without its fragment. Raises WebError if it may not be requested."""
        if len(text) > MAX_URL_CHARS or re.search(r"[\x00-\x20\x7f\\]", text):
            raise WebError("This is not a valid URL.")
        try:
            url = URL(text).with_fragment(None)
            host, port = url.host, url.port
        except ValueError as error:
            raise WebError("This is not a valid URL.") from error
        if url.scheme not in ("http", "https") or not host or url.user or url.password:
            raise WebError("Only http and https URLs without a user name can be read.")
        if port not in self.ports:
            raise WebError(f"Port {port} cannot be read, only 80 and 443.")
        if self.hosts and not self._is_listed(host):
            raise WebError(f"{host} is not one of the hosts that this installation allows (web.hosts).")
        # aiohttp does not ask the resolver about an address.
        if (address := _literal_address(host)) and not self._is_allowed(address, host):
            raise WebError(f"{host} is not a public address.")
        return url

    async def check_name(self, url: URL) -> None:
        """Check the host of a URL that a proxy resolves, as far as it is known here. Raises WebError."""
        try:
            await self.resolve(url.host or "", url.port or 0)
        except OSError:
            return  # only the proxy knows it

    def _is_listed(self, host: str) -> bool:
        name = host.rstrip(".").lower()
        return any(name == each or name.endswith(f".{each}") for each in (h.lower().strip(".") for h in self.hosts))

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve a name. Raises WebError if any of its addresses is not public: such a mixture is an attack."""
        found = await (self.resolver or ThreadedResolver()).resolve(host, port, family)
        if not all(self._is_allowed(each["host"], host) for each in found):
            raise WebError(f"{host} has an address that is not public.")
        return found

    async def close(self) -> None:
        """Do nothing: connections come and go, their guard stays."""

    def _is_allowed(self, address: str, host: str) -> bool:
        ip = unwrap_ipv4(ipaddress.ip_address(address.partition("%")[0]))
        if str(ip) in self.exempt or str(ip) in self.private:
            return True
        return not is_near(ip) and (is_public(ip) or host.removesuffix(".").lower() in self.private)


def _literal_address(host: str) -> str:
    """Return the address that a URL's host is, or "". The C library also accepts `127.1`, `0x7f000001` and `0177.1`."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    if not re.fullmatch(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}\.?", host, re.IGNORECASE):
        return ""
    try:
        return socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    except OSError as error:
        raise WebError("This is not a valid address.") from error
