"""Checks of this machine and its files: `fawn check` reports them, and `fawn run` refuses to start on a fault.

None of them imports the agent's graph or a platform's SDK, or uses the network beyond this machine.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agent.core.context import read_prompt
from agent.parsing.child import is_confined
from agent.settings.models import AgentConfigError
from bot.base.data_dir import open_to_others
from bot.base.findings import Finding
from bot.config.loader import secret_texts
from bot.config.schema import Config
from bot.database.migrate import DatabaseFault, check_revisions, head_revision, schema_revision
from catalogue import _, join_sentences, localized

log = logging.getLogger(__name__)

MIN_FREE_BYTES = 200_000_000
MIN_DESCRIPTORS = 4096


def describe_system_error(error: Exception) -> tuple[str, str]:
    """Return what the operating system or the database refused and where, and what to do."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", _("check the path, its permissions and the free space")
    fix = _("check the free space and the owner of the files; restore a backup if one is damaged")
    return _("database: {error}", error=error), fix


def guarded(subject: str, check: Callable[[], Finding]) -> Finding:
    """Run a check; what the system refuses during it is a fault of its subject."""
    try:
        return check()
    except (OSError, sqlite3.Error) as error:
        return Finding("fault", subject, *describe_system_error(error))


def check_machine(config: Config, *, served: bool = False) -> Iterator[Finding]:
    """Check all that can be checked before the service starts. `served`: another process runs it at the moment."""
    yield guarded(_("prompt"), lambda: _check_prompt(config))
    yield guarded(_("sandbox limits"), lambda: _check_limits(config))
    yield guarded(_("preview"), lambda: _check_preview(config, served=served))
    yield guarded("http", lambda: _check_http(config, served=served))


def check_parsers() -> list[Finding]:
    """Say it if this machine cannot take system calls from the parsers of strangers' files. Blocks."""
    if is_confined():
        return []
    text = _("parsers of pages and pictures keep their system calls: this machine or container has no seccomp filters")
    fix = _(
        "use a Linux kernel with seccomp on x86_64 or aarch64; until then, a flaw in a parser is one in the service"
    )
    return [Finding("note", _("parsers"), text, fix)]


def check_descriptors(most: int) -> list[Finding]:
    """Say it if this process may open few files: each proxied connection of a sandbox takes two."""
    if most == resource.RLIM_INFINITY or most >= MIN_DESCRIPTORS:
        return []
    text = _("this process may open {n} files; busy sandboxes need {wanted}", n=most, wanted=MIN_DESCRIPTORS)
    fix = _(
        "`ulimit -Hn {n}` before the start, `LimitNOFILE={n}` in systemd, or `ulimits` in Docker", n=MIN_DESCRIPTORS
    )
    return [Finding("note", _("open files"), text, fix)]


def check_secret_files(config: Config) -> list[Finding]:
    """Name files with secrets that every user of this machine can read. Blocks."""
    texts = secret_texts(config)
    found = []
    for path in sorted(config.paths):
        if path.is_relative_to("/run/secrets") or path.is_relative_to("/var/run/secrets"):
            continue  # Docker's and Kubernetes' own, in a container without other users
        try:
            if path.stat().st_mode & 0o004 and any(text in path.read_text("utf-8", "replace") for text in texts):
                text = _("every user of this machine can read the secrets in {file}", file=path)
                found.append(Finding("note", _("secrets"), text, f"chmod 600 {path}", partial(path.chmod, 0o600)))
        except OSError:
            continue  # it is gone since
    return found


def check_data_dir(data_dir: Path, *, served: bool = False) -> Finding:
    """Write a file, which also finds quotas and read-only mounts; compare the databases with this version."""
    fix = _("make it writable for the user that runs Fawn, or set `data_dir`")
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=data_dir, prefix=".check-") as file:
            file.write(b"x" * 4096)
            file.flush()
        free = shutil.disk_usage(data_dir).free
        full = judge_disk(data_dir)
    except FileExistsError:
        return Finding(
            "fault",
            "data_dir",
            _("{data_dir} is a file, not a folder", data_dir=data_dir),
            _("set `data_dir` to a folder of its own, such as ./data"),
        )
    except OSError as error:
        return Finding(
            "fault",
            "data_dir",
            _("cannot write to {data_dir}: {strerror}", data_dir=data_dir, strerror=error.strerror),
            fix,
        )
    if full:
        return full
    try:
        check_revisions(data_dir)
    except DatabaseFault as error:
        fix = _("restore a backup into an empty `data_dir`: `fawn restore FILE` (docs/operations.md)")
        return Finding("fault", "data_dir", localized(error), fix)
    running = _("A service is running on it.") if served else ""
    if open_to_others(data_dir):
        fix = _("chmod 700 {data_dir} (the service does this at start if it owns the folder)", data_dir=data_dir)
        text = _("Other users of this machine can read {data_dir}.", data_dir=data_dir)
        return Finding("note", "data_dir", join_sentences(text, running), fix, partial(data_dir.chmod, 0o700))
    if (current := schema_revision(data_dir / "fawn.db")) and current != head_revision():
        text = _("Its database is of an older version; the next start upgrades it and keeps a copy.")
        return Finding("note", "data_dir", join_sentences(text, running), _("back up before: `fawn backup FILE`"))
    text = _("{data_dir} is writable, {n:.1f} GB left.", data_dir=data_dir, n=free / 1e9)
    return Finding("ok", "data_dir", join_sentences(text, running))


def judge_disk(data_dir: Path) -> Finding | None:
    """Return the fault of a disk that is nearly full, for `fawn check`, `fawn status` and the log of a start.

    The service starts all the same: its databases have a reserve. Blocks.
    """
    free = shutil.disk_usage(data_dir).free
    if free >= MIN_FREE_BYTES:
        return None
    text = _("{data_dir} has {n:.0f} MB left", data_dir=data_dir, n=free / 1e6)
    return Finding("fault", "data_dir", text, _("free space, or set `data_dir`"))


def warn_of_full_disk(data_dir: Path) -> None:
    """Log a disk that is nearly full. Blocks."""
    if full := judge_disk(data_dir):
        log.warning("disk.low what=%s", full.text)


def _check_prompt(config: Config) -> Finding:
    try:
        read_prompt(config.prompt)
    except AgentConfigError as error:
        return Finding("fault", _("prompt"), localized(error.wrong), localized(error.fix))
    return Finding("ok", _("prompt"), config.prompt.file or _("the built-in one"))


def _check_limits(config: Config) -> Finding:
    """Compare one sandbox's limits with the machine: larger ones are mistakes, such as bytes for megabytes."""
    cpus, memory = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    limits = {"cpus": (config.sandbox.cpus, cpus), "memory_mb": (config.sandbox.memory_mb, memory)}
    if wrong := [
        _("`{n}` is {given:,}, this machine has {there:,}", n=n, given=given, there=there)
        for n, (given, there) in limits.items()
        if given > there
    ]:
        return Finding("note", _("sandbox limits"), _("; ").join(wrong), _("set them below what the machine has"))
    cpus_text = _("{cpus:g} processors, {memory} MB", cpus=config.sandbox.cpus, memory=config.sandbox.memory_mb)
    return Finding("ok", _("sandbox limits"), cpus_text)


def _check_preview(config: Config, *, served: bool) -> Finding:
    preview = config.sandbox.preview
    fix = _("stop what listens there, or set `sandbox: {preview: {listen: HOST:PORT}}`")
    return _check_address(_("preview"), preview.listen if preview.enabled else "", fix, served=served)


def _check_http(config: Config, *, served: bool) -> Finding:
    fix = _("stop what listens there, or set `http: {listen: HOST:PORT}`")
    return _check_address("http", config.http.listen, fix, served=served)


def _check_address(subject: str, listen: str, fix: str, *, served: bool) -> Finding:
    """Listen on an address for a moment, unless it is the running service that does."""
    if not listen:
        return Finding("ok", subject, _("disabled"))
    host, _colon, port = listen.rpartition(":")
    if served:
        return Finding("ok", subject, _("{listen} belongs to the running service", listen=listen))
    try:
        with socket.create_server((host.strip("[]"), int(port)), family=_family(host)):
            return Finding("ok", subject, _("{listen} is free", listen=listen))
    except (OSError, ValueError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else _("it is not HOST:PORT")
        return Finding("fault", subject, _("cannot listen on {listen}: {why}", listen=listen, why=why), fix)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
