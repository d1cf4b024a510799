"""The skill slides in a real sandbox: the deck is opened again, its words, pictures and numbers compared."""

from __future__ import annotations

import io
import json
from typing import Any

import pptx
import pytest
from PIL import Image

from sandbox.base import UPLOADS, WORKSPACE
from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

TALK = """# Tea and coffee 茶

Results for the team

Notes: Welcome.
Ten minutes.

## Tea grew

- **Tea** is up 18 %
  - green tea most
- Coffee is flat

```chart column Sales in euros
quarter,Tea,Coffee
Q1,12.5,20
Q2,14,
```

Speaker notes: two suppliers were late

## The farm

1. Signed
1. Harvested

![Hills](/mnt/user-data/uploads/farm.png "In August")

# What comes next

## Costs

| Region | Costs |
| --- | --- |
| North | 120 |
| South | 98 |

## Where it goes

```chart pie
file: parts.csv
```
"""


def farm_picture(**more: Any) -> bytes:
    packed = io.BytesIO()
    Image.new("RGB", (90, 60), "#4F7D6B").save(packed, **more)
    return packed.getvalue()


async def built(runner: SkillRunner, text: str, *options: str) -> tuple[Any, Any]:
    """Build a deck; return what the program says, and the deck as python-pptx reads it."""
    await runner.write(talk_md=text)
    made = await runner.json("slides", f"build_deck.py build talk.md --out talk.pptx {' '.join(options)}")
    return made, pptx.Presentation(io.BytesIO(await runner.read("talk.pptx")))


async def refused(runner: SkillRunner, text: str, *options: str) -> str:
    await runner.write(talk_md=text)
    line = f"build_deck.py build talk.md --out bad.pptx {' '.join(options)}"
    error: str = (await runner.json("slides", line, exit_code=1))["error"]
    assert (await runner.bash("ls bad.pptx")).exit_code != 0
    return error


def shape_with(slide: Any, kind: str) -> Any:
    return next(shape for shape in slide.shapes if getattr(shape, f"has_{kind}", False))


@pytest.fixture
async def talk(runner: SkillRunner) -> SkillRunner:
    await runner.sandbox.write(f"{UPLOADS}/farm.png", farm_picture(format="PNG"))
    await runner.write(parts_csv="item,euros\nPurchases,61\nWages,24\n")
    return runner


async def test_a_deck_has_titles_bullets_notes_pictures_charts_and_tables(talk: SkillRunner) -> None:
    made, deck = await built(talk, TALK)
    assert (deck.slide_width / deck.slide_height, deck.core_properties.title) == (16 / 9, "Tea and coffee 茶")
    slides = list(deck.slides)
    titles = ["Tea and coffee 茶", "Tea grew", "The farm", "What comes next", "Costs", "Where it goes"]
    assert [slide.shapes.title.text for slide in slides] == [each["title"] for each in made["slides"]] == titles
    assert "split" not in made
    layouts = ["Title Slide", "Title and Content", "Title and Content", "Section Header", "Title Only", "Title Only"]
    assert [slide.slide_layout.name for slide in slides] == layouts
    assert slides[0].notes_slide.notes_text_frame.text == "Welcome.\nTen minutes."
    assert slides[1].notes_slide.notes_text_frame.text == "two suppliers were late"
    assert not slides[2].has_notes_slide
    body = slides[1].placeholders[1].text_frame.paragraphs
    assert [(each.text, each.level) for each in body] == [
        ("Tea is up 18 %", 0),
        ("green tea most", 1),
        ("Coffee is flat", 0),
    ]
    assert (body[0].runs[0].text, body[0].runs[0].font.bold) == ("Tea", True)


async def test_charts_are_native_with_their_numbers_and_pictures_have_their_bytes(talk: SkillRunner) -> None:
    _made, deck = await built(talk, TALK)
    slides = list(deck.slides)
    chart = shape_with(slides[1], "chart").chart
    assert (chart.chart_type.name, chart.chart_title.text_frame.text) == ("COLUMN_CLUSTERED", "Sales in euros")
    assert list(chart.plots[0].categories) == ["Q1", "Q2"]
    assert [(one.name, tuple(one.values)) for one in chart.plots[0].series] == [
        ("Tea", (12.5, 14)),
        ("Coffee", (20, None)),
    ]
    assert chart.part.chart_workbook.xlsx_part is not None, "PowerPoint cannot edit its data"
    pie = shape_with(slides[5], "chart").chart
    assert (pie.chart_type.name, tuple(pie.plots[0].series[0].values)) == ("PIE", (61, 24))
    picture = next(shape for shape in slides[2].shapes if hasattr(shape, "image"))
    assert picture.image.blob == farm_picture(format="PNG")
    assert picture.width / picture.height == pytest.approx(1.5, rel=0.01)
    assert picture.element.xpath(".//p:cNvPr")[0].get("descr") == "Hills"
    assert "In August" in [shape.text_frame.text for shape in slides[2].shapes if shape.has_text_frame]
    table = shape_with(slides[4], "table").table
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["Region", "Costs"],
        ["North", "120"],
        ["South", "98"],
    ]


async def test_the_theme_has_one_accent_on_light_or_dark(talk: SkillRunner) -> None:
    _made, deck = await built(talk, TALK, "--theme dark --accent '#E0A030'")
    await talk.bash("mkdir x && cd x && python3 -m zipfile -e ../talk.pptx .")
    theme = (await talk.read("x/ppt/theme/theme1.xml")).decode()
    assert '<a:accent1><a:srgbClr val="E0A030"/></a:accent1>' in theme
    assert deck.slide_master.element.xpath("p:clrMap")[0].get("bg1") == "dk1"
    assert (
        shape_with(deck.slides[1], "chart").chart.plots[0].series[0].format.fill.fore_color.theme_color.name
        == "ACCENT_1"
    )
    assert "can hardly be seen on the light theme" in await refused(talk, TALK, "--accent '#FFEE88'")


async def test_what_does_not_fit_is_split_with_every_word_in_its_order(runner: SkillRunner) -> None:
    points = [
        f"Point {number} of this long list, with words enough for a second line of the slide, however wide"
        for number in range(30)
    ]
    rows = [f"| Item {number} | {number} |" for number in range(40)]
    text = "\n".join(
        ["## Many", *(f"- {each}" for each in points), "Notes: once", "## Rows", "| a | b |", "|---|---|", *rows]
    )
    made, deck = await built(runner, text)
    assert made["split"] == [1, 2]
    many = [slide for slide in deck.slides if slide.shapes.title.text.startswith("Many")]
    assert [slide.shapes.title.text for slide in many] == [
        f"Many ({n} of {len(many)})" for n in range(1, len(many) + 1)
    ]
    assert len(many) > 3
    assert [each.text for slide in many for each in slide.placeholders[1].text_frame.paragraphs] == points
    assert [slide.has_notes_slide for slide in many] == [True, *[False] * (len(many) - 1)]
    tables = [shape_with(slide, "table") for slide in deck.slides if slide not in many]
    assert [table.table.cell(0, 0).text for table in tables] == ["a"] * len(tables)
    cells = [row.cells[0].text for table in tables for row in list(table.table.rows)[1:]]
    assert cells == [f"Item {number}" for number in range(40)]
    bottoms = [shape.top + shape.height for slide in deck.slides for shape in slide.shapes]
    assert max(bottoms) <= deck.slide_height


async def test_what_fits_nowhere_is_refused_with_the_slide(runner: SkillRunner) -> None:
    assert "Slide 2 (“Long”): a paragraph of" in await refused(runner, f"# A\n## Long\n{'many words ' * 300}")
    assert "Slide 1 (“A A" in await refused(runner, f"# {'A ' * 300}")
    wide = "|".join(["extraordinarily"] * 20)
    assert "20 columns are too wide" in await refused(runner, f"## T\n{wide}\n{'|'.join(['---'] * 20)}\n{wide}")
    assert "Slide 1 (“P”): There is no picture" in await refused(runner, "## P\n![x](nothing.png)")
    assert "is not loaded; download it" in await refused(runner, "## P\n![x](https://example.org/a.png)")
    assert "'12,5' is not a number" in await refused(runner, '## C\n```chart line\nq,a\nQ1,"12,5"\n```')
    assert "a pie has one column" in await refused(runner, "## C\n```chart pie\nq,a\nQ1,-3\n```")
    await runner.write(fake_png="no picture")
    assert "fake.png is not a picture" in await refused(runner, "## P\n![x](fake.png)")


async def test_a_photo_of_a_turned_camera_is_upright(runner: SkillRunner) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    await runner.sandbox.write(f"{WORKSPACE}/side.jpg", farm_picture(format="JPEG", exif=exif))
    _made, deck = await built(runner, "## P\n![x](side.jpg)")
    picture = next(shape for shape in deck.slides[0].shapes if hasattr(shape, "image"))
    assert picture.image.size == (60, 90)
    assert picture.width < picture.height


async def test_numbered_lists_count_on(runner: SkillRunner) -> None:
    _made, deck = await built(runner, "## L\n3. a\n3. b\n\nBetween\n\n7. c")
    marks = deck.slides[0].placeholders[1].element.xpath(".//a:buAutoNum")
    assert [mark.get("startAt") for mark in marks] == ["3", "3", "7"], "one list that starts with 3, and one with 7"


async def test_missing_programs_are_named(runner: SkillRunner) -> None:
    await runner.write(talk_md="# A")
    answer = await runner.without_packages("slides", "build_deck.py build talk.md --out a.pptx", exit_code=3)
    assert (answer["missing"], answer["fix"]) == (["python-pptx"], "pip install python-pptx")
    answer = await runner.without_packages("slides", "build_deck.py pictures talk.md --out p", exit_code=3)
    assert answer["missing"] == ["libreoffice-impress"]


async def test_slides_are_drawn_by_libreoffice(talk: SkillRunner) -> None:
    if (await talk.bash("command -v soffice")).exit_code:
        pytest.skip("LibreOffice is not installed: apt-get install libreoffice-impress-nogui")
    await built(talk, TALK, "--accent '#C02040'")
    made = await talk.json("slides", "build_deck.py pictures talk.pptx --out drawn --width 640")
    assert len(made["written"]) == 6
    with Image.open(io.BytesIO(await talk.read("drawn/slide_004.png"))) as section:
        assert section.size == (640, 360)
        pixel = section.convert("RGB").getpixel((5, 5))
        assert isinstance(pixel, tuple)
        assert all(abs(one - other) < 12 for one, other in zip(pixel, (0xC0, 0x20, 0x40), strict=True))
    with Image.open(io.BytesIO(await talk.read("drawn/overview.png"))) as overview:
        assert overview.size == (990, 850)


async def test_run_skill_builds_a_deck_from_its_markdown(runner: SkillRunner) -> None:
    given = json.dumps({"command": "build", "markdown": "# Tea\n\n## Why\n- It grew", "out": "tea.pptx"})
    await runner.sandbox.write(f"{WORKSPACE}/given.json", given.encode())
    state = f"{WORKSPACE}/.skills/slides"  # as the tool sets it
    line = f"mkdir -p {state} && cd / && SKILL_STATE={state} python3 /mnt/skills/slides/scripts/build_deck.py"
    result = await runner.bash(f"{line} < {WORKSPACE}/given.json")
    assert result.exit_code == 0, result.output
    deck = pptx.Presentation(io.BytesIO(await runner.read("tea.pptx")))
    assert [slide.shapes.title.text for slide in deck.slides] == ["Tea", "Why"]
