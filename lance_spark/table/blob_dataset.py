"""Refuses columns of blobs that are stored in a second table below ``_blobs/``.

Releases of pylance around 0.19 to 0.39 wrote such tables; their manifests have a
`blob_dataset_version` other than 0. The values of columns with the metadata
``lance-schema:storage-class = blob`` are in the second table, at that version, and stable row ids
link the rows. Each change of the table must change both.

Newer releases of pylance read nulls from such columns, and drop the number with their first commit.
After that, the columns look like columns of nulls. Nulls would be wrong, so these columns are
refused here; other columns are read. Every change is refused, as it would lose the link.

Specification: field 17 of `Manifest`, reserved now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from lance_spark.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Field

_STORAGE_CLASS = "lance-schema:storage-class"
_BLOB = b"blob"
_WAY_OUT = (
    "The second table can be opened by itself, at that version, and joined by _rowid: see "
    "docs/howto/blobs.md"
)


class _Manifest(Protocol):
    """The attributes of `Manifest` that this module needs; the manifest imports this module."""

    @property
    def name(self) -> str: ...

    @property
    def message(self) -> Any: ...


def check_columns(manifest: _Manifest, fields: Iterable[Field]) -> None:
    """Refuse to read columns whose values are in the second table.

    Parameters
    ----------
    manifest : Manifest
    fields : iterable of Field
        Top-level columns of the projection and the filter, checked at any depth.

    Raises
    ------
    UnsupportedFeatureError
        Names the manifest and the column.
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


def check_changeable(manifest: _Manifest, table: str) -> None:
    """Refuse a commit to a table with a second table for its blobs.

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
