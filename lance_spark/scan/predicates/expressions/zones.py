"""Local times of many instants, and the instants of many local times, as Java's zones have them.

Times are arrays of int64, microseconds since 1970, in the years 1 to 9999. The changes of a zone's offset are found once for
each year that values are in, by the zones of Python (`times.tzinfo_of`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lance_spark.scan.predicates import times
from lance_spark.scan.predicates.expressions.node import RowError

Ints = npt.NDArray[np.int64]
DAY = 86_400_000_000
#: The years 1 to 9999, in which Python knows zones.
FIRST, STOP = -719_162 * DAY, 2_932_897 * DAY
#: After 400 years the calendar begins again, and with it the rules of zones.
_CYCLE = 146_097 * DAY
_FAR = 1 << 62


def check_days(days: Ints) -> Ints:
    """Return days since 1970.

    Raises
    ------
    RowError
        One does not fit the type date.
    """
    if len(days) and (days.min() < -(1 << 31) or days.max() >= 1 << 31):
        raise RowError("a date is too far away")
    return days


def check_micros(micros: Ints) -> Ints:
    """Return microseconds since 1970.

    Raises
    ------
    RowError
        One is too far away to be computed with.
    """
    if len(micros) and (micros.min() < -_FAR or micros.max() >= _FAR):
        raise RowError("a time is too far away to be computed with here")
    return micros


def to_local(instants: Ints, zone: str | None) -> Ints:
    """Return what clocks of a zone show at instants.

    Raises
    ------
    RowError
    ValueError
        The zone is missing or not known.
    """
    near = _near(instants)
    at, before, after = _changes(near, zone)
    offsets = np.concatenate([before[:1], after])[np.searchsorted(at, near, "right")]
    local: Ints = check_micros(instants + offsets)
    return local


def to_instants(local: Ints, zone: str | None) -> Ints:
    """Return the instants at which clocks of a zone show local times; see `times.to_instant`.

    Raises
    ------
    RowError, ValueError
    """
    near = _near(local)
    at, before, after = _changes(near, zone)
    # Until the later of both local times of a change, the offset before it counts.
    shown = at + np.maximum(before, after)
    offsets = np.concatenate([before[:1], after])[np.searchsorted(shown, near, "right")]
    instants: Ints = local - offsets
    return instants


def starts_of_days(days: Ints, zone: str | None) -> Ints:
    """Return the instants at which dates begin in a zone.

    Raises
    ------
    RowError, ValueError
    """
    if len(days) and (days.min() * 1.0 * DAY < -_FAR or days.max() * 1.0 * DAY >= _FAR):
        raise RowError("a date is too far away for a timestamp")
    midnights = days * DAY
    instants = to_instants(midnights, zone)
    for at in np.flatnonzero(to_local(instants, zone) != midnights):
        # Clocks leave midnight out, on some day of some zones.
        near = int(_near(midnights[at : at + 1])[0])
        instants[at] = times.start_of_day(near // DAY, zone) + int(midnights[at]) - near
    return instants


def _near(values: Ints) -> Ints:
    """Return times at which a zone has the same offset, in years that Python knows."""
    check_micros(values)
    if not len(values) or (values.min() >= FIRST + 2 * DAY and values.max() < STOP - 2 * DAY):
        return values
    # Before the first year of a zone its offset is always the same.
    near = np.maximum(values, FIRST + 2 * DAY)
    late = np.maximum(near - (STOP - 2 * DAY) + _CYCLE, 0) // _CYCLE
    return np.asarray(near - late * _CYCLE, np.int64)


def _changes(values: Ints, zone: str | None) -> tuple[Ints, Ints, Ints]:
    """Return when the offset of a zone changes in the years of some values: instants, offsets before, and after."""
    times.tzinfo_of(zone)
    years = np.unique(values.astype("M8[us]").astype("M8[Y]").astype(np.int64)) + 1970
    # A local time can be of the year before or after that of its instant.
    near = sorted({year + by for year in years.tolist() for by in (-1, 0, 1)})
    found = [one for year in near or [1970] if 1 < year < 9999 for one in _of_year(year, zone)]
    at, before, after = (np.array(part, np.int64) for part in zip(*found, strict=True))
    return at, before, after


@lru_cache(maxsize=4096)
def _of_year(year: int, zone: str | None) -> tuple[tuple[int, int, int], ...]:
    start = (np.datetime64(f"{year:04}", "us")).astype(np.int64).item()
    stop = (np.datetime64(f"{year + 1:04}", "us")).astype(np.int64).item()
    before = times.offset_at(start, zone)
    # Values of the year before this one may be missing, with the changes between.
    found = [(start, before, before)]
    for end in range(start + DAY - 1, stop, DAY):
        after = times.offset_at(end, zone)
        if after != before:
            low, high = end - DAY, end
            while high - low > 1:
                middle = (low + high) // 2
                if times.offset_at(middle, zone) == before:
                    low = middle
                else:
                    high = middle
            found.append((high, before, after))
            before = after
    return tuple(found)
