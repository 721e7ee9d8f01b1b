"""Rows of users, in the forms in which they have Arrow data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_spark.table.sources import table_of


def as_table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return Arrow data of any form as a table; `schema` counts only for data without its own.

    Raises InvalidInputError: the data has another form.
    """
    return table_of(data, None if hasattr(data, "schema") else schema)
