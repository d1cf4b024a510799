"""Know whom a proxy in front of the page has signed in: by a header that counts from its address only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.config.http import IdentityConfig
from bot.http.route import HttpProblem
from bot.http.visitors import peer_of

if TYPE_CHECKING:
    from aiohttp import web

NOBODY = HttpProblem(
    *(403, "no_identity", "The proxy in front of Fawn says of nobody known that they are signed in."),
    "Sign in there. An operator lists in http.identity.people who is who.",
)
SIGN_IN = HttpProblem(401, "proxy_session", "The proxy has signed in somebody else.", "Open the page again.")

Person = tuple[str, str]  # channel and id


def signed_in_by_proxy(config: IdentityConfig, request: web.Request) -> Person | None:
    """Return the person whom the proxy names; None where no proxy asks. Raises HttpProblem where it names nobody."""
    if not config.header or not any(peer_of(str(request.remote)) in network for network in config.networks):
        return None
    names = request.headers.getall(config.header, ())
    known = config.people.get(names[0].strip()) if len(names) == 1 else None
    if known is None:
        raise NOBODY
    channel, _slash, id = known.partition("/")
    return channel, id
