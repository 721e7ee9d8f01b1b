"""Checks of indexes against their columns: tasks compare one segment each.

A task reads the column of the fragments that the segment covers, as a build does
(`lance_spark.indexes.builds`), and the files of the segment. Its memory is that of both.
Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.indexes.builds import builder_of_segment, naming_damaged_files, read_column
from lance_spark.indexes.checks import MAX_PROBLEMS, CoveredRows, Findings, check_of
from lance_spark.indexes.details import index_type_of
from lance_spark.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.search import documents_of
from lance_spark.indexes.table_rows import is_overlaid, value_fields
from lance_spark.mutations.indexes.create import current_fragments
from lance_spark.mutations.indexes.optimize import path_of
from lance_spark.proto import table_pb2
from lance_spark.runner import FragmentTask
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, ROW_ID
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import OpenTable


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """The result of a check of an index against its column.

    Attributes
    ----------
    name : str
    index_type : str
        For example ``BTree``.
    num_segments : int
    num_rows : int
        Live rows of the fragments that the segments cover.
    missing : int
        Rows that the index lacks: a query that uses it may lose them.
    wrong : int
        Rows with another value or more than once in the index, values out of order, and pages and
        zones whose bounds or counts are wrong.
    stale : int
        Entries of the index of rows that were deleted, or are in fragments that it does not cover;
        and zones of fragments without such rows. They are no error: queries leave them out.
    problems : tuple of str
        The first 20 problems, with row ids or addresses, and both values.
    """

    name: str
    index_type: str
    num_segments: int
    num_rows: int
    missing: int
    wrong: int
    stale: int
    problems: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """Whether nothing is missing or wrong."""
        return not (self.missing or self.wrong or self.problems)


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """The result of a check of one segment; the attributes are those of `IndexCheck`.

    - `uuid`: Name of the segment's folder.
    """

    uuid: str
    num_rows: int
    missing: int
    wrong: int
    stale: int
    problems: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """Whether nothing is missing or wrong."""
        return not (self.missing or self.wrong or self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask(FragmentTask):
    """Checks one segment against the fragments that it covers.

    - `path`: The fields from the top-level field to the column.
    - `moved`: Rows that compactions moved since the segment was written.
    """

    path: tuple[Field, ...]
    segment: table_pb2.IndexMetadata
    stable_row_ids: bool
    moved: MovedRows

    def run(self) -> SegmentCheck:
        """Compare the files with the column.

        Damaged and missing files of the index are problems, those of the table are errors.

        Raises CorruptFileError, CorruptTableError, StorageError.
        """
        segment = self.segment
        documents = documents_of(indexes.type_of_index(segment))
        if documents is not None:
            segment = documents.target_of(segment).segment
        has_addresses = indexes.holds_addresses(segment, self.stable_row_ids)
        values, row_keys = read_column(self, self.path, ROW_ADDRESS if has_addresses else ROW_ID)
        findings = Findings()
        uuid = indexes.uuid_of(segment)
        refused: InvalidInputError | None = None
        if documents is not None:
            with naming_damaged_files(self, self.path):
                try:
                    values = documents.extracted(values, documents.target_of(self.segment).path)
                except InvalidInputError as error:
                    refused = error
        try:
            if refused is not None:
                raise refused
            rows = CoveredRows(values, row_keys, has_addresses, self.moved)
            check = check_of(indexes.type_of_index(segment))
            assert check is not None, "the plan has refused other types"
            check.compare(IndexFiles(self.open_paths(), segment, keeps=False), rows, findings)
        except INDEX_ERRORS as error:
            findings = Findings(missing=len(row_keys), problems=[f"cannot be read: {error}"])
        return SegmentCheck(
            uuid,
            len(row_keys),
            findings.missing,
            findings.wrong,
            findings.stale,
            tuple(f"segment {uuid}: {problem}" for problem in findings.problems),
        )


def check_index(table: OpenTable, name: str) -> IndexCheck:
    """Check an index, one segment after the other; see `Dataset.check_index`."""
    tasks = plan_check(table, name)
    results = [task.run() for task in tasks]
    return combined(tasks[0].segment, results)


def plan_check(table: OpenTable, name: str) -> list[CheckTask]:
    """Return a task for each segment of an index.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises InvalidInputError: the index
    does not exist, its column was dropped, or its type cannot be checked. Raises
    UnsupportedFeatureError: the version of the index is unknown.
    """
    section = indexes.section_of(table.manifest)
    segments = [index for index in section.indices if index.name == name]
    if not segments:
        existing = sorted({index.name for index in section.indices})
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} not found; the indexes are "
            f"{', '.join(existing) or 'none'}"
        )
    for segment in segments:
        _check_type(table, segment)
    path = path_of(table, segments[0])
    if path is None:
        raise InvalidInputError(
            f"{table.store.display}: the column of index {name!r} does not exist; drop the index"
        )
    moved = MovedRows.of(table.paths, section)
    fragments = current_fragments(table)
    field_ids = value_fields(path)
    tasks = []
    for segment in segments:
        bitmap = moved.fragments(indexes.fragment_bitmap(segment) or BitMap())
        covered = tuple(
            fragment
            for fragment in fragments
            if fragment.id in bitmap
            and not is_overlaid(fragment, field_ids, segment.dataset_version)
        )
        tasks.append(
            CheckTask(
                uri=table.store.uri,
                fragments=covered,
                base_paths=table.manifest.base_paths,
                storage_options=table.store.options or {},
                path=path,
                segment=segment,
                stable_row_ids=table.manifest.flags.stable_row_ids,
                moved=moved,
            )
        )
    return tasks


def combined(segment: table_pb2.IndexMetadata, results: Sequence[SegmentCheck]) -> IndexCheck:
    """Return the result of an index by those of its segments, of which one is given."""
    problems = [problem for result in results for problem in result.problems]
    return IndexCheck(
        segment.name,
        index_type_of(segment),
        len(results),
        sum(result.num_rows for result in results),
        sum(result.missing for result in results),
        sum(result.wrong for result in results),
        sum(result.stale for result in results),
        tuple(problems[:MAX_PROBLEMS]),
    )


def _check_type(table: OpenTable, segment: table_pb2.IndexMetadata) -> None:
    """Raise an error if a segment has a type or version that cannot be checked."""
    documents = documents_of(indexes.type_of_index(segment))
    files = segment if documents is None else documents.target_of(segment).segment
    index_type = indexes.type_of_index(files)
    check = check_of(index_type)
    if check is None or len(segment.fields) != 1:
        checked = (part.name for part in registry.types_with("check"))
        raise InvalidInputError(
            f"{table.store.display}: index {segment.name!r} of type {index_type} cannot be "
            f"checked; the types are {', '.join(checked)}"
        )
    builder = builder_of_segment(files)
    if builder is None:
        raise InvalidInputError(
            f"{table.store.display}: index {segment.name!r} of type {index_type_of(segment)} "
            "cannot be checked"
        )
    versions = (builder.version,) if check.versions is None else check.versions
    if segment.index_version not in versions:
        raise UnsupportedFeatureError(
            f"{table.store.display}: index {segment.name!r} has version {segment.index_version}, "
            "which is unknown; newer releases may check it"
        )
    if check.prepare is not None:
        check.prepare(IndexFiles(table.paths, segment))
