"""Add columns: with constants, with functions of the existing rows, or with nulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import Handling, handled, new_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import storage_type
from lance_spark.file.writer import check_types
from lance_spark.mutations.columns.assignments import Assignment, parse_assignments
from lance_spark.mutations.columns.fill import (
    DEFAULT_BATCH_SIZE,
    BatchUDF,
    Computation,
    as_batch,
    no_rows,
)
from lance_spark.mutations.commits import at_version, change_schema, retry_on_conflict
from lance_spark.mutations.commits import check_names as check_name_list
from lance_spark.mutations.mem_wal import check_no_mem_wal
from lance_spark.mutations.rows.merge import comparable
from lance_spark.runner import Runner
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest, max_field_id
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.columns import Merge
from lance_spark.table.rows.ids import check_names

#: Number of rows that a function gets to infer the type of its values.
_SAMPLE_ROWS = 100
_LEGACY = (0, 1)
#: File version from which on pylance reads and writes structs with new children.
_FIRST_WITH_NEW_CHILDREN = (2, 2)
Function = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True)
class AssignedColumns:
    """Computes each column by its assignment."""

    assignments: tuple[Assignment, ...]

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns for some rows."""
        return pa.RecordBatch.from_arrays(
            [assignment.values(rows) for assignment in self.assignments],
            names=[assignment.field.name for assignment in self.assignments],
        )


@dataclass(frozen=True, slots=True)
class FunctionColumns:
    """Computes all columns by one function."""

    function: Function
    names: tuple[str, ...]

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns for some rows."""
        batch = as_batch(self.function(rows), rows.num_rows)
        if set(batch.schema.names) != set(self.names):
            raise InvalidInputError(
                f"the function returns the columns {', '.join(batch.schema.names)}, not "
                f"{', '.join(self.names)}"
            )
        return batch.select(list(self.names))


def add_columns(
    table: OpenTable,
    transforms: Any,
    read_columns: Sequence[str] | None = None,
    output_schema: pa.Schema | None = None,
    batch_size: int | None = None,
    *,
    options: CommitOptions,
    runner: Runner | None = None,
) -> OpenTable:
    """Add columns; see `Dataset.add_columns`. Tasks run in this process by default."""
    empty = _fields_without_values(transforms)
    if empty is not None:
        return change_schema(table, lambda current: null_columns(current, empty), options)
    if batch_size is not None:
        check_least("batch_size", batch_size, 1)
    udf = transforms if isinstance(transforms, BatchUDF) else None
    if udf is not None:
        output_schema = output_schema or udf.output_schema
        transforms = udf.compute
    sampled = transforms if udf is None else udf.sample
    if not callable(transforms) and not (isinstance(transforms, Mapping) and transforms):
        raise InvalidInputError(
            "transforms must map names to values or functions, or be a function, a field or a "
            "schema"
        )

    def change(current: OpenTable) -> Manifest:
        read = _read_schema(current, read_columns)
        schema = with_new_ids(current, _new_columns(current, sampled, read, output_schema))
        if isinstance(transforms, Mapping) and not any(map(_is_function, transforms.values())):
            read = Schema(())
        fields = [*current.manifest.to_proto().fields, *schema.to_protos()]
        return computation.commit(
            current,
            read,
            schema,
            _transform(transforms, schema),
            fields,
            batch_size=batch_size or DEFAULT_BATCH_SIZE,
            preserves_nullability=all(field.nullable for field in schema.fields),
            options=options,
        )

    try:
        with Computation(runner) as computation:
            manifest = retry_on_conflict(table, change, options)
    except BaseException:
        if udf is not None:
            udf.close(delete=False)
        raise
    if udf is not None:
        udf.close(delete=True)
    return at_version(table, manifest)


def null_columns(table: OpenTable, fields: Sequence[pa.Field]) -> Merge:
    """Return the operation that adds columns of nulls, also as children of existing structs.

    Raises InvalidInputError: a column exists already, or must not be null. Raises
    UnsupportedFeatureError: Data files of this version must have all columns.
    """
    manifest = table.manifest
    version = manifest.data_storage_version
    if version == _LEGACY:
        raise UnsupportedFeatureError(
            f"{table.store.display}: data files of version 0.1 must have all columns; overwrite "
            "the table"
        )
    new = pa.schema(list(fields))
    added = new_schema(new, version)
    check_types(added, version)
    first = max_field_id(manifest.to_proto()) + 1
    structs = {field.name for field in table.schema.fields if field.logical_type == "struct"}
    extended = [name for name in added.names if name in structs]
    check_new_children(table.store.display, extended, version)
    check_names(added.names)
    merged, _ = _merged(table.schema.fields, added.fields, -1, first, ())
    return Merge(
        fragments=counted_fragments(table.paths, manifest),
        schema=tuple(replace(table.schema, fields=merged).to_protos()),
        preserves_nullability=True,
    )


def check_new_children(table: str, columns: Sequence[str], version: tuple[int, int]) -> None:
    """Raise UnsupportedFeatureError if structs would get new children in files before 2.2."""
    if columns and version < _FIRST_WITH_NEW_CHILDREN:
        raise UnsupportedFeatureError(
            f"{table}: column {columns[0]!r} cannot get new children in data files of version "
            f"{version[0]}.{version[1]}; overwrite the table with data storage version 2.2"
        )


def _merged(
    existing: Sequence[Field],
    added_fields: Sequence[Field],
    parent_id: int,
    next_id: int,
    path: tuple[str, ...],
) -> tuple[tuple[Field, ...], int]:
    """Return the existing fields with the new fields added, and the next free field id."""
    by_name = {field.name: position for position, field in enumerate(existing)}
    fields = list(existing)
    for field in added_fields:
        position = by_name.get(field.name)
        name = ".".join((*path, field.name))
        if position is None:
            if not field.nullable:
                raise InvalidInputError(
                    f"column {name!r} must not be null, but is added without values; give its "
                    "values"
                )
            added, next_id = renumbered(field, next_id, parent_id)
            fields.append(added)
            continue
        old = fields[position]
        if not (old.logical_type == field.logical_type == "struct"):
            raise InvalidInputError(f"column {name!r} exists already")
        children, next_id = _merged(
            old.children, field.children, old.id, next_id, (*path, field.name)
        )
        fields[position] = replace(old, children=children)
    return tuple(fields), next_id


def renumbered(field: Field, next_id: int, parent_id: int) -> tuple[Field, int]:
    """Return a field with ids counted depth-first from `next_id`, and the next free id."""
    field_id, next_id = next_id, next_id + 1
    children = []
    for child in field.children:
        new, next_id = renumbered(child, next_id, field_id)
        children.append(new)
    return replace(field, id=field_id, parent_id=parent_id, children=tuple(children)), next_id


def _fields_without_values(transforms: Any) -> list[pa.Field] | None:
    if isinstance(transforms, pa.Field):
        return [transforms]
    if isinstance(transforms, pa.Schema):
        return list(transforms)
    if isinstance(transforms, list | tuple) and all(isinstance(t, pa.Field) for t in transforms):
        return list(transforms)
    return None


def _read_schema(table: OpenTable, read_columns: Sequence[str] | None) -> Schema:
    schema = table.schema
    if read_columns is not None:
        schema = schema.select(check_name_list(read_columns, "read_columns"))
    return handled(schema, Handling.parse("all_binary"), table.manifest.data_storage_version)


def _new_columns(
    table: OpenTable, transforms: Any, read: Schema, output_schema: pa.Schema | None
) -> pa.Schema:
    """Return the schema of the new columns: the given one, or one inferred from some rows."""
    if output_schema is None:
        output_schema = _inferred_schema(table, transforms, read)
    elif not isinstance(output_schema, pa.Schema):
        raise InvalidInputError(
            f"output_schema must be a pyarrow schema, not {type(output_schema).__name__}"
        )
    elif isinstance(transforms, Mapping) and set(output_schema.names) != set(transforms):
        raise InvalidInputError(
            f"output_schema has the columns {', '.join(output_schema.names)}, transforms "
            f"{', '.join(transforms)}"
        )
    existing = [name for name in output_schema.names if name in table.schema.names]
    if existing:
        raise InvalidInputError(f"column {existing[0]!r} exists already")
    check_names(output_schema.names)
    return output_schema


def _inferred_schema(table: OpenTable, transforms: Any, read: Schema) -> pa.Schema:
    if isinstance(transforms, Mapping):
        functions = {k: v for k, v in transforms.items() if _is_function(v)}
    else:
        functions = {"": transforms}
    sample = _sample(table, read) if functions else None
    if not isinstance(transforms, Mapping):
        assert sample is not None
        return as_batch(transforms(sample), sample.num_rows).schema
    return pa.schema(
        [
            pa.field(name, _type_of(name, value(sample) if name in functions else value))
            for name, value in transforms.items()
        ]
    )


def _type_of(name: str, value: Any) -> pa.DataType:
    if not isinstance(value, pa.Scalar | pa.Array | pa.ChunkedArray):
        try:
            value = (
                pa.array(value)
                if hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)
                else pa.scalar(value)
            )
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"new column {name!r}: its type cannot be inferred: {error}"
            ) from None
    if pa.types.is_null(value.type):
        raise InvalidInputError(
            f"new column {name!r}: its type cannot be inferred from nulls; give a pa.Field instead "
            "of values, or output_schema"
        )
    return value.type


def _sample(table: OpenTable, read: Schema) -> pa.RecordBatch:
    for fragment in counted_fragments(table.paths, table.manifest):
        reader = FragmentReader(table.paths, fragment, read)
        try:
            rows = range(fragment.physical_rows)
            for batch in reader.scan(rows, _SAMPLE_ROWS):
                return batch
        finally:
            reader.close()
    return no_rows(read.to_arrow())


def with_new_ids(table: OpenTable, new: pa.Schema) -> Schema:
    """Return new columns with computed values, with field ids that were never used.

    Raises UnsupportedFeatureError: the table has a MemWAL.
    """
    check_no_mem_wal(table, f"values of the new column {new.names[0]!r} cannot be computed")
    manifest = table.manifest
    first = max_field_id(manifest.to_proto()) + 1
    return new_schema(new, manifest.data_storage_version, first)


def _transform(transforms: Any, schema: Schema) -> AssignedColumns | FunctionColumns:
    if not isinstance(transforms, Mapping):
        return FunctionColumns(transforms, tuple(schema.names))
    return AssignedColumns(parse_assignments(transforms, schema))


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, pa.Scalar)


# --------------------------------------------------------------------------------------------------
# Columns that existing rows get from other rows with the same key: a left join by one column.
#
# | key | its row of the other side |
# | --- | --- |
# | several times on the other side | the last one |
# | null | the row whose key is null |
# | not on the other side | nulls |


@dataclass(frozen=True, slots=True)
class ColumnLookup:
    """Finds the new columns of rows by their keys.

    - `keys`: Keys of the other side, the last row first.
    - `columns`: Its other columns, in the order of the keys.
    """

    keys: pa.Array
    columns: pa.RecordBatch

    @classmethod
    def of(cls, rows: pa.Table, key: str, dtype: pa.DataType) -> ColumnLookup:
        """Return the columns of a table by a key of it.

        - `dtype`: Type of the key on the side of the existing rows.

        Raises InvalidInputError: the table does not have the key, has no other column, or the key
        has another type.
        """
        if key not in rows.column_names:
            raise InvalidInputError(
                f"column {key!r} not found in the rows to merge, which have "
                f"{', '.join(rows.column_names)}"
            )
        if rows.num_columns == 1:
            raise InvalidInputError(f"the rows to merge have no column other than {key!r}")
        own = rows.schema.field(key).type
        if storage_type(own) != storage_type(dtype):
            raise InvalidInputError(
                f"column {key!r} must have the type {dtype}, as the existing rows have, not {own}"
            )
        last_first = pa.array(np.arange(rows.num_rows)[::-1])
        try:
            rows = rows.take(last_first).combine_chunks()
        except pa.ArrowInvalid as error:
            raise _too_large(error) from None
        others = rows.drop_columns([key])
        batches = others.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], others.schema)
        return cls(_comparable(rows[key]), batch)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the new columns of some rows, whose only column is the key."""
        try:
            return self.columns.take(self.places(rows.column(0)))
        except pa.ArrowInvalid as error:
            raise _too_large(error) from None

    def places(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the place in `columns` of the row with each key; null without one."""
        return pc.index_in(_comparable(keys), value_set=self.keys)


def _too_large(error: pa.ArrowInvalid) -> InvalidInputError:
    return InvalidInputError(
        f"the rows to merge have more values than one array holds ({error}); give their columns "
        "the types large_binary or large_string, or merge fewer rows at once"
    )


def _comparable(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of one chunk, as a hash table of Arrow compares them."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return pa.concat_arrays([comparable(chunk) for chunk in chunks or [pa.array([], array.type)]])
