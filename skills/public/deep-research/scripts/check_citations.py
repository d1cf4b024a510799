"""Check the citations of a report against its entries and the saved texts.

Each [n] needs an entry under "## Sources", and each entry is cited. An entry is a line such as `[1] Title. URL
(accessed 2026-11-22)`. With --sources, quoted text and numbers in a sentence are looked up in the saved text of the
sources that the sentence cites.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from skill_program import run_main

CITATION = re.compile(r"\[(\d+(?:\s*[,–-]\s*\d+)*)\](?!\()")
ENTRY = re.compile(r"(?:[-*]\s*)?\[(\d+)\]\s+(.*\S)|(\d+)\.\s+(.*\S)")
QUOTE = re.compile(r"[\"“「]([^\"”」]{15,})[\"”」]")
SENTENCE_END = re.compile(r"(?<=[.!?。！？\]])\s+(?=[A-Z\u4e00-\u9fff\"“])|\n")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:\s?%)?")


def split_report(text: str) -> tuple[str, dict[int, str]]:
    """Return the body without code, and the entries under "Sources", "References", "来源" or "参考文献"."""
    parts = re.split(
        r"^#{1,3}\s*(?:Sources|References|来源|参考文献)\s*$", text, maxsplit=1, flags=re.MULTILINE | re.IGNORECASE
    )
    body = re.sub(r"```.*?```|`[^`\n]*`", "", parts[0], flags=re.DOTALL)
    entries = {}
    for line in parts[1].splitlines() if len(parts) > 1 else []:
        if match := ENTRY.fullmatch(line.strip()):
            entries[int(match[1] or match[3])] = match[2] or match[4]
    return body, entries


def cited_numbers(text: str) -> set[int]:
    """Return the sources that [1], [1, 3] and [2-4] name."""
    found: set[int] = set()
    for group in CITATION.findall(text):
        for piece in group.split(","):
            first, *rest = re.split(r"\s*[–-]\s*", piece.strip())
            found |= set(range(int(first), int(rest[0] if rest else first) + 1))
    return found


def normalized(text: str) -> str:
    return re.sub(r"[\s\"“”'’‘]+", " ", text).strip().lower()


def check_claims(body: str, folder: Path) -> list[str]:
    """Look quotes and numbers up in the texts of the cited sources."""
    problems = []
    for sentence in SENTENCE_END.split(body):
        numbers = cited_numbers(sentence)
        files = [folder / f"{number}.txt" for number in numbers]
        if not numbers or not all(file.is_file() for file in files):
            continue
        texts = normalized(" ".join(file.read_text("utf-8") for file in files))
        names = ", ".join(f"[{number}]" for number in sorted(numbers))
        problems += [
            f'Not in {names}: "{quote[:80]}"'
            for quote in QUOTE.findall(sentence)
            if normalized(quote).rstrip(".,…") not in texts
        ]
        plain = CITATION.sub("", sentence)
        figures = [figure for figure in NUMBER.findall(plain) if len(re.sub(r"\D", "", figure)) >= 2]
        absent = [figure for figure in figures if figure.replace(",", "").rstrip("% ") not in texts.replace(",", "")]
        if absent:
            problems.append(
                f"Not in {names}: the number {', '.join(absent)} "
                f"(explain a calculation in the report): {plain.strip()[:80]}"
            )
    return problems


def check_report(text: str, folder: Path | None) -> dict[str, Any]:
    body, entries = split_report(text)
    cited = cited_numbers(body)
    problems = (
        []
        if entries
        else ["There is no section `## Sources` with entries such as `[1] Title. URL (accessed YYYY-MM-DD)`."]
    )
    problems += [f"[{number}] is cited but has no entry." for number in sorted(cited - entries.keys())]
    problems += [f"[{number}] has an entry but is never cited." for number in sorted(entries.keys() - cited)]
    urls: dict[str, int] = {}
    for number, entry in entries.items():
        url = re.search(r"https?://[^\s)>\]]+", entry)
        if url and url[0].rstrip(".,") in urls:
            problems.append(f"[{number}] and [{urls[url[0].rstrip('.,')]}] are the same address.")
        elif url:
            urls[url[0].rstrip(".,")] = number
            if not re.search(r"\d{4}-\d\d-\d\d", entry.replace(url[0], "")):
                problems.append(f"[{number}] has no access date (YYYY-MM-DD).")
    if folder:
        known = {source["number"]: source["url"] for source in json.loads((folder / "sources.json").read_text("utf-8"))}
        problems += [
            f"[{number}] is not {known[number]}, the collected source {number}."
            for number, entry in entries.items()
            if number in known and known[number] not in entry
        ]
        problems += check_claims(body, folder)
    paragraphs = [part.strip() for part in body.split("\n\n") if part.strip() and not part.lstrip().startswith("#")]
    bare = [part[:80] for part in paragraphs if NUMBER.search(part) and not cited_numbers(part)]
    return {
        "ok": not problems, "problems": problems,
        "warnings": [f"A paragraph with numbers cites nothing: {part}" for part in bare],
        "citations": len(CITATION.findall(body)), "sources": len(entries),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="Markdown")
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="the folder of collect_sources.py")
    options = parser.parse_args()
    try:
        result = check_report(options.report.read_text("utf-8"), options.sources)
    except OSError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(2)
    print(json.dumps(result, ensure_ascii=False, indent=1))
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    run_main(main, ("report",))
