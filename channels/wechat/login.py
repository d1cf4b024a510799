"""Sign in by a code that a person scans: who scans it is who talks with the robot."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from catalogue import N_, _
from channels.base import Refused
from channels.shared.lifecycle import opened
from channels.wechat import PUBLIC_URL, WeChatSettings
from channels.wechat.api import WeChatApi

SCAN = N_("Open this link in a browser, and scan the code that it shows with WeChat on your telephone:\n{link}")
SCANNED = N_("Scanned. Confirm it on your telephone …")
CODE_OVER = N_("Nobody confirmed the code in time: run the set-up again.")
WRONG_LOGIN = N_("the login is damaged: run `fawn setup wechat` again")
SIGNED_IN = N_("signed in as {bot} for {person}; the start tries whether the login still counts")
MAX_SCAN_SECONDS = 480.0  # from the code to its confirmation
LOOK_SECONDS = 1.0  # between two looks: once a code is scanned, the answers come at once


@dataclass(frozen=True, slots=True)
class Login:
    """What a confirmed code gives. `person` is who scanned it."""

    token: str
    url: str
    bot: str
    person: str

    def dump(self) -> str:
        """Return it as the text of a setting."""
        return base64.urlsafe_b64encode(orjson.dumps(self)).decode()

    @classmethod
    def load(cls, text: str) -> Login:
        """Load what `dump` returned. Raises Refused for anything else."""
        try:
            raw = orjson.loads(base64.urlsafe_b64decode(text.encode()))
            found = cls(*(str(raw[name]) for name in ("token", "url", "bot", "person")))
        except (binascii.Error, ValueError, KeyError, TypeError):
            raise Refused(_(WRONG_LOGIN)) from None
        if urlsplit(found.url).scheme not in ("http", "https"):
            raise Refused(_(WRONG_LOGIN))
        return found


async def sign_in(show: Callable[[str], object], url: str = PUBLIC_URL) -> str:
    """Show the link of a code, and return the login once it is confirmed. Raises ChannelError."""
    async with opened(WeChatApi(url, "", "", "")) as api:
        code = await api("get_bot_qrcode?bot_type=3", {"local_token_list": []}, repeatable=True)
        show(_(SCAN, link=code["qrcode_img_content"]))
        is_scanned = False
        until = time.monotonic() + MAX_SCAN_SECONDS
        while time.monotonic() < until:
            state = await api.ask_code(str(code["qrcode"]))
            match state.get("status"):
                case "confirmed":
                    values = (str(state[name]) for name in ("bot_token", "baseurl", "ilink_bot_id", "ilink_user_id"))
                    return Login(*values).dump()
                case "scaned" if not is_scanned:
                    is_scanned = True
                    show(_(SCANNED))
                case "scaned_but_redirect":
                    api.url = f"https://{state['redirect_host']}"
                case "expired" | "verify_code_blocked" | "need_verifycode" | "binded_redirect":
                    break
            await asyncio.sleep(LOOK_SECONDS)
    raise Refused(_(CODE_OVER))


async def probe_login(settings: WeChatSettings) -> str:
    """Read the login, and make no call: a poll beside a running service would take its messages."""
    login = Login.load(settings.login.reveal())
    return _(SIGNED_IN, bot=login.bot, person=login.person)
