"""Measure how well pages are read: word-shingle F1 of what WebFetcher's parser extracts from articles.

`python -m bench.articles` uses `articles.json`, a small set of our own: every article in every page layout. The measure
and the form of `--benchmark FOLDER` are those of github.com/scrapinghub/article-extraction-benchmark: a
ground-truth.json, and html/ID.html.gz. Its F1 counts the shingles of four words, each page alike.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import html
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from agent.parsing.worker import NotParsed, parse_html

OWN_SET = Path(__file__).parent / "articles.json"
SHINGLE_WORDS = 4
GOAL = 0.96
_MARKUP = re.compile(r"\]\([^)]*\)|</?\w+>|\\")  # of the Markdown: no words of the page


def own_pages() -> Iterator[tuple[bytes, str]]:
    """Yield each page of our own set with its article."""
    data = json.loads(OWN_SET.read_text("utf-8"))
    for layout in data["templates"].values():
        for article in data["articles"]:
            body = "\n".join(
                f"<h2>{html.escape(part[3:])}</h2>" if part.startswith("## ") else f"<p>{html.escape(part)}</p>"
                for part in article["parts"]
            )
            page = layout.format(title=html.escape(article["title"]), lang=article["lang"], body=body)
            yield page.encode(), "\n".join(part.removeprefix("## ") for part in article["parts"])


def benchmark_pages(folder: Path) -> Iterator[tuple[bytes, str]]:
    """Yield each page of the public benchmark with its article."""
    for key, truth in json.loads((folder / "ground-truth.json").read_text("utf-8")).items():
        yield gzip.decompress((folder / "html" / f"{key}.html.gz").read_bytes()), truth.get("articleBody", "")


def shingles(text: str) -> Counter[tuple[str, ...]]:
    """Count the runs of words; a shorter text is one run."""
    words = re.findall(r"\w+", text)
    return Counter(tuple(words[at : at + SHINGLE_WORDS]) for at in range(max(1, len(words) - SHINGLE_WORDS + 1)))


def score(true: str, found: str) -> tuple[float, float]:
    """Return precision and recall."""
    wanted, got = shingles(true), shingles(found)
    same = (wanted & got).total()
    return same / max(got.total(), 1), same / max(wanted.total(), 1)


def read_article(page: bytes) -> str:
    """Return what a fetch of the page would return, without its markup."""
    try:
        return _MARKUP.sub("", str(parse_html(page, "https://site.test/page", "utf-8")["text"] or ""))
    except NotParsed:
        return ""


async def main(folder: Path | None) -> int:
    """Print the figures; return 1 if the goal is missed."""
    scores, took = [], []
    for page, true in benchmark_pages(folder) if folder else own_pages():
        began = time.thread_time()
        found = read_article(page)
        took.append((time.thread_time() - began) * 1e3)
        scores.append(score(true, found))
    precision, recall = (statistics.mean(column) for column in zip(*scores, strict=True))
    f1 = 2 * precision * recall / (precision + recall)
    took.sort()
    print(
        f"{len(scores)} pages  F1 {f1:.3f} (goal {GOAL})  precision {precision:.3f}  recall {recall:.3f}"
        f"  CPU p50 {took[len(took) // 2]:.0f} ms  p95 {took[int(len(took) * 0.95)]:.0f} ms"
    )
    return int(f1 < GOAL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.articles", description=__doc__)
    parser.add_argument("--benchmark", type=Path, help="a checkout of the public benchmark")
    raise SystemExit(asyncio.run(main(parser.parse_args().benchmark)))
