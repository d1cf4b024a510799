"""The commands that look into the service: `why`, `trace`, `logs`, `dead`, `egress` and `drill`."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from agent.foreign_text import printable_text
from bot.admin.operations import Answer
from bot.admin.run_trace import render_trace
from bot.admin.service_client import NotRunning, call_service
from bot.base.exit_codes import FAULT, NOT_RUNNING, OK, fail
from bot.cli.command import Command, ConfiguredCommand
from bot.cli.service_call import CliAction, OperationFailed, ask_service, note_drill, run_action
from bot.config.schema import Config
from bot.status.trouble import describe_silence
from catalogue import _

# ------------------------------------------------------------ fawn why


def _add_why_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("a key or a thread from the log, a link, or words such as: jane in ops at 14:03")
    parser.add_argument("what", nargs="+", metavar="MESSAGE", help=words)


def _why(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(_print_reasons(config, " ".join(arguments.what)))


async def _print_reasons(config: Config, what: str) -> int:
    try:
        answer = await ask_service(config, "why", {"what": what})
    except OperationFailed as error:
        return fail(error, FAULT)
    print(describe_silence(answer))
    return OK if answer["known"] else FAULT


# ------------------------------------------------------------ fawn trace


def _add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("the number of the run (`run=` in the log), the key of a message, or the id of a trace")
    parser.add_argument("what", metavar="RUN|KEY|TRACE", help=words)
    parser.add_argument("--json", action="store_true", help=_("print the rows as one JSON object"))


def _trace(arguments: argparse.Namespace, config: Config) -> int:
    try:
        found = asyncio.run(ask_service(config, "trace", {"what": arguments.what}))
    except OperationFailed as error:
        return fail(error, FAULT)
    if not found:
        text = _(
            "there is no run {what}: the log names it as `run=`, `fawn why THREAD` shows what became of messages, and"
            " `keep_days` ends what is stored",
            what=arguments.what,
        )
        return fail(text, FAULT)
    print(json.dumps(found) if arguments.json else printable_text(render_trace(found)))
    return OK


# ------------------------------------------------------------ fawn logs


LOOK_SECONDS = 0.5  # between two looks while it follows


def _add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("the number of a run, the key of a message, or the beginning of a thread's address; default: everything")
    parser.add_argument("what", metavar="RUN|KEY|THREAD", nargs="?", default="", help=words)
    words = _("go on until Ctrl-C; a run is followed until it ends anyway")
    parser.add_argument("-f", "--follow", action="store_true", help=words)


def _logs(arguments: argparse.Namespace, config: Config) -> int:
    try:
        return asyncio.run(_follow(config, arguments.what, forever=arguments.follow))
    except NotRunning as error:
        return _print_file(config.data_dir / "fawn.log", arguments.what, error)
    except KeyboardInterrupt:
        return OK


async def _follow(config: Config, what: str, *, forever: bool) -> int:
    """Print the lines that the running service remembers, and those that come. Raises NotRunning at the first."""
    after, printed = 0, 0
    while True:
        try:
            answer = await call_service(config.data_dir, "logs", {"what": what, "after": after})
        except NotRunning:
            if not after:
                raise
            return OK  # it has ended
        if "error" in answer:
            return fail(answer["error"], FAULT)
        for line in answer["lines"]:
            print(printable_text(line), flush=True)
        after, printed = answer["after"], printed + len(answer["lines"])
        if not (forever or answer["open"]):
            if printed or answer["known"]:
                return OK
            return fail(_("the log has nothing of {what} since the start of the service", what=what), FAULT)
        if not answer["lines"]:
            await asyncio.sleep(LOOK_SECONDS)


def _print_file(file: Path, what: str, error: NotRunning) -> int:
    """Print what the file of the log has, where there is one."""
    files = [each for each in (*(Path(f"{file}.{number}") for number in (3, 2, 1)), file) if each.exists()]
    if not files:
        fail(error, NOT_RUNNING)
        text = _("the log went to stderr: `journalctl -u fawn` or `docker compose logs` has it, each line with `run=`")
        return fail(text, NOT_RUNNING)
    for line in _lines_of(files, what):
        print(printable_text(line))
    return OK


def _lines_of(files: list[Path], what: str) -> Iterator[str]:
    """Yield the lines that name a run, a key or a thread, in text or JSON."""
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            yield from (line.rstrip("\n") for line in lines if not what or _names(line, what))


def _names(line: str, what: str) -> bool:
    if what.isdecimal():
        return f" run={what} " in f"{line.rstrip()} " or f'"run":"{what}"' in line
    return any(f"{mark}{what}" in line for mark in ("key=", '"key":"', "thread=", '"thread":"'))


# ------------------------------------------------------------ fawn dead


def _add_dead_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("words", nargs="*", metavar="ID", help=_("the id that `fawn dead list` shows"))


def _dead(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(run_action(config, ACTIONS[arguments.action], arguments.words))


def _describe_list(_config: Config, answer: Answer) -> str:
    return "\n".join(_describe_letter(row) for row in answer["dead"]) or _("No dead letters.")


def _describe_letter(row: Answer) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"]))
    text = " ".join(str(row["text"]).split())[:80]
    return f"{row['id']}\t{when}\t{row['kind']}\t{row['thread']}\t{row['error']}\t{text}"


ACTIONS: Mapping[str, CliAction] = {
    "list": CliAction("dead.list", _describe_list),
    "requeue": CliAction("dead.requeue", lambda _config, answer: _("Requeued {id}.", id=answer["id"]), ("id",)),
    "drop": CliAction("dead.drop", lambda _config, answer: _("Dropped {id}.", id=answer["id"]), ("id",)),
}


# ------------------------------------------------------------ fawn egress


FORMATS = ("text", "list", "networkpolicy", "cilium", "json")


def _add_egress_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("text for people (default), a firewall's list, a NetworkPolicy of Kubernetes or Cilium, or JSON")
    parser.add_argument("--format", choices=FORMATS, default="text", help=words)
    parser.add_argument("--resolve", action="store_true", help=_("list: the addresses that the names have now"))
    words = _("policies: their name, and the label `app` of the pods; default: fawn")
    parser.add_argument("--name", default="fawn", metavar="NAME", help=words)


def _egress(arguments: argparse.Namespace, config: Config) -> int:
    from bot.status import egress

    found, notes = egress.list_destinations(config)
    match arguments.format:
        case "list":
            print(egress.render_list(found, resolve=arguments.resolve))
        case "networkpolicy":
            print(egress.render_policy(found, arguments.name), end="")
        case "cilium":
            print(egress.render_cilium(found, arguments.name), end="")
        case "json":
            print(json.dumps({"destinations": [asdict(each) for each in found], "notes": notes}))
        case _:
            print(egress.render_text(found, notes))
    return OK


# ------------------------------------------------------------ fawn drill


def _add_drill_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print it as one JSON object"))
    parser.add_argument("--kills", type=_whole, default=20, metavar="N", help=_("how often it is killed; default: 20"))
    parser.add_argument("--log", metavar="FILE", help=_("keep the log of the drill's service in this file"))


def _whole(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise ValueError(text)
    return int(text)


def _drill(arguments: argparse.Namespace, config: Config) -> int:
    from bot.drill.report import render_table
    from bot.drill.times import DrillFailed, DrillOrder, run_drill

    log = Path(arguments.log) if arguments.log else None
    try:
        report = asyncio.run(run_drill(config, DrillOrder(kills=arguments.kills), log=log))
    except (DrillFailed, OSError) as error:
        return fail(_("the drill did not come to its end: {error}", error=error), FAULT)
    note_drill(config, report.figures, passed=report.is_good)
    print(json.dumps(report.to_json()) if arguments.json else render_table(report))
    return OK if report.is_good else FAULT


COMMANDS: Mapping[str, Command] = {
    "why": ConfiguredCommand(_why, _add_why_arguments),
    "trace": ConfiguredCommand(_trace, _add_trace_arguments),
    "logs": ConfiguredCommand(_logs, _add_logs_arguments),
    "dead": ConfiguredCommand(_dead, _add_dead_arguments),
    "egress": ConfiguredCommand(_egress, _add_egress_arguments, accounts=True, audited=lambda _given: "egress"),
    "drill": ConfiguredCommand(_drill, _add_drill_arguments, accounts=True),
}
