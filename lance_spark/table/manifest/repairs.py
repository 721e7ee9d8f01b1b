"""Repairs of manifests that early releases of Lance wrote with errors.

1. Releases before the field `writer_version`: row counts of fragments are wrong. The next commit
   counts the rows again (`fragments.row_counts`).
2. The same releases, and "lance" before 0.8.15: fragment bitmaps of indexes are wrong. The next
   commit leaves the indexes out. pylance reads the indexes instead, and repairs their bitmaps.
3. "lance" until 0.10.5: a column that was added after others were dropped got the id of a field
   that data files have. The reader gives such columns new ids (`with_unique_field_ids`); the next
   commit stores the new ids and drops data files without columns (`drop_unused_files`). This
   happened only in tables with data files of version 0.1.

pylance repairs the same errors with its next commit.
"""

from __future__ import annotations

import re

from lance_spark.proto import table_pb2
from lance_spark.table.fragments import file_versions

_LIBRARY = "lance"
#: The first release whose fragment bitmaps are right.
_TRUSTED_BITMAPS = (0, 8, 15)
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")


def has_wrong_bitmaps(manifest: table_pb2.Manifest) -> bool:
    """Tell whether the fragment bitmaps of indexes may be wrong, as an early release wrote them."""
    if not manifest.HasField("writer_version"):
        return True
    writer = manifest.writer_version
    if writer.library != _LIBRARY:
        return False
    parsed = _VERSION.match(writer.version)
    return parsed is None or tuple(map(int, parsed.groups())) < _TRUSTED_BITMAPS


def with_unique_field_ids(manifest: table_pb2.Manifest) -> table_pb2.Manifest:
    """Return a manifest in which each field id occurs in only one data file of a fragment.

    If several files of a fragment have the same field id, the last file has the values of the
    column. The column and this file get a new id. New ids follow the greatest id in use, in the
    order of the old ids. Files without a remaining column stay: cleanup must see that this version
    refers to them.

    Parameters
    ----------
    manifest : table_pb2.Manifest
        Not changed.

    Returns
    -------
    table_pb2.Manifest
        The same message if it needs no repair.
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
    new_ids = {old: first + rank for rank, old in enumerate(sorted(repeated))}
    repaired = table_pb2.Manifest()
    repaired.CopyFrom(manifest)
    for field in repaired.fields:
        field.id = new_ids.get(field.id, field.id)
        field.parent_id = new_ids.get(field.parent_id, field.parent_id)
    for fragment in repaired.fragments:
        _renumber(fragment, new_ids)
    return repaired


def drop_unused_files(manifest: table_pb2.Manifest) -> None:
    """Remove data files without a column of the schema from fragments that have other files.

    pylance does the same as a part of its repair.

    Parameters
    ----------
    manifest : table_pb2.Manifest
        The manifest of a new version; changed in place. Not changed if the table does not have data
        files of version 0.1.
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
