"""SVG plots without a plotting library: vertical bars for fragments, horizontal bars for columns.

The page's CSS classes `live`, `gone`, `bar`, `axis` and `wide` give the colours. The title of each
bar has its numbers; browsers show it when the pointer is on the bar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from lance_spark.inspect.formatting import shortened

#: Maximum number of vertical bars. If there are more values, neighbours share a bar.
MAX_BARS = 240
_WIDTH = 1000
_HEIGHT = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 8, 12, 26
_ROW = 24
_NAMES_WIDTH = 250
_VALUES_WIDTH = 150
_MAX_NAME_CHARS = 34
_SMALL_WIDTH, _SMALL_HEIGHT = 480, 36


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar.

    - `value`: Length of the bar.
    - `gone`: Length of the part at its top that has another colour.
    """

    value: float
    gone: float
    title: str


def columns_plot(
    bars: Sequence[Bar], label_of: Callable[[float], str], title: str, *, base: int = 1000
) -> str:
    """Return a plot of vertical bars side by side.

    - `bars`: At most `MAX_BARS`.
    - `label_of`: Returns the text of a value on the axis.
    - `title`: Description of the plot, for screen readers.
    - `base`: Ratio between units, so that the labels of the axis are short numbers of units.
    """
    top = _axis_end(max((bar.value for bar in bars), default=0), base)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    step = width / max(len(bars), 1)
    thickness = min(step * 0.84 if step > 4 else step * 0.95, 60.0)
    parts = [_open_svg(_WIDTH, _HEIGHT, title)]
    for quarter in range(5):
        y = _TOP + height * (1 - quarter / 4)
        label = escape(label_of(top * quarter / 4))
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for index, bar in enumerate(bars):
        x = _LEFT + step * index + (step - thickness) / 2
        full, gone = height * bar.value / top, height * bar.gone / top
        y = _TOP + height - full
        parts.append(f"<g><title>{escape(bar.title)}</title>")
        parts.append(_rect("live", x, y + gone, thickness, full - gone))
        if gone:
            parts.append(_rect("gone", x, y, thickness, gone))
        # A transparent bar of full height, so that the pointer hits short bars as well.
        parts.append(f"{_rect('hit', x, _TOP, max(thickness, 1), height)}</g>")
    return "".join([*parts, "</svg></div>"])


def rows_plot(
    names: Sequence[str], bars: Sequence[Bar], label_of: Callable[[float], str], title: str
) -> str:
    """Return a plot of horizontal bars, each with its name and value; see `columns_plot`."""
    top = max((bar.value for bar in bars), default=0) or 1
    height = _ROW * len(bars) + 8
    width = _WIDTH - _NAMES_WIDTH - _VALUES_WIDTH
    parts = [_open_svg(_WIDTH, height, title)]
    for index, (name, bar) in enumerate(zip(names, bars, strict=True)):
        y = 4 + _ROW * index
        length = max(width * bar.value / top, 1.0)
        shown = escape(shortened(name, _MAX_NAME_CHARS))
        parts += [
            f"<g><title>{escape(bar.title)}</title>",
            f'<text x="{_NAMES_WIDTH - 10}" y="{y + 16}" text-anchor="end" ',
            f'class="name">{shown}</text>',
            _rect("bar", _NAMES_WIDTH, y + 4, length, _ROW - 8),
            f'<text x="{_NAMES_WIDTH + length + 8:.1f}" y="{y + 16}">',
            f"{escape(label_of(bar.value))}</text></g>",
        ]
    return "".join([*parts, "</svg></div>"])


def shared(bars: Sequence[Bar], title_of: Callable[[int, int], str]) -> list[Bar]:
    """Return at most `MAX_BARS` bars, each with the mean of several neighbours if necessary.

    - `title_of`: Returns the title of the bar for the bars from a first index to a stop index.
    """
    if len(bars) <= MAX_BARS:
        return list(bars)
    means = []
    for index in range(MAX_BARS):
        first = index * len(bars) // MAX_BARS
        stop = (index + 1) * len(bars) // MAX_BARS
        group = bars[first:stop]
        means.append(
            Bar(
                sum(bar.value for bar in group) / len(group),
                sum(bar.gone for bar in group) / len(group),
                title_of(first, stop),
            )
        )
    return means


def small_plot(bars: Sequence[Bar]) -> str:
    """Return vertical bars without an axis. The colours need no style sheet, as for a notebook."""
    bars = shared(bars, lambda first, stop: f"{first} to {stop - 1}")
    top = max((bar.value for bar in bars), default=0) or 1
    step = min(_SMALL_WIDTH / max(len(bars), 1), 24.0)
    parts = [
        f'<svg width="{_SMALL_WIDTH}" height="{_SMALL_HEIGHT}" role="img" '
        'aria-label="rows of each fragment" xmlns="http://www.w3.org/2000/svg">'
    ]
    for index, bar in enumerate(bars):
        x, width = step * index, step * 0.85
        full, gone = (_SMALL_HEIGHT * value / top for value in (bar.value, bar.gone))
        y = _SMALL_HEIGHT - full
        parts.append(f"<g><title>{escape(bar.title)}</title>")
        parts.append(_rect("live", x, y + gone, width, full - gone, "#3b78c4"))
        parts.append(_rect("gone", x, y, width, gone, "#e0913a"))
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def _open_svg(width: int, height: int, title: str) -> str:
    # Scrolls in narrow windows: scaled down, its text could not be read.
    return (
        f'<div class="wide"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">'
    )


def _rect(
    css_class: str, x: float, y: float, width: float, height: float, colour: str | None = None
) -> str:
    fill = f'class="{css_class}"' if colour is None else f'fill="{colour}"'
    return (
        f'<rect {fill} x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{max(height, 0):.2f}"/>'
    )


def _axis_end(top: float, base: int) -> float:
    """Return the smallest number of at least `top` whose quarters are short numbers of units."""
    unit = 1.0
    while top / unit >= base:
        unit *= base
    top = max(top / unit, 4.0 if unit == 1 else 1.0)
    power = 10.0 ** math.floor(math.log10(top))
    return unit * next(
        power * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if power * step >= top
    )
