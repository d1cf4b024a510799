"""`fawn dead`, `pair`, `backup`, `export`: ask the running service, or use the database when none runs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bot.admin.command_parser import USAGE
from bot.admin.operations import Answer, NotFound, NotRunning, Operations, call_service
from bot.admin.silence import describe_silence
from bot.admin.transcript_format import render_entry
from bot.config.schema import Config
from bot.storage.database import Database, DataDirLocked, DataLock
from bot.storage.migrate import DatabaseFault, prepare_databases
from bot.team.offboarding import describe_offboarding, describe_rest
from catalogue import _, list_items, localized, ngettext
from sandbox.disk.folders import ConversationFolders

YES = ("y", "yes", "是")
OPERATION_ARGUMENTS = {
    "dead.requeue": ("id",),
    "dead.drop": ("id",),
    "pair.accept": ("code",),
    "pair.decline": ("code",),
    "pair.revoke": ("channel", "person"),
    "offboard": ("channel", "person", "to"),
    "backup": ("file",),
}


async def ask_and_forget(config: Config, channel: str, person: str, *, is_sure: bool) -> int:
    """Forget a person after a question with their name and what is stored of them; return the exit code."""
    given = {"channel": channel, "person": person}
    try:
        look = await _ask(config, "forget.look", given)
        if not look["known"]:
            raise OperationFailed(
                _("nothing is stored of {person} on {channel}: `fawn pair list` shows the ids of people", **given)
            )
        if not is_sure:
            print(_describe_traces(look, **given), flush=True)
            if not sys.stdin.isatty():
                raise OperationFailed(_("not forgotten: add --yes where nobody can be asked"))
            answered = await asyncio.to_thread(input, _("Forget them for ever? [y/N] "))
            if answered.strip().lower() not in YES:
                print(_("Nothing has changed."))
                return 1
        answer = await _ask(config, "forget", given)
    except OperationFailed as error:
        print(f"fawn: {error}", file=sys.stderr)
        return 1
    print(_describe_outcome("forget", answer))
    if look["paired"]:
        print(_("They may still talk to Fawn. To end that: `fawn pair revoke {channel} {person}`.", **given))
    return 0


def _describe_traces(look: Answer, channel: str, person: str) -> str:
    name = _("{name} ({person})", name=look["name"], person=person) if look["name"] else person
    counts = list_items(
        [
            ngettext("{n} message", "{n} messages", look["messages"]),
            ngettext("{n} conversation", "{n} conversations", look["conversations"]),
            ngettext("{n} memory", "{n} memories", look["memories"]),
            ngettext("{n} schedule", "{n} schedules", look["schedules"]),
            ngettext("{n} background task", "{n} background tasks", look["tasks"]),
        ]
    )
    return _("{name} on {channel}: {counts}.", name=name, channel=channel, counts=counts)


async def print_reasons(config: Config, what: str) -> int:
    """Say what happened to a message, or to the latest ones of a thread; return the exit code."""
    try:
        answer = await _ask(config, "why", {"what": what})
    except OperationFailed as error:
        print(f"fawn: {error}", file=sys.stderr)
        return 1
    print(describe_silence(answer))
    return 0 if answer["known"] else 1


async def run_operation(config: Config, group: str, action: str, words: Sequence[str]) -> int:
    """Run one operation and print its outcome; return the exit code."""
    operation = f"{group}.{action}" if group else action
    names = OPERATION_ARGUMENTS.get(operation, ())
    if len(words) != len(names):
        command = " ".join(filter(None, ["fawn", group, action, *map(str.upper, names)]))
        print(_(USAGE, command=command), file=sys.stderr)
        return 2
    try:
        answer = await _ask(config, operation, dict(zip(names, words, strict=True)))
    except OperationFailed as error:
        print(f"fawn: {error}", file=sys.stderr)
        return 1
    print(_describe_outcome(operation, answer))
    if operation in ("pair.revoke", "offboard"):
        for line in describe_rest(config, answer):
            print(line)
    return 0


async def note_skill_change(config: Config, action: str, skill: str, result: str) -> None:
    """Record a change of the skills in the audit, which begins with the first start. Raises OperationFailed."""
    if (config.data_dir / "fawn.db").exists():
        await _ask(config, "skills.note", {"action": action, "skill": skill, "result": result})


class OperationFailed(Exception):
    """An operation failed; the text says why."""


async def render_thread(config: Config, thread: str, form: str) -> str:
    """Return the transcript of a thread as Markdown (`form` md) or JSON lines. Raises OperationFailed."""
    arguments: dict[str, Any] = {"thread": thread, "after": 0}
    chunks: list[str] = []
    conversation = ""
    while entries := (answer := await _ask(config, "export", arguments))["entries"]:
        for entry in entries:
            if form == "md" and entry["conversation"] != conversation:
                conversation = entry["conversation"]
                chunks.append(f"## {entry['title'] or conversation}\n\n")
            chunks.append(render_entry(entry, form))
        arguments = {"thread": answer["thread"], "after": entries[-1]["id"]}
    return "".join([f"# {answer['thread']}\n\n" * (form == "md"), *chunks])


async def _ask(config: Config, operation: str, arguments: dict[str, Any]) -> Answer:
    """Run an operation in the service or, if none runs, on the database. Raises OperationFailed."""
    try:
        try:
            answer = await call_service(config.data_dir, operation, arguments)
        except NotRunning:
            answer = await _run_directly(config, operation, arguments)
    except (DataDirLocked, DatabaseFault, NotFound) as error:
        raise OperationFailed(localized(error)) from error
    if "error" in answer:
        raise OperationFailed(answer["error"])
    return answer


async def _run_directly(config: Config, operation: str, arguments: dict[str, Any]) -> Answer:
    data_dir = config.data_dir
    database = data_dir / "fawn.db"
    if not database.exists():
        raise NotFound(
            _(
                "{data_dir} does not contain a database, and no service is running: check `data_dir` or --config",
                data_dir=data_dir,
            )
        )
    with DataLock(data_dir):
        prepare_databases(data_dir)
        async with Database(database) as store:
            folders = ConversationFolders(data_dir / "threads", 0)
            return await Operations(store, data_dir, folders, lambda: Path(config.skills.custom)).table()[operation](
                **arguments
            )


def _describe_outcome(operation: str, answer: Answer) -> str:
    match operation:
        case "dead.list":
            return "\n".join(_describe_dead_letter(row) for row in answer["dead"]) or _("No dead letters.")
        case "dead.requeue":
            return _("Requeued {id}.", id=answer["id"])
        case "dead.drop":
            return _("Dropped {id}.", id=answer["id"])
        case "pair.list":
            return "\n".join(_describe_person(row) for row in answer["people"]) or _("No paired users.")
        case "pair.accept":
            return _(
                "{name} ({person}) can now talk to the bot on {channel}.",
                name=answer["name"],
                person=answer["person"],
                channel=answer["channel"],
            )
        case "pair.decline":
            return _(
                "Declined {name} ({person}) on {channel}.",
                name=answer["name"],
                person=answer["person"],
                channel=answer["channel"],
            )
        case "forget":
            return _(
                "Fawn forgets {person} on {channel} within moments; if it does not run, after its next start.",
                person=answer["person"],
                channel=answer["channel"],
            )
        case "offboard":
            return "\n".join(describe_offboarding(answer))
        case "pair.revoke":
            return _("Revoked the access of {person} on {channel}.", person=answer["person"], channel=answer["channel"])
        case _backup:
            left = [_("LEFT OUT: {text}", text=words) for words in answer["left_out"]]
            size = _format_bytes(answer["bytes"])
            wrote = _(
                "Wrote {file} ({size}). To restore it, unpack it into an empty data_dir.",
                file=answer["file"],
                size=size,
            )
            return "\n".join([wrote, *left])


def _format_bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1_000_000 else f"{count / 1e3:.1f} KB"


def _describe_dead_letter(row: Answer) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"]))
    text = " ".join(str(row["text"]).split())[:80]
    return f"{row['id']}\t{when}\t{row['kind']}\t{row['thread']}\t{row['error']}\t{text}"


def _describe_person(row: Answer) -> str:
    decided = {-1: _("declined"), 1: _("operator") if row["operator"] else _("paired")}
    state = decided.get(row["allowed"], _("waiting, code {code}", code=row["code"]))
    return f"{row['channel']}\t{row['person']}\t{row['name']}\t{state}"
