"""Read the section `database:`: a PostgreSQL database instead of the file in `data_dir` (docs/postgresql.md)."""

from __future__ import annotations

import importlib.util
import ipaddress
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from agent.late_imports import describe_install
from agent.setting import Secret, setting
from bot.config.decoder import EXPECTED
from bot.config.document import Document
from bot.config.excerpt import Location
from catalogue import N_, _, localized

SCHEMES = ("postgresql", "postgres")
OPTIONS = {  # parameters of libpq that a URL may carry (postgresql.org/docs/current/libpq-connect.html)
    *("host", "port", "user", "dbname", "hostaddr", "passfile", "channel_binding", "connect_timeout", "options"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "ssl_min_protocol_version", "target_session_attrs"),
    *("application_name", "gssencmode", "krbsrvname", "require_auth"),
}
PASSWORDS = {"password", "sslpassword"}
URL_EXAMPLE = N_("write it as `url: postgresql://fawn@db.example.com/fawn`")


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """A PostgreSQL database: without `url`, everything is in SQLite's file in `data_dir`."""

    url: str = setting(
        "", "PostgreSQL, such as postgresql://fawn@db.example.com/fawn, without a password; empty: SQLite in `data_dir`"
    )
    password: Secret = setting(Secret(""), "of the user in `url`, such as `$file:/run/secrets/database`")
    ca_file: str = setting("", "PEM file with the authority of the server's certificate; empty: those of the system")
    session_url: str = setting(
        "", "the server itself, where `url` names a pooler that gives each transaction another session, as PgBouncer"
    )

    replicas: bool = setting(False, "several services may work on this database, each with a `data_dir` of its own")

    def connection(self, url: str = "") -> dict[str, str]:
        """Return how psycopg connects. A server elsewhere proves who it is, unless the URL has another `sslmode`."""
        url = url or self.url
        given = {"conninfo": url, "password": self.password.reveal()}
        query = dict(parse_qsl(urlsplit(url).query))
        if "sslmode" not in query and not _is_local(urlsplit(url), query):
            given["sslmode"] = "verify-full"
        if given.get("sslmode", query.get("sslmode", "")).startswith("verify-") and "sslrootcert" not in query:
            given["sslrootcert"] = self.ca_file or "system"
        return {name: value for name, value in given.items() if value}

    @property
    def shown(self) -> str:
        """The server and the database, for people."""
        parts = urlsplit(self.url)
        query = dict(parse_qsl(parts.query))
        host = parts.netloc.rpartition("@")[2] or query.get("host", "")
        return f"{host}/{parts.path.strip('/') or query.get('dbname', '')}"


def _is_local(parts: SplitResult, query: dict[str, str]) -> bool:
    """Return whether nobody on the way can read it: a socket, or an address of this machine."""
    host = query.get("hostaddr") or query.get("host") or parts.hostname or "/"
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_database(document: Document, section: Any) -> None:
    """A database is a URL of PostgreSQL that names it, without a secret; its driver is installed."""
    at = ("database",)
    if not isinstance(section, dict):
        if isinstance(section, str) and section:
            document.fault(at, _(EXPECTED, expected=_("a section (name: value)"), found=_("text")), _(URL_EXAMPLE))
        return
    for name in ("url", "session_url"):
        if isinstance(section.get(name), str) and section[name]:
            _check_url(document, (*at, name), section[name])
    if not section.get("url"):
        for name in ("password", "ca_file", "session_url", "replicas"):
            if section.get(name):
                document.fault((*at, name), _("has no use without `url`"), _(URL_EXAMPLE), on_key=True)
    elif importlib.util.find_spec("psycopg") is None:
        document.fault(
            (*at, "url"), _("needs the package {name}", name="psycopg"), localized(describe_install("psycopg"))
        )


def _check_url(document: Document, at: Location, text: str) -> None:
    """Record what is wrong with the URL, never the URL: it may carry a password."""
    scheme = text.partition(":")[0].lower()
    if scheme.startswith("sqlite"):
        fix = _("remove the line: without it, SQLite's file in `data_dir` is used")
        return document.fault(at, _("SQLite needs no URL"), fix)
    if scheme.startswith("postgresql+"):
        return document.fault(at, _("names a driver, which Fawn chooses itself"), _("begin it with postgresql://"))
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return document.fault(at, _("not a URL of PostgreSQL"), _(URL_EXAMPLE))
    if scheme not in SCHEMES or "://" not in text or not has_port or parts.fragment or any(map(str.isspace, text)):
        return document.fault(at, _("not a URL of PostgreSQL"), _(URL_EXAMPLE))
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if parts.password is not None or PASSWORDS & {name for name, _value in pairs}:
        fix = _("remove it there, and set `password: $file:PATH` below `database`, or a variable")
        return document.fault(at, _("contains a password"), fix)
    if unknown := next((name for name, _value in pairs if name not in OPTIONS), ""):
        wrong = _("the parameter {name} is not known", name=unknown)
        return document.fault(at, wrong, _("one of: {names}", names=", ".join(sorted(OPTIONS))))
    if not (parts.path.strip("/") or dict(pairs).get("dbname")):
        return document.fault(at, _("names no database"), _(URL_EXAMPLE))
    if parts.path.strip("/").count("/"):
        return document.fault(at, _("names more than a database"), _(URL_EXAMPLE))
    return None
