"""Curves of recall against time, drawn as SVG without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

#: Seconds of a query, and its recall.
Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 520, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 34, 96
_COLOURS = ("#3b78c4", "#e0913a", "#4b9b5f", "#a8476f", "#7a6bb5", "#6b6b6b")


def drawing(diagrams: Mapping[str, Mapping[str, Points]]) -> str:
    """Return an SVG with a diagram of each title, side by side.

    Parameters
    ----------
    diagrams : mapping of str to mapping of str to points
        The curves of each title, by name.
    """
    width = WIDTH * len(diagrams)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
    ]
    for number, (title, curves) in enumerate(diagrams.items()):
        parts.append(f'<g transform="translate({number * WIDTH} 0)">')
        parts += _diagram(title, curves)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _diagram(title: str, curves: Mapping[str, Points]) -> Iterator[str]:
    points = [point for curve in curves.values() for point in curve]
    low = math.floor(math.log10(min(seconds for seconds, _ in points) * 1000))
    high = math.ceil(math.log10(max(seconds for seconds, _ in points) * 1000))
    bottom = math.floor(min(recall for _, recall in points) * 10) / 10
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def place(seconds: float, recall: float) -> tuple[float, float]:
        x = (math.log10(seconds * 1000) - low) / max(high - low, 1)
        y = (1 - recall) / (1 - bottom) if bottom < 1 else 0
        return _LEFT + width * x, _TOP + height * y

    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>'
    steps = round((1 - bottom) * 10)
    for step in range(steps + 1):
        recall = bottom + step / 10
        _, y = place(1, recall)
        yield (
            f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{recall:.1f}</text>'
        )
    for power in range(low, high + 1):
        x, _ = place(10.0**power / 1000, 1)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + height}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{_TOP + height + 16}" text-anchor="middle">'
            f"{10.0**power:g} ms</text>"
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
        x, y = _LEFT + number % 2 * width / 2, _TOP + height + 40 + number // 2 * 18
        yield (
            f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{x + 16:.1f}" y="{y:.1f}">{escape(name)}</text>'
        )
