"""A number for each row by which rows that are near one another in several columns come together:
its place on a Z-curve.

Each value becomes its rank among up to 1,023 values of a sample, stretched to 10 bits, so that a
column counts by the order of its values and not by how they are spread; null is before all others.
The bits of the ranks are taken in turns, the highest first: of the columns a and b ``a9 b9 a8 b8
... a0 b0``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Columns whose ranks fit into one number.
MAX_COLUMNS = 6
_BITS = 10
_MOST = (1 << _BITS) - 1
_SAMPLE_ROWS = 50_000
#: Letters of a text that count.
_LETTERS = 64
PLACE = "__place"

Numbers = npt.NDArray[np.int64]


def with_places(frame: DataFrame, keys: Sequence[str], num_rows: int) -> DataFrame:
    """Return the addresses of a frame with the place of each row on a Z-curve. Runs a Spark job
    that takes a sample.

    Parameters
    ----------
    frame : DataFrame
        With row addresses, and the keys.
    keys : sequence of str
        Names of columns.
    num_rows : int
        Of the frame, about.

    Raises
    ------
    InvalidInputError
        There are too many keys, or values of one have no order.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import StringType

    if len(keys) > MAX_COLUMNS:
        raise InvalidInputError(f"zOrderBy: {len(keys)} columns; {MAX_COLUMNS} are the most")
    chosen = [
        functions.substring(item, 1, _LETTERS).alias(item)
        if isinstance(frame.schema[item].dataType, StringType)
        else functions.col(item)
        for item in keys
    ]
    short = frame.select(ROW_ADDRESS.name, *chosen)
    part = min(_SAMPLE_ROWS / max(num_rows, 1), 1.0)
    sample = short.select(*keys).sample(fraction=part, seed=1).toArrow()
    work = _Places(tuple(bounds_of(sample.column(index), item) for index, item in enumerate(keys)))
    return short.mapInArrow(work, f"{ROW_ADDRESS.name} long, {PLACE} long")


def bounds_of(sample: pa.ChunkedArray, name: str) -> pa.Array:
    """Return values of a sample that cut it into parts of about the same size, in order and each
    once.

    Raises
    ------
    InvalidInputError
        The values have no order.
    """
    values = pa.concat_arrays(sample.drop_null().chunks or [pa.array([], sample.type)])
    try:
        ordered = values.take(pc.array_sort_indices(values))
    except pa.ArrowNotImplementedError:
        raise InvalidInputError(
            f"zOrderBy: values of type {sample.type} have no order that rows could have ({name})"
        ) from None
    count = min(_MOST, len(ordered))
    places = np.unique(np.linspace(0, len(ordered) - 1, count).astype(np.int64))
    return ordered.take(pa.array(places)).unique()


def ranks_of(bounds: pa.Array, values: pa.Array) -> Numbers:
    """Return which part of the bounds is not above each value, up to 1,023 for all of them; 0 for
    null.
    """
    both = pa.concat_arrays([bounds.cast(values.type), values])
    # Sorting is stable, so that a bound comes before the values that equal it.
    order = pc.array_sort_indices(both, null_placement="at_start").to_numpy().astype(np.int64)
    is_value = order >= len(bounds)
    below = np.cumsum(~is_value)
    ranks = np.empty(len(values), np.int64)
    # Columns of few values count as much as others.
    ranks[order[is_value] - len(bounds)] = below[is_value] * _MOST // max(len(bounds), 1)
    return ranks


def interleaved(ranks: Sequence[Numbers]) -> Numbers:
    """Return numbers of the bits of several ranks in turns, the highest first."""
    places = np.zeros(len(ranks[0]), np.int64)
    for bit in range(_BITS - 1, -1, -1):
        for rank in ranks:
            places = (places << 1) | ((rank >> bit) & 1)
    return places


@dataclass(frozen=True, slots=True)
class _Places:
    """Makes places of the keys of a partition; the first column are addresses."""

    bounds: tuple[pa.Array, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            ranks = [
                ranks_of(bounds, batch.column(index)) for index, bounds in enumerate(self.bounds, 1)
            ]
            places = pa.array(interleaved(ranks))
            yield pa.RecordBatch.from_arrays(
                [batch.column(0), places], names=[ROW_ADDRESS.name, PLACE]
            )
