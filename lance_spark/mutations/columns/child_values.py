"""New values of children of structs: their paths, and structs of old and new children.

If a child of a null struct is set, the struct is no longer null and its other children are null, as
in Delta Lake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedError
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema

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

    Parameters
    ----------
    name : str
        Name of a column, or path of a child of a struct with dots. A column whose name has dots is
        preferred.
    find : callable
        Returns the position of a name among others; -1 if it is not one of them.
    alias : str, optional
        Alias of the table, which can precede the name.

    Raises
    ------
    SchemaMismatchError
        The field does not exist, or is not a child of a struct.
    UnsupportedError
        The struct has blobs.
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


def check_disjoint_paths(path: Path, others: Sequence[Path], argument: str) -> None:
    """Raise an error if two values are given for a column, or for a struct and a child of it.

    Raises
    ------
    InvalidInputError
    """
    for other in others:
        if other == path:
            raise InvalidInputError(f"{argument}: column {'.'.join(path)!r} has two values")
        short, long = sorted((other, path), key=len)
        if long[: len(short)] == short:
            raise InvalidInputError(
                f"{argument}: values are given for column {'.'.join(short)!r} and for "
                f"{'.'.join(long)!r}, which is a part of it"
            )


@dataclass(frozen=True, slots=True)
class ChildValues:
    """Sets children of a struct, at any depth. Can be pickled if its functions can.

    Attributes
    ----------
    name : str
        The top-level column.
    children : mapping of tuple of str to callable
        By path below the column, the function that returns the values of rows.
    reads_all : bool
        Whether the values are computed from other columns as well.
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
