"""Measure how much of Office files is read: the words of `read_file`, compared with those of pandoc 3.9 or later.

`python -m bench.office FOLDER --pandoc PROGRAM` reads all docx, pptx, xlsx, odt, rtf and epub files below FOLDER; the
package pypandoc_binary brings such a pandoc. Left out are the numbers of lists, formulas, and what pandoc says of
graphics that it does not read. A number of a workbook counts by its value, or as the day that it shows: pandoc knows no
formats.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

GOAL = 0.9
KINDS = ("docx", "pptx", "xlsx", "odt", "rtf", "epub")
FILTER = """
function OrderedList(list) return pandoc.BulletList(list.content) end
function Note(note) return pandoc.Span({pandoc.Space(), table.unpack(pandoc.utils.blocks_to_inlines(note.content))}) end
function Superscript(text) return text.content end
function Subscript(text) return text.content end
function Math() return {} end
function Image() return {} end
"""
OURS = """
import sys
from sandbox.inside import documents
print("".join(documents.READERS[sys.argv[2]][1](sys.argv[1])))
"""
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
GRAPHIC = re.compile(r"\[Graphic: [^\[\]]*\]")


def output_of(*command: str) -> str | None:
    """Return what a program prints, None if it fails or takes more than 100 seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    except subprocess.SubprocessError:
        return None
    return done.stdout


def words_of(text: str) -> Counter[str]:
    """Count words; numbers by their value."""
    text = GRAPHIC.sub(" ", unicodedata.normalize("NFKC", text))
    numbers = [f"{float(found[0]):.12g}" for found in NUMBER.finditer(text)]
    return Counter(numbers) + Counter(re.findall(r"\w+", NUMBER.sub(" ", text)))


def found_share(wanted: Counter[str], text: str) -> float:
    """Return which share of the words a text has; the number of a day is found where the day stands."""
    missing = wanted - words_of(text)
    for word, count in list(missing.items()):
        if re.fullmatch(r"\d{1,6}(?:\.\d+)?", word):
            days = {str(start + datetime.timedelta(int(float(word)))) for start in DAYS}
            if any(day in text for day in days) or float(word) < 1:  # below one, it may be a time
                missing[word] -= min(count, sum(map(text.count, days)) or count)
    return 1 - (+missing).total() / wanted.total()


DAYS = (datetime.date(1899, 12, 30), datetime.date(1904, 1, 1))


def compare(files: list[Path], pandoc: str) -> Iterator[tuple[Path, str, float]]:
    """Yield each file with who cannot read it ("both", "ours", "pandoc", "") and the share of pandoc's words."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(FILTER)
        script.flush()
        for path in files:
            kind = path.suffix[1:].lower()
            theirs = output_of(
                pandoc, "+RTS", "-M800m", "-RTS", "-f", kind, "-t", "plain", "-L", script.name, str(path)
            )
            ours = output_of(sys.executable, "-c", OURS, str(path), f".{kind}")
            if theirs is None or ours is None:
                yield path, "both" if theirs is ours else "ours" if ours is None else "pandoc", 0.0
                continue
            wanted = words_of(theirs)
            yield path, "", found_share(wanted, ours) if wanted else 1.0


def main(folder: Path, pandoc: str) -> int:
    """Print the figures; return 1 if a kind has fewer than 98 of 102 files with 90 % of the words."""
    missed = 0
    for kind in KINDS:
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() == f".{kind}" and path.is_file())
        results = list(compare(files, pandoc))
        shares = {path: share for path, fault, share in results if not fault}
        good = sum(share >= GOAL for share in shares.values())
        faults = Counter(fault for _path, fault, _share in results if fault)
        print(
            f"{kind:5} {good} of {len(shares)} files with at least {GOAL:.0%} of the words; unreadable: {dict(faults)}"
        )
        for path, share in shares.items():
            if share < GOAL:
                print(f"      {share:.0%} {path.relative_to(folder)}")
        missed += good * 102 < len(shares) * 98
    return int(missed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.office", description=__doc__)
    parser.add_argument("folder", type=Path, help="files of all kinds, also in folders below it")
    parser.add_argument("--pandoc", default="pandoc", help="the program")
    asked = parser.parse_args()
    raise SystemExit(main(asked.folder, asked.pandoc))
