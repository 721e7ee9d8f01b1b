"""Names of columns in another case, as Spark and other Lance clients accept them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def spelled(schema: pa.Schema, path: str, *, exact: bool = False) -> str:
    """Return the path of a column with its names as the schema spells them.

    - `path`: Name of a column, or dotted path of a child of structs.
    - `exact`: Whether names in another case are other names.

    Returns the given path, if no column has it, or if several columns differ from it only in case.
    """
    if exact or path in schema.names:
        return path
    parts: list[str] = []
    fields: list[pa.Field] = list(schema)
    for part in path.split("."):
        name = _found(part, [field.name for field in fields])
        if name is None:
            return path
        dtype = next(field.type for field in fields if field.name == name)
        parts.append(name)
        is_struct = pa.types.is_struct(dtype)
        fields = [dtype.field(index) for index in range(dtype.num_fields)] if is_struct else []
    return ".".join(parts)


def _found(name: str, names: Iterable[str]) -> str | None:
    """Return the only name that is equal, or else equal in another case."""
    like = [other for other in names if other.lower() == name.lower()]
    if name in like:
        return name
    return like[0] if len(like) == 1 else None
