"""Probe the account for `fawn check`."""

from __future__ import annotations

from catalogue import N_, _
from channels.matrix import MatrixSettings
from channels.matrix.api import CLIENT, MatrixApi
from channels.shared.account_probe import CONNECTED, refusing
from channels.shared.lifecycle import opened

TOKEN_REJECTED = N_("Matrix rejects the access token (`token`): `fawn setup matrix` makes a new one")


async def probe_matrix_account(settings: MatrixSettings) -> str:
    with refusing(settings.homeserver, ["homeserver", "proxy", "ca_file"], TOKEN_REJECTED):
        async with opened(MatrixApi(settings)) as api:
            return _(CONNECTED, name=(await api.call("GET", f"{CLIENT}/account/whoami"))["user_id"])
