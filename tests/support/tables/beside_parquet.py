"""The same rows as a Lance table, from which rows were deleted, and as a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_beside_parquet(
    folder: Path, tables: Sequence[pa.Table], dtypes: Mapping[str, pa.DataType]
) -> tuple[str, str]:
    """Write a fragment for each table, without a fifth of the rows, and return both paths.

    Parameters
    ----------
    tables : sequence of pyarrow.Table
        With the column `id`: the number of the row.
    dtypes : mapping of str to pyarrow.DataType
        Types in Parquet of columns whose own types Spark does not read from Parquet.
    """
    for table in tables:
        lance.write_dataset(table, folder / "t.lance", mode="append", data_storage_version="2.1")
    lance.dataset(folder / "t.lance").delete("id % 5 = 3")
    rows = pa.concat_tables(tables)
    rows = rows.filter(pa.array(np.arange(len(rows)) % 5 != 3))
    for name, dtype in dtypes.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, name, rows.column(name).cast(dtype))
    for index, field in enumerate(rows.schema):
        # Not every pyarrow can write null lists with items to Parquet.
        if pa.types.is_fixed_size_list(field.type) and rows[field.name].null_count:
            lists = pa.array(rows[field.name].to_pylist(), pa.list_(field.type.value_field))
            rows = rows.set_column(index, field.name, lists)
    pq.write_table(rows, folder / "t.parquet")
    return str(folder / "t.lance"), str(folder / "t.parquet")
