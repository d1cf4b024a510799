"""Draw charts as SVG with classes instead of colors, so that the page's style decides about light, dark and print."""

from __future__ import annotations

import datetime
import html
import math
from typing import NamedTuple

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 40
MAX_LABEL_CHARS = 26
MAX_MARKS = 4000


class Series(NamedTuple):
    """Values of one name, in the order of the chart's x."""

    name: str
    values: list[float | None]


class Chart(NamedTuple):
    """What is drawn: labels of x, its places for numbers and dates (else None), and the series."""

    kind: str
    labels: list[str]
    places: list[float] | None
    series: list[Series]
    unit: str = ""
    stacked: bool = False
    dates: bool = False


def short_number(value: float) -> str:
    """Return a number for an axis: 1.2k, 3M."""
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def full_number(value: float) -> str:
    """Return a number for readers: 1,234.5."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round values that cover low to high."""
    span = (high - low) or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / count))
    step = next(step * each for each in (1, 2, 2.5, 5, 10) if span / (step * each) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def text(x: float, y: float, words: str, name: str = "t", anchor: str = "middle") -> str:
    return f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def cut(label: str, size: int = MAX_LABEL_CHARS) -> str:
    return label if len(label) <= size else label[: size - 1] + "…"


def scale(value: float, low: float, high: float, start: float, end: float) -> float:
    return start + (value - low) / ((high - low) or 1) * (end - start)


def value_range(chart: Chart) -> tuple[float, float]:
    """Return the least and the largest value that is drawn; bars and areas include zero."""
    if chart.stacked:
        columns = list(zip(*(series.values for series in chart.series)))
        sums = [sum(value for value in column if value is not None and value > 0) for column in columns]
        least = [sum(value for value in column if value is not None and value < 0) for column in columns]
        return min([0.0, *least]), max([0.0, *sums])
    values = [value for series in chart.series for value in series.values if value is not None] or [0.0]
    zero = (
        [0.0] if chart.kind in ("bar", "barh", "area", "hist") or min(values) >= 0 > min(values) - max(values) else []
    )
    return min([*values, *zero]), max([*values, *zero])


def draw(chart: Chart, title: str) -> str:
    """Return the SVG."""
    if chart.kind == "barh":
        body, height = draw_horizontal(chart)
    else:
        body, height = draw_upright(chart), HEIGHT
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title, quote=True)}">'
    return head + "".join(body) + "</svg>"


def tooltip(chart: Chart, label: str, series: Series, value: float) -> str:
    name = f" · {series.name}" if len(chart.series) > 1 else ""
    return f"<title>{html.escape(f'{label}{name}: {full_number(value)} {chart.unit}'.strip())}</title>"


def draw_horizontal(chart: Chart) -> tuple[list[str], int]:
    low, high = value_range(chart)
    marks = ticks(low, high, 4)
    left = 16 + 6.4 * min(MAX_LABEL_CHARS, max(map(len, chart.labels), default=1))
    row = 26 if len(chart.series) == 1 or chart.stacked else 8 + 14 * len(chart.series)
    height = TOP + row * len(chart.labels) + BOTTOM - 12
    low, high = marks[0], marks[-1]

    def x(value: float) -> float:
        return scale(value, low, high, left, WIDTH - RIGHT - 40)

    parts = []
    for mark in marks:
        parts.append(f'<line class="g" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{TOP}" y2="{height - BOTTOM + 12}"/>')
        parts.append(text(x(mark), height - BOTTOM + 28, short_number(mark)))
    for place, label in enumerate(chart.labels):
        top, base, below = TOP + place * row, 0.0, 0.0
        parts.append(text(left - 8, top + row / 2 + 4, cut(label), anchor="end"))
        thick = (row - 8) / (1 if chart.stacked else len(chart.series))
        for index, series in enumerate(chart.series):
            value = series.values[place]
            if value is None:
                continue
            start = (base if value >= 0 else below) if chart.stacked else 0.0
            if value >= 0:
                base += value
            else:
                below += value
            y = top + 4 + (0 if chart.stacked else index * thick)
            edges = sorted((x(start), x(start + value)))
            box = f'x="{edges[0]:.1f}" y="{y:.1f}" width="{edges[1] - edges[0]:.1f}" height="{thick:.1f}"'
            parts.append(f'<rect class="c{index}" rx="2" {box}>{tooltip(chart, label, series, value)}</rect>')
            if len(chart.series) == 1:
                parts.append(text(edges[1] + 5, y + thick / 2 + 4, short_number(value), "v", "start"))
    return parts, int(height)


def draw_upright(chart: Chart) -> list[str]:
    low, high = value_range(chart)
    marks = ticks(low, high)
    low, high = marks[0], marks[-1]
    bottom = HEIGHT - BOTTOM

    def y(value: float) -> float:
        return scale(value, low, high, bottom, TOP)

    parts = []
    for mark in marks:
        parts.append(f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(text(LEFT - 7, y(mark) + 4, short_number(mark), anchor="end"))
    xs = x_places(chart)
    parts += x_labels(chart, xs)
    if chart.kind in ("bar", "hist"):
        return parts + draw_bars(chart, xs, y)
    for index, series in enumerate(chart.series):
        points = [(x, y(value), at) for at, (x, value) in enumerate(zip(xs, series.values)) if value is not None]
        if chart.kind in ("line", "area") and points:
            path = "M" + " L".join(f"{px:.1f},{py:.1f}" for px, py, _at in points)
            if chart.kind == "area":
                base = y(max(low, min(0.0, high)))
                filled = f"{path} L{points[-1][0]:.1f},{base:.1f} L{points[0][0]:.1f},{base:.1f} Z"
                parts.append(f'<path class="a{index}" d="{filled}"/>')
            parts.append(f'<path class="l{index}" d="{path}"/>')
        radius = 4 if chart.kind == "scatter" else 2.5 if len(points) <= 60 else 0.8
        for px, py, at in points[:MAX_MARKS]:
            hint = tooltip(chart, chart.labels[at], series, series.values[at] or 0.0)
            parts.append(f'<circle class="c{index}" cx="{px:.1f}" cy="{py:.1f}" r="{radius}">{hint}</circle>')
    return parts


def x_places(chart: Chart) -> list[float]:
    """Return where each x is: by its value for numbers and dates, evenly for text and bars."""
    count = max(len(chart.labels), 1)
    if chart.places and chart.kind not in ("bar", "hist"):
        low, high = min(chart.places), max(chart.places)
        return [scale(place, low, high, LEFT + 8, WIDTH - RIGHT - 8) for place in chart.places]
    step = (WIDTH - LEFT - RIGHT) / count
    return [LEFT + (place + 0.5) * step for place in range(count)]


def x_labels(chart: Chart, xs: list[float]) -> list[str]:
    y = HEIGHT - BOTTOM + 18
    if chart.places and not chart.dates and chart.kind == "scatter":
        low, high = min(chart.places), max(chart.places)
        inside = [mark for mark in ticks(low, high) if low <= mark <= high]
        return [text(scale(mark, low, high, LEFT + 8, WIDTH - RIGHT - 8), y, short_number(mark)) for mark in inside]
    widest = max((len(cut(label, 14)) for label in chart.labels), default=1)
    room = max(1, int((WIDTH - LEFT - RIGHT) / (widest * 6.6 + 10)))
    every = max(1, math.ceil(len(chart.labels) / room))
    shown = list(range(0, len(chart.labels), every))
    return [text(min(xs[at], WIDTH - RIGHT - widest * 2.5), y, cut(chart.labels[at], 14)) for at in shown]


def draw_bars(chart: Chart, xs: list[float], y: object) -> list[str]:
    parts: list[str] = []
    place_of = y if callable(y) else float
    width = (WIDTH - LEFT - RIGHT) / max(len(xs), 1) * (0.96 if chart.kind == "hist" else 0.78)
    each = width / (1 if chart.stacked else len(chart.series))
    for at, x in enumerate(xs):
        base, below = 0.0, 0.0
        for index, series in enumerate(chart.series):
            value = series.values[at]
            if value is None:
                continue
            start = (base if value >= 0 else below) if chart.stacked else 0.0
            if value >= 0:
                base += value
            else:
                below += value
            edges = sorted((place_of(start), place_of(start + value)))
            left = x - width / 2 + (0 if chart.stacked else index * each)
            box = (
                f'x="{left:.1f}" y="{edges[0]:.1f}" width="{max(each - 1, 0.5):.1f}" height="{edges[1] - edges[0]:.1f}"'
            )
            hint = tooltip(chart, chart.labels[at], series, value)
            parts.append(f'<rect class="c{index}" rx="2" {box}>{hint}</rect>')
    return parts


def date_label(day: float) -> str:
    return datetime.date.fromordinal(int(day)).isoformat()
