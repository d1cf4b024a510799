"""Markdown to text and entities: nothing lost or added, offsets in UTF-16 units."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.telegram.markdown import MAX_ENTITIES, Entity, to_entities, without_mentions
from tests.fakes.telegram_text import formatted
from tests.fakes.telegram_text import marked as as_the_server_marks

WILD = st.lists(st.sampled_from([*"*_`~[]()<>|#-+>1.!\\\n ab中😀&;/\t", "```", "http://x.y", "| a |\n|---|\n"])).map(
    "".join
)
PLAIN = st.text(st.characters(categories=["L", "N", "Zs", "Po"], exclude_characters="*_`~[]<>|#\\&"), min_size=1)


def marked(markdown: str) -> tuple[str, list[tuple[object, ...]]]:
    text, entities = to_entities(markdown)
    units = text.encode("utf-16-le")
    covered = [(e["type"], units[2 * int(e["offset"]) : 2 * (int(e["offset"]) + int(e["length"]))]) for e in entities]
    return text, [(kind, part.decode("utf-16-le")) for kind, part in covered]


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("just words, 100 % of them.", "just words, 100 % of them.", []),
        ("a\n\n\nb", "a\n\n\nb", []),
        ("**你好** 😀 *x*", "你好 😀 x", [("bold", "你好"), ("italic", "x")]),
        ("# Head\ntext", "Head\ntext", [("bold", "Head")]),
        ("~~gone~~ but ~5", "gone but ~5", [("strikethrough", "gone")]),
        ("about ~5~ of them", "about ~5~ of them", []),
        ("`a*b`", "a*b", [("code", "a*b")]),
        ("```py\nx = 1\n```\nafter", "x = 1\nafter", [("pre", "x = 1")]),
        ("- a\n- b\n  1. c", "• a\n• b\n  1. c", []),
        ("- [ ] todo\n- [x] done", "☐ todo\n☑ done", []),
        ("> said\n\nafter", "said\n\nafter", [("blockquote", "said")]),
        ("> > twice", "twice", [("blockquote", "twice")]),
        ("[docs](https://x.y/z)", "docs", [("text_link", "docs")]),
        ("[file](a/b.md)", "file (a/b.md)", []),
        ("[mail](mailto:jane@x.org)", "mail (mailto:jane@x.org)", []),
        ("<jane@x.org> or [call](tel:+4930)", "jane@x.org or call (tel:+4930)", []),
        ("[app](http://localhost:3000/a)", "app (http://localhost:3000/a)", []),
        ("[app](http://x.y:99999/)", "app (http://x.y:99999/)", []),
        ("[host](https://<host>.org/)", "host (https://<host>.org/)", []),
        ("[fawn](tg://resolve?domain=fawn)", "fawn", [("text_link", "fawn")]),
        ("![chart](https://x.y/c.png)", "chart", [("text_link", "chart")]),
        ("<https://x.y>", "https://x.y", []),
        ("a <b>c</b> <!-- d --> & e", "a <b>c</b> <!-- d --> & e", []),
        ("<div>\nkept\n</div>", "<div>\nkept\n</div>", []),
        ("one<br>two", "one\ntwo", []),
        ("$x^2$ and ||y||", "$x^2$ and ||y||", []),
        ("<@U1> @everyone snake_case 2 * 3", "<@U1> @everyone snake_case 2 * 3", []),
        (
            "| a | 值 |\n|---|---|\n| 值值 | b |",
            "a    | 值\n-----+---\n值值 | b",
            [("pre", "a    | 值\n-----+---\n值值 | b")],
        ),
        (
            "| a |\n|---|\n| *b* | 值 | d |\n| c |",  # more cells than the head has
            "a |    |\n--+----+--\nb | 值 | d\nc |    |",
            [("pre", "a |    |\n--+----+--\nb | 值 | d\nc |    |")],
        ),
    ],
)
def test_markdown_is_shown_as_text_and_entities(markdown: str, text: str, entities: list[tuple[str, str]]) -> None:
    assert marked(markdown) == (text, entities)


def test_a_code_block_keeps_its_language() -> None:
    assert to_entities("```python\nx\n```")[1] == [{"type": "pre", "offset": 0, "length": 1, "language": "python"}]


def test_with_too_many_entities_bold_is_dropped_first() -> None:
    _, entities = to_entities("**b** " * 150 + "\n\n```\ncode\n```")
    assert len(entities) == MAX_ENTITIES
    assert "pre" in [entity["type"] for entity in entities]


@given(PLAIN)
@settings(max_examples=100, deadline=None)
def test_plain_words_are_shown_unchanged(text: str) -> None:
    shown, entities = to_entities(f"x{text}")
    assert shown.split() == f"x{text}".split()
    assert not entities


@given(WILD)
@settings(max_examples=300, deadline=None)
def test_telegram_accepts_every_rendered_text(markdown: str) -> None:
    text, entities = to_entities(markdown)
    formatted(text, [dict(entity) for entity in entities], "", 1 << 20)  # raises BadText for a wrong offset
    if "```" not in markdown and "~~~" not in markdown:  # the info string of a fence is not text
        assert [char for char in text if char in "中😀"] == [char for char in markdown if char in "中😀"]


def test_names_outside_code_are_not_mentions() -> None:
    text, entities = without_mentions(
        *to_entities("😀 @jane, **@kim** `@cached` a@b.org [@lee](https://example.org) @ @x")
    )
    assert text == "😀 @\u200bjane, @\u200bkim @cached a@b.org @\u200blee @ @x"
    units = text.encode("utf-16-le")
    marked = {
        entity["type"]: units[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])].decode("utf-16-le")
        for entity in entities
    }
    assert marked == {"bold": "@\u200bkim", "code": "@cached", "text_link": "@\u200blee"}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("see https://medium.com/@john.", "https://medium.com/@john"),
        ("(example.com/package/@types/node)", "http://example.com/package/@types/node"),
        ("**https://medium.com/@john**", "https://medium.com/@john"),
    ],
)
def test_a_name_in_an_address_stays_part_of_it(text: str, url: str) -> None:
    shown, entities = without_mentions(*to_entities(text))
    assert "\u200b" not in shown
    [link] = [entity for entity in entities if entity["type"] == "text_link"]
    assert link["url"] == url
    assert [
        entity
        for entity in as_the_server_marks(*formatted(shown, entities, "", 4096), {})
        if entity["type"] == "mention"
    ] == []


def test_a_name_after_what_is_no_address_is_no_mention() -> None:
    assert without_mentions("http://localhost/@john node_modules/@types", [])[0].count("\u200b") == 2


WEB = st.sampled_from(["http", "https", "tg", "mailto", "", "HTTPS", "javascript"])


@given(WEB, st.text("abé.:/@[]%1<> #?-_", max_size=12))
@settings(max_examples=300, deadline=None)
def test_telegram_accepts_every_link(scheme: str, rest: str) -> None:
    for target in (f"{scheme}://{rest}", f"{scheme}:{rest}"):
        text, entities = without_mentions(*to_entities(f"[words](<{target}>) and {target}"))
        formatted(text, [dict(entity) for entity in entities], "", 4096)  # raises BadText for a wrong URL


NAMES = st.lists(
    st.sampled_from(
        [
            "https://x.yz/@ab/c ",
            "x.yz/@ab",
            "@jane",
            "`@x1`",
            "**@kim**",
            "😀",
            " ",
            "\n",
            "a@b.cd",
            "@",
            "[@lee](http://x.y)",
            "```\n@run\n```\n",
        ]
    )
).map("".join)


@given(NAMES)
def test_text_without_mentions_looks_the_same(markdown: str) -> None:
    text, entities = to_entities(markdown)
    still, moved = without_mentions(text, entities)
    assert still.replace("\u200b", "") == text

    def cut(whole: str, entity: Entity) -> str:
        units = whole.encode("utf-16-le")[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])]
        return units.decode("utf-16-le").replace("\u200b", "")

    kept = [entity for entity in moved if entity["type"] != "text_link" or "@ab" not in entity["url"]]
    assert [cut(still, entity) for entity in kept] == [cut(text, entity) for entity in entities]
    assert not [entity for entity in as_the_server_marks(still, moved, {}) if entity["type"] == "mention"]


def test_a_link_to_a_person_is_written_out() -> None:
    for url in ("tg://user?id=42", "TG:user?id=42"):
        assert to_entities(f"[Jane]({url})") == (f"Jane ({url})", [])
