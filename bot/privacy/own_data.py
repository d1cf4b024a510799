"""`/export me`: what is stored of a person, as a file of JSON lines in their direct chat."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from agent.blocks import command_hint
from agent.messages import Thread
from bot.base.data_dir import conversation_folder
from bot.base.stored_files import command_folder
from bot.commands.call import CommandCall
from bot.database.database import Database
from bot.journey.outbox import files_payload
from bot.rights.current import Current
from bot.storage import forgetting, outbox, own_data
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.personal import Tables
from catalogue import N_, _
from channels.base import OutgoingFile
from sandbox.base import FOLDERS
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.safe_files import list_files
from sandbox.inside.search import WalkBounds

EXPORT_JOB = "export_person"
EXPORT_NAME = "my-data.jsonl"
MAX_EXPORT_BYTES = 20_000_000
MAX_LISTED_FILES = 5_000  # of a folder
USAGE = N_("`{export}` sends you what I have stored of you, as a file.")
ONLY_PRIVATE = N_("I send that in our direct chat only: write `{export}` to me there.")
BEGUN = N_("I'm collecting what I have stored of you. The file comes here in a moment.")


def export_command(call: CommandCall) -> str:
    """Have the person's own data sent to their direct chat."""
    if call.words.lower() != "me":
        return _(USAGE, export=command_hint("export me"))
    if not call.message.private:
        return _(ONLY_PRIVATE, export=command_hint("export me"))
    person = PersonKey(call.thread.channel, call.message.author.id)
    payload = {"channel": person.channel, "person": person.id, "thread": str(call.thread), "key": call.message.key}
    enqueue_job(call.execute, key=f"{EXPORT_JOB}:{person.key}", kind=EXPORT_JOB, payload=payload)
    return _(BEGUN)


@dataclass(frozen=True, slots=True)
class ExportJobs:
    """Handles the jobs that collect a person's data."""

    store: Database
    current: Current
    tables: Tables

    async def export(self, job: BackgroundJob) -> None:
        """Handle a job: write the file and enqueue it. The outbox deletes the copy."""
        given, data_dir = job.arguments, self.current.config.data_dir
        person, thread = PersonKey(given["channel"], given["person"]), Thread.parse(given["thread"])
        traces = await self.store.run(partial(forgetting.find_traces, person=person, chats=[thread]))
        path = command_folder(data_dir, "export", given["key"]) / EXPORT_NAME
        size = await self._write(path, person, traces)
        payload = files_payload([OutgoingFile(path, EXPORT_NAME, size)])

        key, now = f"export:{given['key']}", time.time()
        await self.store.run(partial(outbox.enqueue_files, thread=thread, payload=payload, key=key, now=now))

    async def _write(self, path: Path, person: PersonKey, traces: Traces) -> int:
        """Write the lines, at most MAX_EXPORT_BYTES, and a last one that says whether they are all; return the size."""
        parts = [partial(own_data.describe_account, person=person, traces=traces, tables=self.tables)]
        parts += [partial(own_data.read_conversation, key=key, person=person, whole=True) for key in traces.private]
        parts += [partial(own_data.read_conversation, key=key, person=person, whole=False) for key in traces.shared]
        lines, size, complete = list[bytes](), 0, True
        for part in parts:
            for entry in await self.store.run(part):
                line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE, default=str)
                complete = complete and size + len(line) <= MAX_EXPORT_BYTES
                if complete:
                    lines.append(line)
                    size += len(line)
        folders = [conversation_folder(self.current.config.data_dir, key) for key in traces.private]
        files = await run_file_work(lambda: [*_list_files(folders)])
        lines += [orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in files]
        lines.append(orjson.dumps({"kind": "end", "complete": complete}, option=orjson.OPT_APPEND_NEWLINE))
        return await run_file_work(_write_lines, path, lines)


def _list_files(folders: list[Path]) -> Iterator[dict[str, object]]:
    """Return the files of direct chats, up to a limit for each folder."""
    bounds = WalkBounds(entries=MAX_LISTED_FILES)
    for folder in folders:
        for part in FOLDERS:
            for path, stamp in sorted(list_files(folder / part, bounds, lambda _path, _reason: None).items()):
                yield {"kind": "file", "path": f"{part}/{path}", "bytes": stamp.size}


def _write_lines(path: Path, lines: list[bytes]) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.write_bytes(b"".join(lines))
