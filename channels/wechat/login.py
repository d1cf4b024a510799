"""Sign in by a code that a person scans: who scans it is who talks with the robot."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from catalogue import N_, _
from channels.base import Refused
from channels.shared.lifecycle import opened
from channels.shared.setup_guide import Scanned, ShowCode
from channels.wechat import PUBLIC_URL, WeChatSettings
from channels.wechat.api import WeChatApi

SCAN = N_("Scan this code with WeChat on your telephone, or open the link in a browser, which shows it:\n{link}")
SCANNED = N_("Scanned. Confirm it on your telephone …")
CODE_OVER = N_("Nobody confirmed the code in time: begin again.")
SOMEBODY_ELSE = N_("Another person scanned the code: the robot belongs to {person}.")
STORED = N_("the login of {person} is kept by the service; `fawn status` says whether it still counts")
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


async def sign_in(show: ShowCode, url: str = PUBLIC_URL, *, proxy: str = "", ca_file: str = "") -> Scanned:
    """Show a code, and return the login once it is confirmed. Raises ChannelError."""
    async with opened(WeChatApi(url, "", proxy, ca_file)) as api:
        code = await api("get_bot_qrcode?bot_type=3", {"local_token_list": []}, repeatable=True)
        link = str(code["qrcode_img_content"])
        show(_(SCAN, link=link), link)
        is_scanned = False
        until = time.monotonic() + MAX_SCAN_SECONDS
        while time.monotonic() < until:
            state = await api.ask_code(str(code["qrcode"]))
            match state.get("status"):
                case "confirmed":
                    values = (str(state[name]) for name in ("bot_token", "baseurl", "ilink_bot_id", "ilink_user_id"))
                    login = Login(*values)
                    return Scanned(login.person, {kept_name(login.person): login.dump()})
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
    """Say where the login is, and make no call: a poll beside a running service would take its messages."""
    return _(STORED, person=settings.person)
