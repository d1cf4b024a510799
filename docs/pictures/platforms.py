"""Draw how each platform shows a plan and a question: python -m docs.pictures.platforms (needs Chromium).

The pictures are drawn from the payloads that the fake platforms received from the real service with the demo.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from PIL import Image, ImageChops

from tests.support.all_platforms import AllPlatforms

FOLDER = Path(__file__).parent
PLAYED = (("plan", "Both steps of the plan"), ("approve", "May I run"))
EMOJI = {"✅": '<span class="yes">✓</span>', "❌": '<span class="no">✗</span>'}  # for which a machine may have no font
WIDTH, TALLEST, SCALE = 620, 1500, 2
PERSON, FAWN = "Jane", "Fawn"


@dataclass(frozen=True, slots=True)
class Bubble:
    """One message: who wrote it, and what it shows as HTML; `below` stands under it, as buttons on Telegram do."""

    author: str
    html: str
    below: str = ""


class DemoOnPlatforms(AllPlatforms):
    """The service without a key of a model, so that the demo answers."""

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in super().environment().items() if name != "OPENAI_API_KEY"}


def markdown(text: str) -> str:
    return MarkdownIt("js-default", {"breaks": True}).render(text)


def buttons(labels: Sequence[tuple[str, str]]) -> str:
    """Return buttons (label, style); the style is primary, danger or empty."""
    drawn = "".join(f'<b class="{style}">{escape(label)}</b>' for label, style in labels)
    return f'<div class="buttons">{drawn}</div>'


def attached(name: str) -> str:
    return f'<div class="file"><i>▤</i>{escape(name)}</div>'


def folded(title: str, lines: Sequence[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="fold"><b>▾ {escape(title)}</b><ul>{rows}</ul></div>'


# ------------------------------------------------------------ payloads


def slack(world: Any) -> Iterator[Bubble]:
    posts = [post for room in world.conversations.values() for post in room.posts.values()]
    for post in sorted(posts, key=lambda each: each.ts):
        if not post.bot_id:
            yield Bubble(PERSON, markdown(post.text))
        elif html := "".join(map(_slack_block, post.blocks)) + "".join(
            attached(world.files[f].name) for f in post.files
        ):
            yield Bubble(FAWN, html)


def _slack_block(block: Any) -> str:
    marks = {"complete": "✓", "error": "✗", "pending": "○", "in_progress": "▸"}
    match block["type"]:
        case "plan":
            return folded(block["title"], [f"{marks[task['status']]} {task['title']}" for task in block["tasks"]])
        case "markdown":
            return markdown(block["text"])
        case "context":
            text = " ".join(part["text"] for part in block["elements"]).strip("_")
            before, date, _rest = text.partition("<!date")  # which Slack shows in the reader's time
            return f"<small>{escape(before + ('tomorrow' + text.rpartition('>')[2] if date else ''))}</small>"
        case "actions":
            return buttons([(each["text"]["text"], each.get("style", "")) for each in block["elements"]])
    return ""


def discord(world: Any) -> Iterator[Bubble]:
    styles = {3: "primary", 4: "danger"}
    for room in world.rooms.values():
        for message in room.messages.values():
            lines = message["content"].replace("<t:", "in a day<t:").split("\n")
            small = [line.removeprefix("-# ") for line in lines if line.startswith("-# ")]
            text = "\n".join(line for line in lines if not line.startswith("-# "))
            text = "".join(part.partition(":R>")[2] if n else part for n, part in enumerate(text.split("<t:")))
            rows = [
                [(c["label"], styles.get(c["style"], "")) for c in row["components"]] for row in message["components"]
            ]
            html = markdown(text) + "".join(f"<small>{escape(line)}</small>" for line in small)
            html += "".join(map(buttons, rows)) + "".join(attached(each["filename"]) for each in message["attachments"])
            yield Bubble(FAWN if message["author"].get("bot") else PERSON, html)


def telegram(world: Any) -> Iterator[Bubble]:
    for chat in world.chats.values():
        for message in chat.messages.values():
            rows = message.get("reply_markup", {}).get("inline_keyboard", [])
            styles = {"success": "primary"}
            below = "".join(
                buttons([(b["text"], styles.get(b.get("style"), b.get("style", ""))) for b in r]) for r in rows
            )
            html = _with_entities(message.get("text", ""), message.get("entities", ()))
            html += attached(message["document"]["file_name"]) if "document" in message else ""
            yield Bubble(FAWN if message["from"]["is_bot"] else PERSON, html, below)


def _with_entities(text: str, entities: Sequence[Any]) -> str:
    """Return a text with Telegram's entities as HTML. Offsets count UTF-16."""
    tags = {"expandable_blockquote": "blockquote", "italic": "em", "bold": "strong", "code": "code", "pre": "pre"}
    units = text.encode("utf-16-le")
    cuts: dict[int, list[str]] = {}
    for entity in sorted(entities, key=lambda each: -each["length"]):
        tag, begin = tags.get(entity["type"], "span"), entity["offset"]
        cuts.setdefault(begin, []).append(f"<{tag}>")
        cuts.setdefault(begin + entity["length"], []).insert(0, f"</{tag}>")
    places = [0, *sorted(cuts), len(units) // 2]
    pieces = []
    for begin, end in pairwise(places):
        pieces += [*(cuts.pop(begin, [])), escape(units[2 * begin : 2 * end].decode("utf-16-le"))]
    return f'<div class="text">{"".join([*pieces, *(tag for end in cuts.values() for tag in end)])}</div>'


def feishu(world: Any) -> Iterator[Bubble]:
    for said in world.messages.values():
        match said.kind:
            case "interactive":
                elements = world.cards[said.content["data"]["card_id"]].json["body"]["elements"]
                yield Bubble(FAWN, "".join(map(feishu_element, elements)))
            case "file":
                yield Bubble(FAWN, attached(world.files[said.content["file_key"]][0]))
            case "text":
                yield Bubble(PERSON, markdown(said.content["text"]))


def feishu_element(element: Any) -> str:
    """Return an element of a card as HTML."""
    match element["tag"]:
        case "collapsible_panel":
            lines = [line for each in element["elements"] for line in each["text"]["content"].split("\n")]
            return folded(element["header"]["title"]["content"], lines)
        case "markdown":
            return markdown(element["content"])
        case "div":
            return f"<small>{escape(element['text']['content'])}</small>"
        case "column_set":
            styles = {"default": ""}
            all_of = [each for column in element["columns"] for each in column["elements"]]
            return buttons([(each["text"]["content"], styles.get(each["type"], each["type"])) for each in all_of])
    return ""


def dingtalk(world: Any) -> Iterator[Bubble]:
    answers = iter(world.shown)
    for words, _answer in PLAYED:
        yield Bubble(PERSON, markdown(words))
        for shown in answers:
            card = world.cards.get(shown.card)
            labels = [(each["text"], "primary" if n == 0 else "") for n, each in enumerate(world.buttons(shown))]
            yield Bubble(
                FAWN,
                markdown(card.variables["content"]) + (buttons(labels) if labels else "")
                if card
                else attached(shown.text),
            )
            if not card:  # the file ends the answer
                break


# ------------------------------------------------------------ pictures

READERS: dict[str, Callable[[Any], Iterator[Bubble]]] = {
    "slack": slack,
    "discord": discord,
    "telegram": telegram,
    "feishu": feishu,
    "dingtalk": dingtalk,
}


def as_page(platform: str, bubbles: Sequence[Bubble]) -> str:
    rows = []
    for each in bubbles:
        name = f'<div class="n">{each.author}{"<span>APP</span>" if each.author == FAWN else ""}</div>'
        said = f'<div class="b">{name}<div>{each.html}</div></div><div class="below">{each.below}</div>'
        rows.append(f'<div class="m {each.author}"><div class="a">{each.author[0]}</div>{said}</div>')
    style = (FOLDER / "platforms.css").read_text()
    head = f'<!doctype html><meta charset="utf-8"><style>{style}</style>'
    body = "".join(rows)
    for emoji, drawn in EMOJI.items():
        body = body.replace(emoji, drawn)
    return f'{head}<body class="{platform}">{body}'


def draw(page: Path, target: Path) -> None:
    """Take a picture of a page, without what is empty below it, in few colours."""
    shot = page.with_suffix(".png")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={page.parent}/profile",
    ]
    size = [f"--window-size={WIDTH},{TALLEST}", f"--force-device-scale-factor={SCALE}", f"--screenshot={shot}"]
    subprocess.run(["chromium", *options, *size, page.as_uri()], check=True, capture_output=True, timeout=120)
    with Image.open(shot) as raw:
        picture = raw.convert("RGB")
    paper = Image.new("RGB", picture.size, picture.getpixel((2, picture.height - 2)))
    box = ImageChops.difference(picture, paper).getbbox() or (0, 0, 1, 1)
    picture.crop((0, 0, picture.width, box[3] + 24)).quantize(64).save(target, optimize=True)


async def play(folder: Path) -> dict[str, list[Bubble]]:
    """Have the service answer on each platform, and return what its fake shows."""
    async with DemoOnPlatforms.open(folder, models=[], sandbox={"provider": "local"}) as service:

        async def talk(platform: str, words: str, answer: str) -> None:
            service.rigs[platform].mutter(words)
            await service.shows(platform, answer)

        for words, answer in PLAYED:
            await asyncio.gather(*(talk(platform, words, answer) for platform in service.rigs))
            await service.quiet()  # its file has come, too
        return {name: [*READERS[name](rig.server)] for name, rig in service.rigs.items()}  # type: ignore[attr-defined]  # each rig of a platform has its fake


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-pictures-") as name:
        folder = Path(name)
        bubbles = asyncio.run(play(folder))
        for platform, shown in bubbles.items():
            page = folder / f"{platform}.html"
            page.write_text(as_page(platform, shown))
            draw(page, FOLDER / f"{platform}.png")


if __name__ == "__main__":
    main()
