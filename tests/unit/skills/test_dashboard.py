"""The skill dashboard: numbers and shapes of a page, in a real browser too, and what is wrong with a description."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import need_chromium
from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

SALES = """day,region,product,amount
2026-11-01,North,Tea,100
2026-11-02,South,Coffee,"1,200.5"
2026-11-02,North,Tea,50
2026-11-04,East,<b>Cocoa</b>,
"""
PAGE: dict[str, Any] = {
    "title": "Sales & <returns>",
    "figures": [
        {"label": "Revenue", "column": "amount", "unit": "EUR"},
        {"label": "Tea", "aggregate": "count", "where": {"product": "Tea"}},
        {"label": "Written", "value": "42 %"},
    ],
    "charts": [
        {"title": "By day", "kind": "line", "x": "day", "y": "amount", "by": "day"},
        {"title": "Parts", "kind": "bar", "x": "region", "y": "amount", "group": "product", "stacked": True},
        {"title": "Regions", "kind": "barh", "x": "region", "y": "amount", "sort": "down"},
        {"title": "Sizes", "kind": "hist", "x": "amount"},
        {"title": "Dots", "kind": "scatter", "x": "day", "y": "amount"},
    ],
    "tables": [{"title": "All", "sort": "-amount"}],
    "text": ["Source: <script>alert(1)</script>"],
}


class Elements(HTMLParser):
    """All elements with their attributes, and the texts of the cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.get_starttag_text() and str(self.get_starttag_text()).startswith("<td"):
            self.cells[-1] += data

    def heights(self, name: str) -> list[float]:
        return [
            float(str(attributes["height"]))
            for tag, attributes in self.found
            if tag == "rect" and attributes.get("class") == name
        ]


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


async def build(runner: SkillRunner, page: dict[str, Any] = PAGE, exit_code: int = 0) -> Any:
    await runner.write(page_json=json.dumps(page), sales_csv=SALES)
    return await runner.json("dashboard", "build_dashboard.py page.json out/page.html sales.csv", exit_code=exit_code)


async def test_a_page_has_the_numbers_of_its_table(runner: SkillRunner) -> None:
    found = await build(runner)
    assert found["figures"] == {"Revenue": "1,350.50", "Tea": "2", "Written": "42 %"}
    assert [(chart["kind"], chart["x"]) for chart in found["charts"]] == [
        ("line", 3), ("bar", 3), ("barh", 3), ("hist", 13), ("scatter", 3),
    ]  # fmt: skip
    text = (await runner.read("out/page.html")).decode()
    assert "<title>2026-11-02: 1,250.50</title>" in text  # both rows of that day, in the hint of its point
    assert "<title>North · Tea: 150</title>" in text
    assert Elements(text).cells[:4] == ["2026-11-02", "South", "Coffee", "1,200.50"]
    north = [height for height in Elements(text).heights("c1") if height]  # the second series: Tea
    assert len(north) == 1


async def test_bars_are_as_high_as_their_values(runner: SkillRunner) -> None:
    await runner.write(
        page_json=json.dumps({"charts": [{"kind": "bar", "x": "name", "y": "n"}]}), n_csv="name,n\na,10\nb,5\nc,-5\n"
    )
    await runner.json("dashboard", "build_dashboard.py page.json page.html n.csv")
    a, b, c = Elements((await runner.read("page.html")).decode()).heights("c0")
    assert b / a == pytest.approx(0.5, abs=0.01)
    assert c / a == pytest.approx(0.5, abs=0.01)


async def test_a_page_loads_nothing_and_runs_only_its_own_script(runner: SkillRunner) -> None:
    await build(runner)
    text = (await runner.read("out/page.html")).decode()
    elements = Elements(text).found
    [policy] = [a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        [body] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"'sha256-{digest(body)}'" in policy
    assert not [attributes for _tag, attributes in elements if attributes.keys() & {"src", "href", "style", "onclick"}]
    assert "&lt;script&gt;alert(1)" in text
    assert "&lt;b&gt;Cocoa" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"charts": [{"kind": "pie", "x": "day"}]}, "charts[0].kind: 'pie' is none of line, area, bar"),
    ({"charts": [{"x": "day", "y": "amont"}]}, "charts[0].y: sales has no column 'amont'; there are: day, region"),
    ({"charts": [{"x": "day", "y": "amont"}]}, "did you mean 'amount'?"),
    ({"charts": [{"x": "day", "y": "region"}]}, "charts[0].y: the column 'region' is not numbers."),
    ({"charts": [{"x": "day", "where": {"region": "Mars"}}]}, "charts[0]: no row fits `where`."),
    ({"figures": [{"label": "x", "sum": "amount"}]}, "figures[0] has unknown fields: sum; there are: aggregate"),
    ({"figures": [{"aggregate": "total", "column": "amount"}]}, "figures[0].aggregate: 'total' is none of sum"),
    ({"tables": [{"data": "other"}]}, "tables[0].data: there is no table 'other'; there are: sales."),
    ({"tables": {}}, "tables is not a list."),
    ({"chart": []}, "The description has unknown fields: chart"),
]


async def test_a_wrong_description_names_the_place(runner: SkillRunner) -> None:
    for change, said in WRONG:
        answer = await build(runner, {"title": "x", **change}, exit_code=1)
        assert said in answer["error"]


async def test_a_browser_draws_the_page_without_a_complaint(runner: SkillRunner, tmp_path: Path) -> None:
    """Its policy lets its own style and script work: the table sorts when its head is pressed."""
    need_chromium()
    await build(runner)
    text = (await runner.read("out/page.html")).decode()
    page = tmp_path / "page.html"
    press = 'document.querySelector("th:nth-child(4) button").click();'
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    page.write_text(text.replace(script, script + press).replace(digest(script), digest(script + press)))
    browser = await asyncio.create_subprocess_exec(
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=900,700"),
        *(f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={tmp_path / 'page.png'}", "--dump-dom"),
        page.as_uri(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    dom, said = await browser.communicate()
    assert b"Content Security Policy" not in said
    assert b'aria-sort="ascending"' in dom
    assert [cell.strip() for cell in Elements(dom.decode()).cells[3::4]] == ["50", "100", "1,200.50", ""]
    picture = tmp_path / "page.png"
    if picture.exists():
        assert struct.unpack(">II", picture.read_bytes()[16:24]) == (900, 700)
