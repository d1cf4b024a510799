"""The skills that run, fetch and check: web-scraper, code-runner, meeting-notes, deep-research, smoke-test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from sandbox.base import SKILLS
from tests.unit.skills.conftest import ROOT, SkillRunner

pytestmark = pytest.mark.slow

PUBLIC = ROOT / "skills/public"
NAMES = sorted(path.parent.name for path in PUBLIC.glob("*/SKILL.md"))
PAGE = """<meta charset="utf-8"><title>Teas</title>
<table><tr><th>Name<th>Q1<th>Q2</tr>
<tr><td rowspan=2>Ada</td><td>1</td><td>2</td></tr><tr><td colspan=2>3</td></tr></table>
<div class=p><a href="/tea">Tea</a><b>2.5</b></div><div class=p><a href="/coffee">咖啡</a><b>3</b></div>
<a rel=next href="second.html">next</a>"""
SERVER = """import http.server, pathlib, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        pathlib.Path("requests.txt").open("a").write(self.path + "\\n")
        if self.path == "/robots.txt":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"User-agent: *\\nDisallow: /private")
        else:
            super().do_GET()
server = http.server.HTTPServer(("127.0.0.1", 8731), Handler)
pathlib.Path("ready").touch()
server.serve_forever()
"""
TRANSCRIPT = """[10:00] Ada: Welcome, shall we ship on Friday?
[10:01] Bob: Friday is risky.
so I'd say Monday
[10:02] Ada: Agreed, we decided on Monday 2026-11-30.
[10:03] Ada: Bob, can you update the docs by 2026-11-27?
[10:05] 李雷: 我来跟进测试
"""
MINUTES = """# Minutes: release
Date: 2026-11-22
## Attendees
- Ada
- Bob
- 李雷
## Summary
The release moved.
## Decisions
1. Ship on Monday 2026-11-30 (L3).
## Action items
| Task | Owner | Due | Source |
| --- | --- | --- | --- |
| Update the docs | Bob | 2026-11-27 | L4 |
| Test | 李雷 | not agreed | L5 |
## Open questions
None
"""
REPORT = """# Tea
Production was 6,500 tonnes in 2024 [1]. One source calls green tea "the most popular drink of all" [1].

Coffee reached 900 tonnes [2].
## Sources
[1] Tea facts. tea.html (accessed 2026-11-22)
[2] Coffee. coffee.txt (accessed 2026-11-22)
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_follows_the_format_and_names_only_scripts_that_exist(name: str) -> None:
    text = (PUBLIC / name / "SKILL.md").read_text("utf-8")
    _, front, body = text.split("---\n", 2)
    fields = yaml.safe_load(front)
    assert fields["name"] == name
    assert 100 <= len(fields["description"]) <= 1024
    assert "Use it " in fields["description"]
    assert len(fields["compatibility"]) <= 500
    assert len(body.splitlines()) <= 500
    assert len(body) / 3 < 5000  # tokens, at least three characters each
    named = set(re.findall(rf"{SKILLS}/(\S+?\.py)", body))
    assert named
    assert [path for path in named if not (PUBLIC / path).is_file()] == []
    scripts = {path.name for path in (PUBLIC / name / "scripts").glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert scripts <= {Path(path).name for path in named}


def test_the_page_of_the_shipped_skills_has_each_of_them() -> None:
    page = (ROOT / "docs/skills-shipped.md").read_text("utf-8").split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == NAMES
    assert sorted(path.name for path in PUBLIC.iterdir() if path.is_dir()) == NAMES


async def test_every_script_explains_itself(runner: SkillRunner) -> None:
    for path in sorted(PUBLIC.glob("*/scripts/*.py")):
        if "__main__" in path.read_text("utf-8"):
            assert "usage: " in await runner.script(path.parts[-3], f"{path.name} --help")


async def test_a_table_with_spanning_cells_is_read_without_packages(runner: SkillRunner) -> None:
    await runner.write(page_html=PAGE)
    line = "scrape_pages.py page.html --out"
    found = await runner.without_packages("web-scraper", f"{line} out.json", exit_code=0)
    assert (found["rows"], found["columns"], found["empty_cells"]) == (2, ["Name", "Q1", "Q2"], 0)
    assert json.loads(await runner.read("out.json")) == [
        {"Name": "Ada", "Q1": "1", "Q2": "2"},
        {"Name": "Ada", "Q1": "3", "Q2": "3"},
    ]
    answer = await runner.without_packages("web-scraper", f"{line} out.csv --item .p --field n=a", exit_code=3)
    assert answer["missing"] == ["beautifulsoup4"]
    answer = await runner.json("web-scraper", "scrape_pages.py missing.html --out x.csv", exit_code=1)
    assert answer["failures"] == ["missing.html: No such file or directory"]


async def test_items_are_collected_over_pages_of_a_server_that_robots_txt_allows(runner: SkillRunner) -> None:
    second = PAGE.replace("Tea</a>", "Milk</a>").replace("rel=next", "")
    await runner.write(page_html=PAGE, second_html=second, private_html=PAGE, server_py=SERVER)
    await runner.bash("python3 server.py >/dev/null 2>&1 & until [ -e ready ]; do sleep 0.05; done")
    line = (
        "scrape_pages.py http://127.0.0.1:8731/page.html --item .p --field name=a --field url=a@href --field price=b"
        " --next 'a[rel=next]' --delay 0 --cache pages --out out.csv"
    )
    found = await runner.json("web-scraper", line)
    assert (found["rows"], len(found["pages"])) == (4, 2)
    assert (await runner.read("out.csv")).decode().splitlines() == [
        "name,url,price",
        "Tea,http://127.0.0.1:8731/tea,2.5",
        "咖啡,http://127.0.0.1:8731/coffee,3",
        "Milk,http://127.0.0.1:8731/tea,2.5",
        "咖啡,http://127.0.0.1:8731/coffee,3",
    ]
    assert await runner.read("requests.txt") == b"/robots.txt\n/page.html\n/second.html\n"
    assert await runner.json("web-scraper", line) == found
    assert (await runner.read("requests.txt")).count(b"\n") == 3  # the cache answered
    answer = await runner.json(
        "web-scraper", "scrape_pages.py http://127.0.0.1:8731/private.html --out x.csv", exit_code=1
    )
    assert "robots.txt of 127.0.0.1:8731 forbids it" in answer["failures"][0]
    assert b"/private.html" not in await runner.read("requests.txt")


async def test_without_a_network_the_scraper_says_who_decides_about_it(runner: SkillRunner) -> None:
    answer = await runner.json("web-scraper", "scrape_pages.py https://example.com/ --out x.csv", exit_code=1)
    assert "The operator decides what the sandbox's network allows" in answer["failures"][0]


async def test_code_runs_with_its_input_and_is_measured(runner: SkillRunner) -> None:
    done = await runner.json("code-runner", "run_code.py --language python --code 'print(input() + \"!\")' --stdin hi")
    assert (done["exit_code"], done["reason"], done["stdout"]) == (0, "", "hi!\n")
    assert done["seconds"] > 0
    assert done["peak_memory_mb"] > 1


async def test_a_program_gets_its_arguments_and_its_folder(runner: SkillRunner) -> None:
    await runner.write(show_py="import os, sys\nprint(sys.argv[1:], os.path.basename(os.getcwd()))\n")
    done = await runner.json("code-runner", "run_code.py show.py --timeout 20 -- --timeout 1")
    assert done["stdout"] == "['--timeout', '1'] workspace\n"


async def test_code_that_exceeds_a_limit_is_ended_with_the_reason(runner: SkillRunner) -> None:
    for code, options, reason in (
        ("sleep 60 & sleep 60", "--language bash --timeout 1", "timeout"),
        ("x = 'a' * 10**9", "--language python --memory-mb 128", "memory"),
        ("open('big', 'wb').write(b'x' * 5_000_000)", "--language python --file-mb 1", "file size"),
    ):
        done = await runner.json("code-runner", f'run_code.py {options} --code "{code}"', exit_code=1)
        assert done["reason"] == reason, done
    assert (await runner.bash("pgrep -fc 'sleep 6[0]'")).output == "0\n"  # also not in the background


async def test_cases_report_what_failed_and_long_output_is_cut(runner: SkillRunner) -> None:
    cases = [{"name": "sum", "stdin": "1 2", "expect": "3"}, {"stdin": "2 2", "expect": "5"}]
    await runner.write(add_py="print(sum(map(int, input().split())))\n", cases_json=json.dumps(cases))
    done = await runner.json("code-runner", "run_code.py add.py --cases cases.json", exit_code=1)
    assert (done["passed"], done["failed"]) == (1, 1)
    assert (done["cases"][1]["expected"], done["cases"][1]["stdout"]) == ("5", "4\n")
    done = await runner.json("code-runner", "run_code.py --language python --code \"print('x' * 100_000)\"")
    assert done["stdout"] == "x" * 20_000 + "\n[cut after 20000 bytes]"


async def test_a_runtime_that_reserves_address_space_has_a_limit_of_its_heap(runner: SkillRunner) -> None:
    await runner.write(node_sh="#!/bin/sh\necho $*\n")  # in place of Node, which not every machine has below /usr
    line = "mkdir bin; mv node.sh bin/node; chmod +x bin/node; PATH=$PWD/bin:$PATH python3"
    script = "/mnt/skills/code-runner/scripts/run_code.py"
    done = await runner.bash(f"touch x.js; {line} {script} x.js --memory-mb 99 -- --fast")
    assert json.loads(done.output)["stdout"].startswith("--max-old-space-size=99 /mnt/user-data/workspace/x.js --fast")


async def test_a_language_that_is_not_installed_is_named(runner: SkillRunner) -> None:
    found = await runner.json("code-runner", "run_code.py --languages")
    assert found["python"].startswith("Python 3.")
    answer = await runner.without_packages("code-runner", "run_code.py --language rust --code x", exit_code=3)
    assert answer["missing"] == ["rustc"]


async def test_transcripts_of_every_format_become_the_same_lines(runner: SkillRunner) -> None:
    exported = [{"user": "Ada", "ts": "1795600000.1", "text": "I'll do it"}, {"user": "Bob", "ts": "", "text": "好?"}]
    await runner.write(
        chat_txt="[10:00] Ada: I'll do it\n10:01 Bob: 好?\n",
        bare_txt="Ada: I'll do it\nBob：好?\n".replace("Bob：好", "Bob： 好"),
        phone_txt="22/11/2026, 10:00 - Ada: I'll do it\n22/11/2026, 10:01 - Bob: 好?\n",
        cues_vtt="WEBVTT\n\n1\n00:00:01.000 --> 00:00:02.000\n<v Ada>I'll do it</v>\n\n"
        "00:00:03.000 --> 00:00:04.000\nBob: 好?\n",
        slack_json=json.dumps(exported),
    )
    for name in ("chat.txt", "bare.txt", "phone.txt", "cues.vtt", "slack.json"):
        found = await runner.json("meeting-notes", f"parse_transcript.py {name} --json")
        lines = [(line["number"], line["speaker"], line["text"], line["hints"]) for line in found["lines"]]
        assert lines == [(1, "Ada", "I'll do it", ["action"]), (2, "Bob", "好?", ["question"])], name


async def test_minutes_are_checked_against_their_transcript(runner: SkillRunner) -> None:
    await runner.write(thread_txt=TRANSCRIPT, minutes_md=MINUTES)
    found = await runner.json("meeting-notes", "check_minutes.py minutes.md thread.txt")
    assert found == {
        "ok": True, "problems": [], "warnings": [],
        "counts": {"attendees": 3, "decisions": 1, "actions": 2, "cited_lines": 3},
    }  # fmt: skip
    wrong = (
        MINUTES.replace("(L3)", "(L33)").replace("| Bob | 2026-11-27 | L4", "| Eve | Friday | ").replace("- 李雷\n", "")
    )
    await runner.write(wrong_md=wrong.replace("## Summary", "## Other"))
    found = await runner.json("meeting-notes", "check_minutes.py wrong.md thread.txt", exit_code=1)
    assert found["problems"] == [
        "The section `## Summary` is missing.",
        "李雷 speaks in the transcript but is not among the attendees.",
        "Action 1: owner 'Eve' is not an attendee; write `unassigned` if nobody took it.",
        "Action 1: due 'Friday' is neither a date (YYYY-MM-DD) nor `not agreed`.",
        "Action 1: no source line, such as L12.",
        "Action 2: owner '李雷' is not an attendee; write `unassigned` if nobody took it.",
        "L33 is cited but not in the transcript.",
    ]
    assert [warning.split(" ")[0] for warning in found["warnings"]] == ["L3", "L4"]


async def collect_tea(runner: SkillRunner) -> None:
    page = "<title>Tea facts</title><nav>menu</nav><p>Production was 6,500 tonnes in 2024.</p>"
    page += "<p>Green tea is the most popular drink of all.</p>"
    await runner.write(tea_html=page, coffee_txt="Coffee reached 900 tonnes.")
    found = await runner.json("deep-research", "collect_sources.py tea.html coffee.txt --out sources")
    assert [(source["number"], source["title"]) for source in found["sources"]] == [(1, "Tea facts"), (2, "coffee.txt")]


async def test_sources_are_collected_once_and_failures_are_named(runner: SkillRunner) -> None:
    await collect_tea(runner)
    text = await runner.read("sources/1.txt")
    assert text == b"Production was 6,500 tonnes in 2024.\nGreen tea is the most popular drink of all."
    line = "collect_sources.py tea.html https://example.com/ missing.txt --out sources"
    found = await runner.json("deep-research", line, exit_code=1)
    assert len(found["sources"]) == 2
    assert [failure["url"] for failure in found["failures"]] == ["https://example.com/", "missing.txt"]


async def test_citations_are_checked_against_entries_quotes_and_numbers(runner: SkillRunner) -> None:
    await collect_tea(runner)
    await runner.write(report_md=REPORT)
    line = "check_citations.py report.md --sources sources"
    found = await runner.json("deep-research", line)
    assert found == {"ok": True, "problems": [], "warnings": [], "citations": 3, "sources": 2}
    wrong = REPORT.replace("900 tonnes [2]", "950 tonnes [2, 4]").replace(
        "popular drink of all", "popular beverage of all"
    )
    await runner.write(report_md=wrong.replace("## Sources\n", "Nobody cites 77 things.\n## Sources\n[3] Unused.\n"))
    found = await runner.json("deep-research", "check_citations.py report.md", exit_code=1)
    assert found["problems"] == ["[4] is cited but has no entry.", "[3] has an entry but is never cited."]
    await runner.write(report_md=wrong.replace("[2, 4]", "[2]"))
    found = await runner.json("deep-research", line, exit_code=1)
    assert found["problems"] == [
        'Not in [1]: "the most popular beverage of all"',
        "Not in [2]: the number 950 (explain a calculation in the report): Coffee reached 950 tonnes .",
    ]


async def test_the_smoke_test_finds_a_working_sandbox_without_network(runner: SkillRunner) -> None:
    found = await runner.json("smoke-test", "check_installation.py --json")
    states = {check["what"]: check["state"] for check in found["checks"]}
    assert found["ok"]
    assert {name for name, state in states.items() if state == "off"} == {"network"}
    for name in ("folder workspace", "folder outputs", "skills", "command python3", "capabilities", "a local server"):
        assert states[name] == "ok", name
    assert states["a file beyond the limit"] == "ok"
    details = {check["what"]: check["detail"] for check in found["checks"]}
    assert details["skills"] == f"read-only, {len(NAMES)}: {', '.join(NAMES)}"
    table = await runner.script("smoke-test", "check_installation.py")
    assert table.startswith("| check | state | detail | fix |\n| --- | --- | --- | --- |\n| folder workspace | ok |")
    assert table.endswith("checks, 0 failed.\n")


async def test_the_smoke_test_fails_if_a_folder_cannot_be_written(runner: SkillRunner) -> None:
    await runner.bash("mkdir /mnt/user-data/outputs/.smoke-test")  # in the way of the probe
    found = await runner.json("smoke-test", "check_installation.py --json", exit_code=1)
    assert [check["what"] for check in found["checks"] if check["state"] == "failed"] == ["folder outputs"]
