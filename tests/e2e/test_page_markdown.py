"""Markdown that grows, in a real Chromium: it looks as if it had come at once, and what is finished stays."""

from __future__ import annotations

import json
import random

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_page import DONE, HTTP, OpenPage, browser, page, shows
from tests.e2e.test_probes import address_of
from tests.fakes.server import until
from tests.support.browser import Browser, Tab
from tests.support.service_process import ask

__all__ = ["browser", "page"]
ROWS = "".join(f"| row {number} | **b{number}** | `c` | [d](https://d.example/{number}) |\n" for number in range(8))
TEXTS = {
    "words": (
        "One two three, four five. Six seven; eight\nnine ten\n\nA second one with "
        "https://a.example/path and w@x.example"
    ),
    "marks": (
        "**bold words** and *some other* then `code it` ~~gone now~~ __under "
        "score__ a*b*c _x_y_ 5 * 3 \\* 2 \\\\ end"
    ),
    "headings": (
        "# One two\n\ntext here\n===\n\n## Two\nmore words\n---\n\n---\n\n> quoted "
        "words go on\nlazily\n>\n> > inside"
    ),
    "lists": (
        "Before:\n\n- one item\n- two **items** here\n  - nested item\n    goes on\n- "
        "three\n\nAfter.\n\n1. first\n2. second\n10. tenth"
    ),
    "loose": "- one\n\n- two words\n\n  a second paragraph\n\n- three\n- [ ] open task\n- [x] done task\n\nThe end.",
    "tight to loose": "- one\n- two\n- three\n\n- four words\n- five\n\n* another list\n* of two",
    "table": f"Before\n\n| a | b | c | d |\n| --- | :-: | ---: | - |\n{ROWS}\nAfter the table\n",
    "table at once": "| a | b |\n| - | - |\n| only one row",
    "code": (
        "```python\ndef f(x):\n    return x + 1\n\n\nprint(f(2))\n```\n\ntext\n\n    "
        "indented code\n\n~~~\nopen to the end\n  more"
    ),
    "formulas": "Energy $E = mc^2$ or \\(a_b\\) costs $5 and $6.\n\n$$\n\\frac{a}{b}\n$$\n\nand \\[ x \\]\n\ndone",
    "definitions": (
        "A [name] here and [other][two].\n\n[name]: https://n.example\n\n[two]: "
        "https://t.example 'T'\n\nlast words"
    ),
    "markup": (
        "<b>no</b> <script>hit()</script> a <img src=x> "
        "b\n\n<div>\nblock\n</div>\n\n![pic](https://p.example/x.png) &amp; &lt;"
    ),
    "lines": "one  \ntwo\\\nthree\r\nfour\r\n\r\nfive\ttab",
    "wide": "你好，世界。这是 一段 文字 and العربية نص 😀 emoji words\n\n- 一\n- 二",
}  # fmt: skip
BOTH = """
(async (text, cuts, done) => {
  const source = document.querySelector("[type=module]").src.replace("app.js", "markdown.js");
  const { Markdown, loadMarkdown } = await import(source);
  await loadMarkdown();
  const whole = new Markdown(), grown = new Markdown();
  whole.update(text, false);
  for (const cut of cuts) {
    const until = text.slice(0, cut), fresh = new Markdown();
    grown.update(until, false);
    fresh.update(until, false);
    const tidy = (view) => { view.element.normalize(); return view.element.innerHTML.replace(/\\s+(?=<)/g, ""); };
    if (tidy(grown) === tidy(fresh)) continue;
    return [until.slice(-60), tidy(grown).slice(-300), tidy(fresh).slice(-300)];
  }
  return [];
})
"""


@pytest.fixture
async def tab(start: Start, browser: Browser) -> Tab:
    """A page of the service, whose modules a test loads; nobody is signed in."""
    service = await start(http=HTTP)
    await until(lambda: bool(address_of(service)), what="the listener")
    return await browser.tab(f"{address_of(service)}/login")


async def test_a_text_that_grows_looks_at_each_moment_as_if_it_had_come_at_once(tab: Tab) -> None:
    """By single characters, and by pieces of several sizes as models write them."""
    chance = random.Random(5)
    for name, text in TEXTS.items():
        for size in (1, 9):
            cuts, at = list[int](), 0
            while at < len(text):
                at = min(len(text), at + (1 if size == 1 else chance.randint(1, size)))
                cuts.append(at)
            wrong = await tab.eval(f"({BOTH.strip()})({json.dumps(text)}, {cuts})")
            assert wrong == [], (name, size)


async def test_emphasis_beside_wide_punctuation_is_shown_as_such(tab: Tab) -> None:
    shown = """
(async (texts) => {
  const source = document.querySelector("[type=module]").src.replace("app.js", "markdown.js");
  const { Markdown, loadMarkdown } = await import(source);
  await loadMarkdown();
  return texts.map((text) => {
    const view = new Markdown();
    view.update(text, true);
    return view.element.firstElementChild.innerHTML;
  });
})
"""
    cases = {
        "**标题：**内容": "<strong>标题：</strong>内容",
        "这是**“取出”模式**。": "这是<strong>“取出”模式</strong>。",
        "日本語の**「強調」**です": "日本語の<strong>「強調」</strong>です",
        "**굵게.**다음": "<strong>굵게.</strong>다음",
        "*斜体。*后文": "<em>斜体。</em>后文",
        "***粗斜：***后": "<em><strong>粗斜：</strong></em>后",
        "**外（*内*）**后": "<strong>外（<em>内</em>）</strong>后",
        "使用**`a b`**命令": "使用<strong><code>a b</code></strong>命令",
        "**😀**文": "<strong>😀</strong>文",
        "`**不。**动` 与 a*b": "<code>**不。**动</code> 与 a*b",
        r"\*不。\*动": "*不。*动",
        "a **b** c": "a <strong>b</strong> c",
    }
    assert await tab.eval(f"({shown.strip()})({json.dumps([*cases])})") == [*cases.values()]


async def test_what_is_finished_stays_the_same_element_while_the_rest_grows(tab: Tab) -> None:
    table = f"| a | b |\n| - | - |\n{''.join(f'| r{number} | x |' + chr(10) for number in range(300))}"
    items = "".join(f"- item {number} with `code`\n" for number in range(300))
    grow = """
(async (text, part) => {
  const source = document.querySelector("[type=module]").src.replace("app.js", "markdown.js");
  const { Markdown, loadMarkdown } = await import(source);
  await loadMarkdown();
  const view = new Markdown();
  view.update("# Before\\n\\n" + text.slice(0, 200), false);
  const kept = [view.element.querySelector("h1"), view.element.querySelector(part)];
  const lost = [];
  for (let at = 200; at < text.length; at += 13) {
    view.update("# Before\\n\\n" + text.slice(0, at), false);
    if (!kept.every((each) => view.element.contains(each))) lost.push(text.slice(at - 40, at));
  }
  view.update("# Before\\n\\n" + text, true);
  return [lost.slice(0, 1), view.element.querySelectorAll(part).length];
})
"""
    assert await tab.eval(f"({grow.strip()})({json.dumps(table)}, 'tbody tr')") == [[], 300]
    assert await tab.eval(f"({grow.strip()})({json.dumps(items)}, 'li')") == [[], 300]


async def test_texts_are_shown_as_they_are_until_the_libraries_are_there(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.call("Network.setCacheDisabled", cacheDisabled=True)
    await tab.call("Network.setBlockedURLs", urls=["*/vendor/*"])
    await tab.reload()
    await tab.until("document.querySelector('#text')")
    await tab.send(ask(text="the **first** one"))
    await tab.until(DONE)
    await shows(tab, "the **first** one")
    await tab.call("Network.setBlockedURLs", urls=[])
    await tab.send(ask(text="the **second** one"))
    await tab.until("document.querySelectorAll('.agent .markdown strong').length === 2", what="both texts, as Markdown")
    assert "**" not in await tab.text(".agent")
