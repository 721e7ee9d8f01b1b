"""Where files of version 2.1 and later may have structs without fields.

A file has a column for such a struct, as for any other leaf, but pylance (14.0 too) reads no column
for it: each leaf that follows in the schema is read from the column of the leaf before. pylance
then panics, or gives values of another column, also for files that pylance wrote. It reads the
other leaves right if the structs without fields are the last leaves of the file. In lists, maps and
fixed-size lists it cannot store them. Version 2.0 has no such limits.

Only files that pylance reads right are written. All files are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.schema.field import Field

_ADVICE = "or write data storage version 2.0"


def check_empty_structs(fields: Iterable[Field]) -> None:
    """Refuse a schema of a file of version 2.1 or later that pylance would read wrongly.

    Parameters
    ----------
    fields : iterable of Field
        The columns of the file, in their order.

    Raises
    ------
    UnsupportedTypeError
        A struct without fields is inside a list or map, or another leaf follows.
    """
    before: str | None = None
    for path, field, repeated in _leaves(fields, (), False):
        if not _is_empty_struct(field):
            if before is not None:
                raise UnsupportedTypeError(
                    f"column {before!r} is a struct without fields and {path!r} follows: other "
                    "Lance clients read such a "
                    f"file wrongly; put {before!r} last, {_ADVICE}"
                )
        elif repeated:
            raise UnsupportedTypeError(
                f"column {path!r}: a struct without fields cannot be stored in lists and maps; "
                f"give it a field, {_ADVICE}"
            )
        else:
            before = path


def _leaves(
    fields: Iterable[Field], above: tuple[str, ...], repeated: bool
) -> Iterator[tuple[str, Field, bool]]:
    """Yield the path of each leaf, the leaf, and whether it is in a list or map."""
    for field in fields:
        path = (*above, field.name)
        if not field.children or field.is_packed or field.is_blob:
            yield ".".join(path), field, repeated
        else:
            yield from _leaves(field.children, path, repeated or field.logical_type != "struct")


def _is_empty_struct(field: Field) -> bool:
    return field.logical_type == "struct" and not field.children and not field.is_blob
