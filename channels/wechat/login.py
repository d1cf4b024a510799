"""Sign in by a code that a person scans: who scans it is who talks with the robot."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from catalogue import N_, _
from channels.base import OutcomeUnknown, Refused, TryLater
from channels.shared.lifecycle import Scanned, ScanScreen, opened
from channels.shared.visible_text import text_of
from channels.wechat import WeChatSettings
from channels.wechat.api import WeChatApi

SCAN = N_("Scan this code with WeChat on your telephone, or open the link in a browser, which shows it:\n{link}")
SCANNED = N_("Scanned. Confirm it on your telephone …")
NUMBER = N_("Type the number that WeChat shows on your telephone")
WRONG_NUMBER = N_("That is not the number. Type the one that WeChat shows on your telephone")
CODE_OVER = N_("Nobody confirmed the code in time: begin again.")
CONNECTED_ALREADY = N_("WeChat says that this robot is connected already: begin again.")
NO_LOGIN = N_("WeChat confirmed the code without a login: begin again.")
SOMEBODY_ELSE = N_("{other} scanned the code, but the robot belongs to {person}: nothing was changed.")
STORED = N_("the login of {person} is kept by the service; `fawn status` says whether it still counts")
MAX_SCAN_SECONDS = 480.0  # from the code to its confirmation
LOOK_SECONDS = 1.0  # between two looks: once a code is scanned, the answers come at once
MAX_CODES = 3  # that are shown one after the other, as each is over: as many as Tencent's client shows
_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Login:
    """What a confirmed code gives. `person` is who scanned it."""

    token: str
    url: str
    bot: str
    person: str

    def dump(self) -> str:
        """Return it as what the service keeps."""
        return orjson.dumps(self).decode()

    @classmethod
    def load(cls, text: str) -> Login | None:
        """Load what `dump` returned; None for anything else."""
        try:
            raw = orjson.loads(text)
            found = cls(*(str(raw[name]) for name in ("token", "url", "bot", "person")))
        except (ValueError, KeyError, TypeError):
            return None
        return found if urlsplit(found.url).scheme in ("http", "https") else None


def kept_name(person: str) -> str:
    """Return the name under which the service keeps a person's login."""
    return f"login {person}"


async def sign_in(screen: ScanScreen, settings: WeChatSettings) -> Scanned:
    """Show codes, and return the login once one is confirmed. Raises ChannelError."""
    async with opened(WeChatApi(settings.base_url, "", settings.proxy, settings.ca_file)) as api:
        try:
            async with asyncio.timeout(MAX_SCAN_SECONDS):
                for _code in range(MAX_CODES):
                    api.sign_in(settings.base_url, "")
                    if login := await _Code(api, screen).confirmed():
                        return Scanned(login.person, {kept_name(login.person): login.dump()})
        except TimeoutError:
            pass  # nobody confirmed it, as below
    raise Refused(_(CODE_OVER))


class _Code:
    """One code. States: @tencent-weixin/openclaw-weixin 2.4.9, src/auth/login-qr.ts."""

    def __init__(self, api: WeChatApi, screen: ScanScreen) -> None:
        self._api = api
        self._screen = screen
        self._is_scanned = False
        self._number = ""  # that the person typed, until WeChat takes it

    async def confirmed(self) -> Login | None:
        """Show a new code and wait for its login; None once the code is over. Raises ChannelError."""
        found = await self._api("get_bot_qrcode?bot_type=3", {"local_token_list": []}, repeatable=True)
        code, link = text_of(found.get("qrcode")), text_of(found.get("qrcode_img_content"))
        if not code or not link:
            raise OutcomeUnknown(f"WeChat gave no code: {sorted(found)}")
        self._screen.show(_(SCAN, link=link), link)
        while True:
            state = await self._look(code)
            match state.get("status"):
                case "confirmed":
                    return _login_of(state, self._api.url)
                case "expired" | "verify_code_blocked":
                    return None
                case "binded_redirect":
                    raise Refused(_(CONNECTED_ALREADY))
                case "need_verifycode":
                    self._number = await self._screen.ask(_(WRONG_NUMBER if self._number else NUMBER))
                    continue
                case "scaned":
                    self._note_scan()
                case "scaned_but_redirect":
                    self._note_scan()
                    if _HOST.fullmatch(host := text_of(state.get("redirect_host"))):
                        self._api.url = f"https://{host}"
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, code: str) -> Mapping[str, Any]:
        """Ask what became of a code. A line that breaks meanwhile changes nothing: it is asked again."""
        try:
            return await self._api.ask_code(code, self._number)
        except (TryLater, OutcomeUnknown):
            return {}

    def _note_scan(self) -> None:
        self._number = ""
        if not self._is_scanned:
            self._is_scanned = True
            self._screen.show(_(SCANNED))


def _login_of(state: Mapping[str, Any], url: str) -> Login:
    token, bot, person = (text_of(state.get(name)) for name in ("bot_token", "ilink_bot_id", "ilink_user_id"))
    if not (token and bot and person):
        raise Refused(_(NO_LOGIN))
    return Login(token, text_of(state.get("baseurl")) or url, bot, person)


async def probe_login(settings: WeChatSettings) -> str:
    """Say where the login is, and make no call: a poll beside a running service would take its messages."""
    return _(STORED, person=settings.person)
