"""Reads the column of an index, with the id or address of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark import progress
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import paged_json
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.indexes.builder import LOAD_DATA
from lance_spark.mutations.runner import FragmentTask
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

_BATCH_ROWS = 1 << 16


def read_column(
    task: FragmentTask, path: tuple[Field, ...], row_field: Field
) -> tuple[pa.Array, UInt64Array]:
    """Return the values of all live rows, and the id or address of each, increasing.

    JSON is JSONB.

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
    part = next(column_parts(task, path, row_field, None))
    return part.values, part.ids


class ColumnPart(NamedTuple):
    """A part of a column.

    Attributes
    ----------
    values : pa.Array
    ids : uint64 array
        Row id or address of each value, increasing.
    is_last : bool
    """

    values: pa.Array
    ids: UInt64Array
    is_last: bool


def column_parts(
    task: FragmentTask, path: tuple[Field, ...], row_field: Field, part_bytes: int | None
) -> Iterator[ColumnPart]:
    """Yield the column as `read_column` returns it, in parts of about some bytes.

    There is at least one part, which may be empty.

    Parameters
    ----------
    task, path, row_field
        As for `read_column`.
    part_bytes : int or None
        Bytes of a part; None for one part.

    Raises
    ------
    CorruptFileError, CorruptTableError, StorageError
    """
    dtype = value_type(paged_json(path[-1]))
    values: list[pa.Array] = []
    ids: list[pa.Array] = []
    size = 0
    for batch_values, batch_ids in column_batches(task, path, row_field):
        if part_bytes is not None and size >= part_bytes:
            part = joined(values, ids, dtype)
            # Only one copy of a part is in memory while it is used.
            values, ids, size = [], [], 0
            yield ColumnPart(*part, is_last=False)
            del part
        values.append(batch_values)
        ids.append(pa.array(batch_ids))
        size += batch_values.nbytes + batch_ids.nbytes
    part = joined(values, ids, dtype)
    del values, ids
    yield ColumnPart(*part, is_last=True)


def column_batches(
    task: FragmentTask,
    path: tuple[Field, ...],
    row_field: Field,
    slices: Sequence[FragmentSlice] | None = None,
    stage: str = LOAD_DATA,
) -> Iterator[tuple[pa.Array, UInt64Array]]:
    """Yield the values of some live rows after the other, and their ids or addresses.

    The rows are in the order of the fragments; see `read_column`.

    Parameters
    ----------
    task, path, row_field
        As for `read_column`.
    slices : sequence of FragmentSlice, optional
        Rows to read, in place of those of all fragments of the task.
    stage : str
        Name of the stage in which the rows count.
    """
    names = [field.name for field in path]
    # Values in JSON documents are found in JSONB.
    columns = map(paged_json, Schema.of_paths([path]).fields)
    schema = Schema((*columns, row_field))
    chosen = _whole(task.fragments) if slices is None else slices
    total = sum(fragment.num_rows for fragment in task.fragments) if slices is None else None
    batches = _batches(task, chosen, schema)
    for batch in progress.counted(batches, stage, total, "rows", _num_rows):
        yield _plain(column_at(batch, names)), batch.column(batch.num_columns - 1).to_numpy()


@contextmanager
def naming_damaged_files(task: FragmentTask, path: tuple[Field, ...]) -> Iterator[None]:
    """Name the data file in the error if a document of a JSON column is damaged."""
    try:
        yield
    except (CorruptFileError, UnsupportedEncodingError):
        if path[-1].logical_type == "json":
            # A read as text has this error, with the name of the file.
            for _ in _batches(task, _whole(task.fragments), Schema.of_paths([path])):
                pass
        raise


def live_rows(
    task: FragmentTask, fragments: Sequence[Fragment], row_field: Field
) -> Iterator[UInt64Array]:
    """Yield the ids or addresses of the live rows of some fragments, without reading a column.

    Raises
    ------
    CorruptFileError, CorruptTableError, StorageError
    """
    for batch in _batches(task, _whole(fragments), Schema((row_field,))):
        yield batch.column(0).to_numpy()


def _whole(fragments: Sequence[Fragment]) -> list[FragmentSlice]:
    return [FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments]


def _batches(
    task: FragmentTask, slices: Sequence[FragmentSlice], schema: Schema
) -> Iterator[pa.RecordBatch]:
    scan = ScanTask(
        uri=task.uri,
        lance_schema=schema,
        slices=tuple(slices),
        batch_size=_BATCH_ROWS,
        base_paths=task.base_paths,
        storage_options=task.storage_options,
    )
    return scan.batches()


def joined(
    values: list[pa.Array], ids: list[pa.Array], dtype: pa.DataType
) -> tuple[pa.Array, UInt64Array]:
    """Return values of a type and their ids, in the order of the ids."""
    column = pa.chunked_array(values, dtype).combine_chunks()
    row_keys = pa.chunked_array(ids, pa.uint64()).combine_chunks().to_numpy()
    if (row_keys[1:] < row_keys[:-1]).any():
        order = np.argsort(row_keys, kind="stable")
        column, row_keys = column.take(pa.array(order)), row_keys[order]
    return column, row_keys


def value_type(field: Field) -> pa.DataType:
    """Return the type of the values in an index: the storage type of an extension type."""
    # pylance cannot search indexes of dictionaries: no type of index takes them.
    dtype = field.arrow_field.type
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _num_rows(batch: pa.RecordBatch) -> int:
    return int(batch.num_rows)


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array
