"""Changes of the schema in a manifest builder: field ids, and parts of dropped columns.

A field id is assigned once. A new field gets an id above all ids of the schema and of data files,
including dropped columns that are still in a file. Tables with writer flag 32768 record the
greatest id ever assigned (`Manifest.max_allocated_field_id`). In other tables the id of a dropped
column is reused after its last file is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.rows import ids as row_ids

if TYPE_CHECKING:
    from lance_spark.table.paths import TablePaths

#: Operations that add rows or values, written for the schema that they were planned on.
WRITES_ROWS = frozenset({"append", "update", "data_replacement", "data_overlay"})
#: Replaces a field id in a data file whose values are obsolete.
TOMBSTONE = -2


def max_field_id(manifest: table_pb2.Manifest) -> int:
    """Return the greatest field id that a table is known to have assigned; -1 without any."""
    greatest = max((field.id for field in manifest.fields), default=-1)
    for fragment in manifest.fragments:
        for file in fragment.files:
            greatest = max(greatest, max(file.fields, default=-1))
        for overlay in fragment.overlays:
            greatest = max(greatest, max(overlay.data_file.fields, default=-1))
    if manifest.HasField("max_allocated_field_id"):
        greatest = max(greatest, manifest.max_allocated_field_id)
    return greatest


def check_new_fields(manifest: table_pb2.Manifest, schema: Iterable[file_pb2.Field]) -> None:
    """Refuse new fields with a used id, and another type for an existing field.

    Raises
    ------
    InvalidInputError
    """
    known = {item.id: item for item in manifest.fields}
    greatest = max_field_id(manifest)
    for item in schema:
        there = known.get(item.id, item)
        if (there.logical_type, there.parent_id) != (item.logical_type, item.parent_id):
            raise InvalidInputError(
                f"field {item.id} is {there.name!r} of type {there.logical_type}, and would become "
                f"{item.name!r} of type "
                f"{item.logical_type}; give that another id"
            )
        if item.id not in known and item.id <= greatest:
            raise InvalidInputError(
                f"the new field {item.name!r} has the id {item.id}, but ids up to {greatest} are "
                "those of fields that there "
                f"are or were; give it {greatest + 1} or more"
            )


def set_fields(draft: ManifestBuilder, schema: Iterable[file_pb2.Field]) -> None:
    """Replace the schema of the table; its metadata stays.

    Raises
    ------
    InvalidInputError
        Two fields have the same id, two columns the same name, or the fields do not form a tree.
    """
    fields = list(schema)
    ids = [field.id for field in fields]
    names = [field.name for field in fields if field.parent_id < 0]
    if len(set(ids)) < len(ids):
        raise InvalidInputError(f"the schema has field ids twice: {sorted(ids)}")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"the schema has columns of the same name: {', '.join(names)}")
    draft.set_fields(fields)


def drop_dead_files(draft: ManifestBuilder) -> None:
    """Remove data files and overlays without any column of the schema from their fragments.

    Files with hidden columns (row ids and versions) stay. One file of each fragment always stays:
    pylance cannot open a fragment without files.
    """
    kept = {field.id for field in draft.proto.fields}
    for fragment in draft.proto.fragments:
        live = [file for file in fragment.files if is_live(file, kept)]
        if len(live) < len(fragment.files):
            set_files(fragment, live or fragment.files[:1])
        if fragment.overlays:
            drop_dead_overlays(fragment, kept)


def drop_dead_overlays(fragment: table_pb2.DataFragment, kept: Collection[int]) -> None:
    """Remove overlays without any of the given fields from a fragment."""
    live = [
        overlay for overlay in fragment.overlays if any(n in kept for n in overlay.data_file.fields)
    ]
    if len(live) < len(fragment.overlays):
        proto = table_pb2.DataFragment(overlays=live)
        fragment.ClearField("overlays")
        fragment.MergeFrom(proto)


def hide_overlays(
    fragment: table_pb2.DataFragment, fields: Collection[int], planned_on: int | None
) -> None:
    """Hide columns with new values in the overlays of a fragment.

    Parameters
    ----------
    fragment : table_pb2.DataFragment
        Changed.
    fields : collection of int
        Field ids of these columns.
    planned_on : int, optional
        The version of the values: later overlays of other clients still apply.
    """
    for overlay in fragment.overlays:
        if planned_on is not None and overlay.committed_version > planned_on:
            continue
        named = overlay.data_file.fields
        named[:] = [TOMBSTONE if item in fields else item for item in named]
    left = {item for overlay in fragment.overlays for item in overlay.data_file.fields}
    drop_dead_overlays(fragment, left - {TOMBSTONE})


def drop_dead_indexes(draft: ManifestBuilder) -> None:
    """Drop indexes on fields that the schema lacks.

    Raises
    ------
    CorruptTableError
    """
    if draft.has_indices:
        proto = draft.proto
        index_updates.retain_relevant(
            draft.indices, proto.fields, (fragment.id for fragment in proto.fragments)
        )


def note_change(
    fragment: table_pb2.DataFragment,
    version: int,
    rows: BitMap | None = None,
    paths: TablePaths | None = None,
) -> None:
    """Record the version in which rows got new values, in a table with stable row ids.

    Parameters
    ----------
    fragment : table_pb2.DataFragment
        Changed.
    version : int
    rows : BitMap, optional
        Offsets of the rows; all of them by default.
    paths : TablePaths, optional
        Paths of the table: recorded versions may be in a separate file.

    Raises
    ------
    CorruptTableError
        A row does not exist, or the recorded versions cannot be read.
    UnsupportedFeatureError
        The recorded versions are in a data file.
    """
    # Imported here, as tables whose columns never change do not need it.
    import numpy as np

    from lance_spark.table.rows.deletions import check_rows, offsets_of
    from lance_spark.table.rows.sequences import decode_versions

    count = fragment.physical_rows
    if rows is None:
        fragment.inline_last_updated_at_versions = row_ids.constant_versions(count, version)
    else:
        name = f"fragment {fragment.id}"
        check_rows(rows, count, f"{name}: rows that have new values")
        if paths is not None:
            row_ids.inline_external_sequences(fragment, paths, [Lineage.UPDATED])
        known = fragment.WhichOneof("last_updated_at_version_sequence")
        if known is not None and known != "inline_last_updated_at_versions":
            raise UnsupportedFeatureError(
                f"{name}: the versions of its rows are in a data file, and are not changed there "
                "for some rows; compact it first"
            )
        # Readers assume the first version where none is recorded.
        before = np.ones(count, np.uint64)
        if known is not None:
            before = decode_versions(fragment.inline_last_updated_at_versions, count, name)
        changed = np.zeros(count, dtype=bool)
        changed[offsets_of(rows)] = True
        updated = np.where(changed, np.uint64(version), before)
        row_ids.store_lineage(fragment, updated=updated)


def is_live(file: table_pb2.DataFile, kept: Collection[int]) -> bool:
    """Tell whether a data file has one of the fields, or a hidden column."""
    return any(number in kept or number < TOMBSTONE for number in file.fields)


def loses_first(fields: Collection[int], replaced: Collection[int]) -> bool:
    """Tell whether a file keeps some fields without its first one; version 0.1 must not.

    The page table of a file of version 0.1 begins with its first field. pylance takes the least
    field id in the manifest for that field, and would read pages of other columns.
    """
    held = {field for field in fields if field >= 0}
    return not held.issubset(replaced) and min(held) in replaced


def set_files(fragment: table_pb2.DataFragment, files: list[table_pb2.DataFile]) -> None:
    """Replace all data files of a fragment."""
    proto = table_pb2.DataFragment(files=files)
    fragment.ClearField("files")
    fragment.MergeFrom(proto)
