"""Run a program or its test cases with limits of time, memory and output, and report the result as JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

MAX_OUTPUT_BYTES = 20_000


class Language(NamedTuple):
    """A language: its suffixes, its commands with {file} and {program}, and how to ask for the version.

    `heap` limits the memory of a runtime that reserves more address space than it uses, and does not start with less.
    """

    suffixes: tuple[str, ...]
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()
    version: tuple[str, ...] = ("--version",)
    heap: str = ""

    @property
    def program(self) -> str:
        return (self.compile or self.run)[0]


LANGUAGES = {
    "python": Language((".py",), ("python3", "{file}")),
    "bash": Language((".sh", ".bash"), ("bash", "{file}")),
    "javascript": Language((".js", ".mjs", ".cjs"), ("node", "{file}"), heap="--max-old-space-size={mb}"),
    "typescript": Language(
        (".ts", ".mts"), ("node", "--experimental-strip-types", "{file}"), heap="--max-old-space-size={mb}"
    ),
    "perl": Language((".pl",), ("perl", "{file}")),
    "ruby": Language((".rb",), ("ruby", "{file}")),
    "php": Language((".php",), ("php", "{file}")),
    "lua": Language((".lua",), ("lua", "{file}"), version=("-v",)),
    "r": Language((".r", ".R"), ("Rscript", "{file}")),
    "awk": Language((".awk",), ("awk", "-f", "{file}"), version=("-W", "version")),
    "sql": Language((".sql",), ("sqlite3", "-batch", "-header", ":memory:", ".read {file}")),
    "c": Language((".c",), ("{program}",), ("cc", "-O1", "-Wall", "-o", "{program}", "{file}", "-lm")),
    "c++": Language((".cc", ".cpp", ".cxx"), ("{program}",), ("c++", "-O1", "-Wall", "-o", "{program}", "{file}")),
    "go": Language((".go",), ("{program}",), ("go", "build", "-o", "{program}", "{file}"), ("version",)),
    "rust": Language((".rs",), ("{program}",), ("rustc", "-O", "-o", "{program}", "{file}")),
    "java": Language((".java",), ("java", "{file}"), heap="-Xmx{mb}m"),
}


class Outcome(NamedTuple):
    """The result of one process. `exit_code` is negative for a signal; `reason` names the limit that ended it."""

    exit_code: int
    reason: str
    stdout: str
    stderr: str
    seconds: float
    cpu_seconds: float
    peak_memory_mb: float


def available_languages() -> dict[str, str]:
    """Return the languages whose program is installed, with its version."""
    found = {}
    for name, language in LANGUAGES.items():
        if shutil.which(language.program):
            done = subprocess.run(
                [language.program, *language.version], capture_output=True, text=True, timeout=20, check=False
            )
            found[name] = ((done.stdout or done.stderr).strip().splitlines() or [language.program])[0][:80]
    return found


def limit_process(memory_mb: int, file_mb: int, seconds: float) -> Callable[[], None]:
    """Return a function that sets the limits in the child. Without `memory_mb`, memory has none."""

    def apply() -> None:
        for kind, value in (
            *([(resource.RLIMIT_DATA, memory_mb << 20)] if memory_mb else []),
            (resource.RLIMIT_FSIZE, file_mb << 20),
            (resource.RLIMIT_CPU, int(seconds) + 1),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))

    return apply


def read_bounded(pipe: BinaryIO, kept: bytearray) -> None:
    """Read to the end, and keep the first bytes."""
    while data := pipe.read1(65536):  # type: ignore[attr-defined]  # a pipe of subprocess is buffered
        kept += data[: max(0, MAX_OUTPUT_BYTES + 1 - len(kept))]


def shorten(kept: bytearray) -> str:
    text = bytes(kept[:MAX_OUTPUT_BYTES]).decode("utf-8", "replace")
    return text + (f"\n[cut after {MAX_OUTPUT_BYTES} bytes]" if len(kept) > MAX_OUTPUT_BYTES else "")


def run_process(command: list[str], stdin: str, options: argparse.Namespace, folder: str) -> Outcome:
    """Run one command in its own process group, which ends with it."""
    start = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
        start_new_session=True,
        preexec_fn=limit_process(options.memory_mb, options.file_mb, options.timeout),
    )  # fmt: skip
    if not (process.stdin and process.stdout and process.stderr):
        raise AssertionError("the three pipes are open")
    texts = bytearray(), bytearray()
    readers = [
        threading.Thread(target=read_bounded, args=pair, daemon=True)
        for pair in zip((process.stdout, process.stderr), texts)
    ]
    for reader in readers:
        reader.start()
    timed_out = threading.Event()

    def end_group() -> None:
        timed_out.set()
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)

    clock = threading.Timer(options.timeout, end_group)
    clock.start()
    with contextlib.suppress(BrokenPipeError):  # the program may end without reading
        process.stdin.write(stdin.encode())
        process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    clock.cancel()
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(ProcessLookupError):  # what it left in the background would keep the pipes open
        os.killpg(process.pid, signal.SIGKILL)
    for reader in readers:
        reader.join()
    stderr = shorten(texts[1])
    reason = "timeout" if timed_out.is_set() else end_reason(process.returncode, stderr)
    return Outcome(
        process.returncode,
        reason,
        shorten(texts[0]),
        stderr,
        round(seconds, 3),
        round(usage.ru_utime + usage.ru_stime, 3),
        round(usage.ru_maxrss / 1024, 1),
    )


def end_reason(code: int, stderr: str) -> str:
    """Name the limit that ended a process, "" if none did."""
    if code == -signal.SIGXCPU:
        return "timeout"
    if code == -signal.SIGXFSZ or "File too large" in stderr:
        return "file size"
    if code and any(
        mark in stderr
        for mark in ("MemoryError", "Cannot allocate memory", "bad_alloc", "out of memory", "OutOfMemory")
    ):
        return "memory"
    return f"signal {signal.Signals(-code).name}" if code < 0 else ""


def run_cases(
    command: list[str], cases: list[dict[str, str]], options: argparse.Namespace, folder: str
) -> list[dict[str, Any]]:
    """Run the command once per case. Output is compared without spaces at the ends of lines."""
    results = []
    for number, case in enumerate(cases, 1):
        outcome = run_process(command, case.get("stdin", ""), options, folder)
        wanted, got = (
            [line.rstrip() for line in text.rstrip().splitlines()] for text in (case.get("expect", ""), outcome.stdout)
        )
        passed = outcome.exit_code == 0 and wanted == got
        result: dict[str, Any] = {"case": case.get("name", number), "passed": passed, "seconds": outcome.seconds}
        results.append(result if passed else result | {"expected": case.get("expect", ""), **outcome._asdict()})
    return results


def fail(code: int, **facts: Any) -> NoReturn:
    print(json.dumps(facts, ensure_ascii=False))
    sys.exit(code)


def choose_language(options: argparse.Namespace) -> tuple[str, Language]:
    suffix = options.file.suffix if options.file else ""
    name = options.language or next((name for name, language in LANGUAGES.items() if suffix in language.suffixes), "")
    if name not in LANGUAGES:
        fail(2, error=f"Name a --language of: {', '.join(LANGUAGES)}.")
    language = LANGUAGES[name]
    if not shutil.which(language.program):
        fail(
            3,
            error=f"{name} needs the program {language.program}, which is not installed.",
            missing=[language.program],
            available=list(available_languages()),
        )
    return name, language


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [file] [-- ARGUMENT …]")
    parser.add_argument("file", type=Path, nargs="?", help="the program; its arguments follow after --")
    parser.add_argument("--code", help="the program as text, with --language")
    parser.add_argument("--language", default="", help="default: by the suffix")
    parser.add_argument("--languages", action="store_true", help="list what is installed")
    parser.add_argument("--stdin", default="", help="text, or @FILE")
    parser.add_argument("--cases", type=Path, help="JSON: [{name, stdin, expect}]")
    parser.add_argument("--timeout", type=float, default=10, metavar="SECONDS")
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--file-mb", type=int, default=64, help="size of one file that it writes")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)  # what follows are arguments of the program
    options = parser.parse_args(words[:end])
    if options.languages:
        print(json.dumps(available_languages(), ensure_ascii=False, indent=1))
        return
    if bool(options.file) == (options.code is not None):
        parser.error("name a file or give --code")
    name, language = choose_language(options)
    with tempfile.TemporaryDirectory() as folder:
        file = options.file.resolve() if options.file else Path(folder, f"code{language.suffixes[0]}")
        if options.code is not None:
            file.write_text(options.code, encoding="utf-8")
        place = {"file": str(file), "program": str(Path(folder, "program"))}
        if language.compile:
            done = subprocess.run(
                [part.format(**place) for part in language.compile],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            if done.returncode:
                fail(1, language=name, error="It does not compile.", stderr=done.stderr[:MAX_OUTPUT_BYTES])
        command = [part.format(**place) for part in language.run] + words[end + 1 :]
        if language.heap:
            command.insert(1, language.heap.format(mb=options.memory_mb))
            options.memory_mb = 0
        where = str(file.parent if options.file else folder)
        if options.cases:
            results = run_cases(command, json.loads(options.cases.read_text("utf-8")), options, where)
            passed = sum(result["passed"] for result in results)
            print(
                json.dumps(
                    {"language": name, "passed": passed, "failed": len(results) - passed, "cases": results},
                    ensure_ascii=False,
                    indent=1,
                )
            )
            sys.exit(0 if passed == len(results) else 1)
        stdin = Path(options.stdin[1:]).read_text("utf-8") if options.stdin.startswith("@") else options.stdin
        outcome = run_process(command, stdin, options, where)
    print(json.dumps({"language": name, **outcome._asdict()}, ensure_ascii=False, indent=1))
    sys.exit(0 if outcome.exit_code == 0 else 1)


if __name__ == "__main__":
    main()
