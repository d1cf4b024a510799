"""The skill meeting-notes for recordings: pieces cut at pauses, joined transcripts, chapters, speech without names."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import wave

import pytest

from sandbox.base import WORKSPACE
from tests.support.engines import need_ffmpeg
from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

RATE = 8000
SPEECH = (
    "So welcome everybody to the planning of the release, thanks for coming. We talked to the customers in October and "
    "most of them want the import first. Ada, can you look at the import until Friday? I agree, we decided to ship on "
    "Monday. What about the documentation, who writes it?"
)
TOPICS = {
    "budget": "The budget for servers grew, and the invoice of the servers is higher than the budget allowed.",
    "hiring": "Our hiring needs two engineers, and the candidates for engineers wait for the hiring interview.",
    "release": "The release needs testing, and the testing of the release blocks the deployment of features.",
}


def recording(seconds: int, pauses: list[int]) -> bytes:
    """A tone with one second of silence at each of the pauses, as WAV."""
    samples = bytearray()
    for place in range(seconds * RATE):
        silent = any(start * RATE <= place < (start + 1) * RATE for start in pauses)
        samples += struct.pack("<h", 0 if silent else int(9000 * math.sin(place * 0.23)))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(bytes(samples))
    return out.getvalue()


async def test_a_long_recording_is_cut_at_its_pauses(runner: SkillRunner) -> None:
    need_ffmpeg()
    await runner.sandbox.write(f"{WORKSPACE}/call.wav", recording(50, [12, 17, 31, 44]))
    found = await runner.json("meeting-notes", "cut_audio.py call.wav --out pieces --minutes 0.33")
    starts = [piece["start"] for piece in found["pieces"]]
    assert found["seconds"] == pytest.approx(50, abs=0.1)
    assert starts == [0, pytest.approx(17.5, abs=0.1), pytest.approx(31.5, abs=0.1)]
    assert [piece["end"] for piece in found["pieces"]] == [*starts[1:], found["seconds"]]
    for piece in found["pieces"]:
        data = await runner.read(f"pieces/{piece['file']}")
        assert data.startswith(b"OggS")
        assert b"OpusHead\x01\x01" in data[:60]  # one channel
        assert len(data) == piece["bytes"]
    await runner.write(words_wav="no sound")
    answer = await runner.json("meeting-notes", "cut_audio.py words.wav --out pieces", exit_code=1)
    assert answer["error"].startswith("ffmpeg: ")
    answer = await runner.json("meeting-notes", "cut_audio.py none.wav --out pieces", exit_code=1)
    assert "there is no such file" in answer["error"]


async def test_without_ffmpeg_it_is_named(runner: SkillRunner) -> None:
    answer = await runner.without_packages("meeting-notes", "cut_audio.py a.wav --out pieces", exit_code=3)
    assert answer["missing"] == ["ffmpeg"]


async def test_transcripts_of_pieces_get_the_times_of_the_whole(runner: SkillRunner) -> None:
    pieces = [{"file": "1", "start": 0, "end": 3590}, {"file": "2", "start": 3590, "end": 3700}]
    segments = [{"start": 5, "end": 12.5, "text": " I'll test it.", "speaker": "Bob"}]
    await runner.write(
        pieces_json=json.dumps({"pieces": pieces}),
        one_srt="1\n00:00:01,000 --> 00:00:02,500\nAda: We decided\nto ship.\n\n"
        "2\n00:59:40,000 --> 00:59:41,000\nBob: Fine.\n",
        two_json=json.dumps({"segments": segments}),
        two_txt="First we counted every single one of the old invoices again. Then we sent all of them to the office.",
    )
    await runner.json("meeting-notes", "join_transcripts.py pieces.json one.srt two.json --out call.vtt")
    text = (await runner.read("call.vtt")).decode()
    assert text.startswith("WEBVTT\n\n00:00:01.000 --> 00:00:02.500\nAda: We decided to ship.\n\n")
    assert text.endswith("00:59:55.000 --> 01:00:02.500\nBob: I'll test it.\n")
    found = await runner.json("meeting-notes", "parse_transcript.py call.vtt --json")
    assert [(line["time"], line["speaker"]) for line in found["lines"]] == [
        ("00:01", "Ada"), ("59:40", "Bob"), ("59:55", "Bob"),
    ]  # fmt: skip
    found = await runner.json("meeting-notes", "join_transcripts.py pieces.json one.srt two.txt --out call.txt")
    assert found["notes"] == ["Times within a piece are estimated: its transcript has none."]
    assert (await runner.read("call.txt")).decode().splitlines()[2:] == [
        "[59:50] First we counted every single one of the old invoices again.",
        "[1:00:56] Then we sent all of them to the office.",
    ]
    answer = await runner.json("meeting-notes", "join_transcripts.py pieces.json one.srt --out x.vtt", exit_code=1)
    assert "there are 2 pieces and 1 transcripts" in answer["error"]


async def test_speech_without_names_becomes_a_line_for_each_sentence(runner: SkillRunner) -> None:
    """What a transcription gives for a voice message: one paragraph."""
    await runner.write(speech_txt=SPEECH)
    found = await runner.json("meeting-notes", "parse_transcript.py speech.txt --json")
    assert " ".join(line["text"] for line in found["lines"]) == SPEECH
    assert len(found["lines"]) == 5
    assert "action" in found["lines"][2]["hints"]
    assert "decision" in found["lines"][3]["hints"]
    cues = "WEBVTT\n\n01:59:58.000 --> 02:00:01.000\nwe should move\n\n02:00:01.000 --> 02:00:04.000\n"
    cues += "the release to the next week.\n\n02:00:04.500 --> 02:00:06.000\nThat is a good idea for everybody here.\n"
    await runner.write(speech_vtt=cues)
    found = await runner.json("meeting-notes", "parse_transcript.py speech.vtt --json")
    assert [(line["time"], line["text"]) for line in found["lines"]] == [
        ("1:59:58", "we should move the release to the next week."),
        ("2:00:04", "That is a good idea for everybody here."),
    ]


async def test_chapters_begin_where_the_topic_changes_and_minutes_keep_their_times(runner: SkillRunner) -> None:
    random.seed(5)
    rows: list[str] = []
    starts: list[int] = []
    for topic, text in TOPICS.items():
        starts.append(len(rows) + 1)
        words = text.split()
        for _ in range(20):
            at = len(rows) * 20
            rows.append(f"[{at // 60:02}:{at % 60:02}] Ada: {topic} {' '.join(random.sample(words, 9))}")
    await runner.write(call_txt="\n".join(rows) + "\n")
    found = await runner.json("meeting-notes", "find_chapters.py call.txt --chapters 3")
    begins = [int(chapter["lines"][1:].split("-")[0]) for chapter in found]
    assert len(begins) == 3
    assert [abs(begin - start) <= 1 for begin, start in zip(begins, starts, strict=True)] == [True] * 3
    assert [topic in chapter["words"] for chapter, topic in zip(found, TOPICS, strict=True)] == [True] * 3
    minutes = (
        "# Minutes\nDate: 2026-11-23\n## Attendees\n- Ada\n## Summary\nThey talked.\n"
        "## Chapters\n- 00:00 Budget (L1-L20)\n- 06:40 Hiring (L21-L40)\n- 13:20 Release (L41-L60)\n"
        "## Decisions\nNone\n## Action items\nNone\n## Open questions\nNone\n"
    )
    await runner.write(minutes_md=minutes)
    assert (await runner.json("meeting-notes", "check_minutes.py minutes.md call.txt"))["ok"]
    wrong = minutes.replace("06:40 Hiring", "07:00 Hiring").replace("13:20 Release (L41-L60)", "Release")
    await runner.write(minutes_md=wrong)
    answer = await runner.json("meeting-notes", "check_minutes.py minutes.md call.txt", exit_code=1)
    assert answer["problems"] == [
        "Chapter 2: L21 is at 06:40, not 07:00.", "Chapter 3: write `12:30 Title (L40-L72)`.",
    ]  # fmt: skip
