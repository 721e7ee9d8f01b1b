"""Dates, timestamps and time zones, parsed and converted with Spark's results.

A time is a number of microseconds since 1970, of an instant or of a local time. Years outside of 1
to 9999 are refused, because Python's dates and zones do not support them.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from functools import lru_cache

_DATE = r"([+]?[0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(%s)?)?)?"
_DAYS = re.compile(_DATE % r"[ T].*", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+]?[0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*(.*?))?)?)?"
)
#: A time of day without a zone.
TIME = re.compile(r"T?([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_REGION = re.compile(r"[A-Z][A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+")
_EPOCH = datetime.datetime(1970, 1, 1)
_TICK = datetime.timedelta(microseconds=1)
_DAY = 86_400_000_000
#: A zone changes its offset by at most a day, and not twice within this time.
_WINDOW = 26 * 3_600_000_000
#: Java takes these names as fixed offsets; in the zone database their offsets changed.
_SHORT_NAMES = ("EST", "MST", "HST")


def parse_days(text: str) -> int:
    """Parse a date such as ``2024``, ``2024-1`` or ``2024-01-31``; return days since 1970.

    As in Spark a time of day after the date is ignored. Raises ValueError: the text is not a date,
    or the date is not supported.
    """
    match = _DAYS.fullmatch(text.strip())
    if match is None:
        raise ValueError("write it as 2024-01-31")
    year, month, day = (int(part or 1) for part in match.groups()[:3])
    return (datetime.date(year, month, day) - _EPOCH.date()).days


def parse_time(text: str) -> int:
    """Parse a time of day: ``12:30``, ``12:30:15`` or ``12:30:15.123456``; return microseconds.

    As in Spark digits after the sixth of a second are ignored. Raises ValueError: the text is not a
    time of day, or the form is not supported.
    """
    match = TIME.fullmatch(text)
    if match is None:
        raise ValueError("write it as 12:30:15")
    hour, minute, second, fraction = match.groups()
    seconds = _below(hour, 24) * 3600 + _below(minute, 60) * 60 + _below(second, 60)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def time_text(micros: int) -> str:
    """Format a time of day like Spark: with seconds, without trailing zeros of a fraction."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def parse_micros(text: str, zoned: bool, zone: str | None) -> int:
    """Parse a timestamp; return microseconds since 1970.

    Forms are ``2024-01-31`` and ``2024-01-31 12:30[:15[.123456]]``, with or without a zone. As in
    Spark digits after the sixth of a second are ignored, and so is a zone if `zoned` is false.

    - `zoned`: Whether to return an instant; otherwise the local time.
    - `zone`: Zone of a text without one.

    Raises ValueError: the text is not a timestamp, or the zone is missing or unknown.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError("write it as 2024-01-31 12:30:15")
    year, month, day, hour, minute, second, fraction, own_zone = match.groups()
    date = datetime.datetime(int(year), int(month or 1), int(day or 1))
    clock = datetime.timedelta(
        seconds=_below(hour, 24) * 3600 + _below(minute, 60) * 60 + _below(second, 60),
        microseconds=int((fraction or "").ljust(6, "0")[:6]),
    )
    local = (date + clock - _EPOCH) // _TICK
    if own_zone:
        tzinfo_of(own_zone)
    return to_instant(local, own_zone or zone) if zoned else local


def has_zone(text: str) -> bool:
    """Return whether the text of a timestamp has a zone."""
    match = _TIMESTAMP.fullmatch(text.strip())
    return match is not None and bool(match.groups()[-1])


def date_of(days: int) -> datetime.date:
    """Return the date of a number of days since 1970.

    Raises OverflowError: the date is outside of the years 1 to 9999.
    """
    return _EPOCH.date() + datetime.timedelta(days=days)


def to_instant(local: int, zone: str | None) -> int:
    """Return the instant of a local time in a zone, as Java does.

    If clocks show the time twice, it is the first instant. If they skip it, it is later by as much
    as clocks are put forward. Raises ValueError, OverflowError.
    """
    moment = _EPOCH + datetime.timedelta(microseconds=local)
    offset = moment.replace(tzinfo=tzinfo_of(zone)).utcoffset()
    assert offset is not None
    return local - offset // _TICK


def to_local(instant: int, zone: str | None) -> int:
    """Return the local time of an instant in a zone. Raises ValueError, OverflowError."""
    return instant + offset_at(instant, zone)


def start_of_day(days: int, zone: str | None) -> int:
    """Return the instant at which a date begins in a zone. Raises ValueError, OverflowError."""
    midnight = days * _DAY
    instant = to_instant(midnight, zone)
    if to_local(instant, zone) == midnight:
        return instant
    # Clocks skip midnight: the day begins when they are put forward.
    return next_change(instant - _WINDOW, instant, zone)


def next_change(first: int, stop: int, zone: str | None) -> int:
    """Return the first instant after an instant at which a zone has another offset; at most `stop`.

    Raises ValueError, OverflowError.
    """
    offset = offset_at(first, zone)
    return first_where(first + 1, stop, lambda instant: offset_at(instant, zone) != offset)


def first_local(instant: int, zone: str | None, *, after: bool) -> int:
    """Return the least local time whose instant is not before a given one; see `to_instant`.

    - `after`: Whether the instant must be after the given one.

    Raises ValueError, OverflowError: Clocks were put forward, so that near this instant the order
    of local times is not the order of their instants.
    """
    gap = offset_at(instant, zone) - offset_at(instant - _WINDOW, zone)
    if gap > 0 and offset_at(instant - gap, zone) != offset_at(instant, zone):
        raise ValueError(
            f"clocks of {zone} were put forward less than {gap // 3_600_000_000 or 1} hours "
            "before, so that local times are not in order"
        )
    near, least = to_local(instant, zone), instant + after
    return first_where(
        near - _WINDOW + 1, near + _WINDOW, lambda local: to_instant(local, zone) >= least
    )


def first_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first integer from `low` on from which a condition holds; at most `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache(maxsize=64)
def tzinfo_of(zone: str | None) -> datetime.tzinfo:
    """Return a time zone: a region, or an offset.

    Raises ValueError: the zone is missing or unknown.
    """
    if not zone:
        raise ValueError("it needs a zone, as in 2024-01-31 12:30:15Z or 2024-01-31 12:30:15+01:00")
    if zone in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return datetime.UTC
    match = _OFFSET.fullmatch(zone)
    if match is not None:
        sign, hours, minutes = match.groups()
        offset = datetime.timedelta(hours=int(hours), minutes=_below(minutes, 60))
        if offset > datetime.timedelta(hours=18):
            raise ValueError("offsets must be from -18:00 to +18:00")
        return datetime.timezone(-offset if sign == "-" else offset)
    from zoneinfo import ZoneInfo

    is_region = _REGION.fullmatch(zone) and not zone.startswith(("Etc/GMT0", "SystemV/"))
    if not is_region and (zone in _SHORT_NAMES or not zone.isalpha() or len(zone) < 4):
        raise ValueError(f"the time zone {zone!r} is not known; write Europe/Berlin or +01:00")
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"the time zone {zone!r} is not known") from None


def offset_at(instant: int, zone: str | None) -> int:
    """Return the offset of a zone from UTC at an instant, in microseconds.

    Raises ValueError, OverflowError.
    """
    moment = (_EPOCH + datetime.timedelta(microseconds=instant)).replace(tzinfo=datetime.UTC)
    offset = moment.astimezone(tzinfo_of(zone)).utcoffset()
    assert offset is not None
    return offset // _TICK


def _below(text: str | None, limit: int) -> int:
    number = int(text or 0)
    if number >= limit:
        raise ValueError(f"{number} must be below {limit}")
    return number
