"""Plots as SVG, made by hand: bars side by side for fragments, bars below one another for columns.

Colours are the page's (CSS classes `live`, `gone`, `bar`, `axis`, `wide`); every bar has a title that says its numbers, which browsers show
when the pointer is on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

#: Bars side by side; more values share bars.
MAX_BARS = 240
_WIDTH = 1000
_HEIGHT = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 8, 12, 26
_ROW = 24
_NAMES = 250
_VALUES = 150
_LETTERS = 34
_SMALL_WIDTH, _SMALL_HEIGHT = 480, 36


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: its length, the part of it at the top that is drawn in another colour, and what it stands for."""

    value: float
    gone: float
    title: str


def columns_plot(
    bars: Sequence[Bar], told: Callable[[float], str], what: str, *, base: int = 1000
) -> str:
    """Return bars side by side.

    Parameters
    ----------
    bars : sequence of Bar
        At most `MAX_BARS`.
    told : callable
        Makes the text of a value on the axis.
    what : str
        What the plot is of, for those who cannot see it.
    base : int
        How many of a unit make one of the next: the axis ends at a short number of units.
    """
    top = _nice(max((one.value for one in bars), default=0), base)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    step = width / max(len(bars), 1)
    thick = min(step * 0.84 if step > 4 else step * 0.95, 60.0)
    parts = [_open(_WIDTH, _HEIGHT, what)]
    for place in range(5):
        y = _TOP + height * (1 - place / 4)
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(told(top * place / 4))}</text>'
        )
    for place, one in enumerate(bars):
        x = _LEFT + step * place + (step - thick) / 2
        full, gone = height * one.value / top, height * one.gone / top
        y = _TOP + height - full
        parts.append(f"<g><title>{escape(one.title)}</title>")
        parts.append(_rect("live", x, y + gone, thick, full - gone))
        if gone:
            parts.append(_rect("gone", x, y, thick, gone))
        # So that short bars can be pointed at, too.
        parts.append(f"{_rect('hit', x, _TOP, max(thick, 1), height)}</g>")
    return "".join([*parts, "</svg></div>"])


def rows_plot(
    names: Sequence[str], bars: Sequence[Bar], told: Callable[[float], str], what: str
) -> str:
    """Return named bars below one another, each with its value; see `columns_plot`."""
    top = max((one.value for one in bars), default=0) or 1
    height = _ROW * len(bars) + 8
    room = _WIDTH - _NAMES - _VALUES
    parts = [_open(_WIDTH, height, what)]
    for place, (name, one) in enumerate(zip(names, bars, strict=True)):
        y = 4 + _ROW * place
        length = room * one.value / top
        shown = name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"
        parts.append(f"<g><title>{escape(one.title)}</title>")
        parts.append(
            f'<text x="{_NAMES - 10}" y="{y + 16}" text-anchor="end" class="name">{escape(shown)}</text>'
        )
        parts.append(_rect("bar", _NAMES, y + 4, max(length, 1.0), _ROW - 8))
        parts.append(
            f'<text x="{_NAMES + max(length, 1) + 8:.1f}" y="{y + 16}">{escape(told(one.value))}</text></g>'
        )
    return "".join([*parts, "</svg></div>"])


def shared(bars: Sequence[Bar], name: Callable[[int, int], str]) -> list[Bar]:
    """Return at most `MAX_BARS` bars: neighbours share one, of their mean.

    Parameters
    ----------
    bars : sequence of Bar
    name : callable
        Makes the title of bars from the first to the one before the second place.
    """
    if len(bars) <= MAX_BARS:
        return list(bars)
    found = []
    for place in range(MAX_BARS):
        first = place * len(bars) // MAX_BARS
        stop = (place + 1) * len(bars) // MAX_BARS
        some = bars[first:stop]
        found.append(
            Bar(
                sum(one.value for one in some) / len(some),
                sum(one.gone for one in some) / len(some),
                name(first, stop),
            )
        )
    return found


def small_plot(bars: Sequence[Bar]) -> str:
    """Return bars side by side without an axis, with colours of their own, for a page of somebody else's."""
    some = shared(bars, lambda first, stop: f"{first} to {stop - 1}")
    top = max((one.value for one in some), default=0) or 1
    step = min(_SMALL_WIDTH / max(len(some), 1), 24.0)
    parts = [
        f'<svg width="{_SMALL_WIDTH}" height="{_SMALL_HEIGHT}" role="img" aria-label="rows of each fragment" '
        'xmlns="http://www.w3.org/2000/svg">'
    ]
    for place, one in enumerate(some):
        x, wide = step * place, step * 0.85
        full, gone = (_SMALL_HEIGHT * value / top for value in (one.value, one.gone))
        y = _SMALL_HEIGHT - full
        parts.append(f"<g><title>{escape(one.title)}</title>")
        parts.append(_rect("live", x, y + gone, wide, full - gone, "#3b78c4"))
        parts.append(_rect("gone", x, y, wide, gone, "#e0913a"))
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def _open(width: int, height: int, what: str) -> str:
    # Narrow windows scroll it: letters that shrink with it could not be read.
    return f'<div class="wide"><svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(what)}" xmlns="http://www.w3.org/2000/svg">'


def _rect(
    kind: str, x: float, y: float, width: float, height: float, colour: str | None = None
) -> str:
    fill = f'class="{kind}"' if colour is None else f'fill="{colour}"'
    return (
        f'<rect {fill} x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{max(height, 0):.2f}"/>'
    )


def _nice(top: float, base: int) -> float:
    """Return the next number upwards whose quarters are short."""
    unit = 1.0
    while top / unit >= base:
        unit *= base
    top = max(top / unit, 4.0 if unit == 1 else 1.0)
    power = 10.0 ** math.floor(math.log10(top))
    return unit * next(
        power * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if power * step >= top
    )
