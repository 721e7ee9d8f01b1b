"""Curves of recall against time, drawn as SVG without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

#: Seconds of a query, and its recall.
Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _DIAGRAMS_A_ROW = 430, 380, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 40, 120
_COLOURS = ("#1e88e5", "#fb8c00", "#43a047", "#d81b60", "#5e35b1", "#546e7a")


def drawing(title: str, diagrams: Mapping[str, Mapping[str, Points]]) -> str:
    """Return an SVG with a diagram of each title, two in a row.

    Parameters
    ----------
    title : str
        Of the whole, which programs read aloud.
    diagrams : mapping of str to mapping of str to points
        The curves of each title, by name.
    """
    width = _WIDTH * min(len(diagrams), _DIAGRAMS_A_ROW)
    height = _HEIGHT * math.ceil(len(diagrams) / _DIAGRAMS_A_ROW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, curves) in enumerate(diagrams.items()):
        row, column = divmod(number, _DIAGRAMS_A_ROW)
        parts.append(f'<g transform="translate({column * _WIDTH} {row * _HEIGHT})">')
        parts += _diagram(name, curves)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _diagram(title: str, curves: Mapping[str, Points]) -> Iterator[str]:
    points = [point for curve in curves.values() for point in curve]
    ticks = _ticks([seconds * 1000 for seconds, _ in points])
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    bottom = math.floor(min(recall for _, recall in points) * 10) / 10
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(seconds: float, recall: float) -> tuple[float, float]:
        x = (math.log10(seconds * 1000) - low) / (high - low)
        y = (1 - recall) / (1 - bottom) if bottom < 1 else 0
        return _LEFT + width * x, _TOP + height * y

    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>'
    yield f'<text x="{_LEFT - 8}" y="{_TOP - 8}" text-anchor="end" fill="#546e7a">recall</text>'
    yield (
        f'<text x="{_LEFT + width / 2}" y="{_TOP + height + 34}" text-anchor="middle" '
        'fill="#546e7a">processor time of a query</text>'
    )
    steps = round((1 - bottom) * 10)
    for step in range(steps + 1):
        recall = bottom + step / 10
        _, y = place(1, recall)
        yield (
            f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#cfd8dc"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{recall:.1f}</text>'
        )
    for tick in ticks:
        x, _ = place(tick / 1000, 1)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + height}" stroke="#cfd8dc"/>'
            f'<text x="{x:.1f}" y="{_TOP + height + 16}" text-anchor="middle">'
            f"{tick:g} ms</text>"
        )
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [place(*point) for point in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for (x, y), (seconds, recall) in zip(places, curve, strict=True):
            yield (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
                f"<title>{escape(name)}: {seconds * 1000:.2f} ms, {recall:.3f}</title></circle>"
            )
        x, y = _LEFT + number % 2 * width / 2, _TOP + height + 56 + number // 2 * 18
        yield (
            f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{x + 16:.1f}" y="{y:.1f}">{escape(name)}</text>'
        )


def _ticks(values: Sequence[float]) -> list[float]:
    """Return 1, 2 or 5 times powers of ten: the first and the last are around all values."""
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    first = max(number for number, tick in enumerate(ticks) if tick <= min(values))
    last = min(number for number, tick in enumerate(ticks) if tick >= max(values))
    return ticks[first : max(last, first + 1) + 1]
