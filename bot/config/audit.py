"""The section `audit:` of config.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agent.setting import HEADERS, Secret, setting
from bot.config.document import Document
from catalogue import _

SYSLOG_PORT = 6514  # RFC 5425
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class AuditPushConfig:
    """Where rows of the audit go as they are written, in order (docs/operations.md)."""

    syslog: str = setting("", "HOST or HOST:PORT of a syslog receiver, always over TLS (RFC 5425, port 6514)")
    url: str = setting("", "URL that takes rows by POST, a JSON object a line (application/x-ndjson)")
    headers: Mapping[str, Secret] = field(
        default_factory=dict, metadata={"help": "headers of each POST, such as `Authorization: $SIEM_AUTH`", **HEADERS}
    )
    ca_file: str = setting("", "PEM file with the authorities of the receiver; empty: those of the system")

    @property
    def target(self) -> str:
        """The receiver; "" for none."""
        return f"syslog:{self.syslog}" if self.syslog else self.url


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The audit: a tamper-evident log of who did what (docs/operations.md)."""

    days: int = setting(365, "rows of the audit that are older are deleted; 0: they are kept", ge=0)
    key: Secret | None = setting(None, "signs the head of the audit, which is logged every hour")
    push: AuditPushConfig = setting(AuditPushConfig(), "rows go to a SIEM, too")


def check_audit(document: Document, section: object) -> None:
    """A push has one receiver, and an address of syslog is a host with a port."""
    push = section.get("push") if isinstance(section, dict) else None
    if not isinstance(push, dict):
        return
    syslog, at = push.get("syslog"), ("audit", "push", "syslog")
    url = push.get("url")
    if isinstance(url, str) and url and not _is_private(url):
        document.fault(("audit", "push", "url"), _("is not encrypted"), _("write it as https://…"))
    if syslog and push.get("url"):
        document.fault(at, _("is one receiver, and `url` another"), _("name one of them"))
    elif isinstance(syslog, str) and syslog and not _ADDRESS.fullmatch(syslog):
        document.fault(at, _("is no address"), _("write HOST or HOST:PORT, such as siem.example:6514"))


def _is_private(url: str) -> bool:
    """Return whether nobody on the way can read it: HTTPS, or an address of this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"))
