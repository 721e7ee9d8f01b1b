"""Adding columns: constants, functions of the rows that there are, or columns without any value
yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import Handling, handled, new_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.columns.assignments import Assignment, parse_assignments
from lance_spark.mutations.columns.fill import DEFAULT_BATCH_SIZE, Computation
from lance_spark.mutations.commits import change_schema
from lance_spark.mutations.commits import check_names as check_name_list
from lance_spark.mutations.mem_wal import check_no_mem_wal
from lance_spark.mutations.retry import at_version, retry_on_conflict
from lance_spark.mutations.runner import Runner
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import max_field_id
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.merge import Merge
from lance_spark.table.rows.ids import check_names

#: Rows that a function gets to tell the type of its values.
_SAMPLE_ROWS = 100
_LEGACY = (0, 1)
#: pylance reads and makes such tables from this version on.
_FIRST_WITH_NEW_CHILDREN = (2, 2)
Function = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True)
class Assigned:
    """Computes each column on its own."""

    assignments: tuple[Assignment, ...]

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns for some rows."""
        return pa.RecordBatch.from_arrays(
            [assignment.values(rows) for assignment in self.assignments],
            names=[assignment.field.name for assignment in self.assignments],
        )


@dataclass(frozen=True, slots=True)
class Called:
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
    """Add columns; see `Dataset.add_columns`. The runner is this machine by default."""
    empty = _fields_without_values(transforms)
    if empty is not None:
        return change_schema(table, lambda current: null_columns(current, empty), options)
    if batch_size is not None:
        check_least("batch_size", batch_size, 1)
    if not callable(transforms) and not (isinstance(transforms, Mapping) and transforms):
        raise InvalidInputError(
            "transforms must map names to values or functions, or be a function, a field or a "
            "schema"
        )

    def change(current: OpenTable) -> Manifest:
        read = _read_schema(current, read_columns)
        schema = numbered(current, _wanted(current, transforms, read, output_schema))
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
            preserves_nullability=all(one.nullable for one in schema.fields),
            options=options,
        )

    with Computation(runner) as computation:
        return at_version(table, retry_on_conflict(table, change, options.conflict_retries))


def null_columns(table: OpenTable, fields: Sequence[pa.Field]) -> Merge:
    """Return the operation that adds columns without any value; children of structs that there are,
    too.

    Raises
    ------
    InvalidInputError
        A column is there already, or must not be null.
    UnsupportedFeatureError
        The files are of a version that cannot do without.
    """
    manifest = table.manifest
    version = manifest.data_storage_version
    if version == _LEGACY:
        raise UnsupportedFeatureError(
            f"{table.store.display}: data files of version 0.1 must have all columns; overwrite "
            "the table"
        )
    new = pa.schema(list(fields))
    given = new_schema(new, version)
    check_types(given, version)
    first = max_field_id(manifest.to_proto()) + 1
    structs = {field.name for field in table.schema.fields if field.logical_type == "struct"}
    inside = [name for name in given.names if name in structs]
    if inside and version < _FIRST_WITH_NEW_CHILDREN:
        raise UnsupportedFeatureError(
            f"{table.store.display}: column {inside[0]!r} gets no new children in data files of "
            "version "
            f"{version[0]}.{version[1]}; overwrite the table with data storage version 2.2"
        )
    check_names(given.names)
    merged, _ = _merged(table.schema.fields, given.fields, -1, first, ())
    return Merge(
        fragments=counted_fragments(table.paths, manifest),
        schema=tuple(replace(table.schema, fields=merged).to_protos()),
        preserves_nullability=True,
    )


def as_batch(given: Any, num_rows: int) -> pa.RecordBatch:
    """Return what a function returned as a batch.

    Raises
    ------
    InvalidInputError
        It is none, or has another number of rows.
    """
    if isinstance(given, Mapping):
        try:
            given = pa.RecordBatch.from_pydict(dict(given))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(f"the function returns what are no columns: {error}") from None
    elif isinstance(given, pa.Table):
        given = given.combine_chunks()
        given = given.to_batches()[0] if given.num_rows else _no_rows(given.schema)
    if not isinstance(given, pa.RecordBatch):
        raise InvalidInputError(
            f"the function returns {type(given).__name__}, not a RecordBatch with the new columns"
        )
    if given.num_rows != num_rows:
        raise InvalidInputError(f"the function returns {given.num_rows} rows for {num_rows}")
    return given


def _merged(
    there: Sequence[Field],
    given: Sequence[Field],
    parent_id: int,
    next_id: int,
    path: tuple[str, ...],
) -> tuple[tuple[Field, ...], int]:
    """Return fields with new ones, and the id that the next new one gets."""
    by_name = {item.name: position for position, item in enumerate(there)}
    fields = list(there)
    for item in given:
        position = by_name.get(item.name)
        name = ".".join((*path, item.name))
        if position is None:
            if not item.nullable:
                raise InvalidInputError(
                    f"column {name!r} must not be null, but is added without values; give values "
                    "for it"
                )
            added, next_id = renumbered(item, next_id, parent_id)
            fields.append(added)
            continue
        old = fields[position]
        if not (old.logical_type == item.logical_type == "struct"):
            raise InvalidInputError(f"there is a column {name!r} already")
        children, next_id = _merged(
            old.children, item.children, old.id, next_id, (*path, item.name)
        )
        fields[position] = replace(old, children=children)
    return tuple(fields), next_id


def renumbered(field: Field, next_id: int, parent_id: int) -> tuple[Field, int]:
    """Return a field with ids that count up from `next_id`, depth-first, and the id after the
    last.
    """
    own, after = next_id, next_id + 1
    children = []
    for child in field.children:
        new, after = renumbered(child, after, own)
        children.append(new)
    return replace(field, id=own, parent_id=parent_id, children=tuple(children)), after


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


def _wanted(
    table: OpenTable, transforms: Any, read: Schema, output_schema: pa.Schema | None
) -> pa.Schema:
    """Return the new columns: as they are given, or as the values of some rows tell."""
    if output_schema is None:
        output_schema = _told_by_values(table, transforms, read)
    elif not isinstance(output_schema, pa.Schema):
        raise InvalidInputError(
            f"output_schema must be a pyarrow schema, not {type(output_schema).__name__}"
        )
    elif isinstance(transforms, Mapping) and set(output_schema.names) != set(transforms):
        raise InvalidInputError(
            f"output_schema has the columns {', '.join(output_schema.names)}, transforms "
            f"{', '.join(transforms)}"
        )
    there = [name for name in output_schema.names if name in table.schema.names]
    if there:
        raise InvalidInputError(f"there is a column {there[0]!r} already")
    check_names(output_schema.names)
    return output_schema


def _told_by_values(table: OpenTable, transforms: Any, read: Schema) -> pa.Schema:
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
            raise InvalidInputError(f"new column {name!r}: no type can be told: {error}") from None
    if pa.types.is_null(value.type):
        raise InvalidInputError(
            f"new column {name!r}: nulls do not tell its type; give a pa.Field instead of values, "
            "or output_schema"
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
    return _no_rows(read.to_arrow())


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], item.type) for item in schema], schema=schema)


def numbered(table: OpenTable, new: pa.Schema) -> Schema:
    """Return new columns, whose values are computed, with ids that no field ever had.

    Raises
    ------
    UnsupportedFeatureError
        The table has a MemWAL.
    """
    check_no_mem_wal(table, f"values of the new column {new.names[0]!r} cannot be computed")
    manifest = table.manifest
    first = max_field_id(manifest.to_proto()) + 1
    return new_schema(new, manifest.data_storage_version, first)


def _transform(transforms: Any, schema: Schema) -> Assigned | Called:
    if not isinstance(transforms, Mapping):
        return Called(transforms, tuple(schema.names))
    assignments = parse_assignments(transforms, schema)
    return Assigned(assignments)


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, pa.Scalar)
