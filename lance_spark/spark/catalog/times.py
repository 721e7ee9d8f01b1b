"""Times as Spark has them in its plans: microseconds since 1970 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lance_spark.errors import InvalidInputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def from_microseconds(value: int) -> datetime:
    """Return the time of a number of microseconds.

    Raises InvalidInputError: the time is out of range.
    """
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        raise InvalidInputError(
            f"the time {value / 1e6:.0f} seconds after 1970 is out of range: times must be from "
            "the years 1 to 9999; Spark takes whole numbers as seconds"
        ) from None


def to_microseconds(time: datetime) -> int:
    """Return the microseconds of a time. A time without a zone is local to this machine."""
    return (time.astimezone(UTC) - _EPOCH) // _MICROSECOND
