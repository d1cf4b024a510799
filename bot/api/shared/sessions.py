"""Sign people in to the page: a link that is opened once becomes a session of 12 hours, which a cookie shows.

The cookie opens only what `for_page` wraps, for pages of this address: `SameSite=Strict`, an own `Origin` on each
write, and no request of another site's page. Browsers share cookies among the ports of a host: its name has the port.

Know whom a proxy in front of the page has signed in: by a header that counts from its address only.
"""

from __future__ import annotations

import secrets
import time
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from bot.api.shared.keys import find_good_key, find_known_person, hash_key
from bot.config.addresses import parse_person
from bot.config.http import IdentityConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import PageLogin
from bot.database.web_people import web_id
from bot.http.route import HttpProblem, Route
from bot.http.visitors import OWN_PAGES, own_origins, peer_of
from bot.storage import api_access
from bot.storage.api_access import PageSessionRow

if TYPE_CHECKING:
    from aiohttp import web


NOBODY = HttpProblem(
    *(403, "no_identity", "The proxy in front of Fawn says of nobody known that they are signed in."),
    "Sign in there. An operator lists in http.identity.people who is who.",
)
SIGN_IN = HttpProblem(401, "proxy_session", "The proxy has signed in somebody else.", "Open the page again.")

OTHER_PERSON = HttpProblem(401, "other_person", "Another person is signed in here now.", "Open the page again.")
SIGNED_IN = HttpProblem(
    *(409, "signed_in_here", "Another person is signed in here."),
    'Send "replace": true with it to sign in instead of them.',
)
PERSON_HEADER = "Fawn-Person"  # whom a tab shows, quoted: their session may have given way to another person's
PERSON_QUERY = "person"  # the same, of a stream, which sends no header

Person = tuple[str, str]  # channel and id


def signed_in_by_proxy(config: IdentityConfig, request: web.Request) -> Person | None:
    """Return the person whom the proxy names; None where no proxy asks. Raises HttpProblem where it names nobody."""
    if not config.header or not any(peer_of(str(request.remote)) in network for network in config.networks):
        return None
    names = request.headers.getall(config.header, ())
    known = config.people.get(names[0].strip()) if len(names) == 1 else None
    if known is None:
        raise NOBODY
    return parse_person(known)


PAGE = "/page"  # begins the path of each route that the cookie opens
LOGIN = "/login"
LINK_SECONDS, SESSION_SECONDS = 600.0, 12 * 3600.0
LINK_BYTES = 16  # of the token of a link, which a person may have to type: good once, for a short time
TOKEN_BYTES = 32
READING = ("GET", "HEAD")
NO_SESSION = HttpProblem(
    401, "no_session", "You are not signed in.", "Run `fawn web link` and open the address that it prints."
)
BAD_LINK = HttpProblem(
    *(401, "bad_link", "This link was used before, or it is older than 10 minutes."),
    "Run `fawn web link` and open the address that it prints.",
)
BAD_KEY = HttpProblem(401, "bad_key", "This key is not known, or it has ended.", "`fawn key list` shows the keys.")

cookie_var: ContextVar[str | None] = ContextVar("page_cookie", default=None)
"""The session that the cookie of the current request shows; None where it is no request of the page."""


def make_link(execute: Execute, channel: str, person: str, what: dict[str, int | str]) -> str:
    """Return a token with which a person signs in once, within LINK_SECONDS."""
    token, now = secrets.token_urlsafe(LINK_BYTES), time.time()
    row = PageSessionRow(hash_key(token), PageLogin.LINK, channel, person, "", "", now, now + LINK_SECONDS)
    api_access.add_session(execute, row)
    _record(execute, AuditKind.PAGE_LINK, row, what)
    return token


def link_for(execute: Execute, named: str, what: dict[str, int | str]) -> tuple[str, str, str]:
    """Return a new token with channel and id of its person, who is named as for a key. Raises BadKey."""
    channel, id = find_known_person(execute, named)
    return make_link(execute, channel, id, what), channel, id


def link_address(address: str, token: str) -> str:
    """Return the link: its token is in the fragment, which no log, no referrer and no prefetching has."""
    return f"{address}{LOGIN}#{token}"


def use_link(execute: Execute, token: str, cookie: str, *, replaces: bool) -> tuple[str, PageSessionRow]:
    """Begin the session of a link and return its token. Raises HttpProblem, also where it must not replace the session
    of another person that `cookie` shows: the link is good still."""
    now = time.time()
    link = api_access.take_link(execute, hash_key(token), now)
    if link is None:
        raise BAD_LINK
    live = api_access.find_session(execute, hash_key(cookie), now)
    if live and not replaces and (live.channel, live.person) != (link.channel, link.person):
        raise SIGNED_IN
    return _begin_session(execute, link, "link")


def use_key(execute: Execute, key: str) -> tuple[str, PageSessionRow]:
    """Begin a session that may what a key may, and ends with it. Raises HttpProblem."""
    row = find_good_key(execute, key, time.time())
    if row is None:
        raise BAD_KEY
    begun = PageSessionRow("", PageLogin.SESSION, row.channel, row.person, row.scopes, row.hash, 0.0, 0.0)
    return _begin_session(execute, begun, "key")


def use_identity(execute: Execute, channel: str, person: str) -> tuple[str, PageSessionRow]:
    """Begin the session of a person whom the proxy has signed in."""
    return _begin_session(execute, PageSessionRow("", PageLogin.SESSION, channel, person, "", "", 0.0, 0.0), "proxy")


def _begin_session(execute: Execute, origin: PageSessionRow, by: str) -> tuple[str, PageSessionRow]:
    token, now = secrets.token_urlsafe(TOKEN_BYTES), time.time()
    until = now + SESSION_SECONDS
    row = replace(origin, hash=hash_key(token), kind=PageLogin.SESSION, created=now, until=until)
    api_access.add_session(execute, row)
    _record(execute, AuditKind.PAGE_SIGNED_IN, row, {"by": by})
    return token, row


def find_session(execute: Execute, token: str) -> PageSessionRow:
    """Return a session by the token of its cookie. Raises HttpProblem."""
    if row := api_access.find_session(execute, hash_key(token), time.time()):
        return row
    raise NO_SESSION


def check_person(row: PageSessionRow, shown: str) -> None:
    """Raise the refusal where a tab shows another person than that of the session; "" shows none."""
    if shown and unquote(shown) != web_id(row.channel, row.person):
        raise OTHER_PERSON


def sign_out(execute: Execute, token: str, shown: str) -> None:
    """End the session of the person whom the tab shows, if it has not ended. Raises HttpProblem."""
    if row := api_access.find_session(execute, hash_key(token), time.time()):
        check_person(row, shown)
    if row := api_access.end_session(execute, hash_key(token)):
        _record(execute, AuditKind.PAGE_SIGNED_OUT, row, {})


def _record(execute: Execute, kind: AuditKind, row: PageSessionRow, what: dict[str, int | str]) -> None:
    person = audit.person_name(row.channel, row.person)
    audit.record(execute, AuditEvent(kind, subject=person, what={**what, "session": row.hash[:16]}))


# ------------------------------------------------------------ over HTTP


def cookie_name(request: web.Request) -> str:
    """Return the name of the cookie at this address."""
    return f"fawn-{request.url.port}"


def refuse_other_pages(request: web.Request) -> None:
    """Raise the refusal of a request with a cookie that a page of this address did not send.

    A browser names the page of each write in `Origin`, so one without it is refused, too
    (https://html.spec.whatwg.org/multipage/browsing-the-web.html#the-origin-header).
    """
    sites = request.headers.getall("Sec-Fetch-Site", ())
    origins = request.headers.getall("Origin", ())
    written_here = request.method in READING or (len(origins) == 1 and origins[0] in own_origins(request))
    if not written_here or not all(site in OWN_PAGES for site in sites):
        fix = "Open the page at this address, and do it there."
        raise HttpProblem(403, "foreign_page", "A page of another address sent this.", fix)


def for_page(route: Route, path: str = "") -> Route:
    """Return a route of the API for the page: below PAGE, opened by the cookie instead of a key."""

    async def handle(request: web.Request) -> web.StreamResponse:
        refuse_other_pages(request)
        cookie_var.set(request.cookies.get(cookie_name(request), ""))
        return await route.handle(request)

    return replace(route, path=PAGE + (path or route.path), handle=handle)
