"""Seal the secrets that are stored, by the section `encryption:`."""

from __future__ import annotations

import logging

from agent.settings.mcp_tokens import TokenFile, TokenFolder
from bot.base.findings import Check, Finding
from bot.config.schema import Config
from bot.database.database import Execute
from bot.storage import channels, people
from catalogue import N_, LocalizedError, _
from sandbox.disk.sealing import NotOpened, Sealer

log = logging.getLogger(__name__)

BARK = "bark"  # the purpose of a sealed Bark address
CHANNEL = "channel"  # …of what a channel keeps
HANDLE = "handle"  # …of a handle by which an event is answered


class KeyUnknown(LocalizedError):
    """The configuration names a key that this process does not have."""


def sealer_of(config: Config) -> Sealer:
    """Return what seals and opens. Raises KeyUnknown where the variable of the key is not set here."""
    if config.encryption_locked:
        text = N_(
            "the key of `encryption` is not known here: set its variable, as the service has it, and repeat the command"
        )
        raise KeyUnknown(text)
    return config.encryption.sealer()


def token_folder(config: Config) -> TokenFolder:
    """Return where the tokens of MCP servers are, and what seals them.

    Where several services may have them, only those renew them, which agree about it: a refresh token counts once.
    """
    return TokenFolder(config.data_dir, sealer_of(config), renews=not config.database.replicas)


def seal_anew(execute: Execute, config: Config) -> None:
    """Store every secret under the present key: at a start, so a new key needs nothing else."""
    sealer, count = sealer_of(config), 0
    for channel, person, stored in people.list_push_urls(execute):
        if not sealer.is_current(stored) and (sealed := _sealed_anew(sealer, stored, BARK)) is not None:
            people.set_push_url(execute, channel, person, sealed)
            count += 1
    count += _seal_states_anew(execute, sealer) + _seal_handles_anew(execute, sealer)
    folder = TokenFolder(config.data_dir, sealer)
    count += sum(TokenFile(folder, server).seal_anew() for server in config.mcp.servers)
    if count:
        log.info("secrets.sealed count=%d encrypted=%s", count, sealer.seals)


def _sealed_anew(sealer: Sealer, stored: str, purpose: str, whose: str = "") -> str | None:
    """Return a secret under the present key; None for one of an unknown key, which the log says."""
    try:
        return sealer.seal(sealer.open(stored, purpose), purpose)
    except NotOpened as error:
        log.error("secrets.not_opened what=%s reason=%s", f"{purpose}{whose}", error)  # noqa: TRY400 — the reason is enough
        return None


def _seal_states_anew(execute: Execute, sealer: Sealer) -> int:
    """Store what channels keep under the present key, and return how much of it was stored anew."""
    old = [row for row in channels.list_state(execute) if not sealer.is_current(row[2])]
    for channel, name, value in old:
        if (sealed := _sealed_anew(sealer, value, CHANNEL, f" name={channel}")) is not None:
            channels.replace_value(execute, channel, name, sealed)
    return len(old)


def _seal_handles_anew(execute: Execute, sealer: Sealer) -> int:
    """Store the handles of events under the present key, and return how many; drop those of an unknown key."""
    old = [row for row in channels.list_tokens(execute) if not sealer.is_current(row[2])]
    for chat, message, token in old:
        channels.replace_token(execute, chat, message, _sealed_anew(sealer, token, HANDLE) or "")
    return len(old)


def check_encryption(config: Config) -> Check:
    """Return the check that says whether what is stored of secrets is encrypted."""

    async def run() -> list[Finding]:
        if config.encryption.key:
            return [Finding("ok", _("encryption"), _("tokens of MCP servers, Bark keys and backups are encrypted"))]
        fix = _("set `encryption: {key: $FAWN_KEY}`; `openssl rand -base64 32` makes a key")
        text = _("tokens of MCP servers, Bark keys and backups are stored as they are, readable for this user alone")
        return [Finding("note", _("encryption"), text, fix)]

    return Check(_("encryption"), run)
