"""`fawn migrate`, `backup` and `restore` say on stderr how far they are: a line that moves, or few lines in a pipe."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.base.exit_codes import OK
from bot.cli.progress import describe_progress, shown
from bot.config.schema import Config
from bot.database.progress import CopyProgress, Part
from tests.support.filled_store import fill
from tests.support.forked_services import program
from tests.unit.bot.test_engine_change import config, file_of, written

__all__ = ["config"]
LARGE_BYTES = 48 << 20  # takes longer to compress than a terminal waits for its first line


@contextmanager
def reading(master: int) -> Iterator[list[bytes]]:
    """Collect what is written to a terminal until its last writer closes it."""
    yield (found := [])
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # EIO: nobody has it open any more
            break
        if not piece:
            break
        found.append(piece)
    os.close(master)


def run(*words: str, terminal: bool) -> tuple[int, str, str]:
    """Run `fawn` with stdout in a pipe and stderr on a terminal or in a pipe; return its code and both."""
    command = [*program(), *words]
    if not terminal:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, text=True)
    os.close(slave)
    with reading(master) as pieces:
        pass
    out, _nothing = process.communicate()
    return process.returncode, out, b"".join(pieces).decode()


async def test_each_command_shows_a_line_on_a_terminal_and_the_same_stdout_as_without(
    config: Config, tmp_path: Path
) -> None:
    await fill(file_of(config))
    path, archive = str(written(config, tmp_path)), str(tmp_path / "made.tar.gz")
    code, out, err = await asyncio.to_thread(run, "migrate", "--to", "postgresql", "--config", path, terminal=True)
    assert code == OK, err
    assert "copying rows: " in err
    assert " of about " in err
    assert err.endswith("\r\x1b[K"), "the line is gone at the end"
    assert out.startswith("Copied ")
    assert "copying rows" not in out

    (config.data_dir / "spool").mkdir(exist_ok=True)
    (config.data_dir / "spool/large").write_bytes(os.urandom(LARGE_BYTES))
    code, out, err = await asyncio.to_thread(run, "backup", archive, "--config", path, terminal=True)
    assert code == OK, err
    assert "writing the archive: " in err
    assert out.startswith("Wrote ")
    assert "writing the archive" not in out

    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (tmp_path / "fresh.yaml").write_text(f"config_version: 1\ndata_dir: {fresh}\n")
    code, out, err = await asyncio.to_thread(
        run, "restore", archive, "--config", str(tmp_path / "fresh.yaml"), terminal=True
    )
    assert code == OK, err
    assert "unpacking: " in err
    assert out.startswith("Restored ")


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_quiet_command_and_a_short_one_in_a_pipe_say_nothing(
    config: Config, tmp_path: Path, terminal: bool
) -> None:
    await fill(file_of(config))
    words = ["migrate", "--to", "postgresql", "--config", str(written(config, tmp_path))]
    code, out, err = await asyncio.to_thread(run, *words, *(["--quiet"] if terminal else []), terminal=terminal)
    assert code == OK, err
    assert out.startswith("Copied ")
    assert "copying" not in err
    assert "\x1b" not in err


def test_in_a_pipe_there_is_a_line_each_time_and_no_control_character() -> None:
    progress = CopyProgress()
    read, write = os.pipe()
    with os.fdopen(read) as lines, os.fdopen(write, "w") as stream:
        with shown(progress, quiet=False, stream=stream, line_seconds=0.05):
            progress.begin(Part.ROWS, 1_000_000)
            progress.add(250_000)
            said = [lines.readline(), lines.readline()]
        stream.close()
        rest = lines.read()
    assert all(line.startswith("copying rows: 250,000 of about 1,000,000, ") for line in said)
    assert "\x1b" not in "".join([*said, rest])


def test_a_reader_that_has_gone_does_not_end_the_copy() -> None:
    progress = CopyProgress(Part.ROWS)
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    with shown(progress, quiet=False, stream=stream, line_seconds=0.01):
        began = time.monotonic()
        while time.monotonic() - began < 0.2:
            progress.add(1)
    assert progress.done > 0
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_line_says_how_much_of_about_how_much_at_which_rate() -> None:
    assert describe_progress(Part.ROWS, 1_500, 0, 3) == "copying rows: 1,500, 500/s"
    assert describe_progress(Part.UNPACK, 5_000_000, 20_000_000, 2) == "unpacking: 5.0 MB of about 20.0 MB, 2.5 MB/s"
    assert describe_progress(Part.ROWS, 30, 20, 1) == "copying rows: 30 of about 30, 30/s", "an estimate is no limit"
    assert describe_progress(Part.WRITE, 900, 0, 0) == "writing the archive: 0.9 KB, –/s"
