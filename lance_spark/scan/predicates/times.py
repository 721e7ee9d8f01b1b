"""Dates, timestamps and time zones as Spark reads and converts them.

A time is a number of microseconds since 1970: of an instant, or of what a calendar and a clock show (local). Years beyond
1 to 9999 are refused: Python has none, and knows no zones there.
"""

from __future__ import annotations

import datetime
import re
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
#: Zones change their offset by a day at most, and not twice within this time.
_WINDOW = 26 * 3_600_000_000
#: Java reads these names as offsets, the database of zones as places that once had other ones.
_SHORT_NAMES = ("EST", "MST", "HST")


def parse_days(text: str) -> int:
    """Return the date that a text says, in days since 1970: ``2024``, ``2024-1`` or ``2024-01-31``.

    A time of day after it is passed over, as Spark does.

    Raises
    ------
    ValueError
        It says none, or none that is known here.
    """
    found = _DAYS.fullmatch(text.strip())
    if found is None:
        raise ValueError("write it as 2024-01-31")
    year, month, day = (int(part or 1) for part in found.groups()[:3])
    return (datetime.date(year, month, day) - _EPOCH.date()).days


def parse_time(text: str) -> int:
    """Return the time of day that a text says, in microseconds: ``12:30``, ``12:30:15`` or ``12:30:15.123456``.

    Digits after the sixth of a second are passed over, as Spark does.

    Raises
    ------
    ValueError
        It says none, or none that is known here.
    """
    found = TIME.fullmatch(text)
    if found is None:
        raise ValueError("write it as 12:30:15")
    hour, minute, second, fraction = found.groups()
    seconds = _below(hour, 24) * 3600 + _below(minute, 60) * 60 + _below(second, 60)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def time_text(micros: int) -> str:
    """Return a time of day as Spark writes it: with seconds, and without zeros at the end of their fraction."""
    seconds, rest = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}".rstrip("0") if rest else text


def parse_micros(text: str, zoned: bool, zone: str | None) -> int:
    """Return the timestamp that a text says: ``2024-01-31``, ``2024-01-31 12:30[:15[.123456]]``, with a zone or not.

    Digits after the sixth of a second are passed over, and so is a zone where none is wanted, as
    Spark does.

    Parameters
    ----------
    text : str
    zoned : bool
        Whether an instant is wanted; or what a calendar and a clock show.
    zone : str or None
        Of a text that names none.

    Raises
    ------
    ValueError
        It says none, or the zone is missing or not known.
    """
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError("write it as 2024-01-31 12:30:15")
    year, month, day, hour, minute, second, fraction, place = found.groups()
    date = datetime.datetime(int(year), int(month or 1), int(day or 1))
    clock = datetime.timedelta(
        seconds=_below(hour, 24) * 3600 + _below(minute, 60) * 60 + _below(second, 60),
        microseconds=int((fraction or "").ljust(6, "0")[:6]),
    )
    local = (date + clock - _EPOCH) // _TICK
    if place:
        tzinfo_of(place)
    return to_instant(local, place or zone) if zoned else local


def has_zone(text: str) -> bool:
    """Tell whether the text of a timestamp names a zone."""
    found = _TIMESTAMP.fullmatch(text.strip())
    return found is not None and bool(found.groups()[-1])


def date_of(days: int) -> datetime.date:
    """Return the date of a number of days since 1970.

    Raises
    ------
    OverflowError
        It is in no year from 1 to 9999.
    """
    return _EPOCH.date() + datetime.timedelta(days=days)


def to_instant(local: int, zone: str | None) -> int:
    """Return the instant at which clocks of a zone show a time, as Java does.

    What they show twice is the first of both; what they leave out is as much later as they are put
    forward.

    Raises
    ------
    ValueError, OverflowError
    """
    place = tzinfo_of(zone)
    shown = (_EPOCH + datetime.timedelta(microseconds=local)).replace(tzinfo=place)
    offset = shown.utcoffset()
    assert offset is not None
    return local - offset // _TICK


def to_local(instant: int, zone: str | None) -> int:
    """Return what clocks of a zone show at an instant.

    Raises
    ------
    ValueError, OverflowError
    """
    return instant + offset_at(instant, zone)


def start_of_day(days: int, zone: str | None) -> int:
    """Return the instant at which a date begins in a zone.

    Raises
    ------
    ValueError, OverflowError
    """
    midnight = days * _DAY
    instant = to_instant(midnight, zone)
    if to_local(instant, zone) == midnight:
        return instant
    # Clocks leave midnight out: the day begins when they are put forward.
    before, after = instant - _WINDOW, instant
    offset = offset_at(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after


def first_local(instant: int, zone: str | None, *, after: bool) -> int:
    """Return the least local time that `to_instant` takes to an instant or later.

    Parameters
    ----------
    instant : int
    zone : str or None
    after : bool
        Whether it has to be later.

    Raises
    ------
    ValueError, OverflowError
        There are local times, left out by clocks that were put forward, that come later than
        others that follow them.
    """
    gap = offset_at(instant, zone) - offset_at(instant - _WINDOW, zone)
    if gap > 0 and offset_at(instant - gap, zone) != offset_at(instant, zone):
        raise ValueError(
            f"clocks of {zone} were put forward less than {gap // 3_600_000_000 or 1} hours before, "
            "so that what they show is not in order"
        )
    low = to_local(instant, zone) - _WINDOW
    high = low + 2 * _WINDOW
    while high - low > 1:
        middle = (low + high) // 2
        found = to_instant(middle, zone)
        if found > instant or (found == instant and not after):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=64)
def tzinfo_of(zone: str | None) -> datetime.tzinfo:
    """Return a time zone: a region, or an offset.

    Raises
    ------
    ValueError
        There is none of that name, or no name.
    """
    if not zone:
        raise ValueError("it needs a zone, as in 2024-01-31 12:30:15Z or 2024-01-31 12:30:15+01:00")
    if zone in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return datetime.UTC
    found = _OFFSET.fullmatch(zone)
    if found is not None:
        sign, hours, minutes = found.groups()
        offset = datetime.timedelta(hours=int(hours), minutes=_below(minutes, 60))
        if offset > datetime.timedelta(hours=18):
            raise ValueError("offsets reach from -18:00 to +18:00")
        return datetime.timezone(-offset if sign == "-" else offset)
    from zoneinfo import ZoneInfo

    known = _REGION.fullmatch(zone) and not zone.startswith(("Etc/GMT0", "SystemV/"))
    if not known and (zone in _SHORT_NAMES or not zone.isalpha() or len(zone) < 4):
        raise ValueError(f"the time zone {zone!r} is not known; write Europe/Berlin or +01:00")
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"the time zone {zone!r} is not known") from None


def offset_at(instant: int, zone: str | None) -> int:
    """Return by how many microseconds clocks of a zone are ahead of UTC at an instant.

    Raises
    ------
    ValueError, OverflowError
    """
    moment = (_EPOCH + datetime.timedelta(microseconds=instant)).replace(tzinfo=datetime.UTC)
    offset = moment.astimezone(tzinfo_of(zone)).utcoffset()
    assert offset is not None
    return offset // _TICK


def _below(text: str | None, limit: int) -> int:
    number = int(text or 0)
    if number >= limit:
        raise ValueError(f"{number} is not below {limit}")
    return number
