"""Join the transcripts of a recording's pieces into one with the times of the whole: WebVTT, SRT or text.

Reads .vtt, .srt, .json (segments with start, end, text) and .txt, whose sentences are spread over its piece.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

from parse_transcript import clock_of, sentence_lines

MAX_BYTES = 20 << 20
TIMES = re.compile(r"((?:\d+:)?\d\d:\d\d[.,]\d{1,3}) --> ((?:\d+:)?\d\d:\d\d[.,]\d{1,3})")


class Cue(NamedTuple):
    """Words from one moment to another, in seconds of the whole recording."""

    start: float
    end: float
    text: str


def moment(text: str) -> float:
    whole, _sign, rest = text.replace(",", ".").partition(".")
    seconds = 0.0
    for part in whole.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds + float(f"0.{rest or 0}")


def read_cues(path: Path, length: float) -> list[Cue]:
    """Return the cues of one piece, in its own time. Raises ValueError."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MB")
    text = path.read_text("utf-8-sig")
    if path.suffix.lower() == ".json":
        segments = json.loads(text)["segments"]
        return [Cue(float(each["start"]), float(each["end"]), spoken(each)) for each in segments if each.get("text")]
    if path.suffix.lower() in (".vtt", ".srt"):
        cues: list[Cue] = []
        for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
            rows = block.strip().splitlines()
            at = next((index for index, row in enumerate(rows) if TIMES.match(row)), -1)
            if at >= 0 and (found := TIMES.match(rows[at])):
                words = " ".join(row.strip() for row in rows[at + 1 :])
                cues += [Cue(moment(found[1]), moment(found[2]), words)] if words else []
        return cues
    sentences = [line.text for line in sentence_lines(text)]
    whole, done, cues = sum(map(len, sentences)) or 1, 0, []
    for sentence in sentences:
        start, done = done, done + len(sentence)
        cues.append(Cue(start / whole * length, done / whole * length, sentence))
    return cues


def spoken(segment: dict[str, object]) -> str:
    """Return the words of a segment after the name of their speaker."""
    name = str(segment.get("speaker") or "")
    return f"{name}: {str(segment['text']).strip()}" if name else str(segment["text"]).strip()


def stamp(seconds: float, sign: str) -> str:
    milliseconds = round(seconds * 1000)
    hours, rest = divmod(milliseconds, 3_600_000)
    return f"{hours:02}:{rest // 60_000:02}:{rest % 60_000 // 1000:02}{sign}{rest % 1000:03}"


def written(cues: list[Cue], kind: str) -> str:
    """Return all cues as .vtt, .srt or text."""
    if kind == ".vtt":
        body = [f"{stamp(cue.start, '.')} --> {stamp(cue.end, '.')}\n{cue.text}" for cue in cues]
        return "\n\n".join(["WEBVTT", *body]) + "\n"
    if kind == ".srt":
        rows = [
            f"{number}\n{stamp(cue.start, ',')} --> {stamp(cue.end, ',')}\n{cue.text}"
            for number, cue in enumerate(cues, 1)
        ]
        return "\n\n".join(rows) + "\n"
    return "".join(f"[{clock_of(cue.start)}] {cue.text}\n" for cue in cues)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pieces", type=Path, help="pieces.json of cut_audio.py")
    parser.add_argument("transcripts", type=Path, nargs="+", help="one for each piece, in their order")
    parser.add_argument("--out", type=Path, required=True, help=".vtt, .srt or .txt")
    options = parser.parse_args()
    estimated = False
    try:
        pieces = json.loads(options.pieces.read_text("utf-8"))["pieces"]
        if len(pieces) != len(options.transcripts):
            raise ValueError(f"there are {len(pieces)} pieces and {len(options.transcripts)} transcripts")
        cues: list[Cue] = []
        for piece, path in zip(pieces, options.transcripts):
            estimated = estimated or path.suffix.lower() not in (".vtt", ".srt", ".json")
            start, end = float(piece["start"]), float(piece["end"])
            for cue in read_cues(path, end - start):
                cues.append(Cue(min(start + cue.start, end), min(start + cue.end, end), cue.text))
        options.out.write_text(written(cues, options.out.suffix.lower()), encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        sys.exit(1)
    notes = ["Times within a piece are estimated: its transcript has none."] if estimated else []
    print(
        json.dumps(
            {
                "written": str(options.out),
                "cues": len(cues),
                "to": clock_of(cues[-1].end) if cues else "",
                "notes": notes,
            }
        )
    )


if __name__ == "__main__":
    main()
