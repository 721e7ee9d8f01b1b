"""Creation of indexes: tasks write one segment each, and the driver commits them together.

A task reads the column of some fragments, with the id or address of each row. Its memory is that of
the column in these fragments, so that a large table needs more tasks, not larger ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.file.schema.field import Field
from lance_spark.mutations.commits import (
    after_failure,
    at_version,
    check_writable,
    commit_operation,
    retry_on_conflict,
)
from lance_spark.mutations.indexes.builders import Builder, builder_of
from lance_spark.mutations.indexes.column import column_batches, read_column, row_ids, value_type
from lance_spark.mutations.indexes.text import FORMAT, stored_parts
from lance_spark.mutations.runner import FragmentTask, Runner, runner_for
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, ROW_ID
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, delete_segment_files
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.plan import select_fragments
from lance_spark.scan.text.files.stored_parts import StoredPart
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata.create_index import CreateIndex

#: Rows that a segment has at most by default, if fragments are not larger.
_MAX_SEGMENT_ROWS = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRequest:
    """An index to create.

    Attributes
    ----------
    column : str
        Name of a column, or dotted path of a child of structs.
    index_type : str
        Such as ``BTREE``; in any case.
    name : str or None
        ``<column>_idx`` by default.
    replace : bool
        Whether an index of the same name is replaced.
    train : bool
        Whether the index covers the rows of the version; else it is empty.
    fragment_ids : collection of int or None
        The fragments to cover; None for all.
    num_segments : int
        Most segments. Each is written by one task.
    options : mapping of str to object
        Parameters of the type.
    """

    column: str
    index_type: str
    name: str | None = None
    replace: bool = True
    train: bool = True
    fragment_ids: Collection[int] | None = None
    num_segments: int = 1
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSegments:
    """Segments of an index that become part of a new one.

    Attributes
    ----------
    segments : tuple of IndexMetadata
    fragments : tuple of Fragment
        The fragments that they cover.
    moved : MovedRows
        Rows that compactions moved since the segments were written.
    """

    segments: tuple[table_pb2.IndexMetadata, ...]
    fragments: tuple[Fragment, ...]
    moved: MovedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTask(FragmentTask):
    """Writes one segment of an index over some fragments.

    Attributes
    ----------
    path : tuple of Field
        The fields from the top-level field to the column.
    index_type : str
    parameters : mapping of str to object
    version : tuple of int
        File version of the table.
    stable_row_ids : bool
    merged : MergedSegments or None
        Segments that become part of the new one without another look at the column.
    """

    path: tuple[Field, ...]
    index_type: str
    parameters: Mapping[str, Any]
    version: tuple[int, int]
    stable_row_ids: bool
    merged: MergedSegments | None = None

    def run(self) -> table_pb2.IndexMetadata:
        """Write the files; return the segment without its name and version.

        Raises
        ------
        CorruptFileError, CorruptTableError, UnsupportedTypeError, StorageError
        """
        builder = builder_of(self.index_type)
        with SegmentWriter(self.open_paths(), self.version) as segment:
            self._write(segment, builder)
            files = segment.finish()
        message = table_pb2.IndexMetadata(
            fields=[self.path[-1].id],
            index_version=self.parameters.get(
                FORMAT, builder.version_in(stable_row_ids=self.stable_row_ids)
            ),
            created_at=time.time_ns() // 1_000_000,
            files=files,
        )
        message.uuid.uuid = segment.id.bytes
        message.index_details.type_url = builder.type_url
        message.index_details.value = builder.details(value_type(self.path[-1]), self.parameters)
        # An empty bitmap is not the same as an unknown one.
        merged = () if self.merged is None else self.merged.fragments
        covered = BitMap(fragment.id for fragment in (*self.fragments, *merged))
        indexes.set_fragment_bitmap(message, covered)
        return message

    def _write(self, segment: SegmentWriter, builder: Builder) -> None:
        row_field = ROW_ADDRESS if builder.with_addresses else ROW_ID
        if builder.write_batches is None:
            values, ids = read_column(self, self.path, row_field)
            builder.write(segment, values, ids, self.parameters)
            return
        batches = column_batches(self, self.path, row_field)
        builder.write_batches(segment, batches, self.parameters, self._stored())

    def _stored(self) -> Iterator[StoredPart]:
        """Yield the parts of the segments that are merged."""
        if self.merged is None:
            return
        fragments = self.merged.fragments
        ids = row_ids(self, fragments) if self.stable_row_ids else None
        covered = BitMap(fragment.id for fragment in fragments)
        for segment in self.merged.segments:
            files = IndexFiles(self.open_paths(), segment)
            yield from stored_parts(files, covered, self.merged.moved, ids)

    def undo(self, segment: table_pb2.IndexMetadata) -> None:
        """Delete the files of a segment."""
        delete_segment_files(self.open_paths(), segment)


def create_index(
    table: OpenTable,
    request: IndexRequest,
    options: CommitOptions,
    runner: Runner | None = None,
) -> OpenTable:
    """Create an index; see `Dataset.create_scalar_index`."""
    builder_of(request.index_type).parameters(request.options)
    check_least("num_segments", request.num_segments, 1)

    def change(current: OpenTable) -> Manifest:
        tasks = plan_index(current, request)
        segments = runner_for(current, runner).run(tasks, IndexTask.run, undo_of(tasks))
        return commit_index(current, request, segments, options)

    return at_version(table, retry_on_conflict(table, change, options.conflict_retries))


def plan_index(table: OpenTable, request: IndexRequest) -> list[IndexTask]:
    """Return the tasks that write the segments of an index.

    Raises
    ------
    InvalidInputError
        The column or a fragment does not exist, or an index has the name and is not replaced.
    UnsupportedTypeError
        Indexes of the type do not take the column.
    """
    check_writable(table)
    builder = builder_of(request.index_type)
    path = _indexed_path(table, request.column, builder)
    _removed(table, request, path[-1].id)
    fragments = current_fragments(table) if request.train else ()
    selected = select_fragments(fragments, request.fragment_ids)
    parameters = builder.parameters(request.options)
    return segment_tasks(table, builder, path, selected, parameters, request.num_segments)


def current_fragments(table: OpenTable) -> Sequence[Fragment]:
    """Return the fragments of a version with their row counts.

    Raises
    ------
    CorruptTableError
        Two fragments have the same id.
    CorruptFileError, StorageError
    """
    fragments = counted_fragments(table.paths, table.manifest)
    check_unique(fragments, table.manifest.name)
    return fragments


def segment_tasks(
    table: OpenTable,
    builder: Builder,
    path: tuple[Field, ...],
    fragments: Sequence[Fragment],
    parameters: Mapping[str, Any],
    num_segments: int,
) -> list[IndexTask]:
    """Return tasks that together cover some fragments; one task if there are none."""
    manifest = table.manifest
    return [
        IndexTask(
            uri=table.store.uri,
            fragments=tuple(group),
            base_paths=manifest.base_paths,
            storage_options=table.store.options or {},
            path=path,
            index_type=builder.type_name,
            parameters=parameters,
            version=manifest.data_storage_version,
            stable_row_ids=manifest.flags.stable_row_ids,
        )
        for group in _groups(fragments, num_segments)
    ]


def default_segments(table: OpenTable, parallelism: int) -> int:
    """Return a number of segments: one for each task that runs at once, and none too large."""
    rows = sum(fragment.physical_rows for fragment in table.manifest.fragments)
    return max(parallelism, -(-rows // _MAX_SEGMENT_ROWS), 1)


def commit_index(
    table: OpenTable,
    request: IndexRequest,
    segments: Sequence[table_pb2.IndexMetadata],
    options: CommitOptions,
) -> Manifest:
    """Commit the segments of an index, in place of an index of the same name.

    If the commit fails, the files of the segments are deleted.

    Raises
    ------
    LanceError
        Errors of `commit`.
    """
    name = request.name or f"{request.column}_idx"
    for segment in segments:
        segment.name = name
    removed = _removed(table, request, segments[0].fields[0])
    return commit_segments(table, segments, removed, options)


def commit_segments(
    table: OpenTable,
    segments: Sequence[table_pb2.IndexMetadata],
    removed: Sequence[table_pb2.IndexMetadata],
    options: CommitOptions,
) -> Manifest:
    """Commit segments, which have their names, in place of others.

    If the commit fails, the files of the segments are deleted.

    Raises
    ------
    LanceError
        Errors of `commit`.
    """
    for segment in segments:
        segment.dataset_version = table.version

    def discard() -> None:
        for segment in segments:
            delete_segment_files(table.paths, segment)

    with after_failure(discard):
        return commit_operation(table, CreateIndex(tuple(segments), tuple(removed)), options)


def undo_of(tasks: Sequence[IndexTask]) -> Callable[[table_pb2.IndexMetadata], None]:
    """Return a function that deletes the files of a segment that one of the tasks wrote."""
    return tasks[0].undo


def _removed(
    table: OpenTable, request: IndexRequest, field_id: int
) -> tuple[table_pb2.IndexMetadata, ...]:
    """Return the segments that an index replaces."""
    name = request.name or f"{request.column}_idx"
    if name in indexes.SYSTEM_NAMES or not name:
        raise InvalidInputError(f"{table.store.display}: an index cannot have the name {name!r}")
    existing = [index for index in indexes.section_of(table.manifest).indices if index.name == name]
    if existing and not request.replace:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} exists; replace it, or choose another name"
        )
    if existing and list(existing[0].fields) != [field_id]:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} exists on another column; drop it first, or "
            "choose another name"
        )
    return tuple(existing)


def _indexed_path(table: OpenTable, column: str, builder: Builder) -> tuple[Field, ...]:
    path = table.schema.path(column)
    check_column(table, path, builder)
    return path


def check_column(table: OpenTable, path: tuple[Field, ...], builder: Builder) -> None:
    """Raise an error if indexes of a type do not take a column.

    Raises
    ------
    InvalidInputError, UnsupportedTypeError
    """
    column = ".".join(node.name for node in path)
    if any(node.logical_type != "struct" for node in path[:-1]):
        raise InvalidInputError(
            f"{table.store.display}: column {column!r} is inside a list or map; index the column "
            "itself"
        )
    dtype = path[-1].arrow_field.type if builder.plain_only else value_type(path[-1])
    if path[-1].has_blobs or not builder.supports(dtype):
        raise UnsupportedTypeError(
            f"{table.store.display}: a {builder.type_name} index does not take column {column!r} "
            f"of type {path[-1].arrow_field.type}"
        )


def _groups(fragments: Sequence[Fragment], count: int) -> list[list[Fragment]]:
    """Return consecutive fragments in at most `count` groups of about equally many rows."""
    total = sum(fragment.physical_rows for fragment in fragments)
    groups: list[list[Fragment]] = [[]]
    rows = 0
    for fragment in fragments:
        if groups[-1] and rows * count >= total * len(groups):
            groups.append([])
        groups[-1].append(fragment)
        rows += fragment.physical_rows
    return groups
