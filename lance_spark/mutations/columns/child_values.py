"""New values of children of structs: names that lead to them, and structs put together of old and
new children.

A child that is set makes its struct not null, as in Delta Lake: the other children of a struct that
was null are null.
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
#: Names of a path from a top-level column down.
Path = tuple[str, ...]


def name_parts(name: str) -> list[str] | None:
    """Return the names of a path with dots, where backticks are around names with other characters;
    None if it is malformed.
    """
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


def exact(names: Sequence[str], wanted: str) -> int:
    """Return the position of a name, -1 if there is none."""
    return names.index(wanted) if wanted in names else -1


def path_to(
    schema: Schema,
    name: str,
    find: Callable[[Sequence[str], str], int] = exact,
    alias: str | None = None,
) -> tuple[Field, ...]:
    """Return the field that a name leads to, and all fields above it, the top-level one first.

    Parameters
    ----------
    schema : Schema
    name : str
        Of a column, or of a child of a struct behind dots; a column whose own name has dots goes
        before.
    find : callable
        Returns the position of a name among others, -1 if it is not one of them.
    alias : str, optional
        Of the table; it may stand before the name.

    Raises
    ------
    SchemaMismatchError
        There is no such field, or it is not a child of a struct.
    UnsupportedError
        The struct has blobs.
    """
    position = find(schema.names, name)
    if position >= 0:
        return (schema.fields[position],)
    parts = name_parts(name) or [name]
    if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower():
        del parts[0]
    results: list[Field] = []
    fields: Sequence[Field] = schema.fields
    for depth, part in enumerate(parts):
        if results and not pat.is_struct(results[-1].arrow_field.type):
            raise SchemaMismatchError(
                f"the table has no column {name!r} to update: {'.'.join(parts[:depth])} is "
                f"{results[-1].arrow_field.type}, and only "
                "children of structs can be set; give a new value for the whole column"
            )
        names = [field.name for field in fields]
        position = find(names, part)
        if position < 0:
            where = f"{'.'.join(parts[:depth])} has" if results else "there are"
            raise SchemaMismatchError(
                f"the table has no column {name!r} to update; {where} {', '.join(names)}"
            )
        results.append(fields[position])
        fields = results[-1].children
    if len(results) > 1 and has_blobs(results[0]):
        raise UnsupportedError(
            f"column {name!r} cannot be set: {results[0].name!r} holds blobs; give a new value for "
            "the whole column"
        )
    return tuple(results)


def names_of(path: Sequence[Field]) -> Path:
    """Return the names of a path."""
    return tuple(field.name for field in path)


def check_apart(path: Path, others: Sequence[Path], what: str) -> None:
    """Refuse two values for one column, or for a struct and a child of it.

    Raises
    ------
    InvalidInputError
    """
    for other in others:
        if other == path:
            raise InvalidInputError(f"{what}: there are two values for column {'.'.join(path)!r}")
        short, long = sorted((other, path), key=len)
        if long[: len(short)] == short:
            raise InvalidInputError(
                f"{what}: there are values for column {'.'.join(short)!r} and for "
                f"{'.'.join(long)!r}, which is a part of it"
            )


@dataclass(frozen=True, slots=True)
class ChildValues:
    """Gives a struct new values of some children, at any depth. Can be pickled, if the functions
    can.

    Attributes
    ----------
    name : str
        The top-level column.
    children : mapping of tuple of str to callable
        By path below the column, what returns the values for rows.
    reads_all : bool
        Whether the values are made of other columns too.
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
    # Children as they are seen from above: null where the struct is null.
    children = array.flatten()
    fields = list(array.type)
    position = next(n for n, field in enumerate(fields) if field.name == path[0])
    rest = path[1:]
    children[position] = values if not rest else _with_child(children[position], rest, values)
    if children[position].type != fields[position].type:
        children[position] = children[position].cast(fields[position].type)
    return pa.StructArray.from_arrays(children, fields=fields)
