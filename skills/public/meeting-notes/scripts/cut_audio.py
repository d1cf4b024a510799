"""Cut a long recording at pauses into pieces that can be transcribed: speech quality, a bounded length and size.

Needs ffmpeg (or the package imageio-ffmpeg). Writes the pieces and pieces.json with the time at which each begins.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

EXIT_MISSING_PACKAGE = 3
MAX_INPUT_BYTES = 4 << 30
MAX_HOURS = 12
KILOBITS = 24  # Opus, mono: good speech, 10.8 MB an hour
SECONDS_FOR_AN_HOUR = 120  # of work
DURATION = re.compile(r"Duration: (\d+):(\d\d):(\d\d(?:\.\d+)?)")
SILENCE = re.compile(r"silence_(start|end): (-?\d+(?:\.\d+)?)")


class Problem(Exception):
    """The recording cannot be cut. The text says why and what to do."""


def find_ffmpeg() -> str:
    """Return the program; "" if it is not there."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return ""


def run_ffmpeg(ffmpeg: str, words: list[str], seconds: float) -> str:
    """Return what ffmpeg reports. It opens local files only. Raises Problem."""
    command = [ffmpeg, "-hide_banner", "-nostdin", "-protocol_whitelist", "file,pipe", *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise Problem(f"ffmpeg took longer than {seconds:.0f} s.") from None
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode and "At least one output file must be specified" not in said:
        raise Problem("ffmpeg: " + " ".join(said.strip().splitlines()[-2:])[:300])
    return said


def duration_of(ffmpeg: str, path: Path) -> float:
    """Return the length in seconds. Raises Problem if it is no recording, or too long."""
    found = DURATION.search(run_ffmpeg(ffmpeg, ["-i", str(path)], 60))
    if not found:
        raise Problem(f"{path.name} has no audio of a known length.")
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3])
    if seconds > MAX_HOURS * 3600:
        raise Problem(f"{path.name} is longer than {MAX_HOURS} hours.")
    return seconds


def find_pauses(ffmpeg: str, path: Path, seconds: float) -> list[float]:
    """Return the middle of each pause of at least 0.4 seconds."""
    words = ["-i", str(path), "-vn", "-af", "silencedetect=noise=-35dB:d=0.4", "-f", "null", "-"]
    said = run_ffmpeg(ffmpeg, words, 60 + seconds / 3600 * SECONDS_FOR_AN_HOUR)
    pauses, start = [], -1.0
    for kind, moment in SILENCE.findall(said):
        if kind == "start":
            start = max(float(moment), 0.0)
        elif start >= 0:
            pauses.append((start + float(moment)) / 2)
    return pauses


def choose_cuts(seconds: float, pauses: list[float], limit: float) -> list[float]:
    """Return where the pieces begin: each at most `limit` long, cut in the last pause that fits, or at the limit."""
    cuts = [0.0]
    while seconds - cuts[-1] > limit:
        low, high = cuts[-1] + limit * 0.6, cuts[-1] + limit
        cuts.append(max((pause for pause in pauses if low <= pause <= high), default=high))
    return cuts


def fail(code: int, **facts: object) -> NoReturn:
    print(json.dumps(facts, ensure_ascii=False))
    sys.exit(code)


def cut(ffmpeg: str, options: argparse.Namespace) -> dict[str, object]:
    path: Path = options.audio
    if not path.is_file() or path.stat().st_size > MAX_INPUT_BYTES:
        raise Problem(f"{path.name}: there is no such file, or it is larger than {MAX_INPUT_BYTES >> 30} GB.")
    seconds = duration_of(ffmpeg, path)
    limit = min(options.minutes * 60, options.max_mb * (1 << 20) * 8 / (KILOBITS * 1000) * 0.8)
    cuts = choose_cuts(seconds, find_pauses(ffmpeg, path, seconds), limit)
    options.out.mkdir(parents=True, exist_ok=True)
    pieces = []
    for number, (start, end) in enumerate(zip(cuts, [*cuts[1:], seconds]), 1):
        name = f"{path.stem}-{number:02}.ogg"
        words = ["-y", "-ss", f"{start:.3f}", "-i", str(path), "-t", f"{end - start:.3f}", "-vn", "-map_metadata", "-1"]
        words += ["-ac", "1", "-ar", "16000", "-c:a", "libopus", "-b:a", f"{KILOBITS}k", str(options.out / name)]
        run_ffmpeg(ffmpeg, words, 60 + (end - start) / 3600 * SECONDS_FOR_AN_HOUR)
        size = (options.out / name).stat().st_size
        pieces.append({"file": name, "start": round(start, 3), "end": round(end, 3), "bytes": size})
    (options.out / "pieces.json").write_text(json.dumps({"pieces": pieces}, indent=1), encoding="utf-8")
    return {"seconds": round(seconds, 2), "pieces": pieces, "written": str(options.out / "pieces.json")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("audio", type=Path, help="audio or video that ffmpeg reads")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=20, help="of a piece at most")
    parser.add_argument("--max-mb", type=float, default=24, help="of a piece at most")
    options = parser.parse_args()
    ffmpeg = find_ffmpeg()
    if not ffmpeg:
        fail(
            EXIT_MISSING_PACKAGE,
            error="Cutting audio needs the program ffmpeg.",
            missing=["ffmpeg"],
            fix="apt install ffmpeg, or pip install imageio-ffmpeg; or ask for a shorter recording",
        )
    try:
        result = cut(ffmpeg, options)
    except (Problem, OSError) as problem:
        fail(1, error=str(problem))
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
