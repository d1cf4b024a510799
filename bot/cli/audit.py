"""`fawn audit`: verify and export the audit, and print its head. It only reads, beside a running service or without."""

from __future__ import annotations

import argparse
import hmac
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

import orjson

from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import Command, ConfiguredCommand
from bot.config.operations import AuditConfig
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditKind, AuditRow
from bot.database.audit_check import BEFORE_ALL, read_rows, verify_chain
from bot.database.database import Execute
from bot.service.audit_upkeep import pruning_rules, sign_anchor
from bot.service.store import NoStore, has_store, read_store
from catalogue import N_, _, list_items

LOOK_SECONDS = 1.0  # between two looks for new rows
NO_ANCHOR = N_(
    "Without an anchor, this does not show whether the end was cut, or all of it was written anew: keep what"
    " `fawn audit head` prints elsewhere, and pass it with --anchor."
)
TAIL = N_(
    "No anchor covers the {rows} rows after row {seq}: whoever can write the database can have changed, added"
    " or cut some."
)


class AuditCommandFailed(Exception):
    """The command failed; the text says why."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("verify", "export", "head"))
    words = _("verify: an earlier head; repeatable")
    parser.add_argument("--anchor", action="append", default=[], metavar="SEQ:HASH", help=words)
    parser.add_argument("--since", default="", metavar="TIME", help=_("export: from this time on, such as 2026-11-23"))
    parser.add_argument("--who", default="", metavar="PERSON", help=_("export: what this platform id did"))
    words = _("export: the rows that follow this one")
    parser.add_argument("--after", type=int, default=BEFORE_ALL, metavar="SEQ", help=words)
    parser.add_argument("--follow", action="store_true", help=_("export: wait for further rows, until Ctrl-C"))
    parser.add_argument("--kind", default="", metavar="KIND", help=_("export: events of this kind, such as tool.call"))
    words = _("export: the file; default: standard output")
    parser.add_argument("-o", dest="file", metavar="FILE", type=Path, help=words)


def _audit(arguments: argparse.Namespace, config: Config) -> int:
    if not has_store(config):
        return fail(NoStore.of(config), FAULT)
    with read_store(config, snapshot=arguments.action == "verify") as execute:
        try:
            return ACTIONS[arguments.action](execute, arguments, config.audit)
        except AuditCommandFailed as error:
            return fail(error, FAULT)
        except (ValueError, KeyError) as error:  # a body that Fawn has not written
            return fail(_("the audit is damaged: {error}; `fawn audit verify` names the row", error=error), FAULT)


def _verify(execute: Execute, arguments: argparse.Namespace, settings: AuditConfig) -> int:
    anchors = dict(_parse_anchor(text, settings) for text in arguments.anchor)
    report = verify_chain(execute, anchors, pruning_rules(settings))
    if report.fault:
        print(_("TAMPERED: {fault}. The {rows} rows before are valid.", fault=report.fault, rows=report.rows))
        return FAULT
    for seq in report.deleted:
        print(_("Row {seq} of an anchor was not compared: retention has deleted it.", seq=seq))
    head = f"{report.seq}:{report.hash.hex()}"
    print(_("The audit is valid: {rows} rows, head {head}", rows=report.rows, head=head))
    if not anchors:
        print(_(NO_ANCHOR))
    elif report.unanchored:
        print(_(TAIL, rows=report.unanchored, seq=max(anchors)))
    return OK


def _export(execute: Execute, arguments: argparse.Namespace, settings: AuditConfig) -> int:
    try:
        if arguments.file is None:
            _write_rows(execute, arguments, sys.stdout.buffer)
        else:
            with open(arguments.file, "wb", opener=partial(os.open, mode=0o600)) as file:
                _write_rows(execute, arguments, file)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    return OK


def _head(execute: Execute, arguments: argparse.Namespace, settings: AuditConfig) -> int:
    seq, head = audit.read_head(execute)
    print(sign_anchor(f"{seq}:{head.hex()}", settings))
    return OK


ACTIONS = {"verify": _verify, "export": _export, "head": _head}


def _parse_anchor(text: str, settings: AuditConfig) -> tuple[int, bytes]:
    """Return number and hash of SEQ:HASH or SEQ:HASH:HMAC. Raises AuditCommandFailed."""
    seq, _colon, rest = text.partition(":")
    head, _colon, signature = rest.partition(":")
    try:
        number, data = int(seq), bytes.fromhex(head)
    except ValueError:
        raise AuditCommandFailed(
            _("{text} is not an anchor: SEQ:HASH, as `fawn audit head` prints it", text=text)
        ) from None
    if signature and not settings.key:
        raise AuditCommandFailed(_("this anchor is signed: set `audit.key`, or leave out what follows the hash"))
    if signature and not hmac.compare_digest(sign_anchor(f"{seq}:{head}", settings), text):
        raise AuditCommandFailed(
            _("the signature of anchor {seq} is wrong: it was forged, or `audit.key` is another one", seq=seq)
        )
    return number, data


def _write_rows(execute: Execute, arguments: argparse.Namespace, file: BinaryIO) -> None:
    """Write the wanted rows as JSON lines. `event` has the stored bytes, `names` who its pseudonyms are."""
    since = _parse_since(arguments.since)
    if arguments.kind not in ("", *AuditKind):
        raise AuditCommandFailed(
            _("{kind} is not a kind of event: {kinds}", kind=arguments.kind, kinds=list_items(AuditKind))
        )
    names = audit.read_names(execute)
    for row in _wanted_rows(execute, arguments, file.flush):
        event = row.event
        aliases = [event[field] for field in audit.NAMED_FIELDS if field in event]
        if any(alias not in names for alias in aliases):
            names = dict.fromkeys(aliases, ("", b"")) | names | audit.read_names(execute)  # new, or forgotten
        known = {alias: names[alias][0] for alias in aliases if names[alias][0]}
        if event["at"] < since or arguments.kind not in ("", event["kind"]):
            continue
        if arguments.who and not _is_named(arguments.who, event, known):
            continue
        values = (row.seq, row.hash.hex().encode(), orjson.dumps(known), row.body)
        file.write(b'{"seq":%d,"hash":"%b","names":%b,"event":%b}\n' % values)


def _wanted_rows(
    execute: Execute, arguments: argparse.Namespace, caught_up: Callable[[], object]
) -> Iterator[AuditRow]:
    """Yield the rows behind `--after`; with `--follow`, also those that are written from now on.

    `caught_up` is called whenever there are no more rows at present.
    """
    after = arguments.after
    while True:
        for row in read_rows(execute, after):
            after = row.seq
            yield row
        caught_up()
        if not arguments.follow:
            return
        time.sleep(LOOK_SECONDS)


def _is_named(wanted: str, event: dict[str, str], known: dict[str, str]) -> bool:
    """Return whether a person did this or is concerned: a platform id, with its channel or not, or a pseudonym."""
    aliases = [event[field] for field in ("who", "subject") if field in event]
    return any(wanted in (alias, known.get(alias), known.get(alias, "").partition(":")[2]) for alias in aliases)


def _parse_since(text: str) -> float:
    """Return a time in milliseconds. Raises AuditCommandFailed."""
    try:
        return datetime.fromisoformat(text).timestamp() * 1000 if text else 0.0
    except ValueError:
        raise AuditCommandFailed(_("{text} is not a time such as 2026-11-23 or 2026-11-23T14:00", text=text)) from None


COMMANDS: Mapping[str, Command] = {
    "audit": ConfiguredCommand(
        _audit, _add_arguments, audited=lambda given: "audit export" if given.action == "export" else ""
    )
}
