"""Schema changes of a manifest under construction: new field ids, and removal of unused files.

A new field gets an id above all ids in the schema and in data files, which can still have columns
that were dropped. Tables with writer flag 32768 record the greatest id that was ever used
(`Manifest.max_allocated_field_id`). In other tables, the id of a column can be used again after all
its files were removed.
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
from lance_spark.table.manifest.manifest import max_field_id
from lance_spark.table.rows import ids as row_ids

if TYPE_CHECKING:
    from lance_spark.table.paths import TablePaths

#: Operations whose files were written for the schema that the table had when they were planned.
WRITES_ROWS = frozenset({"append", "update", "data_replacement", "data_overlay"})
#: Replaces a field id in a data file if another file has the values of the column.
TOMBSTONE = -2


def check_new_fields(manifest: table_pb2.Manifest, schema: Iterable[file_pb2.Field]) -> None:
    """Check the ids of new fields, and that existing fields keep their types.

    Raises InvalidInputError: a new field has an id that was used before, or an existing field would
    get another type or another parent.
    """
    existing_fields = {field.id: field for field in manifest.fields}
    greatest = max_field_id(manifest)
    for field in schema:
        existing = existing_fields.get(field.id, field)
        if (existing.logical_type, existing.parent_id) != (field.logical_type, field.parent_id):
            raise InvalidInputError(
                f"field {field.id} is {existing.name!r} of type {existing.logical_type}, and would "
                f"become {field.name!r} of type {field.logical_type}; give the new field another id"
            )
        if field.id not in existing_fields and field.id <= greatest:
            raise InvalidInputError(
                f"the new field {field.name!r} has the id {field.id}, but the ids up to {greatest} "
                f"were used before; give it the id {greatest + 1} or a greater one"
            )


def set_fields(builder: ManifestBuilder, schema: Iterable[file_pb2.Field]) -> None:
    """Replace the fields of the schema. The metadata of the schema stays.

    Raises InvalidInputError: two fields have the same id, or two columns the same name, or the
    fields do not form a tree.
    """
    fields = list(schema)
    ids = [field.id for field in fields]
    names = [field.name for field in fields if field.parent_id < 0]
    if len(set(ids)) < len(ids):
        raise InvalidInputError(f"the schema has a field id twice: {sorted(ids)}")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"the schema has columns of the same name: {', '.join(names)}")
    builder.set_fields(fields)


def drop_dead_files(builder: ManifestBuilder) -> None:
    """Remove data files and overlays that do not have a column of the schema.

    Files with hidden columns (row ids and versions of rows) stay. One file of each fragment stays
    in any case: pylance cannot open a fragment without files, although its own commits leave one
    behind if none of the columns has values yet.
    """
    field_ids = {field.id for field in builder.proto.fields}
    for fragment in builder.proto.fragments:
        live = [file for file in fragment.files if is_live(file, field_ids)]
        if len(live) < len(fragment.files):
            set_files(fragment, live or fragment.files[:1])
        if fragment.overlays:
            _drop_dead_overlays(fragment, field_ids)


def _drop_dead_overlays(fragment: table_pb2.DataFragment, field_ids: Collection[int]) -> None:
    """Remove the overlays of a fragment that do not have one of the fields `field_ids`."""
    live = [
        overlay
        for overlay in fragment.overlays
        if any(field_id in field_ids for field_id in overlay.data_file.fields)
    ]
    if len(live) < len(fragment.overlays):
        proto = table_pb2.DataFragment(overlays=live)
        fragment.ClearField("overlays")
        fragment.MergeFrom(proto)


def hide_overlays(
    fragment: table_pb2.DataFragment, fields: Collection[int], planned_on: int | None
) -> None:
    """Remove the values of columns from the overlays of a fragment, as new values replace them.

    - `fragment`: Changed in place.
    - `fields`: The field ids of the columns.
    - `planned_on`: The version on which the new values were planned. Overlays that other clients
      committed later stay valid.
    """
    for overlay in fragment.overlays:
        if planned_on is not None and overlay.committed_version > planned_on:
            continue
        ids = overlay.data_file.fields
        ids[:] = [TOMBSTONE if field_id in fields else field_id for field_id in ids]
    remaining = {field_id for overlay in fragment.overlays for field_id in overlay.data_file.fields}
    _drop_dead_overlays(fragment, remaining - {TOMBSTONE})


def drop_dead_indexes(builder: ManifestBuilder) -> None:
    """Remove indexes on fields that the schema does not have. Raises CorruptTableError."""
    if builder.has_indices:
        proto = builder.proto
        index_updates.retain_relevant(
            builder.indices, proto.fields, (fragment.id for fragment in proto.fragments)
        )


def note_change(
    fragment: table_pb2.DataFragment,
    version: int,
    rows: BitMap | None = None,
    paths: TablePaths | None = None,
) -> None:
    """Record the version that changed rows of a fragment. The table must have stable row ids.

    - `fragment`: Changed in place.
    - `rows`: Offsets of the changed rows; all rows by default.
    - `paths`: Opens the file of earlier recorded versions, if they are outside of the manifest.

    Raises CorruptTableError: a row is out of range, or the recorded versions cannot be read. Raises
    UnsupportedFeatureError: the recorded versions are a column of a data file.
    """
    # Imported here because most commits do not need it.
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
        stored_as = fragment.WhichOneof("last_updated_at_version_sequence")
        if stored_as is not None and stored_as != "inline_last_updated_at_versions":
            raise UnsupportedFeatureError(
                f"{name}: the versions of its rows are a column of a data file, which cannot be "
                "changed for some of the rows; compact the fragment first"
            )
        # A row without a recorded version counts as changed in version 1.
        recorded = np.ones(count, np.uint64)
        if stored_as is not None:
            recorded = decode_versions(fragment.inline_last_updated_at_versions, count, name)
        changed = np.zeros(count, dtype=bool)
        changed[offsets_of(rows)] = True
        updated = np.where(changed, np.uint64(version), recorded)
        row_ids.store_lineage(fragment, updated=updated)


def is_live(file: table_pb2.DataFile, field_ids: Collection[int]) -> bool:
    """Return whether a data file has one of the fields `field_ids`, or a hidden column."""
    return any(field_id in field_ids or field_id < TOMBSTONE for field_id in file.fields)


def loses_first(fields: Collection[int], replaced: Collection[int]) -> bool:
    """Return whether a file of version 0.1 would lose its first field, but keep others.

    This must not happen. The page table of such a file begins with its first field. pylance takes
    the smallest field id in the manifest for this field, and would read pages of other columns.
    """
    used = {field_id for field_id in fields if field_id >= 0}
    return not used.issubset(replaced) and min(used) in replaced


def set_files(fragment: table_pb2.DataFragment, files: list[table_pb2.DataFile]) -> None:
    """Replace all data files of a fragment."""
    proto = table_pb2.DataFragment(files=files)
    fragment.ClearField("files")
    fragment.MergeFrom(proto)
