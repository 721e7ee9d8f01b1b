"""Indexes extended to the fragments that they do not cover.

New segments are written from the rows of these fragments. To keep the number of segments small, the
newest segments can be merged with them, from their files
(`lance_spark.indexes.merges`). If that is not possible, the rows of their fragments are
read again. Retrained indexes are written again from all rows.

If the caller names no index, an index that this release cannot extend stays as it is, with a
warning, and the others are extended.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap

from lance_spark.arguments import check_least
from lance_spark.errors import (
    CorruptError,
    InvalidInputError,
    StorageError,
    UnsupportedError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.indexes.builds import MODEL, Builder, builder_of_segment, can_extend, value_type
from lance_spark.indexes.coverage import checked_section
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.table_rows import is_overlaid, value_fields
from lance_spark.mutations.commits import at_version, check_writable, retry_on_conflict
from lance_spark.mutations.indexes.create import (
    check_column,
    commit_segments,
    current_fragments,
    least_segments,
    segment_tasks,
    trained,
)
from lance_spark.mutations.indexes.task import IndexTask, MergedSegment, RefusedSegment, undo_of
from lance_spark.proto import table_pb2
from lance_spark.runner import Runner, runner_for
from lance_spark.table.commit.options import CommitOptions
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

# --------------------------------------------------------------------------------------------------
# Segments that can have values of rows from before a change, which another segment has anew.
#
# A change of values in place takes the fragments out of the bitmaps of segments, but not out of
# their files. pylance combines the answers of all segments. Once another segment covers these
# fragments, it would find their rows by both values.

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

    - `segments`: Of one index.
    - `new`: Fragments that another segment is to cover.
    - `moved`: The rows that compactions moved, if the table records them.

    Raises CorruptTableError, CorruptFileError, StorageError.
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

    - `version`: The version that the segment was built on.
    - `origins`: The fragments that the rows were in before.
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

    - `segments`: Of one index.

    Returns None if no version did that still exists, but others were removed or are too many.
    Raises CorruptTableError, StorageError.
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

    - `manifest`: The version that the transaction made.
    - `before`: The version before it; None if it does not exist any more.
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


# --------------------------------------------------------------------------------------------------
# Indexes extended to the fragments that they do not cover.

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """Indexes to extend.

    - `names`: None for all indexes whose type can be created.
    - `num_indices_to_merge`: Newest segments of each index that are merged with the new rows.
    - `retrain`: Whether all segments are written again from the rows.
    - `num_segments`: Most new segments of each index. None for as few as possible of those that are
      merged, and one for each task that runs at once of others.
    - `parallelism`: Number of tasks that run at once.
    """

    names: Sequence[str] | None = None
    num_indices_to_merge: int = 1
    retrain: bool = False
    num_segments: int | None = 1
    parallelism: int = 1


@dataclass(frozen=True, slots=True)
class Extension:
    """New segments of one index, and the segments that they replace."""

    name: str
    tasks: tuple[IndexTask, ...]
    removed: tuple[table_pb2.IndexMetadata, ...]


def optimize_indices(
    table: OpenTable,
    request: OptimizeRequest,
    options: CommitOptions,
    runner: Runner | None = None,
) -> OpenTable:
    """Extend indexes; see `Dataset.optimize_indices`."""

    def change(current: OpenTable) -> Manifest:
        return extend(current, request, options, runner_for(current, runner))

    return at_version(table, retry_on_conflict(table, change, options))


def extend(
    table: OpenTable, request: OptimizeRequest, options: CommitOptions, runner: Runner
) -> Manifest:
    """Write and commit the new segments of indexes; return the new version, if there are any.

    Raises InvalidInputError: an index does not exist, or its type cannot be created. Raises
    LanceError: errors of tasks and of `commit`.
    """
    extensions = plan_extensions(table, request)
    tasks = [task for extension in extensions for task in extension.tasks]
    if not tasks:
        return table.manifest
    undo = undo_of(tasks)
    results: list[table_pb2.IndexMetadata | RefusedSegment]
    if request.names is None:
        results = runner.run(tasks, IndexTask.run_if_possible, undo)
    else:
        results = list(runner.run(tasks, IndexTask.run, undo))
    segments: list[table_pb2.IndexMetadata] = []
    removed: list[table_pb2.IndexMetadata] = []
    remaining = iter(results)
    for extension in extensions:
        written = [next(remaining) for _ in extension.tasks]
        refused = next((part for part in written if isinstance(part, RefusedSegment)), None)
        if refused is not None:
            _warn(extension.name, refused.reason)
            with suppress(StorageError):
                for part in written:
                    undo(part)
            continue
        for segment in written:
            assert not isinstance(segment, RefusedSegment)
            segment.name = extension.name
            segments.append(segment)
        removed += extension.removed
    return commit_segments(table, segments, removed, options) if segments else table.manifest


def plan_extensions(table: OpenTable, request: OptimizeRequest) -> list[Extension]:
    """Return the new segments of indexes that do not cover all fragments.

    Raises InvalidInputError, CorruptTableError, StorageError.
    """
    check_writable(table)
    check_least("num_indices_to_merge", request.num_indices_to_merge, 0)
    if request.num_segments is not None:
        check_least("num_segments", request.num_segments, 1)
    by_name: dict[str, list[table_pb2.IndexMetadata]] = {}
    section = checked_section(table.paths, table.manifest)
    indexes.check_names(section, table.manifest.name)
    stored = indexes.read_section(table.manifest)
    narrowed = set()
    for index, before in zip(section.indices, stored.indices, strict=True):
        by_name.setdefault(index.name, []).append(index)
        if index.fragment_bitmap != before.fragment_bitmap:
            narrowed.add(index.uuid.uuid)
    fragments = current_fragments(table)
    moved = moved_rows(table)
    extensions = []
    for name in by_name if request.names is None else request.names:
        if name not in by_name:
            raise InvalidInputError(
                f"{table.store.display}: index {name!r} not found; the indexes are "
                f"{', '.join(sorted(by_name)) or 'none'}"
            )
        if can_extend(by_name[name][0]):
            try:
                _check_known(table, by_name[name])
                extension = _extension(table, request, by_name[name], narrowed, fragments, moved)
            except (UnsupportedError, InvalidInputError) as error:
                if request.names is not None:
                    raise
                _warn(name, str(error))
                continue
            extensions += [] if extension is None else [extension]
        elif request.names is not None:
            raise InvalidInputError(
                f"{table.store.display}: index {name!r} of type "
                f"{indexes.type_of_index(by_name[name][0])} cannot be extended by this release"
            )
    return extensions


def _check_known(table: OpenTable, segments: Sequence[table_pb2.IndexMetadata]) -> None:
    for segment in segments:
        if not indexes.has_known_version(segment):
            raise UnsupportedFeatureError(
                f"{table.store.display}: index {segment.name!r} has segments of version "
                f"{segment.index_version}, which this release does not read, so that it is not "
                "extended; use a newer release, or create the index again"
            )


def _warn(name: str, reason: str) -> None:
    _LOG.warning("index %r stays as it is, and does not cover new rows: %s", name, reason)


def _extension(
    table: OpenTable,
    request: OptimizeRequest,
    segments: Sequence[table_pb2.IndexMetadata],
    narrowed: Collection[bytes],
    fragments: Sequence[Fragment],
    moved: MovedRows | None,
) -> Extension | None:
    """Return the new segments of an index; None if there is nothing to do.

    - `narrowed`: Ids of the segments that lack rows of fragments which their stored bitmaps name.
    """
    # The zones of rows that moved do not exist any more: a new segment replaces them.
    current = [segment for segment in segments if not _has_moved_zones(segment, moved)]
    covered = BitMap.union(BitMap(), *(covered_by(segment, moved) for segment in current))
    new = [fragment for fragment in fragments if fragment.id not in covered]
    num_merged = min(request.num_indices_to_merge, len(current))
    if not new and not request.retrain and num_merged < 2:
        return None
    path = path_of(table, segments[0])
    if path is None:
        return None
    builder = builder_of_segment(segments[0])
    assert builder is not None, "the caller has asked for it"
    check_column(table, path, builder)
    parameters = builder.parameters_of(IndexFiles(table.paths, segments[-1]))
    if request.retrain or (builder.train is not None and parameters[MODEL] is None):
        merged, removed = [], list(segments)
        chosen, parameters = trained(table, builder, path, fragments, parameters)
        if builder.train is not None and not chosen:
            # Nothing can be learned: the index stays as it is.
            return None
        read = list(chosen)
    else:
        if builder.replaces_all is not None and builder.replaces_all(
            IndexFiles(table.paths, segment) for segment in segments
        ):
            num_merged = len(current)
        for position, segment in enumerate(current):
            # Another segment cannot cover the fragments while the stored bitmap names them.
            if segment.uuid.uuid in narrowed:
                num_merged = max(num_merged, len(current) - position)
        if num_merged < len(current):
            outdated = num_outdated(table, builder.type_name, current, new, moved)
            num_merged = max(num_merged, outdated)
        newest = current[len(current) - num_merged :]
        removed = [*(segment for segment in segments if segment not in current), *newest]
        pieces = pieces_of(table, newest, moved, fragments)
        merged = [piece for piece in pieces if can_merge(table, builder, path, parameters, piece)]
        read_ids = {fragment.id for fragment in new}
        for piece in pieces:
            read_ids |= set() if piece in merged else {part.id for part in piece.fragments}
        read = [fragment for fragment in fragments if fragment.id in read_ids]
    count = request.num_segments or _default_segments(builder, read, merged, request.parallelism)
    tasks = segment_tasks(table, builder, path, read, parameters, count, merged)
    # A segment that no task takes stays.
    copied = [piece.segment for task in tasks for piece in task.merged]
    unchanged = [piece.segment for piece in merged if piece.segment not in copied]
    removed = [segment for segment in removed if segment not in unchanged]
    return Extension(segments[0].name, tuple(tasks), tuple(removed)) if tasks else None


def _default_segments(
    builder: Builder,
    fragments: Sequence[Fragment],
    merged: Sequence[MergedSegment],
    parallelism: int,
) -> int:
    """Return a number of segments: as few as possible if segments are merged."""
    rows = sum(fragment.physical_rows for fragment in fragments)
    rows += sum(piece.num_rows for piece in merged)
    return max(least_segments(builder, rows), 1 if merged else parallelism)


def moved_rows(table: OpenTable) -> MovedRows | None:
    """Return the rows that compactions moved; None if this release cannot know them."""
    try:
        return MovedRows.of(table.paths, indexes.section_of(table.manifest))
    except UnsupportedFeatureError:
        return None


def covered_by(segment: table_pb2.IndexMetadata, moved: MovedRows | None) -> BitMap:
    """Return the fragments that a segment covers, with those that its rows were moved to."""
    bitmap = indexes.fragment_bitmap(segment) or BitMap()
    return bitmap if moved is None else bitmap | moved.fragments(bitmap)


def _has_moved_zones(segment: table_pb2.IndexMetadata, moved: MovedRows | None) -> bool:
    """Return whether a zone map or Bloom filter describes rows that moved since."""
    if moved is None or not indexes.is_zoned(segment):
        return False
    bitmap = covered_by(segment, None)
    return bool(moved.fragments(bitmap) != bitmap)


def pieces_of(
    table: OpenTable,
    segments: Sequence[table_pb2.IndexMetadata],
    moved: MovedRows | None,
    fragments: Sequence[Fragment],
) -> list[MergedSegment]:
    """Return segments with the fragments that exist, each of which is in one segment only."""
    pieces = []
    assigned = BitMap()
    for segment in segments:
        ids = covered_by(segment, moved) - assigned
        existing = tuple(fragment for fragment in fragments if fragment.id in ids)
        assigned |= ids
        if existing:
            stable_row_ids = table.manifest.flags.stable_row_ids
            pieces.append(MergedSegment(segment, existing, moved, stable_row_ids))
    return pieces


def can_merge(
    table: OpenTable,
    builder: Builder,
    path: tuple[Field, ...],
    parameters: Mapping[str, Any],
    piece: MergedSegment,
) -> bool:
    """Return whether the files of a segment can be read in place of the rows of the table."""
    # The files have values that overlays replaced.
    field_ids, built_on = value_fields(path), piece.segment.dataset_version
    if (
        piece.moved is None
        or indexes.may_lack_rows(piece.segment)
        or any(is_overlaid(fragment, field_ids, built_on) for fragment in piece.fragments)
    ):
        return False
    if builder.can_merge is not None:
        return builder.can_merge(IndexFiles(table.paths, piece.segment), parameters)
    if builder.write_batches is not None:
        return True
    segment, merging = piece.segment, builder.merging
    stable = piece.stable_row_ids
    has_addresses = indexes.holds_addresses(segment, stable)
    if (
        merging is None
        or segment.index_version != builder.version
        or has_addresses != (builder.with_addresses or not stable)
    ):
        return False
    # The zones of rows that moved do not exist any more.
    if indexes.is_zoned(segment) and any(True for _ in piece.moved.old_fragments()):
        return False
    files = IndexFiles(table.paths, segment)
    return merging.can_merge(files, value_type(path[-1]), parameters)


def path_of(table: OpenTable, index: table_pb2.IndexMetadata) -> tuple[Field, ...] | None:
    """Return the fields from the top-level field to the column; None if it was dropped."""
    parents: dict[int, Field] = {}
    for node in table.schema.walk():
        parents |= {child.id: node for child in node.children}
    field = table.schema.field_by_id(index.fields[0]) if len(index.fields) == 1 else None
    path: list[Field] = []
    while field is not None:
        path.insert(0, field)
        field = parents.get(field.id)
    return tuple(path) or None
