"""Assignments of new values to columns: constants, or functions of the changed rows.

Children of structs can get values too. If a child of a null struct is set, the struct is no longer
null and its other children are null, as in Delta Lake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedError
from lance_spark.file.blobs.fields import has_blobs, input_field
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import storage_type
from lance_spark.predicates.literals import check_exact, to_array, to_scalar
from lance_spark.scan.fragment.row_meta import META_FIELDS

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
#: Names of the fields of a path, from the top-level column down.
Path = tuple[str, ...]


def name_parts(name: str) -> list[str] | None:
    """Split a path at its dots; None if it is malformed. Backticks can enclose a name."""
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(name, position)
        if match is None:
            return None
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        position = match.end()
        if position == len(name):
            return parts
        if name[position] != ".":
            return None
        position += 1


def exact_position(names: Sequence[str], name: str) -> int:
    """Return the position of a name; -1 if it is not among the names."""
    return names.index(name) if name in names else -1


def path_to(
    schema: Schema,
    name: str,
    find: Callable[[Sequence[str], str], int] = exact_position,
    alias: str | None = None,
) -> tuple[Field, ...]:
    """Return the path of a named field: the top-level field first, the named field last.

    - `name`: Name of a column, or path of a child of a struct with dots. A column whose name has
      dots is preferred.
    - `find`: Returns the position of a name among others; -1 if it is not one of them.
    - `alias`: Alias of the table, which can precede the name.

    Raises SchemaMismatchError: the field does not exist, or is not a child of a struct. Raises
    UnsupportedError: the struct has blobs.
    """
    position = find(schema.names, name)
    if position >= 0:
        return (schema.fields[position],)
    parts = name_parts(name) or [name]
    if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower():
        del parts[0]
    path: list[Field] = []
    fields: Sequence[Field] = schema.fields
    for depth, part in enumerate(parts):
        if path and not pat.is_struct(path[-1].arrow_field.type):
            raise SchemaMismatchError(
                f"the table has no column {name!r} to update: {'.'.join(parts[:depth])} is "
                f"{path[-1].arrow_field.type}, and only children of structs can be set; give a "
                "new value for the whole column"
            )
        names = [field.name for field in fields]
        position = find(names, part)
        if position < 0:
            parent = ".".join(parts[:depth]) or "it"
            raise SchemaMismatchError(
                f"the table has no column {name!r} to update; {parent} has {', '.join(names)}"
            )
        path.append(fields[position])
        fields = path[-1].children
    if len(path) > 1 and has_blobs(path[0]):
        raise UnsupportedError(
            f"column {name!r} cannot be set: {path[0].name!r} holds blobs; give a new value for "
            "the whole column"
        )
    return tuple(path)


def names_of(path: Sequence[Field]) -> Path:
    """Return the names of the fields of a path."""
    return tuple(field.name for field in path)


def check_disjoint_paths(path: Path, other_paths: Sequence[Path], argument: str) -> None:
    """Raise InvalidInputError if a column has two values, or a struct and its child have one."""
    for other_path in other_paths:
        if other_path == path:
            raise InvalidInputError(f"{argument}: column {'.'.join(path)!r} has two values")
        short, long = sorted((other_path, path), key=len)
        if long[: len(short)] == short:
            raise InvalidInputError(
                f"{argument}: values are given for column {'.'.join(short)!r} and for "
                f"{'.'.join(long)!r}, which is a part of it"
            )


@dataclass(frozen=True, slots=True)
class ChildValues:
    """Sets children of a struct, at any depth. Can be pickled if its functions can.

    - `name`: The top-level column.
    - `children`: By path below the column, the function that returns the values of rows.
    - `reads_all`: Whether the values are computed from other columns as well.
    """

    name: str
    children: Mapping[Path, Callable[[pa.RecordBatch], pa.Array]]
    reads_all: bool

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the structs with their new children."""
        array = rows.column(rows.schema.get_field_index(self.name))
        for path, values in self.children.items():
            array = _with_child(array, path, values(rows))
        return array


def _with_child(array: pa.Array, path: Path, values: pa.Array) -> pa.Array:
    # `flatten` makes children null where the struct is null.
    children = array.flatten()
    fields = list(array.type)
    position = next(n for n, field in enumerate(fields) if field.name == path[0])
    below = path[1:]
    children[position] = values if not below else _with_child(children[position], below, values)
    if children[position].type != fields[position].type:
        children[position] = children[position].cast(fields[position].type)
    return pa.StructArray.from_arrays(children, fields=fields)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and its new values. Can be pickled if its function can.

    - `field`: A top-level field of the table.
    - `value`: A callable gets the rows as a record batch, and returns one value for each row.
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

        Raises InvalidInputError: the function returns values of another type, or another number of
        values.
        """
        dtype = _input_type(self.field)
        if isinstance(self.value, pa.Scalar):
            if pat.is_dictionary(dtype):
                return pa.repeat(self.value, rows.num_rows).dictionary_encode().cast(dtype)
            return pa.repeat(self.value, rows.num_rows)
        computed = self.value(rows)
        try:
            values = _array(computed, dtype)
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

    - `updates`: By column, or by child of a struct, whose name has dots.

    Raises InvalidInputError: updates are empty, a column has two values, or a value does not have
    the column's type. Raises SchemaMismatchError: a column does not exist. Raises UnsupportedError:
    a child of a struct with blobs is set.
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
    """Return the assignments of top-level columns of a schema.

    Raises InvalidInputError: a value does not have the column's type.
    """
    by_name = {field.name: field for field in schema.fields}
    return tuple(_assignment(by_name[name], name, value) for name, value in updates.items())


def field_ids(assignments: Iterable[Assignment]) -> tuple[int, ...]:
    """Return the ids of the fields that get new values, with all fields below them."""
    return tuple(
        node.id for assignment in assignments for node in assignment.field.walk() if node.id >= 0
    )


def assign(
    rows: pa.RecordBatch, assignments: Iterable[Assignment], schema: Schema
) -> pa.RecordBatch:
    """Return rows with new values, with the columns of `schema` in its order.

    - `rows`: Can lack columns that get constants.

    Raises InvalidInputError.
    """
    new = {assignment.field.name: assignment.values(rows) for assignment in assignments}
    columns = [
        new[name] if name in new else rows.column(rows.schema.get_field_index(name))
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _of_column(schema: Schema, top: str, assignments: Mapping[Path, Assignment]) -> Assignment:
    """Return the assignment of a top-level column: the given one, or one of the assignments of its
    children.
    """
    if (top,) in assignments:
        return assignments[(top,)]
    children = {path[1:]: child for path, child in assignments.items() if path[0] == top}
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


def _array(values: Any, dtype: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if isinstance(values, str | bytes | Mapping):
        raise TypeError(f"expected one value for each row, not a single {type(values).__name__}")
    if not isinstance(values, pa.Array):
        return to_array(values if hasattr(values, "__array__") else list(values), dtype)
    if values.type == dtype or pat.is_struct(values.type):
        return values
    if pat.is_dictionary(dtype) and not pat.is_dictionary(values.type):
        return values.cast(dtype.value_type).dictionary_encode().cast(dtype)
    array = values.cast(dtype)
    check_exact(values, array)
    return array
