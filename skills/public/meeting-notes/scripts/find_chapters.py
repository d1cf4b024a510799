"""Propose the chapters of a long transcript: where the words change, with times, lines and words of each."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from parse_transcript import Line, parse_transcript, seconds_of

WINDOW = 8  # lines on each side that are compared
MAX_CHAPTERS = 20
WORD = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]{2}|[^\W\d_]{4,30}")
COMMON_SHARE = 0.3  # of the lines: such a word says nothing about a chapter


def words_of(lines: list[Line]) -> list[Counter[str]]:
    """Return the telling words of each line, shortened so that plurals are the same."""
    raw = [Counter(word[:7] for word in WORD.findall(line.text.lower())) for line in lines]
    spread = Counter(word for each in raw for word in each)
    limit = max(3, COMMON_SHARE * len(lines))
    return [Counter({word: count for word, count in each.items() if 1 < spread[word] <= limit}) for each in raw]


def likeness(left: Counter[str], right: Counter[str]) -> float:
    """Return the cosine of two bags of words."""
    both = sum(count * right[word] for word, count in left.items())
    sizes = math.sqrt(sum(count**2 for count in left.values()) * sum(count**2 for count in right.values()))
    return both / sizes if sizes else 0.0


def find_boundaries(lines: list[Line], chapters: int) -> list[int]:
    """Return the indexes of the lines that begin chapters: the deepest valleys of likeness, apart from each other."""
    words = words_of(lines)
    depth: list[tuple[float, int]] = []
    curve = []
    for at in range(1, len(lines)):
        before = sum(words[max(0, at - WINDOW) : at], Counter[str]())
        after = sum(words[at : at + WINDOW], Counter[str]())
        curve.append(likeness(before, after))
    for at, value in enumerate(curve):
        left, right = max(curve[max(0, at - WINDOW) : at + 1]), max(curve[at : at + WINDOW])
        pause = 0.0
        now, then = seconds_of(lines[at + 1].time), seconds_of(lines[at].time)
        if now is not None and then is not None:
            pause = min(max(now - then - 20, 0) / 60, 0.5)
        depth.append((left + right - 2 * value + pause, at + 1))
    least = max(4, len(lines) // (3 * chapters))
    chosen = [0]
    for value, at in sorted(depth, key=lambda each: (-each[0], each[1])):
        apart = all(abs(at - other) >= least for other in (*chosen, len(lines)))
        if len(chosen) < chapters and value > 0.1 and apart:
            chosen.append(at)
    return sorted(chosen)


def describe(lines: list[Line], starts: list[int]) -> list[dict[str, Any]]:
    """Return the chapters with the words that are frequent in them and rare elsewhere."""
    whole = Counter(word for line in lines for word in set(WORD.findall(line.text.lower())))
    chapters = []
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        part = lines[start:end]
        inside = Counter(word for line in part for word in WORD.findall(line.text.lower()))
        score = {word: count * math.log(1 + len(lines) / whole[word]) for word, count in inside.items() if count > 1}
        chapters.append({
            "from": part[0].time, "lines": f"L{part[0].number}-L{part[-1].number}",
            "words": sorted(score, key=lambda word: (-score[word], word))[:8], "begins": part[0].text[:120],
        })  # fmt: skip
    return chapters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transcript", type=Path)
    parser.add_argument("--chapters", type=int, default=0, help="at most; default: by the length")
    options = parser.parse_args()
    try:
        lines = parse_transcript(options.transcript.read_text("utf-8-sig"))
    except (OSError, ValueError, KeyError) as error:
        print(json.dumps({"error": f"{options.transcript.name}: {error}"}))
        sys.exit(1)
    wanted = min(options.chapters or max(2, len(lines) // 25 + 1), MAX_CHAPTERS)
    print(json.dumps(describe(lines, find_boundaries(lines, wanted)) if lines else [], ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
