"""Halving of a window whose dictionaries do not fit one array.

Some clients write pages whose dictionaries together have more values than the index type can
number. Each batch has its own dictionary, so fewer rows at a time can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import pyarrow as pa

from lance_spark.errors import InvalidInputError, UnsupportedEncodingError
from lance_spark.file.checks import narrow_indices
from lance_spark.scan.predicates.conditions import Condition

_Result = TypeVar("_Result")
Read = Callable[[range], Iterator[_Result]]


class WindowReader(Protocol):
    """Yields the results of `read` for the rows of a window."""

    def __call__(self, rows: range, read: Read[_Result], /) -> Iterator[_Result]:
        """Read some rows."""


def window_reader(
    schema: pa.Schema, filters: Iterable[Condition], *, has_blobs: bool
) -> WindowReader:
    """Return `read_bisecting` if a dictionary column may need it, else a plain call.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the columns that are read.
    filters : iterable of Condition
    has_blobs : bool
        Whether blobs are read. `read_bisecting` holds all batches of a window at once, and its
        blobs may not fit into memory together: such a window is read as it is.
    """
    types = [field.type for field in schema]
    types += [path[0].arrow_field.type for condition in filters for path in condition.paths]
    is_narrow = any(index is not None for dtype in types for index in narrow_indices(dtype))
    return read_bisecting if is_narrow and not has_blobs else _read_whole


def _read_whole(rows: range, read: Read[_Result]) -> Iterator[_Result]:
    return read(rows)


def read_bisecting(rows: range, read: Read[_Result]) -> Iterator[_Result]:
    """Yield the results of `read` for some rows; if they do not fit one array, those of each half.

    Parameters
    ----------
    rows : range
    read : callable
        Yields results that together fit in memory.

    Raises
    ------
    LanceError
        `read` raised it, about one row too if the reason is the capacity of an array.
    """
    try:
        results = list(read(rows))
    except (InvalidInputError, UnsupportedEncodingError):
        if len(rows) < 2:
            raise
    else:
        yield from results
        return
    middle = rows.start + len(rows) // 2
    yield from read_bisecting(range(rows.start, middle), read)
    yield from read_bisecting(range(middle, rows.stop), read)
