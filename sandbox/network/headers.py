"""Filter the headers between a browser and a server inside a sandbox.

Only listed headers pass. A request does not carry anything that identifies the person (cookies of other sites,
credentials, headers of a proxy in front). A response cannot affect other pages in the browser. Cookie names carry the
link's name outside, so a link gets back only the cookies it set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.network.http import CLOSE, UPGRADE, Head, Headers, forwarded_headers, header_value

REQUEST_HEADERS = frozenset(b"""
    accept accept-charset accept-encoding accept-language access-control-request-headers access-control-request-method
    cache-control content-encoding content-language content-length content-type dnt if-match if-modified-since
    if-none-match if-range if-unmodified-since last-event-id pragma prefer priority purpose range sec-fetch-dest
    sec-fetch-mode sec-fetch-site sec-fetch-user sec-gpc sec-websocket-extensions sec-websocket-key
    sec-websocket-protocol sec-websocket-version transfer-encoding upgrade-insecure-requests user-agent

    apollo-require-preflight connect-protocol-version connect-timeout-ms grpc-timeout next-action next-router-prefetch
    next-router-segment-prefetch next-router-state-tree next-url rsc tus-resumable turbo-frame upload-length
    upload-metadata upload-offset x-csrf-token x-csrftoken x-grpc-web x-http-method-override x-nextjs-data
    x-requested-with x-user-agent x-xsrf-token x-xsrftoken
""".split())  # fmt: skip
RESPONSE_HEADERS = frozenset(b"""
    accept-patch accept-post accept-ranges access-control-allow-credentials access-control-allow-headers
    access-control-allow-methods access-control-allow-origin access-control-expose-headers access-control-max-age age
    allow cache-control content-disposition content-encoding content-language content-length content-location
    content-range content-security-policy content-type cross-origin-embedder-policy cross-origin-opener-policy
    cross-origin-resource-policy date etag expires last-modified permissions-policy pragma refresh retry-after
    sec-websocket-accept sec-websocket-extensions sec-websocket-protocol server server-timing sourcemap
    timing-allow-origin transfer-encoding vary x-content-type-options x-dns-prefetch-control x-frame-options
    x-robots-tag

    grpc-message grpc-status tus-resumable upload-expires upload-length
    upload-offset x-action-redirect x-action-revalidated x-nextjs-cache x-nextjs-redirect x-nextjs-rewrite
    x-request-id x-runtime x-total-count
""".split())  # fmt: skip
HEADER_PREFIXES = (b"hx-", b"x-inertia")  # of htmx and Inertia
COOKIE_ATTRIBUTES = frozenset(("expires", "httponly", "max-age", "partitioned", "samesite", "secure"))
BLANKS = " \t"


@dataclass(frozen=True, slots=True)
class LinkSite:
    """A link in the browser: its secret name, port inside, host, and path prefix ("" with its own host)."""

    name: str
    port: int
    host: str
    prefix: str

    @property
    def inside(self) -> str:
        """The server's own name for itself."""
        return f"localhost:{self.port}"


def request_headers(head: Head, site: LinkSite) -> Headers:
    """Return the headers for the server: its own name, and no addresses of other sites' pages."""
    fields = [(b"Host", site.inside.encode()), *_allowed_headers(head, REQUEST_HEADERS)]
    if origin := header_value(head, b"origin"):
        own = origin.partition("://")[2] in (site.host, header_value(head, b"host"))
        fields.append((b"Origin", (f"http://{site.inside}" if own else origin).encode("latin-1")))
    came = re.match(r"https?://([^/]+)(/.*)", header_value(head, b"referer"))
    if came and came[1] in (site.host, header_value(head, b"host")) and came[2].startswith(f"{site.prefix}/"):
        fields.append((b"Referer", f"http://{site.inside}{came[2].removeprefix(site.prefix)}".encode("latin-1")))
    if cookies := _own_cookies(head, _cookie_prefix(site)):
        fields.append((b"Cookie", cookies.encode("latin-1")))
    upgrades = header_value(head, b"upgrade").lower() == "websocket"
    return [*fields, *(UPGRADE if upgrades else [CLOSE])]


def response_headers(head: Head, site: LinkSite) -> Headers:
    """Return the headers for the browser."""
    fields = _allowed_headers(head, RESPONSE_HEADERS)
    for name, content in head.headers:
        text = content.decode("latin-1")
        if name == b"set-cookie" and (cookie := _marked_cookie(text, site)):
            fields.append((b"Set-Cookie", cookie.encode("latin-1")))
        elif name == b"location":
            where = re.sub(rf"^https?://(localhost|127\.0\.0\.1)(:{site.port})?(?=/|$)", "", text) or "/"
            fields.append((b"Location", (site.prefix * where.startswith("/") + where).encode("latin-1")))
    # The URL has the token: other sites must not get it as a Referer.
    return [*fields, (b"Referrer-Policy", b"same-origin")]


def _allowed_headers(head: Head, names: frozenset[bytes]) -> Headers:
    return [
        (name, text)
        for name, text in forwarded_headers(head)
        if name.lower() in names or name.lower().startswith(HEADER_PREFIXES)
    ]


def _cookie_prefix(site: LinkSite) -> str:
    return f"fawn-{site.name}-"


def _own_cookies(head: Head, mark: str) -> str:
    """Return the request's cookies that this link set, under their own names."""
    sent = (text.decode("latin-1").split(";") for name, text in head.headers if name == b"cookie")
    cookies = (cookie.strip(BLANKS) for part in sent for cookie in part)
    return "; ".join(cookie.removeprefix(mark) for cookie in cookies if cookie.startswith(mark))


def _marked_cookie(text: str, site: LinkSite) -> str:
    """Mark a cookie for this link, parsed as browsers do (RFC 6265 §5.2); "" if it is invalid."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
        return ""
    pair, *attributes = text.split(";")
    name, equals, content = pair.partition("=")
    if not equals:
        name, content = "", name
    kept, path = [], "/"
    for attribute in attributes:
        key, _, setting = (part.strip(BLANKS) for part in attribute.partition("="))
        if key.lower() == "path":
            path = setting if setting.startswith("/") else "/"
        elif key.lower() in COOKIE_ATTRIBUTES:
            kept.append(attribute.strip(BLANKS))
    return "; ".join(
        [f"{_cookie_prefix(site)}{name.strip(BLANKS)}={content.strip(BLANKS)}", *kept, f"Path={site.prefix}{path}"]
    )
