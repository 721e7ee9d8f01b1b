"""Checks of tables that keep blobs in a second table below ``_blobs/``.

pylance wrote such tables for some time (0.19.2 and 0.39.0 did, 0.18.2 and 1.0.4 did not). Their
manifests have a `blob_dataset_version`, which is the version of the second table. Columns with the
metadata ``lance-schema:storage-class = blob`` do not have values in the data files: the values are
in the second table, and stable row ids connect the rows of both. Each change of the table must
change both.

Newer releases of pylance read nulls from these columns. Their first commit drops the version of the
second table; then a column without values looks like a column of nulls. Nulls are wrong results, so
this package refuses to read these columns, and reads the others. `Manifest.check_writable` refuses
every change.

Specification: field 17 of `Manifest`, reserved now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.table.manifest.manifest import BLOB_DATASET_ADVICE, Manifest

if TYPE_CHECKING:
    from lance_spark.file.schema.field import Field

_STORAGE_CLASS = "lance-schema:storage-class"
_BLOB = b"blob"


def check_columns(manifest: Manifest, fields: Iterable[Field]) -> None:
    """Refuse to read columns whose values are in the second table.

    Parameters
    ----------
    manifest : Manifest
    fields : iterable of Field
        Top-level columns that are read or used in a filter. Their children are checked too.

    Raises
    ------
    UnsupportedFeatureError
        The message names the manifest and the column.
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
            f"_blobs/ (blob_dataset_version {version}), which this release does not read. Name the "
            f"columns to read, without {', '.join(map(repr, names))}. {BLOB_DATASET_ADVICE}"
        )
