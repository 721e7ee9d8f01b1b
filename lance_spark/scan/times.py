"""Dates and timestamps as SQL spells them: the forms of ISO 8601 that Spark takes for a literal."""

from __future__ import annotations

import datetime
import re

_DATE = re.compile(r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?\s*")
_TIMESTAMP = re.compile(
    r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?)?\s*(.*?)\s*"
)
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")


def parse_date(text: str) -> datetime.date:
    """Return the date that a text says: ``2024``, ``2024-1`` or ``2024-01-31``.

    Raises
    ------
    ValueError
        It says none.
    """
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("write it as 2024-01-31")
    return datetime.date(*(int(part or 1) for part in found.groups()))


def parse_timestamp(text: str, zoned: bool, zone: str | None = None) -> datetime.datetime:
    """Return the timestamp that a text says: ``2024-01-31``, ``2024-01-31 12:30[:15[.123456]]``, with a zone or not.

    Parameters
    ----------
    text : str
    zoned : bool
        Whether an instant is wanted, with a zone; or what a calendar and a clock show.
    zone : str, optional
        Of a text that names none.

    Raises
    ------
    ValueError
        It says none, or not where.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("write it as 2024-01-31 12:30:15")
    *numbers, fraction, place = found.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    fraction = (fraction or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise ValueError("timestamps have six digits after the second")
    local = datetime.datetime(year, month, day, hour, minute, second, int(fraction[:6]))
    if not zoned:
        if place:
            raise ValueError(f"the column is without a zone, so {place!r} says too much")
        return local
    place = place or zone
    if not place:
        raise ValueError("it needs a zone, as in 2024-01-31 12:30:15Z or 2024-01-31 12:30:15+01:00")
    try:
        return local.replace(tzinfo=_zone(place)).astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError("in UTC that is in no year from 1 to 9999") from None


def _zone(place: str) -> datetime.tzinfo:
    if place in ("Z", "UTC", "GMT"):
        return datetime.UTC
    found = _OFFSET.fullmatch(place)
    if found is not None:
        sign, hours, minutes = found.groups()
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0))
        return datetime.timezone(-offset if sign == "-" else offset)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(place)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {place!r}") from None
