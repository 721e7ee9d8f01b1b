"""What early releases of Lance wrote wrong, and how it is repaired. pylance repairs the same with its next commit.

| written by | what is wrong | repair | when |
| --- | --- | --- | --- |
| releases before `writer_version` | numbers of rows of fragments | counted again (`row_counts`) | the next commit |
| the same, and "lance" before 0.8.15 | fragment bitmaps of indexes | the indexes are left out; pylance reads them to \
repair their bitmaps | the next commit |
| "lance" until 0.10.5 | columns that were added after others were dropped got ids of fields that data files have | \
such columns get new ids (`with_unique_field_ids`), data files without columns go (`drop_unused_files`) | reading; \
the next commit writes it |

The last one happened in tables with data files of version 0.1 only.
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
    """Tell whether the writer of a version may have written wrong fragment bitmaps of indexes."""
    if not manifest.HasField("writer_version"):
        return True
    writer = manifest.writer_version
    if writer.library != _LIBRARY:
        return False
    parsed = _VERSION.match(writer.version)
    return parsed is None or tuple(map(int, parsed.groups())) < _TRUSTED_BITMAPS


def with_unique_field_ids(manifest: table_pb2.Manifest) -> table_pb2.Manifest:
    """Return a manifest in which no two data files of a fragment have a field of one id.

    Of the files of a fragment that have the same field, the last one has the values of the column. The column and these files get
    a new id, in increasing order of the old ids, after the greatest one in use. Files that have no column left stay: cleanup has to
    see that this version refers to them.

    Parameters
    ----------
    manifest : table_pb2.Manifest
        Is not changed.

    Returns
    -------
    table_pb2.Manifest
        The same message if it needs no repair.
    """
    if not _may_have_legacy_files(manifest):
        return manifest
    twice: set[int] = set()
    for fragment in manifest.fragments:
        if len(fragment.files) > 1:
            twice |= _ids_of_several_files(fragment)
    columns = {field.id for field in manifest.fields}
    twice &= columns
    if not twice:
        return manifest
    in_files = (id_ for item in manifest.fragments for file in item.files for id_ in file.fields)
    first = max((*columns, *in_files)) + 1
    new_ids = {old: first + rank for rank, old in enumerate(sorted(twice))}
    repaired = table_pb2.Manifest()
    repaired.CopyFrom(manifest)
    for field in repaired.fields:
        field.id = new_ids.get(field.id, field.id)
        field.parent_id = new_ids.get(field.parent_id, field.parent_id)
    for fragment in repaired.fragments:
        _renumber(fragment, new_ids)
    return repaired


def drop_unused_files(manifest: table_pb2.Manifest) -> None:
    """Take data files without any column of the schema out of fragments that have others, as pylance does with its repair.

    Parameters
    ----------
    manifest : table_pb2.Manifest
        Of a new version; changed in place. Tables that have no data files of version 0.1 stay as they are.
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


def _ids_of_several_files(fragment: table_pb2.DataFragment) -> set[int]:
    seen: set[int] = set()
    several: set[int] = set()
    for file in fragment.files:
        ids = {id_ for id_ in file.fields if id_ >= 0}
        several |= seen & ids
        seen |= ids
    return several


def _renumber(fragment: table_pb2.DataFragment, new_ids: dict[int, int]) -> None:
    """Give the last file that has a field the field's new id."""
    left = dict(new_ids)
    for file in reversed(fragment.files):
        file.fields[:] = [left.pop(id_, id_) for id_ in file.fields]
