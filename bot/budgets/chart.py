"""Draw a chart of bars."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, MARGIN = 720, 240, 28  # pixels
BAR, GRID, INK = "#3b7dd8", "#dddddd", "#444444"
MAX_LABELS = 8


@dataclass(frozen=True, slots=True)
class BarChart:
    """A bar for each value. `top` names the largest value; some of the labels are shown."""

    values: Sequence[float]
    labels: Sequence[str]
    top: str


def draw_bars(chart: BarChart) -> bytes:
    """Return a PNG."""
    from PIL import Image, ImageDraw

    values, labels = chart.values, chart.labels
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    floor, step = HEIGHT - MARGIN, (WIDTH - 2 * MARGIN) / len(values)
    highest = max(values) or 1.0
    draw.line((MARGIN, MARGIN, WIDTH - MARGIN, MARGIN), GRID)
    draw.line((MARGIN, floor, WIDTH - MARGIN, floor), INK)
    draw.text((MARGIN, MARGIN - 14), chart.top, INK)
    every = -(-len(labels) // MAX_LABELS)
    for number, (value, label) in enumerate(zip(values, labels, strict=True)):
        left = MARGIN + number * step
        if value > 0:
            height = max(1.0, value / highest * (floor - MARGIN))
            draw.rectangle((left + 2, floor - height, left + step - 2, floor - 1), BAR)
        if (len(labels) - 1 - number) % every == 0:
            draw.text((left, floor + 6), label, INK)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
