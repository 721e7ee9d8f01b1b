"""Conversion between instants and local times, for arrays, with the results of Java's time zones.

Times are arrays of int64, microseconds since 1970, in the years 1 to 9999. The changes of a zone's
offset are searched once for each year that occurs, with Python's zones (`times.tzinfo_of`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lance_spark.scan.predicates import times
from lance_spark.scan.predicates.expressions.kernels.base import RowError

Ints = npt.NDArray[np.int64]
DAY = 86_400_000_000
#: The years 1 to 9999, which Python's zones support.
FIRST, STOP = -719_162 * DAY, 2_932_897 * DAY
#: The calendar, and with it the rules of zones, repeats after 400 years.
_CYCLE = 146_097 * DAY
_LIMIT = 1 << 62


def check_days(days: Ints) -> Ints:
    """Return days since 1970 unchanged.

    Raises
    ------
    RowError
        A date does not fit the type date.
    """
    if len(days) and (days.min() < -(1 << 31) or days.max() >= 1 << 31):
        raise RowError("a date is out of range")
    return days


def check_micros(micros: Ints) -> Ints:
    """Return microseconds since 1970 unchanged.

    Raises
    ------
    RowError
        A time is so large that sums of it may overflow.
    """
    if len(micros) and (micros.min() < -_LIMIT or micros.max() >= _LIMIT):
        raise RowError("a time is out of the range that is computed with here")
    return micros


def to_local(instants: Ints, zone: str | None) -> Ints:
    """Return the local times of instants in a zone.

    Raises
    ------
    RowError
    ValueError
        The zone is missing or unknown.
    """
    in_range = _in_range(instants)
    changes, before, after = _changes(in_range, zone)
    offsets = np.concatenate([before[:1], after])[np.searchsorted(changes, in_range, "right")]
    local: Ints = check_micros(instants + offsets)
    return local


def to_instants(local: Ints, zone: str | None) -> Ints:
    """Return the instants of local times in a zone; see `times.to_instant`.

    Raises
    ------
    RowError, ValueError
    """
    in_range = _in_range(local)
    changes, before, after = _changes(in_range, zone)
    # The offset before a change holds until the later of both local times of the change.
    local_changes = changes + np.maximum(before, after)
    offsets = np.concatenate([before[:1], after])[np.searchsorted(local_changes, in_range, "right")]
    instants: Ints = local - offsets
    return instants


def starts_of_days(days: Ints, zone: str | None) -> Ints:
    """Return the instants at which dates begin in a zone.

    Raises
    ------
    RowError, ValueError
    """
    if len(days) and (days.min() * 1.0 * DAY < -_LIMIT or days.max() * 1.0 * DAY >= _LIMIT):
        raise RowError("a date is out of the range of a timestamp")
    midnights = days * DAY
    instants = to_instants(midnights, zone)
    for index in np.flatnonzero(to_local(instants, zone) != midnights):
        # On some days of some zones, clocks skip midnight.
        in_range = int(_in_range(midnights[index : index + 1])[0])
        start = times.start_of_day(in_range // DAY, zone)
        instants[index] = start + int(midnights[index]) - in_range
    return instants


def _in_range(values: Ints) -> Ints:
    """Return times in the years 1 to 9999 with the same offset of any zone."""
    check_micros(values)
    if not len(values) or (values.min() >= FIRST + 2 * DAY and values.max() < STOP - 2 * DAY):
        return values
    # The offset of a zone is constant before its first year.
    not_early = np.maximum(values, FIRST + 2 * DAY)
    cycles = np.maximum(not_early - (STOP - 2 * DAY) + _CYCLE, 0) // _CYCLE
    return np.asarray(not_early - cycles * _CYCLE, np.int64)


def _changes(values: Ints, zone: str | None) -> tuple[Ints, Ints, Ints]:
    """Return the changes of a zone's offset in the years of some values.

    Returns
    -------
    int64 arrays
        Instants of the changes, and the offsets before and after each.
    """
    times.tzinfo_of(zone)
    years = np.unique(values.astype("M8[us]").astype("M8[Y]").astype(np.int64)) + 1970
    # A local time can be in the year before or after the year of its instant.
    around = sorted({year + by for year in years.tolist() for by in (-1, 0, 1)})
    changes = [
        change
        for year in around or [1970]
        if 1 < year < 9999
        for change in _changes_of_year(year, zone)
    ]
    instants, before, after = (np.array(part, np.int64) for part in zip(*changes, strict=True))
    return instants, before, after


@lru_cache(maxsize=4096)
def _changes_of_year(year: int, zone: str | None) -> tuple[tuple[int, int, int], ...]:
    start = (np.datetime64(f"{year:04}", "us")).astype(np.int64).item()
    stop = (np.datetime64(f"{year + 1:04}", "us")).astype(np.int64).item()
    before = times.offset_at(start, zone)
    # The first entry sets the offset if the year before is not among the years.
    changes = [(start, before, before)]
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
            changes.append((high, before, after))
            before = after
    return tuple(changes)
