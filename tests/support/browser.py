"""A real Chromium, driven through the Chrome DevTools Protocol. https://chromedevtools.github.io/devtools-protocol/

The tests of one process share a Chromium, which takes seconds of CPU to start: each gets a context of its own, with its
own cookies, storage and cache (`shared_chromium`). `chromium` starts another one, for what needs its own.

No wait of a fixed time: `Tab.until` looks until an expression of the page is true.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.engines import need_chromium
from tests.support.run_folder import run_folder

LOOK_SECONDS, MAX_LOOK_SECONDS = 0.03, 0.1  # between two looks: each one keeps the page and a core busy
PATIENCE_SECONDS = 60.0
KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "Backspace": (8, ""),
}
ALT, CTRL, SHIFT = 1, 2, 8
# A test has many windows, of which none is in front. A tab that Chromium takes for one in the background gets timers of
# a second and less of the processor: none for a minute on a busy machine. Shared memory of containers is often 64 MB,
# and a tab that finds it full ends without a word. https://peter.sh/experiments/chromium-command-line-switches/
NEVER_IN_THE_BACKGROUND = (
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-hang-monitor",
    "--disable-dev-shm-usage",
)


# what Chromium says of a document that a navigation has replaced, and a page of an element that is not there yet
PASSING_FAULTS = ("context", "navigated or closed", "null")


# Notes whether the next click is one of a part, before the page sees it; the page does not see another one.
WATCH_CLICK = """
    removeEventListener("click", window.clickWatcher, true);
    window.clicked = false;
    window.clickWatcher = (event) => {
        window.clicked = Boolean(%s?.contains(event.target));
        if (window.clicked) return removeEventListener("click", window.clickWatcher, true);
        event.stopImmediatePropagation();
        event.preventDefault();
    };
    addEventListener("click", window.clickWatcher, true);
    0
"""


class PageError(AssertionError):
    """An expression failed in the page."""


class Tab:
    """One tab. `problems` has what its console reported: exceptions, errors, and reports of the policy."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._browser = browser
        self._target = target
        self._session = session
        browser.listeners[session] = self._hear

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(each.get("value")) for each in params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Inspector.targetCrashed":
            self._browser.crash(self._session)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol."""
        return await self._browser.call(method, self._session, **params)

    async def go(self, address: str) -> None:
        """Open an address, until it is loaded."""
        await self.call("Page.navigate", url=address)
        await self.until("document.readyState === 'complete'", what=address)

    async def reload(self) -> None:
        """Load the page again, and wait until the new document is there: a look before would see the old one."""
        await self.eval("window.old = true; location.reload()")
        await self.until("!window.old && document.readyState === 'complete'", what="the page that was reloaded")

    async def eval(self, expression: str) -> Any:
        """Return the value of an expression, which may be a promise."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if details := found.get("exceptionDetails"):
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    async def until(self, expression: str, seconds: float = PATIENCE_SECONDS, what: str = "") -> Any:
        """Wait until an expression is true, and return its value; True for an element. A navigation does not end it."""
        look = f"Promise.resolve({expression}).then((found) => found instanceof Node || found)"
        try:
            async with asyncio.timeout(seconds):
                for wait in itertools.chain([LOOK_SECONDS] * 10, itertools.repeat(MAX_LOOK_SECONDS)):
                    try:
                        if value := await self.eval(look):
                            return value
                    except PageError as error:
                        if not any(each in str(error) for each in PASSING_FAULTS):
                            raise
                    await asyncio.sleep(wait)
        except TimeoutError:
            shown = await self.eval("document.body ? document.body.innerText : ''")
            raise AssertionError(f"never true: {what or expression}\n{self.problems}\n{shown}") from None

    async def text(self, selector: str = "body") -> str:
        """Return what a part of the page shows; "" where it is not there."""
        return str(await self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def count(self, selector: str) -> int:
        """Return how many parts match."""
        return int(await self.eval(f"document.querySelectorAll({json.dumps(selector)}).length"))

    async def click(self, selector: str, index: int = 0) -> None:
        """Click with the mouse in the middle of a visible part. Where it moved away from under the mouse, it was no
        click of this part, and nobody sees it: it comes again."""
        find = f"document.querySelectorAll({json.dumps(selector)})[{index}]"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                x, y = await self._resting_place(selector, find)
                await self.eval(WATCH_CLICK % find)
                for kind in ("mousePressed", "mouseReleased"):
                    await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
                try:
                    if await self.eval("window.clicked ?? 'left'"):  # it may have opened another document
                        return
                except PageError as error:
                    if not any(each in str(error) for each in PASSING_FAULTS):
                        raise
                    return

    async def _resting_place(self, selector: str, find: str) -> tuple[float, float]:
        """Return the middle of a part, once it has stopped moving."""
        middle = (
            f"(() => {{ const e = {find}; if (!e?.checkVisibility()) return;"
            " e.scrollIntoView({block: 'nearest'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        before, place = None, await self.eval(middle)
        while not place or place != before:
            await self.until(f"{find}?.checkVisibility()", what=f"{selector} to be visible")
            await asyncio.sleep(0.1)  # several frames
            before, place = place, await self.eval(middle)
        x, y = place
        return x, y

    async def write(self, text: str, selector: str = "#text") -> None:
        """Write into a field, as an input method does."""
        await self.until(f"document.querySelector({json.dumps(selector)})?.checkVisibility()", what=selector)
        await self.eval(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key."""
        code, text = KEYS.get(key, (ord(key[0].upper()), "" if modifiers & CTRL else key))
        name = key if len(key) > 1 else f"Key{key.upper()}"
        values = {"key": key, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        typed = {"text": text} if text and not modifiers & CTRL else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **values, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    async def send(self, text: str) -> None:
        """Write a message and press Enter."""
        await self.write(text)
        await self.press("Enter")

    async def picture(self, path: Path) -> None:
        """Store what the tab shows."""
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    async def resize(self, width: int, height: int, *, scale: float = 1, mobile: bool = False) -> None:
        """Give the window another size."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    async def prefer(self, **features: str) -> None:
        """Set media features, such as prefers_color_scheme="dark"."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", features=listed)

    async def offline(self, *, cut: bool) -> None:
        """Cut the connection of this tab, or bring it back."""
        await self.call(
            "Network.emulateNetworkConditions", offline=cut, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    async def close(self) -> None:
        """Close the tab."""
        await self._browser.call("Target.closeTarget", targetId=self._target)


class Browser:
    """A Chromium, or a context in one; `listeners` are by the session of a tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.context = ""  # in which its tabs are; "" is that of the profile
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._sessions: dict[int, str] = {}  # of the tabs that were asked

    async def pump(self) -> None:
        """Hand over what the browser says, until it ends. Then all that it was asked fails."""
        try:
            async for message in self._socket:
                self._hand_over(json.loads(message.data))
        finally:
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(PageError("Chromium ended"))
            self._answers.clear()

    def _hand_over(self, said: dict[str, Any]) -> None:
        if "id" in said:
            future = self._answers.pop(said["id"], None)
            if future is None or future.done():  # who asked has given up
                return
            if "error" in said:
                future.set_exception(PageError(said["error"]["message"]))
            else:
                future.set_result(said["result"])
        elif listener := self.listeners.get(said.get("sessionId", "")):
            listener(said["method"], said["params"])

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number], self._sessions[number] = future, session
        await self._socket.send_json(
            {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        )
        try:
            async with asyncio.timeout(60):
                return await future
        except TimeoutError:
            raise AssertionError(f"Chromium did not answer {method} within a minute") from None
        finally:
            self._answers.pop(number, None)
            self._sessions.pop(number, None)

    def crash(self, session: str) -> None:
        """Have all that a tab was asked fail: it answers nothing any more."""
        for number in [number for number, asked in self._sessions.items() if asked == session]:
            if future := self._answers.pop(number, None):
                future.set_exception(PageError("the tab crashed"))

    @property
    def _here(self) -> dict[str, str]:
        return {"browserContextId": self.context} if self.context else {}

    async def grant(self, *permissions: str) -> None:
        """Grant every page permissions for which a person would be asked."""
        await self.call("Browser.grantPermissions", permissions=permissions, **self._here)

    async def tab(self, address: str = "", *, csp: bool = True) -> Tab:
        """Open a tab. `csp` False lets a test load programs of its own into the page."""
        target = (await self.call("Target.createTarget", url="about:blank", newWindow=True, **self._here))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Inspector"):
            await tab.call(f"{domain}.enable")
        await tab.resize(1180, 820)
        if not csp:
            await tab.call("Page.setBypassCSP", enabled=True)
        if address:
            await tab.go(address)
        return tab


def _command(profile: Path, *arguments: str) -> list[str]:
    return [
        "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--lang=en-US", f"--user-data-dir={profile}",
        *NEVER_IN_THE_BACKGROUND, *arguments, "about:blank",
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """Say where it puts its temporary folders, which it leaves there when it is killed: they go with the run."""
    return {**os.environ, "TMPDIR": str(run_folder())}


@asynccontextmanager
async def chromium(profile: Path, *arguments: str) -> AsyncIterator[Browser]:
    """Run a headless Chromium until the context ends; skips where there is none."""
    need_chromium()
    process = await asyncio.create_subprocess_exec(
        *_command(profile, *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        async with asyncio.timeout(60):
            address = await _debugger(process)
        drain = asyncio.create_task(_drain(process))
        async with _connected(address) as browser:
            yield browser
        drain.cancel()
        await asyncio.gather(drain, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def shared_chromium() -> AsyncIterator[Browser]:
    """Open a context in the Chromium of this process, and close it with its tabs; skips where there is none."""
    need_chromium()
    if _shared().has_ended:
        _shared.cache_clear()
    async with asyncio.timeout(60):
        address = await _shared().address()
    async with _connected(address) as browser:
        browser.context = (await browser.call("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
        yield browser


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
        browser = Browser(socket)
        pump = asyncio.create_task(browser.pump())
        try:
            yield browser
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)


class SharedChromium:
    """The Chromium that the tests of this process share, which ends with it."""

    def __init__(self) -> None:
        self._profile = Path(tempfile.mkdtemp(prefix="chromium-", dir=run_folder()))
        with (self._profile / "log").open("wb") as log:
            command = ["setpriv", "--pdeathsig", "KILL", *_command(self._profile)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
        atexit.register(self._remove)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def address(self) -> str:
        """Return where it is driven, as soon as its profile says it."""
        said = self._profile / "DevToolsActivePort"  # its port, and a path
        while not said.exists() or "\n" not in said.read_text():
            assert not self.has_ended, (self._profile / "log").read_text("utf-8", "replace")
            await asyncio.sleep(LOOK_SECONDS)
        port, path = said.read_text().split()
        return f"ws://127.0.0.1:{port}{path}"

    def _remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


@functools.cache
def _shared() -> SharedChromium:
    return SharedChromium()


async def _debugger(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    while line := await process.stderr.readline():
        if found := re.search(rb"DevTools listening on (\S+)", line):
            return found[1].decode()
    raise AssertionError("Chromium ended")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr
    while await process.stderr.readline():
        pass
