"""Collection of a report about a version of a table.

| part of the report | source |
| --- | --- |
| rows, fragments, deletions, sizes, schema, configuration | the manifest (`version_facts`) |
| newest versions and their operations | their manifests and transactions |
| tags, branches, indexes | their files below the main root; the manifest |
| columns, pages, encodings | the ends of data files: of all, or of an evenly spread sample |

The report lists a data file that cannot be read as a problem, and goes on with the others.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from pyroaring import BitMap

from lance_spark import progress
from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError, LanceError, error_context
from lance_spark.file.open import open_file
from lance_spark.indexes.coverage import checked_section
from lance_spark.indexes.details import described_of
from lance_spark.indexes.files import IndexFiles
from lance_spark.inspect.operations import user_operation
from lance_spark.inspect.pages import ColumnPages, columns_of
from lance_spark.inspect.report import (
    BaseFacts,
    ColumnTotal,
    FileFacts,
    FragmentFacts,
    IndexFacts,
    PartitionFacts,
    PastVersion,
    SchemaColumn,
    SegmentFacts,
    TableFacts,
    VersionFacts,
)
from lance_spark.mutations.indexes.existing import IndexDescription, IndexSegment
from lance_spark.storage.parallel import read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections
from lance_spark.table.indexes.sections import FragmentIds
from lance_spark.table.manifest import manifest as flags
from lance_spark.table.manifest.history import manifests_with_transactions, summarize
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.open import OpenTable

# --------------------------------------------------------------------------------------------------
# Collection of the facts about indexes: coverage, size, age and stale entries.
#
# Reads the manifest, and of vector indexes how many rows each partition has. A segment names the
# fragments that it covers. Rows of them that were deleted, fragments that were removed, and old
# addresses of rows that a deferred compaction moved, stay in the files of the segment until the
# index is extended or created again.


def index_facts(
    dataset: Dataset, version: VersionFacts, problems: list[str]
) -> tuple[IndexFacts, ...]:
    """Return the facts about the indexes of a version.

    - `problems`: Gets a text for each file that cannot be read.

    Raises CorruptTableError, MissingFileError, StorageError.
    """
    fragments = {fragment.id: fragment for fragment in version.fragments}
    now = datetime.datetime.now(datetime.UTC)
    named = {
        sections.uuid_of(index): sections.fragment_bitmap(index) or BitMap()
        for index in checked_section(dataset._table.paths, dataset._table.manifest).indices
    }
    partitions = _partitions(dataset, problems)
    return tuple(
        _index(description, fragments, named, partitions, now)
        for description in dataset.describe_indices()
    )


def _partitions(dataset: Dataset, problems: list[str]) -> dict[str, PartitionFacts]:
    """Return the partitions of segments of vector indexes, by the uuid of the segment."""
    facts = {}
    for index in sections.read_section(dataset._table.manifest).indices:
        described = described_of(index)
        if described is None or described.statistics is None:
            continue
        try:
            numbers = described.statistics(IndexFiles(dataset._table.paths, index))
        except LanceError as error:
            problems.append(f"index {index.name}: {error}")
            continue
        if numbers:
            rows = tuple(part["size"] for part in numbers["partitions"])
            facts[sections.uuid_of(index)] = PartitionFacts(
                numbers["metric_type"], rows, numbers["loss"]
            )
    return facts


def _index(
    description: IndexDescription,
    fragments: Mapping[int, FragmentFacts],
    named: Mapping[str, BitMap],
    partitions: Mapping[str, PartitionFacts],
    now: datetime.datetime,
) -> IndexFacts:
    segments = tuple(
        _segment(segment, fragments, named[segment.uuid], partitions.get(segment.uuid), now)
        for segment in description.segments
    )
    live = BitMap(fragments)
    covered = BitMap()
    for segment in description.segments:
        covered |= _covered(segment) & live
    # The records of a table, such as the fragment reuse index, are about no column.
    others = [
        fragment
        for fragment in fragments.values()
        if fragment.id not in covered and description.fields
    ]
    return IndexFacts(
        description.name,
        description.index_type,
        description.field_names,
        description.num_rows_indexed,
        len(segments),
        description.total_size_bytes,
        num_fragments=len(covered),
        num_uncovered_fragments=len(others),
        num_uncovered_rows=sum(item.num_rows - item.num_deleted_rows for item in others),
        num_deleted_rows=sum(fragments[number].num_deleted_rows for number in covered),
        num_removed_fragments=sum(segment.num_removed_fragments for segment in segments),
        num_moved_fragments=sum(segment.num_moved_fragments for segment in segments),
        segments=segments,
    )


def _segment(
    segment: IndexSegment,
    fragments: Mapping[int, FragmentFacts],
    named: BitMap,
    partitions: PartitionFacts | None,
    now: datetime.datetime,
) -> SegmentFacts:
    # A bitmap of few bytes can have millions of ids, most of which no fragment has.
    covered, live = _covered(segment), BitMap(fragments)
    existing = [fragments[number] for number in covered & live]
    created = segment.created_at
    return SegmentFacts(
        segment.uuid,
        segment.dataset_version,
        segment.index_version,
        created,
        None if created is None else max(now - created, datetime.timedelta()),
        segment.size_bytes,
        num_fragments=len(existing),
        num_rows=sum(fragment.num_rows - fragment.num_deleted_rows for fragment in existing),
        num_removed_fragments=len((named & covered) - live),
        num_moved_fragments=len(named - covered),
        partitions=partitions,
    )


def _covered(segment: IndexSegment) -> BitMap:
    """Return the fragments with the rows of a segment."""
    ids = segment.fragment_ids
    return ids.bitmap if isinstance(ids, FragmentIds) else BitMap()


# --------------------------------------------------------------------------------------------------
# Collection of a report about a version of a table.

#: Default for the number of versions in the history of a report.
DEFAULT_VERSIONS = 20
#: Default for the number of data files whose metadata is read.
DEFAULT_FILES = 64


def version_facts(table: OpenTable) -> VersionFacts:
    """Return the facts in the manifest of a version. Reads no file. Raises CorruptTableError."""
    manifest = table.manifest
    major, minor = manifest.data_storage_version
    fragments = manifest.fragments
    file_versions = Counter(
        _file_version(file) for fragment in fragments for file in fragment.files
    )
    return VersionFacts(
        name=table.store.display,
        branch=table.branch,
        version=manifest.version,
        timestamp=manifest.timestamp,
        data_storage_version=f"{major}.{minor}",
        file_versions=tuple(f"{name} ({count})" for name, count in sorted(file_versions.items())),
        stable_row_ids=bool(manifest.flags.reader & flags.STABLE_ROW_IDS),
        reader_flags=manifest.flags.reader,
        writer_flags=manifest.flags.writer,
        columns=tuple(
            SchemaColumn(field.name, field.id, str(field.to_arrow().type), nullable=field.nullable)
            for field in manifest.schema.fields
        ),
        fragments=tuple(_fragment(fragment) for fragment in fragments),
        config=dict(manifest.config),
        metadata=dict(manifest.table_metadata),
        bases=base_facts(table),
    )


def base_facts(table: OpenTable) -> tuple[BaseFacts, ...]:
    """Return the locations of the data files of a version. Reads no file.

    Raises CorruptTableError.
    """
    fragments: Counter[int | None] = Counter()
    files: Counter[int | None] = Counter()
    sizes: Counter[int | None] = Counter()
    for fragment in table.manifest.fragments:
        fragments.update({file.base_id for file in fragment.files})
        for file in fragment.files:
            files[file.base_id] += 1
            sizes[file.base_id] += file.file_size_bytes
    locations: list[tuple[int | None, str | None, str, bool]] = [
        (None, None, table.store.display, True)
    ]
    for number, base in sorted(table.manifest.base_paths.items()):
        path = parse_uri(base.path).display
        locations.append((number, base.name, path, base.is_dataset_root))
    return tuple(
        BaseFacts(number, name, path, is_root, fragments[number], files[number], sizes[number])
        for number, name, path, is_root in locations
    )


def facts_of(
    dataset: Dataset,
    *,
    versions: int = DEFAULT_VERSIONS,
    fragments: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    files: int = DEFAULT_FILES,
) -> TableFacts:
    """Return a report about an open version of a table. Reads metadata only and changes nothing.

    Parameters
    ----------
    dataset : Dataset
    versions : int
        Maximum number of versions in the history, newest first.
    fragments : collection of int, optional
        Ids of the fragments whose data files are read; by default, a sample of `files` files is
        read.
    columns : sequence of str, optional
        Names of columns, or dotted paths of nested fields, to report; all by default.
    files : int
        Maximum number of data files to read if `fragments` is not given. They belong to fragments
        that are spread evenly over the table.

    Raises
    ------
    InvalidInputError
        A fragment or column does not exist.
    CorruptTableError, StorageError

    Examples
    --------
    >>> facts = facts_of(open_dataset("/data/orders.lance"))
    >>> {column.path: column.num_bytes for column in facts.columns}
    """
    with error_context(dataset._table.store.display):
        return _facts_of(dataset, versions, fragments, columns, files)


def _facts_of(
    dataset: Dataset,
    versions: int,
    fragments: Collection[int] | None,
    columns: Sequence[str] | None,
    files: int,
) -> TableFacts:
    table = dataset._table
    current = version_facts(table)
    for name in columns or ():
        table.schema.path(name)
    chosen = _choose_files(table.manifest, fragments, files)
    parts = read_each(
        lambda pair: _read_file(table, *pair, columns), chosen, local=table.store.is_local
    )
    read = tuple(progress.counted(parts, "read_files", len(chosen), "files"))
    past, num_versions = past_versions(table.store, versions)
    problems = [f"{file.path}: {file.problem}" for file in read if file.problem]
    indexes: tuple[IndexFacts, ...] = ()
    try:
        indexes = index_facts(dataset, current, problems)
    except LanceError as error:
        problems.append(f"indexes: {error}")
    return TableFacts(
        version=current,
        versions=tuple(past),
        num_versions=num_versions,
        files=read,
        columns=_totals(read),
        indexes=indexes,
        tags={
            name: _version_text(tag["branch"], tag["version"])
            for name, tag in sorted(dataset.tags.list().items())
        },
        branches={
            name: _version_text(branch["parent_branch"], branch["parent_version"])
            for name, branch in sorted(dataset.branches.list().items())
        },
        problems=tuple(problems),
    )


def _fragment(fragment: Fragment) -> FragmentFacts:
    deletion = fragment.deletion_file
    return FragmentFacts(
        fragment.id,
        fragment.physical_rows,
        fragment.num_deleted_rows,
        len(fragment.files),
        sum(file.file_size_bytes for file in fragment.files),
        "" if deletion is None else deletion.file_type.value,
    )


def _file_version(file: DataFile) -> str:
    major, minor = file.version
    if (major, minor) < (0, 3):
        return "0.1"
    return "2.0" if (major, minor) == (0, 3) else f"{major}.{minor}"


def _choose_files(
    manifest: Manifest, fragment_ids: Collection[int] | None, max_files: int
) -> list[tuple[Fragment, DataFile]]:
    """Return the data files to read: all files of the given fragments, or a sample."""
    fragments = manifest.fragments
    if fragment_ids is not None:
        by_id = {fragment.id: fragment for fragment in fragments}
        chosen_ids = sorted(set(fragment_ids))
        unknown = [number for number in chosen_ids if number not in by_id]
        if unknown:
            raise InvalidInputError(
                f"fragment {unknown[0]} not found: version {manifest.version} has "
                f"{len(fragments)} fragments"
                + (f", with ids from {min(by_id)} to {max(by_id)}" if by_id else "")
            )
        return [(by_id[number], file) for number in chosen_ids for file in by_id[number].files]
    num_files = sum(len(fragment.files) for fragment in fragments)
    if num_files > max_files and fragments:
        # Whole fragments, so that the sample has every column.
        count = max(int(max_files * len(fragments) / num_files), 1) if max_files > 0 else 0
        indexes = np.unique(np.linspace(0, len(fragments) - 1, count).astype(np.int64))
        fragments = tuple(fragments[index] for index in indexes.tolist())
    return [(fragment, file) for fragment in fragments for file in fragment.files]


def _read_file(
    table: OpenTable, fragment: Fragment, file: DataFile, columns: Sequence[str] | None
) -> FileFacts:
    version = _file_version(file)
    try:
        reader = open_file(table.paths.open_data_file(file), file.fields)
    except LanceError as error:
        return FileFacts(
            fragment.id, file.path, file.base_id, version, 0, file.file_size_bytes, (), str(error)
        )
    column_of = dict(zip(file.fields, file.column_indices, strict=False))
    size, rows = reader.source.size, reader.num_rows
    pages: tuple[ColumnPages, ...] = ()
    problem = ""
    try:
        pages = tuple(
            column
            for column in columns_of(reader, table.schema, column_of)
            if columns is None or _is_selected(column.path, columns)
        )
    except LanceError as error:
        problem = str(error)
    finally:
        reader.close()
    return FileFacts(fragment.id, file.path, file.base_id, version, rows, size, pages, problem)


def _is_selected(path: str, columns: Sequence[str]) -> bool:
    return any(
        path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.")
        for name in columns
    )


def _totals(files: Iterable[FileFacts]) -> tuple[ColumnTotal, ...]:
    """Return the totals of the columns of all files, in the order of their first occurrence."""
    groups: dict[tuple[str, str], list[tuple[int, ColumnPages]]] = {}
    for file in files:
        for column in file.columns:
            groups.setdefault((column.path, column.kind), []).append((file.num_rows, column))
    totals = []
    for (path, logical_type), parts in groups.items():
        pages: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for _, column in parts:
            for page in column.pages:
                pages[page.encoding] += column.num_pages if len(column.pages) == 1 else 1
                sizes[page.encoding] += page.num_bytes
        totals.append(
            ColumnTotal(
                path,
                logical_type,
                sum(column.num_bytes for _, column in parts),
                sum(column.num_pages for _, column in parts),
                sum(rows for rows, _ in parts),
                tuple((name, pages[name], size) for name, size in sizes.most_common()),
            )
        )
    return tuple(totals)


def past_versions(store: ObjectStore, limit: int | None = None) -> tuple[list[PastVersion], int]:
    """Return the newest versions of a branch, newest first, and the number of all its versions.

    - `store`: Root of the branch.
    - `limit`: Maximum number of versions to return; all by default.

    Raises CorruptTableError, StorageError.
    """
    located = list_manifests(store)[::-1]
    newest = located if limit is None else located[: max(limit, 0)]
    past = [
        _past_version(manifest, transaction)
        for manifest, transaction in manifests_with_transactions(store, newest)
    ]
    return past, len(located)


def _past_version(manifest: Manifest, transaction: Transaction | None) -> PastVersion:
    numbers = {name: int(text) for name, text in summarize(manifest).items()}
    properties = {} if transaction is None else dict(transaction.properties)
    return PastVersion(
        manifest.version,
        manifest.timestamp,
        "" if transaction is None else transaction.operation.name,
        properties,
        None if transaction is None else transaction.read_version,
        numbers["total_fragments"],
        numbers["total_rows"],
        numbers["total_deletion_file_rows"],
        numbers["total_files_size"],
        *user_operation(transaction),
    )


def _version_text(branch: str | None, version: int) -> str:
    return f"version {version}" if branch is None else f"version {version} of {branch}"
