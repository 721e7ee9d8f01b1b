"""New values of columns: constants, or functions of the rows that are changed."""

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
    check_apart,
    names_of,
    path_to,
)
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.scan.predicates.literals import check_exact, to_array, to_scalar


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column that gets new values. Can be pickled, if the function can.

    Attributes
    ----------
    field : Field
        A top-level field of the table.
    value : pa.Scalar or callable
        A callable gets the rows as a record batch, and returns as many values.
    """

    field: Field
    value: pa.Scalar | Callable[[pa.RecordBatch], Any]

    @property
    def reads(self) -> frozenset[str] | None:
        """Columns that the values are made of; None for all."""
        if isinstance(self.value, pa.Scalar):
            return frozenset()
        if isinstance(self.value, ChildValues) and not self.value.reads_all:
            return frozenset({self.value.name})
        return None

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the values for some rows.

        Raises
        ------
        InvalidInputError
            The function returns values of another type, or another number of them.
        """
        kind = _kind(self.field)
        if isinstance(self.value, pa.Scalar):
            if pat.is_dictionary(kind):
                return pa.repeat(self.value, rows.num_rows).dictionary_encode().cast(kind)
            return pa.repeat(self.value, rows.num_rows)
        given = self.value(rows)
        try:
            result = _array(given, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"new values of column {self.field.name!r}: the function returns what is no "
                f"{kind}: {error}"
            ) from None
        if len(result) != rows.num_rows:
            raise InvalidInputError(
                f"new values of column {self.field.name!r}: the function returns {len(result)} for "
                f"{rows.num_rows} rows"
            )
        return result


def parse_updates(updates: Mapping[str, Any], schema: Schema) -> tuple[Assignment, ...]:
    """Return what a caller wants columns, and children of structs, to be.

    Parameters
    ----------
    updates : mapping of str to value, pa.Scalar or callable
        By column, or by child of a struct, whose name has dots.
    schema : Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        There are none, two for one column, or a value is not of the column's type.
    SchemaMismatchError
        There is no such column.
    UnsupportedError
        A struct that has blobs gets a new child.
    """
    if not isinstance(updates, Mapping) or not updates:
        raise InvalidInputError("updates must map one column at least to a value or a function")
    results: dict[Path, Assignment] = {}
    for name, value in updates.items():
        if name in META_FIELDS and name not in schema.names:
            raise InvalidInputError(f"column {name!r} is about rows, and cannot be updated")
        path = path_to(schema, name)
        check_apart(names_of(path), list(results), "updates")
        results[names_of(path)] = _assignment(path[-1], name, value)
    tops = dict.fromkeys(path[0] for path in results)
    return tuple(_of_column(schema, top, results) for top in tops)


def parse_assignments(updates: Mapping[str, Any], schema: Schema) -> tuple[Assignment, ...]:
    """Return what a caller wants columns to be.

    Parameters
    ----------
    updates : mapping of str to value, pa.Scalar or callable
        By column.
    schema : Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        There are none, or a value is none of the column's type.
    SchemaMismatchError
        There is no such column.
    """
    if not isinstance(updates, Mapping) or not updates:
        raise InvalidInputError("updates must map one column at least to a value or a function")
    return tuple(_parse(name, value, schema) for name, value in updates.items())


def field_ids(assignments: Iterable[Assignment]) -> tuple[int, ...]:
    """Return the ids of the fields that get new values, those of children too."""
    return tuple(
        node.id for assignment in assignments for node in assignment.field.walk() if node.id >= 0
    )


def assign(
    rows: pa.RecordBatch, assignments: Iterable[Assignment], schema: Schema
) -> pa.RecordBatch:
    """Return rows with new values; columns are those of `schema`, in its order.

    Parameters
    ----------
    rows : pa.RecordBatch
        May lack columns that get constants.
    assignments : iterable of Assignment
    schema : Schema

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
    field = next((item for item in schema.fields if item.name == name), None)
    if field is None:
        if name in META_FIELDS:
            raise InvalidInputError(f"column {name!r} is about rows, and cannot be updated")
        raise SchemaMismatchError(
            f"the table has no column {name!r} to update, only {', '.join(schema.names)}"
        )
    return _assignment(field, name, value)


def _of_column(schema: Schema, top: str, given: Mapping[Path, Assignment]) -> Assignment:
    """Return the assignment of a top-level column, whose children may have one each."""
    if (top,) in given:
        return given[(top,)]
    children = {path[1:]: item for path, item in given.items() if path[0] == top}
    reads_all = any(item.reads is None for item in children.values())
    values = {path: item.values for path, item in children.items()}
    field = next(item for item in schema.fields if item.name == top)
    return Assignment(field, ChildValues(top, values, reads_all))


def _assignment(field: Field, name: str, value: Any) -> Assignment:
    if callable(value) and not isinstance(value, pa.Scalar):
        return Assignment(field, value)
    dtype = _kind(field)
    if pat.is_dictionary(dtype):
        dtype = dtype.value_type
    if field.is_blob and isinstance(value, Mapping | pa.StructScalar):
        # A reference to an object.
        dtype = input_field(field).type
    try:
        scalar = to_scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"new value of column {name!r}: {value!r} is no {dtype}: {error}"
        ) from None
    if not field.nullable and not scalar.is_valid:
        raise InvalidInputError(f"column {name!r} must not be null")
    return Assignment(field, scalar)


def _kind(field: Field) -> pa.DataType:
    """Return the type that new values have: of JSON text, of blobs bytes."""
    return pa.large_binary() if field.is_blob else storage_type(input_field(field).type)


def _array(given: Any, dtype: pa.DataType) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.ExtensionArray):
        given = given.storage
    if isinstance(given, str | bytes | Mapping):
        raise TypeError(f"{type(given).__name__} is one value, not one for each row")
    if not isinstance(given, pa.Array):
        return to_array(given if hasattr(given, "__array__") else list(given), dtype)
    if given.type == dtype or pat.is_struct(given.type):
        return given
    if pat.is_dictionary(dtype) and not pat.is_dictionary(given.type):
        return given.cast(dtype.value_type).dictionary_encode().cast(dtype)
    array = given.cast(dtype)
    check_exact(given, array)
    return array
