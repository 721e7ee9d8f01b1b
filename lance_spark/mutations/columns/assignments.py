"""Assignments of new values to columns: constants, or functions of the changed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import input_field
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import storage_type
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.child_values import (
    ChildValues,
    Path,
    check_disjoint_paths,
    names_of,
    path_to,
)
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.scan.predicates.literals import check_exact, to_array, to_scalar


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and its new values. Can be pickled if its function can.

    Attributes
    ----------
    field : Field
        A top-level field of the table.
    value : pa.Scalar or callable
        A callable gets the rows as a record batch, and returns one value for each row.
    """

    field: Field
    value: pa.Scalar | Callable[[pa.RecordBatch], Any]

    @property
    def reads(self) -> frozenset[str] | None:
        """Names of the columns that the values are computed from; None for all columns."""
        if isinstance(self.value, pa.Scalar):
            return frozenset()
        if isinstance(self.value, ChildValues) and not self.value.reads_all:
            return frozenset({self.value.name})
        return None

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the new values of some rows.

        Raises
        ------
        InvalidInputError
            The function returns values of another type, or another number of values.
        """
        dtype = _input_type(self.field)
        if isinstance(self.value, pa.Scalar):
            if pat.is_dictionary(dtype):
                return pa.repeat(self.value, rows.num_rows).dictionary_encode().cast(dtype)
            return pa.repeat(self.value, rows.num_rows)
        given = self.value(rows)
        try:
            values = _array(given, dtype)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"new values of column {self.field.name!r}: the function must return "
                f"{dtype}: {error}"
            ) from None
        if len(values) != rows.num_rows:
            raise InvalidInputError(
                f"new values of column {self.field.name!r}: the function returns {len(values)} "
                f"values for {rows.num_rows} rows"
            )
        return values


def parse_updates(updates: Mapping[str, Any], schema: Schema) -> tuple[Assignment, ...]:
    """Return the assignments of columns, some of which may set only children of structs.

    Parameters
    ----------
    updates : mapping of str to value, pa.Scalar or callable
        By column, or by child of a struct, whose name has dots.
    schema : Schema
        Schema of the table.

    Raises
    ------
    InvalidInputError
        Updates are empty, a column has two values, or a value does not have the column's type.
    SchemaMismatchError
        A column does not exist.
    UnsupportedError
        A child of a struct with blobs is set.
    """
    if not isinstance(updates, Mapping) or not updates:
        raise InvalidInputError("updates must map at least one column to a value or a function")
    by_path: dict[Path, Assignment] = {}
    for name, value in updates.items():
        if name in META_FIELDS and name not in schema.names:
            raise InvalidInputError(
                f"column {name!r} is a metadata column, which cannot be updated"
            )
        path = path_to(schema, name)
        check_disjoint_paths(names_of(path), list(by_path), "updates")
        by_path[names_of(path)] = _assignment(path[-1], name, value)
    tops = dict.fromkeys(path[0] for path in by_path)
    return tuple(_of_column(schema, top, by_path) for top in tops)


def parse_assignments(updates: Mapping[str, Any], schema: Schema) -> tuple[Assignment, ...]:
    """Return the assignments of top-level columns.

    Parameters
    ----------
    updates : mapping of str to value, pa.Scalar or callable
        By column.
    schema : Schema
        Schema of the table.

    Raises
    ------
    InvalidInputError
        Updates are empty, or a value does not have the column's type.
    SchemaMismatchError
        A column does not exist.
    """
    if not isinstance(updates, Mapping) or not updates:
        raise InvalidInputError("updates must map at least one column to a value or a function")
    return tuple(_parse(name, value, schema) for name, value in updates.items())


def field_ids(assignments: Iterable[Assignment]) -> tuple[int, ...]:
    """Return the ids of the fields that get new values, with all fields below them."""
    return tuple(
        node.id for assignment in assignments for node in assignment.field.walk() if node.id >= 0
    )


def assign(
    rows: pa.RecordBatch, assignments: Iterable[Assignment], schema: Schema
) -> pa.RecordBatch:
    """Return rows with new values. The columns are those of `schema`, in its order.

    Parameters
    ----------
    rows : pa.RecordBatch
        Can lack columns that get constants.

    Raises
    ------
    InvalidInputError
    """
    new = {assignment.field.name: assignment.values(rows) for assignment in assignments}
    columns = [
        new[name] if name in new else rows.column(rows.schema.get_field_index(name))
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _parse(name: str, value: Any, schema: Schema) -> Assignment:
    field = next((field for field in schema.fields if field.name == name), None)
    if field is None:
        if name in META_FIELDS:
            raise InvalidInputError(
                f"column {name!r} is a metadata column, which cannot be updated"
            )
        raise SchemaMismatchError(
            f"the table has no column {name!r} to update, only {', '.join(schema.names)}"
        )
    return _assignment(field, name, value)


def _of_column(schema: Schema, top: str, given: Mapping[Path, Assignment]) -> Assignment:
    """Return the assignment of a top-level column: given, or made of those of its children."""
    if (top,) in given:
        return given[(top,)]
    children = {path[1:]: child for path, child in given.items() if path[0] == top}
    reads_all = any(child.reads is None for child in children.values())
    values = {path: child.values for path, child in children.items()}
    field = next(field for field in schema.fields if field.name == top)
    return Assignment(field, ChildValues(top, values, reads_all))


def _assignment(field: Field, name: str, value: Any) -> Assignment:
    if callable(value) and not isinstance(value, pa.Scalar):
        return Assignment(field, value)
    dtype = _input_type(field)
    if pat.is_dictionary(dtype):
        dtype = dtype.value_type
    if field.is_blob and isinstance(value, Mapping | pa.StructScalar):
        # The value is a reference to an object, not bytes.
        dtype = input_field(field).type
    try:
        scalar = to_scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"new value of column {name!r}: {value!r} is not a valid {dtype}: {error}"
        ) from None
    if not field.nullable and not scalar.is_valid:
        raise InvalidInputError(f"column {name!r} must not be null")
    return Assignment(field, scalar)


def _input_type(field: Field) -> pa.DataType:
    """Return the type of new values of a field: text for JSON, bytes for blobs."""
    return pa.large_binary() if field.is_blob else storage_type(input_field(field).type)


def _array(given: Any, dtype: pa.DataType) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.ExtensionArray):
        given = given.storage
    if isinstance(given, str | bytes | Mapping):
        raise TypeError(f"expected one value for each row, not a single {type(given).__name__}")
    if not isinstance(given, pa.Array):
        return to_array(given if hasattr(given, "__array__") else list(given), dtype)
    if given.type == dtype or pat.is_struct(given.type):
        return given
    if pat.is_dictionary(dtype) and not pat.is_dictionary(given.type):
        return given.cast(dtype.value_type).dictionary_encode().cast(dtype)
    array = given.cast(dtype)
    check_exact(given, array)
    return array
