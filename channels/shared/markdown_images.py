"""Turn images in Markdown into links, for platforms that show no foreign images."""

from __future__ import annotations

import re

_MARK = re.compile(r"`+|!\[|\]\(?|[)\n]")  # starts and ends of code and images


def images_as_links(text: str) -> str:
    """Turn images outside of code into links; one without a text is called "image".

    One pass over the marks: a single pattern would search the rest of the text from every mark that is never closed.
    """
    if "![" not in text:
        return text
    marks = list(_MARK.finditer(text))
    runs: dict[str, list[int]] = {}  # indices of marks, last first: code ends with a run of as many backticks
    for index in reversed(range(len(marks))):
        runs.setdefault(marks[index][0], []).append(index)
    kept, done, index = [], 0, 0
    start, target = -1, -1  # where an open image starts, and where its target does
    while index < len(marks):
        kind, at = marks[index][0], marks[index].start()
        index += 1
        if kind[0] == "`":
            while runs[kind] and runs[kind][-1] < index:
                runs[kind].pop()
            index = runs[kind][-1] + 1 if runs[kind] else index
        elif kind == "![":
            start = at if start < 0 else start
        elif kind == "](" and start >= 0:
            target = at if target < 0 else target
        elif kind == ")" and target >= 0:
            kept += [text[done:start], "[", text[start + 2 : target].strip() or "image"]
            start, done, target = -1, target, -1
        elif kind == "\n" or (kind == "]" and target < 0):
            start, target = -1, -1
    return "".join([*kept, text[done:]])
