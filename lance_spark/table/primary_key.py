"""The primary key of a table: the fields that its schema marks. No client enforces it."""

from __future__ import annotations

from collections.abc import Iterable

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema, kept


def primary_key(schema: Schema) -> list[tuple[Field, ...]]:
    """Return the paths of the fields of the primary key, in its order; empty without a primary key.

    Fields with a recorded position come first, the others in the order of their ids. A path has the
    field after the fields above it.
    """
    return list(_primary_key(schema))


@kept
def _primary_key(schema: Schema) -> tuple[tuple[Field, ...], ...]:
    ranked = []
    for top in schema.fields:
        for path in _paths((top,)):
            proto = path[-1].to_proto()
            if proto.unenforced_primary_key:
                position = proto.unenforced_primary_key_position
                ranked.append(((not position, position or proto.id, proto.id), path))
    return tuple(path for _, path in sorted(ranked, key=lambda pair: pair[0]))


def _paths(path: tuple[Field, ...]) -> Iterable[tuple[Field, ...]]:
    yield path
    # Other clients do not accept keys in lists and maps. A damaged schema can have fields below a
    # string.
    if path[-1].logical_type == "struct":
        for child in path[-1].children:
            yield from _paths((*path, child))
