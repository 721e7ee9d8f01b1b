"""New values of columns: constants, or functions of the rows that are changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import input_field
from lance_spark.file.schema.logical_types import storage_type
from lance_spark.file.schema.schema import Field, Schema
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
            found = _array(given, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"new values of column {self.field.name!r}: the function returns what is no {kind}: {error}"
            ) from None
        if len(found) != rows.num_rows:
            raise InvalidInputError(
                f"new values of column {self.field.name!r}: the function returns {len(found)} for {rows.num_rows} rows"
            )
        return found


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
    found: dict[Path, Assignment] = {}
    for name, value in updates.items():
        if name in META_FIELDS and name not in schema.names:
            raise InvalidInputError(f"column {name!r} is about rows, and cannot be updated")
        path = path_to(schema, name)
        check_apart(names_of(path), list(found), "updates")
        found[names_of(path)] = _assignment(path[-1], name, value)
    tops = dict.fromkeys(path[0] for path in found)
    return tuple(_of_column(schema, top, found) for top in tops)


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
    return tuple(node.id for one in assignments for node in one.field.walk() if node.id >= 0)


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
    new = {one.field.name: one.values(rows) for one in assignments}
    columns = [
        new[name] if name in new else rows.column(rows.schema.get_field_index(name))
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _parse(name: str, value: Any, schema: Schema) -> Assignment:
    field = next((one for one in schema.fields if one.name == name), None)
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
    children = {path[1:]: one for path, one in given.items() if path[0] == top}
    reads_all = any(one.reads is None for one in children.values())
    values = {path: one.values for path, one in children.items()}
    field = next(one for one in schema.fields if one.name == top)
    return Assignment(field, ChildValues(top, values, reads_all))


def _assignment(field: Field, name: str, value: Any) -> Assignment:
    if callable(value) and not isinstance(value, pa.Scalar):
        return Assignment(field, value)
    kind = _kind(field)
    if pat.is_dictionary(kind):
        kind = kind.value_type
    if field.is_blob and isinstance(value, Mapping | pa.StructScalar):
        # A reference to an object.
        kind = input_field(field).type
    try:
        scalar = to_scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"new value of column {name!r}: {value!r} is no {kind}: {error}"
        ) from None
    if not field.nullable and not scalar.is_valid:
        raise InvalidInputError(f"column {name!r} must not be null")
    return Assignment(field, scalar)


def _kind(field: Field) -> pa.DataType:
    """Return the type that new values have: of JSON text, of blobs bytes."""
    return pa.large_binary() if field.is_blob else storage_type(input_field(field).type)


def _array(given: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.ExtensionArray):
        given = given.storage
    if isinstance(given, str | bytes | Mapping):
        raise TypeError(f"{type(given).__name__} is one value, not one for each row")
    if not isinstance(given, pa.Array):
        return to_array(given if hasattr(given, "__array__") else list(given), kind)
    if given.type == kind or pat.is_struct(given.type):
        return given
    if pat.is_dictionary(kind) and not pat.is_dictionary(given.type):
        return given.cast(kind.value_type).dictionary_encode().cast(kind)
    array = given.cast(kind)
    check_exact(given, array)
    return array
