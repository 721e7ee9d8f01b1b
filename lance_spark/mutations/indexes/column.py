"""Reads the column of an index, with the id or address of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.runner import FragmentTask
from lance_spark.scan.fragment.row_meta import ROW_ID
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

_BATCH_ROWS = 1 << 16


def read_column(
    task: FragmentTask, path: tuple[Field, ...], row_field: Field
) -> tuple[pa.Array, UInt64Array]:
    """Return the values of all live rows, and the id or address of each, increasing.

    Parameters
    ----------
    task : FragmentTask
        Has the fragments.
    path : tuple of Field
        The fields from the top-level field to the column.
    row_field : Field
        `ROW_ID` or `ROW_ADDRESS`.

    Raises
    ------
    CorruptFileError, CorruptTableError, StorageError
    """
    values, ids = [], []
    for batch_values, batch_ids in column_batches(task, path, row_field):
        values.append(batch_values)
        ids.append(pa.array(batch_ids))
    column = pa.chunked_array(values, value_type(path[-1])).combine_chunks()
    words = pa.chunked_array(ids, pa.uint64()).combine_chunks().to_numpy()
    order = np.argsort(words, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        column, words = column.take(pa.array(order)), words[order]
    return column, words


def column_batches(
    task: FragmentTask, path: tuple[Field, ...], row_field: Field
) -> Iterator[tuple[pa.Array, UInt64Array]]:
    """Yield the values of some live rows after the other, and their ids or addresses.

    The rows are in the order of the fragments; see `read_column`.
    """
    schema = Schema((*Schema.of_paths([path]).fields, row_field))
    names = [field.name for field in path]
    for batch in _scan(task, schema, task.fragments).batches():
        yield _plain(column_at(batch, names)), batch.column(batch.num_columns - 1).to_numpy()


def row_ids(task: FragmentTask, fragments: Sequence[Fragment]) -> UInt64Array:
    """Return the ids of all live rows of some fragments, increasing.

    Raises
    ------
    CorruptFileError, CorruptTableError, StorageError
    """
    ids = [
        batch.column(0).to_numpy() for batch in _scan(task, Schema((ROW_ID,)), fragments).batches()
    ]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *ids]))


def _scan(task: FragmentTask, schema: Schema, fragments: Sequence[Fragment]) -> ScanTask:
    return ScanTask(
        uri=task.uri,
        lance_schema=schema,
        slices=tuple(FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments),
        batch_size=_BATCH_ROWS,
        base_paths=task.base_paths,
        storage_options=task.storage_options,
    )


def value_type(field: Field) -> pa.DataType:
    """Return the type of the values in an index: the storage type of an extension type."""
    # pylance cannot search indexes of dictionaries: no type of index takes them.
    dtype = field.arrow_field.type
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array
