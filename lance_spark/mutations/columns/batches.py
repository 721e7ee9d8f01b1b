"""The results of functions that compute columns, as record batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError


def as_batch(columns: Any, num_rows: int) -> pa.RecordBatch:
    """Return the result of a function as a batch.

    Raises InvalidInputError: it is not a batch of columns, or has another number of rows.
    """
    if isinstance(columns, Mapping):
        try:
            columns = pa.RecordBatch.from_pydict(dict(columns))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(f"the function must return columns: {error}") from None
    elif _is_frame(columns):
        columns = pa.RecordBatch.from_pandas(columns, preserve_index=False)
    elif isinstance(columns, pa.Table):
        columns = columns.combine_chunks()
        columns = columns.to_batches()[0] if columns.num_rows else no_rows(columns.schema)
    if not isinstance(columns, pa.RecordBatch):
        raise InvalidInputError(
            f"the function returns {type(columns).__name__}, not a RecordBatch with the new columns"
        )
    if columns.num_rows != num_rows:
        raise InvalidInputError(f"the function returns {columns.num_rows} rows for {num_rows}")
    return columns


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _is_frame(columns: Any) -> bool:
    """Return whether columns are a DataFrame of pandas, which is not imported for this."""
    return type(columns).__module__.partition(".")[0] == "pandas" and hasattr(columns, "columns")
