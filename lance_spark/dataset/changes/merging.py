"""The columns of other rows, added to the rows with the same key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_spark.mutations.columns.add import add_columns
from lance_spark.mutations.columns.joined import ColumnLookup
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.open import OpenTable
from lance_spark.table.sources import table_of


def add_joined_columns(
    table: OpenTable,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    options: CommitOptions,
) -> OpenTable:
    """Add the columns of other rows; see `Dataset.merge`.

    Returns
    -------
    OpenTable
        The version that was committed.
    """
    key = table.schema.field(left_on)
    joined = ColumnLookup.of(table_of(data, schema), right_on or left_on, key.to_arrow().type)
    return add_columns(table, joined, [left_on], joined.columns.schema, options=options)
