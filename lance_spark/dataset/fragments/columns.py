"""Columns of one fragment: new columns, and new values of columns, for an operation to commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.arguments import check_least
from lance_spark.dataset.scanning.computed import parse_computed, with_others
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.add import FunctionColumns, with_new_ids
from lance_spark.mutations.columns.fill import DEFAULT_BATCH_SIZE, plan_columns
from lance_spark.mutations.columns.joined import ColumnLookup
from lance_spark.mutations.rewrite.column_rewriter import ColumnRewriter
from lance_spark.mutations.rewrite.row_reader import replace_data_file
from lance_spark.scan.fragment import row_meta
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.deletions import encode_bitmap
from lance_spark.table.sources import table_of

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.table.open import OpenTable

Transform = Callable[[pa.RecordBatch], pa.RecordBatch]


class _NextRows:
    """Gives rows in their order, as many as are asked for."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._next = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        part = self._rows.slice(self._next, batch.num_rows)
        self._next += batch.num_rows
        return part


def _join(
    dataset: Dataset,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> ColumnLookup:
    rows = table_of(data, schema)
    key = right_on or left_on
    if key not in rows.schema.names:
        raise InvalidInputError(f"the rows have no column {key!r}, the key")
    known = row_meta.with_all(dataset._table.schema)
    if left_on not in known.names:
        raise InvalidInputError(f"left_on: column {left_on!r} not found")
    return ColumnLookup.of(rows, key, known.field(left_on).to_arrow().type)


def with_columns(
    dataset: Dataset,
    fragment: Fragment,
    values: Any,
    columns: Sequence[str] | None,
    batch_size: int | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Schema]:
    """Return a fragment with new columns; see `DatasetFragment.merge_columns`."""
    table = dataset._table
    if batch_size is not None:
        check_least("batch_size", batch_size, 1)
    transform: Transform
    if isinstance(values, Mapping):
        computed = parse_computed(values, table.schema)
        columns = computed.read
        result = with_others(computed, ())
        return _filled(
            table,
            fragment,
            columns,
            schema or result,
            lambda batch: computed.of_batch(batch, result),
            batch_size,
        )
    if callable(values):
        transform = values
        if schema is None:
            sample = dataset._reader.select(columns, "all_binary").to_arrow().empty_table()
            rows = next(
                iter(
                    dataset.scanner(
                        columns, fragments=[fragment], limit=1, blob_handling="all_binary"
                    ).to_batches()
                ),
                pa.RecordBatch.from_pylist([], sample.schema),
            )
            schema = values(rows).schema
    else:
        table_values = table_of(values, schema)
        if table_values.num_rows != fragment.num_rows:
            raise InvalidInputError(
                f"{table_values.num_rows} rows of new columns for fragment {fragment.id} with "
                f"{fragment.num_rows} rows"
            )
        schema, transform, columns = table_values.schema, _NextRows(table_values), []
    return _filled(table, fragment, columns, schema, transform, batch_size)


def joined(
    dataset: Dataset,
    fragment: Fragment,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Schema]:
    """Return a fragment with the columns of other rows; see `DatasetFragment.merge`."""
    join = _join(dataset, data, left_on, right_on, schema)
    # Rows without a match have null.
    new = pa.schema([field.with_nullable(True) for field in join.columns.schema])
    return _filled(dataset._table, fragment, [left_on], new, join, None)


def _filled(
    table: OpenTable,
    fragment: Fragment,
    columns: Sequence[str] | None,
    new: pa.Schema,
    transform: Transform,
    batch_size: int | None,
) -> tuple[Fragment, Schema]:
    """Compute new columns of one fragment, and write their file."""
    existing = [name for name in new.names if name in table.schema.names]
    if existing:
        raise InvalidInputError(f"column {existing[0]!r} exists already")
    schema = with_new_ids(table, new)
    read = handled(
        row_meta.select(table.schema, columns),
        Handling.parse("all_binary"),
        table.manifest.data_storage_version,
    )
    others = [part.id for part in table.manifest.fragments if part.id != fragment.id]
    tasks = plan_columns(
        table,
        read,
        schema,
        FunctionColumns(transform, tuple(new.names)),
        batch_size=batch_size or DEFAULT_BATCH_SIZE,
        done=others,
    )
    files = [file for task in tasks for file in task.run()]
    proto = fragment.to_proto()
    proto.files.extend(file.file.to_proto() for file in files)
    merged = replace(table.schema, fields=table.schema.fields + schema.fields)
    return Fragment.from_proto(proto, fragment.source), merged


def updated(
    dataset: Dataset,
    fragment: Fragment,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, list[int], bytes]:
    """Return a fragment with new values of columns; see `DatasetFragment.update_columns`.

    Returns
    -------
    tuple of Fragment, list of int and bytes
        The fragment, the ids of its new fields, and the offsets of the changed rows.
    """
    table = dataset._table
    join = _join(dataset, data, left_on, right_on, schema)
    names = [name for name in join.columns.schema.names if name != left_on]
    if not names:
        raise InvalidInputError("the rows have no column to update besides the key")
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise InvalidInputError(f"column {missing[0]!r} not found")
    selected = table.schema.select(names)
    address = row_meta.ROW_ADDRESS.name
    read = list(dict.fromkeys([left_on, address]))
    keys = dataset.scanner(read, fragments=[fragment]).to_table().combine_chunks()
    places = join.places(keys.column(left_on))
    is_found = places.is_valid()
    addresses = keys.column(address).to_numpy()[is_found.to_numpy(zero_copy_only=False)]
    if not len(addresses):
        return fragment, [node.id for node in selected.walk()], encode_bitmap(BitMap())
    values = join.columns.select(names).take(places.drop_null())
    rewriter = ColumnRewriter(table, selected, target="old")
    try:
        rewriter.put(addresses.astype(np.uint64), values)
        (file,) = rewriter.finish()
    except BaseException:
        rewriter.abort()
        raise
    ids = [node.id for node in selected.walk()]
    changed = replace_data_file(table.paths, fragment, file.file, ids)
    return changed, ids, file.rows
