"""The section `encryption:` of config.yaml."""

from __future__ import annotations

from dataclasses import dataclass

from agent.setting import Secret, setting
from bot.config.document import Document
from bot.config.excerpt import Location
from catalogue import _
from sandbox.disk.sealing import MIN_KEY_CHARS, Sealer


@dataclass(frozen=True, slots=True)
class EncryptionConfig:
    """Encrypt stored secrets and backups under a key from outside of data_dir (docs/operations.md)."""

    key: Secret | None = setting(
        None, "seals tokens of MCP servers, people's Bark keys and backups; 32 characters or more at random"
    )
    old_keys: tuple[Secret, ...] = setting((), "keys from before, which still open; a start seals everything anew")

    def sealer(self) -> Sealer:
        """Return what seals with the key and opens with all of them."""
        keys = ([self.key] if self.key else []) + [*self.old_keys]
        return Sealer([key.reveal() for key in keys] if self.key else ())


def check_encryption(document: Document, section: object) -> None:
    """A key has to be long, and old ones need a new one."""
    if not isinstance(section, dict):
        return
    old = section.get("old_keys")
    named: list[tuple[Location, object]] = [(("encryption", "key"), section.get("key"))]
    named += [(("encryption", "old_keys", i), each) for i, each in enumerate(old if isinstance(old, list) else ())]
    for at, key in named:
        if isinstance(key, str) and len(key) < MIN_KEY_CHARS:
            wrong = _("is shorter than {n} characters", n=MIN_KEY_CHARS)
            document.fault(at, wrong, _("make one with `openssl rand -base64 32`, and keep a copy elsewhere"))
    if old and not section.get("key") and ("encryption", "key") not in document.faulty:
        document.fault(("encryption", "old_keys"), _("needs `key`"), _("name the key that seals from now on"))
