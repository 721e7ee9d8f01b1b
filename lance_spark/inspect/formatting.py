"""Numbers, times and names as people read them. Names are from files: nothing in them reaches a terminal as a command."""

from __future__ import annotations

import datetime

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(num_bytes: int) -> str:
    """Return a number of bytes with three digits, for example ``1.25 MiB``."""
    value = float(num_bytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1024
    if unit == _UNITS[0]:
        return f"{num_bytes} {unit}"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def number(value: int) -> str:
    """Return a number with its thousands apart."""
    return f"{value:,}"


def share(part: int, whole: int) -> str:
    """Return how much of a whole a part is, in percent."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if part and percent < 9.95 else f"{percent:.0f}%"


def counted(value: int, one: str, many: str = "") -> str:
    """Return a number with what it counts."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def moment(time: datetime.datetime) -> str:
    """Return a time to the second, in UTC."""
    return f"{time.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}"


def clean(text: str) -> str:
    """Return a name in one line, characters that are not printed by their escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def shortened(text: str, limit: int) -> str:
    """Return a text, cut if it is longer than wanted."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
