"""Rows of users, in the forms in which they have Arrow data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError


def as_table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return Arrow data of any form as a table.

    Raises
    ------
    InvalidInputError
        The data has another form.
    """
    try:
        if isinstance(data, Mapping):
            return pa.table(dict(data), schema)
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if isinstance(data, pa.Table):
            return data
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if isinstance(data, Iterable) and not isinstance(data, str | bytes):
            return pa.Table.from_batches(list(data), schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(f"data cannot be read as Arrow data: {error}") from None
    raise InvalidInputError(
        f"data must be Arrow data, for example a Table or a RecordBatch, not {type(data).__name__}"
    )
