"""Signing in to the page by a proxy in front of it, which names people in a header."""

from __future__ import annotations

import aiohttp

from tests.e2e.conftest import Start
from tests.e2e.test_page import browser, visitor
from tests.e2e.test_probes import address_of
from tests.fakes.server import until
from tests.support.browser import Browser
from tests.support.service_process import Service, ask

__all__ = ["browser"]
HEADER = "X-Forwarded-Email"
PEOPLE = {
    "jane@corp.example": "telegram/7",
    "ann@corp.example": "telegram/8",
    "gone@corp.example": "discord/1234567890123456",
}


def behind(peers: list[str]) -> dict[str, object]:
    return {"listen": "127.0.0.1:0", "identity": {"header": HEADER, "peers": peers, "people": PEOPLE}}


async def sign_in(service: Service, **headers: str) -> tuple[int, str, str]:
    """Return status, code and cookie of a sign-in by the proxy."""
    address = address_of(service)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
        client.post(f"{address}/page/login", json={"proxy": True}, headers={"Origin": address, **named}) as answer,
    ):
        found = await answer.json(content_type=None)
        return answer.status, found.get("code", ""), answer.headers.get("Set-Cookie", "").partition(";")[0]


async def test_the_header_of_the_proxy_signs_in_and_decides_whose_session_counts(start: Start) -> None:
    service = await start(http=behind(["127.0.0.1"]))
    await until(lambda: bool(address_of(service)), what="the listener")
    status, _code, cookie = await sign_in(service, X_Forwarded_Email="jane@corp.example")
    assert status == 200
    assert cookie
    async with visitor(service) as send:
        jane = {"Cookie": cookie, "X_Forwarded_Email": "jane@corp.example"}
        assert (await send("GET", "/page/me", **jane))[0] == 200
        ann = {**jane, "X_Forwarded_Email": "ann@corp.example"}
        assert await send("GET", "/page/me", **ann) == (401, "proxy_session")
        assert await send("GET", "/page/me", X_Forwarded_Email="ann@corp.example") == (401, "proxy_session")
        for blank in ({}, {"X_Forwarded_Email": ""}, {"X_Forwarded_Email": "eve@corp.example"}):
            assert await send("GET", "/page/me", Cookie=cookie, **blank) == (403, "no_identity")
            assert (await sign_in(service, **blank))[:2] == (403, "no_identity")
        assert (await send("GET", "/v1/threads", **jane))[1] == "no_key", "it opens the page only"
    gone = (await sign_in(service, X_Forwarded_Email="gone@corp.example"))[2]
    async with visitor(service) as send:
        nobody = {"Cookie": gone, "X_Forwarded_Email": "gone@corp.example"}
        assert await send("GET", "/page/me", **nobody) == (403, "no_access"), "a name without a role is nobody"
    kinds = [row for (row,) in service.rows("SELECT CAST(body AS TEXT) FROM audit") if "page.signed_in" in row]
    assert len(kinds) == 2
    assert all('"by":"proxy"' in row.replace(" ", "") for row in kinds)


async def test_the_header_counts_from_the_address_of_the_proxy_only(start: Start) -> None:
    service = await start(http=behind(["10.9.8.7"]))
    await until(lambda: bool(address_of(service)), what="the listener")
    assert (await sign_in(service, X_Forwarded_Email="jane@corp.example"))[:2] == (422, "bad_body")
    async with visitor(service) as send:
        assert await send("GET", "/page/me", X_Forwarded_Email="jane@corp.example") == (401, "no_session")


async def test_a_browser_behind_the_proxy_is_signed_in_unasked_and_changes_with_the_person(
    start: Start, browser: Browser
) -> None:
    service = await start(http=behind(["127.0.0.1"]))
    await until(lambda: bool(address_of(service)), what="the listener")
    tab = await browser.tab()
    await tab.call("Network.setExtraHTTPHeaders", headers={HEADER: "jane@corp.example"})
    await tab.go(address_of(service))
    await tab.send(ask(text="for jane"))
    await tab.until("document.querySelectorAll('.threads li').length === 1")
    await tab.call("Network.setExtraHTTPHeaders", headers={HEADER: "ann@corp.example"})
    await tab.eval("location.href = '/'")
    await tab.until("document.querySelector('.hello')")
    assert await tab.count(".threads li") == 0
    await tab.call("Network.setExtraHTTPHeaders", headers={HEADER: ""})
    await tab.reload()
    await tab.until("document.body.innerText.includes('does not say who you are')")
