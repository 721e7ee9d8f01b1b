"""Tables that early releases of Lance wrote with errors: repairs of manifests, refused columns.

1. Releases before the field `writer_version`: row counts of fragments are wrong. The next commit
   counts the rows again (`fragments.row_counts`).
2. The same releases, and "lance" before 0.8.15: fragment bitmaps of indexes are wrong. The next
   commit leaves the indexes out. pylance reads the indexes instead, and repairs their bitmaps.
3. "lance" until 0.10.5: a column that was added after others were dropped got the id of a field
   that data files have. The reader gives such columns new ids (`with_unique_field_ids`); the next
   commit stores the new ids and drops data files without columns (`drop_unused_files`). This
   happened only in tables with data files of version 0.1.

pylance repairs the same errors with its next commit.

4. pylance around 0.19 to 0.39 kept blobs in a second table below ``_blobs/`` (0.18.2 and 1.0.4 did
   not). The manifests have a `blob_dataset_version`, which is the version of the second table.
   Columns with the metadata ``lance-schema:storage-class = blob`` do not have values in the data
   files: the values are in the second table, and stable row ids connect the rows of both. Each
   change of the table must change both.

   Newer releases of pylance read nulls from these columns. Their first commit drops the version of
   the second table; then a column without values looks like a column of nulls. Nulls are wrong
   results, so this package refuses to read these columns (`check_columns`), and reads the others.
   `Manifest.check_writable` refuses every change. Specification: field 17 of `Manifest`, reserved
   now.

5. pylance adds a column of nulls with the metadata ``lance-encoding:blob`` as a field of the type
   large_binary, also to tables whose files have version 2.2 or later, and so store such blobs as
   structs. It fails to read values of such a field. A commit that has values declares it as a
   struct (`declare_blobs`), as a commit of pylance does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_spark.encoding.field_metadata import BLOB_KEY, BLOB_V2
from lance_spark.errors import CorruptTableError, UnsupportedFeatureError
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.fragments import file_versions
from lance_spark.table.manifest.field_ids import max_field_id
from lance_spark.table.manifest.manifest import BLOB_DATASET_ADVICE, Manifest

if TYPE_CHECKING:
    from lance_spark.file.schema.field import Field

#: Field ids are smaller: they are int32.
_FIELD_IDS = 1 << 31
_LIBRARY = "lance"
#: The first release whose fragment bitmaps are right.
_TRUSTED_BITMAPS = (0, 8, 15)
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_EXTENSION_NAME = "ARROW:extension:name"
_STORAGE_CLASS = "lance-schema:storage-class"
_BLOB = b"blob"
_FIRST_BLOBS_AS_STRUCTS = (2, 2)


def has_wrong_bitmaps(manifest: table_pb2.Manifest) -> bool:
    """Return whether the fragment bitmaps of indexes may be wrong, as in an early release."""
    if not manifest.HasField("writer_version"):
        return True
    writer = manifest.writer_version
    if writer.library != _LIBRARY:
        return False
    parsed = _VERSION.match(writer.version)
    return parsed is None or tuple(map(int, parsed.groups())) < _TRUSTED_BITMAPS


def with_unique_field_ids(manifest: table_pb2.Manifest, name: str) -> table_pb2.Manifest:
    """Return a manifest in which each field id occurs in only one data file of a fragment.

    If several files of a fragment have the same field id, the last file has the values of the
    column. The column and this file get a new id. New ids follow the greatest id in use, in the
    order of the old ids. Files without a remaining column stay: cleanup must see that this version
    refers to them.

    - `manifest`: Not changed.
    - `name`: The name of the file in errors.

    Returns the same message if it needs no repair. Raises CorruptTableError: no field ids are left
    for the new ids.
    """
    if not _may_have_legacy_files(manifest):
        return manifest
    repeated: set[int] = set()
    for fragment in manifest.fragments:
        if len(fragment.files) > 1:
            repeated |= _repeated_ids(fragment)
    columns = {field.id for field in manifest.fields}
    repeated &= columns
    if not repeated:
        return manifest
    file_ids = (
        field_id
        for fragment in manifest.fragments
        for file in fragment.files
        for field_id in file.fields
    )
    first = max((*columns, *file_ids)) + 1
    if first + len(repeated) > _FIELD_IDS:
        raise CorruptTableError(
            f"{name}: data files of a fragment have the same field ids {sorted(repeated)[:5]}, and "
            f"its greatest field id is {first - 1}, so that none is left for new ids"
        )
    new_ids = {old: first + rank for rank, old in enumerate(sorted(repeated))}
    repaired = table_pb2.Manifest()
    repaired.CopyFrom(manifest)
    for field in repaired.fields:
        field.id = new_ids.get(field.id, field.id)
        field.parent_id = new_ids.get(field.parent_id, field.parent_id)
    for fragment in repaired.fragments:
        _renumber(fragment, new_ids)
    return repaired


def declare_blobs(manifest: table_pb2.Manifest) -> None:
    """Declare blobs in data files of version 2.2 or later as structs."""
    marked = {
        field.id
        for field in manifest.fields
        if field.logical_type in ("binary", "large_binary") and BLOB_KEY in field.metadata
    }
    if not marked or Manifest(manifest, "").data_storage_version < _FIRST_BLOBS_AS_STRUCTS:
        return
    files = (file for fragment in manifest.fragments for file in fragment.files)
    declared_ids = marked.intersection(number for file in files for number in file.fields)
    if not declared_ids:
        return
    next_id = max_field_id(manifest) + 1
    fields: list[file_pb2.Field] = []
    for field in manifest.fields:
        fields.append(field)
        if field.id not in declared_ids:
            continue
        del field.metadata[BLOB_KEY]
        field.metadata[_EXTENSION_NAME] = BLOB_V2
        field.extension_name = BLOB_V2.decode()
        field.logical_type = "struct"
        field.ClearField("encoding")
        for name, logical_type in (("data", "large_binary"), ("uri", "string")):
            fields.append(
                file_pb2.Field(
                    name=name,
                    id=next_id,
                    parent_id=field.id,
                    logical_type=logical_type,
                    nullable=True,
                    encoding=file_pb2.Encoding.VAR_BINARY,
                )
            )
            next_id += 1
    declared = table_pb2.Manifest(fields=fields)
    manifest.ClearField("fields")
    manifest.MergeFrom(declared)


def drop_unused_files(manifest: table_pb2.Manifest) -> None:
    """Remove data files without a column of the schema from fragments that have other files.

    pylance does the same as a part of its repair.

    - `manifest`: The manifest of a new version; changed in place. Not changed if the table does not
      have data files of version 0.1.
    """
    if not _may_have_legacy_files(manifest):
        return
    columns = {field.id for field in manifest.fields}
    for fragment in manifest.fragments:
        if len(fragment.files) > 1:
            used = [file for file in fragment.files if not columns.isdisjoint(file.fields)]
            if used and len(used) < len(fragment.files):
                copies = table_pb2.DataFragment(files=used)
                fragment.ClearField("files")
                fragment.MergeFrom(copies)


def _may_have_legacy_files(manifest: table_pb2.Manifest) -> bool:
    if not manifest.HasField("data_format"):
        return True
    return manifest.data_format.version in ("", "legacy", file_versions.text(file_versions.LEGACY))


def _repeated_ids(fragment: table_pb2.DataFragment) -> set[int]:
    """Return the field ids that occur in several files of a fragment."""
    seen: set[int] = set()
    repeated: set[int] = set()
    for file in fragment.files:
        ids = {field_id for field_id in file.fields if field_id >= 0}
        repeated |= seen & ids
        seen |= ids
    return repeated


def _renumber(fragment: table_pb2.DataFragment, new_ids: dict[int, int]) -> None:
    """Replace each id by its new id, in the last file that has it."""
    remaining = dict(new_ids)
    for file in reversed(fragment.files):
        file.fields[:] = [remaining.pop(field_id, field_id) for field_id in file.fields]


def check_columns(manifest: Manifest, fields: Iterable[Field]) -> None:
    """Refuse to read columns whose values are in the second table.

    - `fields`: Top-level columns that are read or used in a filter. Their children are checked too.

    Raises UnsupportedFeatureError: the message names the manifest and the column.
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
