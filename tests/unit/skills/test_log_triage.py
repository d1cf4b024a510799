"""The skill log-triage: formats, templates, the onset with what came before, archives and their bounds."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import zipfile
from typing import Any

import pytest

from sandbox.base import WORKSPACE
from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

NOON = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
TRACE = """Traceback (most recent call last):
  File "/app/web.py", line 10, in handle
    query()
  File "/app/db.py", line 42, in query
    conn = pool.get()
TimeoutError: no connection after 30 s
"""
FORMATS = {
    "plain": "2026-11-23 12:00:01,500 ERROR disk 7 is full\n",
    "JSON": '{"ts": 1795435201.5, "level": "error", "msg": "disk 7 is full"}\n',
    "syslog": "<11>Nov 23 12:00:01 web1 backup[412]: disk 7 is full\n",
    "access log": '10.0.0.1 - - [23/Nov/2026:13:00:01 +0100] "GET /orders/7?x=1 HTTP/1.1" 502 153 "-" "curl/8"\n',
    "Apache error log": "[Mon Nov 23 12:00:01.5 2026] [core:error] [pid 1] disk 7 is full\n",
}


def incident() -> str:
    """An hour of work; a release at 12:30, waiting from 12:32, errors from 12:35 to 12:45, no heartbeat after 12:34."""
    lines = []
    for second in range(3600):
        at = f"{NOON + datetime.timedelta(seconds=second):%Y-%m-%d %H:%M:%S}"
        if second % 5 == 0:
            lines.append(f"{at} INFO worker-{second % 3} did job {second} in {second % 90} ms")
        if second % 60 == 0 and second < 2100:
            lines.append(f"{at} INFO heartbeat ok")
        if second == 1800:
            lines.append(f"{at} INFO deploy: release 41 started by ada")
        if 1920 <= second < 2700 and second % 20 == 0:
            lines.append(f"{at} WARN pool exhausted: {second % 50} waiting")
        if 2100 <= second < 2700 and second % 3 == 0:
            lines.append(f"{at} ERROR request {second} of user{second} failed\n{TRACE}".rstrip())
    return "\n".join(lines) + "\n"


async def triage(runner: SkillRunner, line: str, exit_code: int = 0) -> Any:
    return await runner.json("log-triage", f"triage_logs.py {line}", exit_code=exit_code)


async def test_an_incident_has_its_onset_what_came_before_and_what_stopped(runner: SkillRunner) -> None:
    await runner.write(app_log=incident())
    found = await triage(runner, "app.log --out out")
    assert (found["burst"]["onset"], found["burst"]["last"]) == ("2026-11-23 12:35:00", "2026-11-23 12:44:57")
    assert found["burst"]["errors"] == 200
    before = {each["template"]: (each["change"], each["at"][11:]) for each in found["before"]}
    assert before == {
        "WARN pool exhausted: <n> waiting": ("new", "12:32:00"),
        "INFO deploy: release <n> started by ada": ("new", "12:30:00"),
        "INFO heartbeat ok": ("stopped", "12:34:00"),
    }
    [error] = found["errors"]
    assert (error["count"], error["template"]) == (200, "ERROR request <n> of <*> failed [TimeoutError]")
    assert (error["first"][11:], error["last"][11:], error["peak_per_minute"]) == ("12:35:00", "12:44:57", 20)
    assert error["frame"] == 'File "/app/db.py", line 42, in query'
    file, line = error["example"].split(":")
    assert (await runner.read(file)).decode().splitlines()[int(line) - 1] == error["text"]
    rows = list(csv.DictReader(io.StringIO((await runner.read("out/timeline.csv")).decode())))
    assert sum(int(row["errors"]) for row in rows) == 200
    assert sum(int(row["lines"]) for row in rows) == found["entries"]
    summary = (await runner.read("out/summary.md")).decode()
    assert "It began at **2026-11-23 12:35:00**" in summary
    assert b"onset 12:35:00" in await runner.read("out/timeline.svg")


@pytest.mark.parametrize("kind", FORMATS)
async def test_every_format_gives_time_level_and_template(runner: SkillRunner, kind: str) -> None:
    await runner.write(app_log=FORMATS[kind] * 3)
    found = await triage(runner, "app.log")
    assert found["formats"] == {kind: 3}
    assert found["levels"] == {"error": 3}
    assert found["from"] == "2026-11-23 12:00:01"
    [error] = found["errors"]
    wanted = "HTTP 502 GET /orders/<n>" if kind == "access log" else "disk <n> is full"
    assert error["template"].endswith(wanted)


async def test_stack_traces_name_the_exception_and_its_root(runner: SkillRunner) -> None:
    java = (
        "2026-11-23 12:00:00 ERROR c.x.Api - cannot load\ncom.x.LoadException: outer\n\tat com.x.Api.load(Api.java:7)\n"
        "Caused by: java.net.ConnectException: refused\n\tat com.x.Net.open(Net.java:99)\n\t... 12 more\n"
    )
    await runner.write(java_log=java, python_log=f"ready\n{TRACE}done\n")
    found = await triage(runner, "java.log python.log")
    assert {each["exception"]: each["frame"] for each in found["exceptions"]} == {
        "java.net.ConnectException": "at com.x.Net.open(Net.java:99)",
        "TimeoutError": 'File "/app/db.py", line 42, in query',
    }
    assert found["entries"] == 4


async def test_archives_are_read_within_their_bound(runner: SkillRunner) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/one.log", FORMATS["plain"])
        archive.writestr("two.log.gz", gzip.compress(FORMATS["plain"].encode() * 2))
        archive.writestr("picture.png", b"\x89PNG\0\0")
    await runner.sandbox.write(f"{WORKSPACE}/logs.zip", packed.getvalue())
    found = await triage(runner, "logs.zip")
    assert (found["entries"], found["errors"][0]["example"]) == (3, "logs.zip/a/one.log:1")
    assert found["notes"] == ["logs.zip/picture.png is not text and was left out."]
    bomb = gzip.compress(b"2026-11-23 12:00:00 INFO tick\n" * 200_000)
    await runner.sandbox.write(f"{WORKSPACE}/bomb.gz", bomb)
    found = await triage(runner, "bomb.gz --max-mb 1")
    assert found["entries"] == (1 << 20) // 30
    assert found["notes"] == ["bomb.gz: the limit of --max-mb was reached; what follows was not read."]
    await runner.sandbox.write(f"{WORKSPACE}/cut.gz", bomb[:1000])
    assert "cut.gz cannot be unpacked" in (await triage(runner, "cut.gz", exit_code=1))["error"]


async def test_a_part_of_the_time_and_lines_with_a_text_can_be_chosen(runner: SkillRunner) -> None:
    await runner.write(app_log=incident())
    found = await triage(runner, "app.log --from '2026-11-23 12:29' --to '2026-11-23 12:31' --find RELEASE")
    assert (found["from"], found["to"]) == ("2026-11-23 12:29:00", "2026-11-23 12:30:55")
    assert [line.partition(": ")[2] for line in found["found"]] == [
        "2026-11-23 12:30:00 INFO deploy: release 41 started by ada"
    ]
    assert found["before"] == []
    answer = await triage(runner, "nothing.log", exit_code=1)
    assert answer["error"] == "nothing.log: there is no such file."


async def test_messages_that_are_all_different_stay_bounded(runner: SkillRunner) -> None:
    """Words of letters only, which no mark covers: neither templates nor the work for a line grow without end."""
    script = (
        "import random, string\nrandom.seed(1)\nword = lambda: ''.join(random.choices(string.ascii_letters, k=8))\n"
        "with open('noise.log', 'w') as file:\n"
        "    for n in range(30000):\n        file.write(' '.join(word() for _ in range(n % 30 + 1)) + '\\n')\n"
    )
    await runner.write(make_py=script)
    await runner.bash("python3 make.py")
    found = await triage(runner, "noise.log --top 3")
    assert found["entries"] == 30_000
    assert found["templates"] <= 5_005
