"""Check of `fawn check`: whether the PostgreSQL database can be reached, is fit, and is free for the next start."""

from __future__ import annotations

import asyncio

from bot.base.findings import Finding
from bot.config.schema import Config
from bot.database.migrate import DatabaseFault, head_revision, revision_chain
from bot.service.store import FILE, read_store
from catalogue import N_, _, join_sentences, localized

SUBJECT = N_("database")


async def check_database(config: Config, *, served: bool) -> list[Finding]:
    """Ask the server; nothing where the database is SQLite's file. `served`: this data_dir has a running service."""
    if not config.database.url:
        return []
    try:
        return await asyncio.to_thread(_look, config, served)
    except DatabaseFault as error:
        fix = _("check `url`, `password` and `ca_file` below `database`, and that the server lets this machine in")
        return [Finding("fault", _(SUBJECT), localized(error), fix)]


def _look(config: Config, served: bool) -> list[Finding]:
    from bot.database.postgres_schema import check_server, check_writable, read_revision
    from bot.database.postgres_session import may_create, owner_address

    with read_store(config, snapshot=False) as execute:
        version = check_server(execute)
        check_writable(execute)
        revision, owner = read_revision(execute), owner_address(execute)
        found = [_judge(config, version, revision, may_create=may_create(execute))]
    if owner and not served and not config.database.replicas:
        text = _("a service works on it, from {address}", address=owner)
        found.append(
            Finding("note", _(SUBJECT), text, _("a second one is refused: stop that one before you start here"))
        )
    if (config.data_dir / FILE).exists() and not revision:
        text = _(
            "{file} has everything so far, and the server is empty: a start is refused", file=config.data_dir / FILE
        )
        fix = _("copy it with `fawn migrate --to postgresql`, or move the file away to begin with nothing")
        found.append(Finding("fault", _(SUBJECT), text, fix))
    elif (config.data_dir / FILE).exists():
        text = _("{file} is not used, because `database` names PostgreSQL", file=config.data_dir / FILE)
        found.append(Finding("note", _(SUBJECT), text, _("move it away once nobody needs it any more")))
    return found


def _judge(config: Config, version: str, revision: str, *, may_create: bool) -> Finding:
    text = _("PostgreSQL {version} at {where}", version=version, where=config.database.shown)
    if not revision and not may_create:
        text = _("the user may not create tables in the schema public of {where}", where=config.database.shown)
        return Finding("fault", _(SUBJECT), text, _("make it the owner: `ALTER DATABASE fawn OWNER TO fawn`"))
    if revision and revision not in revision_chain():
        text = _("a newer version of Fawn wrote the tables ({version})", version=revision)
        return Finding("fault", _(SUBJECT), text, _("install that version again, or restore a backup"))
    if not revision:
        return Finding("ok", _(SUBJECT), _("{text}, still empty: the first start makes the tables", text=text))
    if revision != head_revision():
        older = _("Its tables are of an older version; the next start upgrades them.")
        return Finding("note", _(SUBJECT), join_sentences(text, older), _("back up before: `fawn backup FILE`"))
    return Finding("ok", _(SUBJECT), text)
