"""Draw what skills return as text, and a chart: python -m docs.pictures.skills (needs Chromium and bubblewrap).

The scripts run in the sandbox. A review and minutes, which a model writes, are examples that the skill's check passed.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from docs.pictures.platforms import FAWN, FOLDER, PERSON, Bubble, as_page, draw, markdown
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.unit.skills.conftest import SkillRunner, fill_shelf
from tests.unit.skills.test_code_review import CART, CHANGE, REPORT, SETUP
from tests.unit.skills.test_skill_creator import LINE
from tests.unit.skills.test_sql import JOIN, ORDERS, PEOPLE
from tests.unit.skills.test_text_skills import MINUTES, TRANSCRIPT, collect_tea
from tests.unit.skills.test_text_skills import REPORT as TEA

STYLE = """h1, h2, h3 { font-size: 1.05em; margin-top: 8px } td, th { padding: 2px 16px 2px 0; text-align: left }
ul { padding-left: 20px; list-style: disc }"""  # a chat shows a heading as a bold line


async def review(runner: SkillRunner) -> tuple[str, str]:
    """Review the change of a small repository."""
    await runner.write(cart_py=CART, setup_sh=SETUP, change_sh=CHANGE)
    await runner.bash("bash setup.sh && bash change.sh")
    index = await runner.json("code-review", "split_diff.py --root repo --out pieces")
    report = REPORT.replace("PIECES", ", ".join(piece["piece"] for piece in index["pieces"]))
    await runner.write(review_md=report)
    found = await runner.json("code-review", "check_review.py review.md --root repo --pieces pieces")
    return "Review my change in repo", f"{report}\n\n{_checked('Places and quotes', found)}"


async def query(runner: SkillRunner) -> tuple[str, str]:
    """Join two uploaded files."""
    await runner.write(orders_csv=ORDERS, people_json=PEOPLE, query_sql=JOIN)
    found = await runner.json("sql", "query_tables.py orders.csv people.json --query @query.sql")
    table = "\n".join(found["table"])
    answer = f"```sql\n{JOIN}\n```\n\n{table}\n\n{found['rows']} rows, by {found['engine']}."
    return "Orders and revenue per city, from orders.csv and people.json", answer


async def minutes(runner: SkillRunner) -> tuple[str, str]:
    """Turn a thread into minutes."""
    await runner.write(thread_txt=TRANSCRIPT, minutes_md=MINUTES)
    found = await runner.json("meeting-notes", "check_minutes.py minutes.md thread.txt")
    return (
        f"Minutes, please:\n\n```\n{TRANSCRIPT.strip()}\n```",
        f"{MINUTES}\n\n{_checked('Sources, owners and dates', found)}",
    )


async def research(runner: SkillRunner) -> tuple[str, str]:
    """Check a report against the sources that it cites, with a number that is wrong, and mended."""
    await collect_tea(runner)
    line = "check_citations.py report.md --sources sources"
    await runner.write(report_md=TEA.replace("900 tonnes", "950 tonnes"))
    wrong = await runner.json("deep-research", line, exit_code=1)
    await runner.write(report_md=TEA)
    found = await runner.json("deep-research", line)
    problems = "\n".join(f"- {each}" for each in wrong["problems"])
    checked = f"The check of the first draft found:\n{problems}\n\n{_checked('Citations, quotes and numbers', found)}"
    return "How much tea and coffee is produced? With sources, please.", f"{TEA}\n{checked}"


async def create(runner: SkillRunner) -> tuple[str, str]:
    """Make a skill, and check and test it."""
    made = await runner.json("skill-creator", LINE)
    found = await runner.json("skill-creator", "check_skill.py count-lines")
    tested = await runner.json("skill-creator", "test_skill.py count-lines")
    await runner.json("skill-creator", "pack_skill.py count-lines --out count-lines.skill")
    text = (await runner.read("count-lines/SKILL.md")).decode().partition("```")[0].strip()
    files = ", ".join(f"`{name}`" for name in made["written"])
    answer = f"I made the skill `count-lines`: {files}.\n\n```\n{text}\n```\n\n{_checked('Its rules', found)}"
    answer += f"\n\n*Its tests: {tested['passed']} passed, {len(tested['failed'])} failed.*"
    attached = "`count-lines.skill` is attached; an operator installs it with `/skills install`."
    return "Make a skill that counts the lines of texts", f"{answer} {attached}"


async def chart(runner: SkillRunner) -> tuple[str, str]:
    """Draw a chart: the skill's own picture, as it is without matplotlib."""
    months = [f"2026-{month:02}" for month in range(1, 13)]
    north, south = (12, 14, 13, 17, 19, 22, 24, 23, 26, 28, 31, 34), (15, 15, 16, 15, 17, 16, 18, 17, 18, 17, 19, 18)
    rows = "\n".join(f"{month}-01,{a},{b}" for month, a, b in zip(months, north, south, strict=True))
    await runner.write(sales_csv=f"month,North,South\n{rows}\n")
    line = 'draw_chart.py sales.csv sales.svg --x month --y North --y South --title "North overtakes South in April"'
    await runner.without_packages("chart", f'{line} --y-label "1,000 EUR"', exit_code=0)
    return "", (await runner.read("sales.svg")).decode()


def _checked(what: str, found: Any) -> str:
    if not found["ok"]:
        raise RuntimeError(found["problems"])
    return f"*{what} are checked: no problems.*"


RESULTS: dict[str, Callable[[SkillRunner], Awaitable[tuple[str, str]]]] = {
    "code-review": review,
    "sql": query,
    "meeting-notes": minutes,
    "deep-research": research,
    "skill-creator": create,
    "chart": chart,
}


async def play(folder: Path) -> dict[str, tuple[str, str]]:
    """Run each skill in a sandbox of its own, and return the request and the answer."""
    provider = BubblewrapProvider(SandboxSettings(fill_shelf(folder / "shelf")))
    results = {}
    for name, work in RESULTS.items():
        async with provider.acquire(name, folder / name) as sandbox:
            results[name] = await work(SkillRunner(sandbox))
    await provider.close()
    return results


def main() -> None:
    """Write a picture for each skill."""
    with tempfile.TemporaryDirectory(prefix="fawn-pictures-") as name:
        folder = Path(name)
        for skill, (request, answer) in asyncio.run(play(folder)).items():
            page = folder / f"{skill}.html"
            bubbles = [Bubble(PERSON, markdown(request)), Bubble(FAWN, markdown(answer))]
            shown = f"{as_page('slack', bubbles)}<style>{STYLE}</style>" if request else f"<!doctype html>{answer}"
            page.write_text(shown, "utf-8")
            draw(page, FOLDER / f"{skill}.png")


if __name__ == "__main__":
    main()
