"""Tables that keep blobs in a second table below ``_blobs/``: refused, as far as they need it.

A manifest whose `blob_dataset_version` is not 0 belongs to a table that pylance wrote (0.19.2 and
0.39.0 do, 0.18.2 and 1.0.4 do not), or another client of that time. Columns whose metadata say
``lance-schema:storage-class = blob`` have no values in the data files of the table: these lie in
the second table, whose version the number is, tied to the rows by stable row ids. Each change of
the table has to change both.

Newer releases of pylance read nulls from such columns, and drop the number with their first commit,
after which nothing tells such a column from one that has only nulls. Reading nulls is wrong, so
that the columns are refused here; the others are read. Every change is refused: rows without their
blobs cannot be told from rows that have none.

Specification: field 17 of `Manifest`, reserved now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_spark.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Field
    from lance_spark.table.manifest.manifest import Manifest

_STORAGE_CLASS = "lance-schema:storage-class"
_BLOB = b"blob"
_WAY_OUT = "The second table can be opened by itself, at that version, and joined by _rowid: see docs/howto/blobs.md"


def check_columns(manifest: Manifest, fields: Iterable[Field]) -> None:
    """Refuse to read columns whose values lie in the second table.

    Parameters
    ----------
    manifest : Manifest
    fields : iterable of Field
        Top-level columns that are read or filtered by; fields below them are checked too.

    Raises
    ------
    UnsupportedFeatureError
        Names the table's manifest and the column.
    """
    version = manifest.message.blob_dataset_version
    if not version:
        return
    names = [
        field.name
        for field in fields
        if any(node.metadata.get(_STORAGE_CLASS) == _BLOB for node in field.walk())
    ]
    if names:
        raise UnsupportedFeatureError(
            f"{manifest.name}: the values of column {names[0]!r} are in a second table below "
            "_blobs/ "
            f"(blob_dataset_version {version}), which is not read with it. Name the columns to "
            "read, without "
            f"{', '.join(map(repr, names))}. {_WAY_OUT}"
        )


def check_changeable(manifest: Manifest, table: str) -> None:
    """Refuse a commit to a table that has a second one for its blobs.

    Raises
    ------
    UnsupportedFeatureError
    """
    version = manifest.message.blob_dataset_version
    if version:
        raise UnsupportedFeatureError(
            f"{table}: cannot write to it: its blobs are in a second table below _blobs/ "
            f"(blob_dataset_version {version}), "
            f"which the change would have to change too. Write its rows to a new table. {_WAY_OUT}"
        )
