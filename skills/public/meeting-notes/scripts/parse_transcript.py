"""Parse a chat thread or a transcript into numbered lines with time and speaker, and mark likely decisions and tasks.

Formats: "[10:05] Ada: text", "Ada: text", "Ada (10:05): text", exports of WhatsApp, WebVTT and SRT subtitles, JSON
lists of messages with a name (user, author, name, speaker, from), a text and a time (ts, time, date), JSON of speech
recognition with segments, and plain speech without names, which becomes a line for each sentence.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

NAME = r"(?P<speaker>[^\W\d_][^:：\n\[\]<>]{0,40}?)"
TIME = r"(?P<time>(?:\d{4}-\d\d-\d\d[ T])?\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?)"
FORMATS = [
    re.compile(rf"\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{1,4}},? {TIME} - {NAME}[:：]\s*(?P<text>.*)"),  # WhatsApp
    re.compile(rf"\[?{TIME}\]?\s*[-–]?\s*{NAME}[:：]\s*(?P<text>.*)"),
    re.compile(rf"{NAME} [\[(]{TIME}[\])][:：]\s*(?P<text>.*)"),
    re.compile(r"<v (?P<speaker>[^>]+)>(?P<time>)(?P<text>.*?)(?:</v>)?"),
    re.compile(rf"{NAME}[:：](?P<time>)\s+(?P<text>.*)"),
]
CUE = re.compile(r"((?:\d+:)?\d\d:\d\d)[.,]\d{1,3} --> ")
CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d\d)(?:[.,]\d+)?")
SENTENCE = re.compile(r"[^.!?。！？…]*[.!?。！？…]*")
ENDS = (".", "!", "?", "。", "！", "？", "…")
SENTENCE_CHARS = 25  # shorter ones stay with the next, so that "No. 5" is no line
SPOKEN_CHARS = 200  # after which a speaker's next sentence is a line of its own
HINTS = {
    "decision": r"\b(decided|decision|agreed|let'?s go with|we('ll| will) go with|approved|settled)\b"
    r"|决定|同意|通过|确定|就这么",
    "action": r"\b(i'?ll|i will|can you|could you|please|todo|to-do|follow up|take care of)\b"
    r"|我来|请你|负责|跟进|待办|麻烦",
    "date": r"\b(\d{4}-\d\d-\d\d|(mon|tues|wednes|thurs|fri)day|tomorrow|next week|by the end of|deadline|due)\b"
    r"|周[一二三四五六日]|星期|明天|下周|月底|截止|之前",
    "question": r"[?？]\s*$",
}


class Line(NamedTuple):
    """One utterance. `number` counts from 1 and is what minutes cite as L1, L2, …"""

    number: int
    time: str
    speaker: str
    text: str

    @property
    def hints(self) -> list[str]:
        return [name for name, pattern in HINTS.items() if re.search(pattern, self.text, re.IGNORECASE)]


def seconds_of(time: str) -> int | None:
    """Return the seconds of `1:02:03` or `02:03` of a recording; None for any other time."""
    found = CLOCK.fullmatch(time)
    return int(found[1] or 0) * 3600 + int(found[2]) * 60 + int(found[3]) if found else None


def clock_of(seconds: float) -> str:
    """Return `1:02:03`, or `02:03` within the first hour."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60:02}:{rest % 60:02}"


def cue_time(text: str) -> str:
    """Return the time of a cue without leading zero hours."""
    seconds = seconds_of(text)
    return text if seconds is None else clock_of(seconds)


def segment_lines(segments: list[dict[str, Any]]) -> list[Line]:
    """Convert the segments of speech recognition: start in seconds, text, sometimes a speaker."""
    lines: list[Line] = []
    for segment in segments:
        text = str(segment.get("text") or "").strip()
        if text:
            start = segment.get("start")
            time = clock_of(start) if isinstance(start, (int, float)) else ""
            add_speech(lines, time, str(segment.get("speaker") or ""), text)
    return lines


def add_speech(lines: list[Line], time: str, speaker: str, text: str) -> None:
    """Add words to the last line if they continue it: the same speaker, an open sentence or a short text."""
    last = lines[-1] if lines else None
    if last and last.speaker == speaker and (not last.text.endswith(ENDS) or len(last.text) < SENTENCE_CHARS):
        lines[-1] = last._replace(text=f"{last.text} {text}")
    else:
        lines.append(Line(len(lines) + 1, time, speaker, text))


def sentence_lines(text: str) -> list[Line]:
    """Return a line for each sentence of speech without names and times."""
    lines: list[Line] = []
    held = ""
    for part in SENTENCE.findall(" ".join(text.split())):
        held = f"{held}{part}"
        if len(held.strip()) >= SENTENCE_CHARS or (
            held and ord(held[-1]) > 0x3000 and len(held) >= SENTENCE_CHARS // 2
        ):
            lines.append(Line(len(lines) + 1, "", "", held.strip()))
            held = ""
    if held.strip():
        lines.append(Line(len(lines) + 1, "", "", held.strip()))
    return lines


def message_lines(messages: list[dict[str, Any]]) -> list[Line]:
    """Convert messages of a JSON export."""
    lines: list[Line] = []
    for message in messages:
        speaker = next((message[key] for key in ("user", "author", "name", "speaker", "from") if message.get(key)), "")
        moment = str(next((message[key] for key in ("ts", "time", "date", "timestamp") if message.get(key)), ""))
        if re.fullmatch(r"\d{9,10}(\.\d+)?", moment):  # seconds since 1970, as in Slack
            moment = datetime.datetime.fromtimestamp(float(moment), datetime.timezone.utc).strftime(
                "%Y-%m-%d %H:%M UTC"
            )
        if isinstance(speaker, dict):
            speaker = speaker.get("name") or speaker.get("username") or ""
        text = str(message.get("text") or message.get("content") or "").strip()
        if text:
            lines.append(Line(len(lines) + 1, moment, str(speaker), text))
    return lines


def parse_transcript(text: str) -> list[Line]:
    """Return the utterances. A line without a speaker continues the one before it."""
    if text.lstrip().startswith(("[{", "[\n", "{")):
        data = json.loads(text)
        if isinstance(data, dict) and "segments" in data:
            return segment_lines(data["segments"])
        return message_lines(data["messages"] if isinstance(data, dict) else data)
    lines: list[Line] = []
    cue, new_cue, named = "", False, False
    for row in text.splitlines():
        stripped = row.strip()
        if not stripped or stripped == "WEBVTT" or stripped.isdigit():
            continue
        if match := CUE.match(stripped):
            cue, new_cue = cue_time(match[1]), True
            continue
        found = next((match for pattern in FORMATS if (match := pattern.fullmatch(stripped))), None)
        last = lines[-1] if lines else None
        if found:
            lines.append(Line(len(lines) + 1, found["time"] or cue, found["speaker"].strip(), found["text"].strip()))
            named = True
        elif last and new_cue and last.text.endswith(ENDS) and (not last.speaker or len(last.text) > SPOKEN_CHARS):
            add_speech(lines, cue, last.speaker, stripped)
        elif last:
            lines[-1] = last._replace(text=f"{last.text} {stripped}".strip())
        else:
            lines.append(Line(1, cue, "", stripped))
        new_cue = False
    return lines if named or cue else sentence_lines(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--hint", choices=HINTS, help="only lines with this hint")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        lines = parse_transcript(options.file.read_text("utf-8-sig"))
    except (OSError, ValueError, KeyError) as error:
        print(json.dumps({"error": f"{options.file.name}: {error}"}))
        sys.exit(1)
    shown = [line for line in lines if not options.hint or options.hint in line.hints]
    words = Counter[str]()
    for line in lines:
        words[line.speaker] += len(re.findall(r"[\u4e00-\u9fff]|\w+", line.text))
    if options.json:
        facts = {
            "speakers": dict(words.most_common()),
            "from": lines[0].time if lines else "",
            "to": lines[-1].time if lines else "",
        }
        print(
            json.dumps(
                facts | {"lines": [line._asdict() | {"hints": line.hints} for line in shown]}, ensure_ascii=False
            )
        )
        return
    print(
        f"{len(lines)} lines; words: "
        + ", ".join(f"{name or '(unknown)'} {count}" for name, count in words.most_common())
    )
    for line in shown:
        print(
            f"L{line.number} {line.time} {line.speaker}: {line.text}"
            + (f"  [{', '.join(line.hints)}]" if line.hints else "")
        )


if __name__ == "__main__":
    main()
