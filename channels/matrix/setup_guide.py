"""Guide through `fawn setup matrix`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from agent.setting import Secret
from catalogue import N_, _
from channels.matrix import MatrixSettings
from channels.shared.lifecycle import opened
from channels.shared.setup_guide import SetupGuide, SignIn

SERVER = N_("""\
Create an account for the bot on your homeserver, by its registration page or as its admin, such as @fawn:example.org.
It is an ordinary account: Fawn needs no application service and no public address.""")
TOKEN = N_("""\
Press Enter to log in with the account's password: Fawn keeps only the access token. Or paste a token that you have.""")
ACCOUNT = N_("User name of the bot's account, such as fawn")
CONTACT = N_("Begin a direct chat with {account} in Element or another client, and write: {word}")


async def log_in(typed: Mapping[str, str], account: str, password: str) -> str:
    """Return the access token of a new device of the account. Raises ChannelError."""
    from channels.matrix.api import CLIENT, MatrixApi  # the SDK-free guide is imported for every channel

    name = account[1:].partition(":")[0] if account.startswith("@") else account
    body = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": name},
        "password": password,
        "initial_device_display_name": "Fawn",
    }
    async with opened(MatrixApi(MatrixSettings(homeserver=typed["homeserver"], token=Secret("")))) as api:
        answer = await api.call("POST", f"{CLIENT}/login", body)
    return str(answer["access_token"])


GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, account=account.rpartition(" ")[2], word=word),
    {"homeserver": partial(_, SERVER), "token": partial(_, TOKEN)},
    {"token": SignIn(partial(_, ACCOUNT), log_in)},
)
