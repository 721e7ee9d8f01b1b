"""Segments that can have values of rows from before a change, which another segment has anew.

A change of values in place takes the fragments out of the bitmaps of segments, but not out of their
files. pylance combines the answers of all segments. Once another segment covers these fragments, it
would find their rows by both values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyroaring import BitMap

from lance_spark.errors import CorruptError, UnsupportedError, VersionNotFoundError
from lance_spark.indexes import registry
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.updates import prune_rewritten_columns
from lance_spark.table.manifest.codec import find_manifest, read_version
from lance_spark.table.manifest.history import manifests_with_transactions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import TOMBSTONE
from lance_spark.table.manifest.versions import ManifestLocation, list_manifests
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.ids import created_versions_of

#: Most versions whose transactions are read.
_MAX_VERSIONS = 1_000


def num_outdated(
    table: OpenTable,
    type_name: str,
    segments: Sequence[table_pb2.IndexMetadata],
    new: Sequence[Fragment],
    moved: MovedRows | None,
) -> int:
    """Return the number of newest segments of which some may have older values of new rows.

    Parameters
    ----------
    table : OpenTable
    type_name : str
    segments : sequence of IndexMetadata
        Of one index.
    new : sequence of Fragment
        Fragments that another segment is to cover.
    moved : MovedRows, optional
        The rows that compactions moved, if the table records them.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    if not registry.type_built_as(type_name).adds_answers or not new or not segments:
        return 0
    if any(TOMBSTONE in file.fields for fragment in new for file in fragment.files):
        # A column was rewritten in place. The files of all segments may have its older values.
        return len(segments)
    bitmaps = [indexes.fragment_bitmap(segment) for segment in segments]
    last = max((bitmap.max() for bitmap in bitmaps if bitmap), default=-1)
    if any(fragment.id <= last for fragment in new):
        return len(segments)
    oldest = table.version + 1
    created = 0
    if table.manifest.flags.stable_row_ids:
        versions = [created_versions_of(fragment, table.paths) for fragment in new]
        created = min(
            (1 if part is None or not len(part) else int(part.min()) for part in versions),
            default=table.version,
        )
        if all(segment.dataset_version < created for segment in segments):
            return 0
        # An update keeps the ids of rows. Files have rows that were created before them.
        oldest = created
    rewritten = last_rewrite(table, segments)
    if rewritten is None:
        # The versions that would show a rewrite were removed, or are too many. A segment can have
        # older values if it was built after the oldest of the new rows was created.
        oldest = created or oldest
        rewritten = 0
    origins = BitMap() if moved is None else moved.origins(BitMap(part.id for part in new))
    for position, segment in enumerate(segments):
        version = segment.dataset_version
        if version >= oldest or version < rewritten or _is_before(table, version, origins):
            return len(segments) - position
    return 0


def _is_before(table: OpenTable, version: int, origins: BitMap) -> bool:
    """Return whether a segment can have old addresses of rows that a compaction moved since.

    Parameters
    ----------
    table : OpenTable
    version : int
        The version that the segment was built on.
    origins : BitMap
        The fragments that the rows were in before.
    """
    if not origins:
        return False
    if version >= table.version:
        greatest = table.manifest.max_fragment_id
    else:
        try:
            greatest = read_version(table.store, version).max_fragment_id
        except (VersionNotFoundError, CorruptError, UnsupportedError):
            return True
    return greatest is None or origins.min() <= greatest


def last_rewrite(table: OpenTable, segments: Sequence[table_pb2.IndexMetadata]) -> int | None:
    """Return the newest version that rewrote values of an indexed column in place; 0 if none did.

    Compactions may have moved these rows to other fragments since. Versions that are not newer than
    one of the segments are not looked at.

    Parameters
    ----------
    table : OpenTable
    segments : sequence of IndexMetadata
        Of one index.

    Returns
    -------
    int or None
        None if no version did that still exists, but others were removed or are too many.

    Raises
    ------
    CorruptTableError, StorageError
    """
    built_on = min((segment.dataset_version for segment in segments), default=table.version)
    if not built_on < table.version:
        return 0
    locations = {location.version: location for location in list_manifests(table.store)}
    read = [
        locations[version]
        for version in sorted(locations, reverse=True)
        if built_on < version <= table.version
    ]
    field_ids = segments[0].fields
    for manifest, transaction in manifests_with_transactions(table.store, read[:_MAX_VERSIONS]):
        before = locations.get(manifest.version - 1)
        if transaction is not None and _rewrites(table, manifest, transaction, before, field_ids):
            return manifest.version
    return 0 if len(read) == table.version - built_on <= _MAX_VERSIONS else None


def _rewrites(
    table: OpenTable,
    manifest: Manifest,
    transaction: Transaction,
    before: ManifestLocation | None,
    field_ids: Collection[int],
) -> bool:
    """Return whether a transaction rewrote values of some fields in place.

    Parameters
    ----------
    table : OpenTable
    manifest : Manifest
        The version that the transaction made.
    transaction : Transaction
    before : ManifestLocation or None
        The version before it; None if it does not exist any more.
    field_ids : collection of int
    """
    operation, fields = transaction.operation, manifest.message.fields
    if operation.name != "merge":
        modified = operation.modified_fields
        return bool(modified) and not indexes.related_fields(fields, modified).isdisjoint(field_ids)
    # A merge has all fragments, and does not say which of their files are new.
    previous = None if before is None else find_manifest(table.store, before)
    if previous is None:
        return True
    covered = BitMap(fragment.id for fragment in previous.message.fragments)
    probe = table_pb2.IndexMetadata(fields=field_ids)
    indexes.set_fragment_bitmap(probe, covered)
    section = table_pb2.IndexSection(indices=[probe])
    old, new = previous.message.fragments, manifest.message.fragments
    prune_rewritten_columns(section, old, new, fields)
    return indexes.fragment_bitmap(section.indices[0]) != covered
