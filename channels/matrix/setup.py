"""Set up Matrix: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from agent.setting import Secret
from catalogue import N_, _
from channels.matrix import MatrixSettings
from channels.matrix.api import CLIENT, MatrixApi
from channels.shared.lifecycle import SetupGuide, SignIn, opened, refusing
from channels.shared.visible_text import dict_of, text_of

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


CONNECTED = N_("connected as {name} to {server}, in {n} rooms; {encryption}; {limit}")
TOKEN_REJECTED = N_("Matrix rejects the access token (`token`): `fawn setup matrix` makes a new one")
NO_DEVICE = N_("the token has no device, so encrypted rooms cannot be read: make one with `fawn setup matrix`")
NO_KEYS = N_("the keys of its device are made at the first start")
SIGNED = N_("its device is signed, so clients share keys with it")
NOT_SIGNED = N_("NOBODY signed its device, so clients such as Element refuse it: use the account for Fawn alone")
NO_LIMIT = N_("the server does not limit it")
PACED = N_("Fawn sends {n:g} events a second (`overall`), for the server's limit cannot be seen by this account")
SLOW = N_("the server allows {n:g} events a second")


async def probe_matrix_account(settings: MatrixSettings) -> str:
    with refusing(settings.homeserver, ["homeserver", "proxy", "ca_file"], TOKEN_REJECTED):
        async with opened(MatrixApi(settings)) as api:
            who = await api.call("GET", f"{CLIENT}/account/whoami")
            user, device = text_of(who.get("user_id")), text_of(who.get("device_id"))
            return _(
                CONNECTED,
                name=user,
                server=await _server(api),
                n=len(await api.joined_rooms()),
                encryption=_(await _encryption(api, user, device)),
                limit=await _limit(api, user, settings.overall),
            )


async def _server(api: MatrixApi) -> str:
    """Return the program of the server with its version, or the version of the API where it does not say it."""
    server = dict_of((await api.ask("/_matrix/federation/v1/version")).get("server"))
    if text_of(server.get("name")):
        return f"{server['name']} {text_of(server.get('version'))}"[:100]
    versions = (await api.call("GET", "/_matrix/client/versions")).get("versions")
    latest = str(versions[-1])[:20] if isinstance(versions, list) and versions else "?"
    return _("a server of API {version}", version=latest)


async def _encryption(api: MatrixApi, user: str, device: str) -> str:
    """Return the sentence on the keys of the device, and whether the account's identity signed it."""
    if not device:
        return NO_DEVICE
    found = await api.call("POST", f"{CLIENT}/keys/query", {"device_keys": {user: []}}, repeatable=True)
    own = dict_of(dict_of(dict_of(found.get("device_keys")).get(user)).get(device))
    if not own:
        return NO_KEYS
    signers = dict_of(dict_of(dict_of(found.get("self_signing_keys")).get(user)).get("keys"))
    signatures = dict_of(dict_of(own.get("signatures")).get(user))
    return SIGNED if signers.keys() & signatures.keys() else NOT_SIGNED


async def _limit(api: MatrixApi, user: str, overall: float) -> str:
    """Return the sentence on the limit of the account, which Synapse tells admins alone."""
    path = f"/_synapse/admin/v1/users/{quote(user, safe='')}/override_ratelimit"
    rate = (await api.ask(path)).get("messages_per_second")
    if not isinstance(rate, int | float):
        return _(PACED, n=overall)
    return _(SLOW, n=rate) if rate else _(NO_LIMIT)
