"""Gathers what there is to say of a version of a table.

| what | is read from |
| --- | --- |
| rows, fragments, deletions, sizes, schema, configuration | the manifest: `version_facts` |
| the newest versions and what made them | their manifests and transactions |
| tags, branches, indexes | their files below the main root; the manifest |
| columns, pages, encodings | the ends of data files: of all, or of some that are spread evenly over the table |

A data file that cannot be read is told as such, and does not keep the rest from being told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError, LanceError, naming
from lance_spark.file.open import open_file
from lance_spark.file.schema.schema import Field
from lance_spark.inspect import DEFAULT_FILES, DEFAULT_VERSIONS
from lance_spark.inspect.pages import ColumnPages, columns_of
from lance_spark.inspect.report import (
    BaseFacts,
    ColumnTotal,
    FileFacts,
    FragmentFacts,
    IndexFacts,
    PastVersion,
    SchemaColumn,
    TableFacts,
    VersionFacts,
)
from lance_spark.storage.read.parallel_reads import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import flags
from lance_spark.table.manifest.history import manifests_with_transactions, summarize
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.open import OpenTable


def version_facts(table: OpenTable) -> VersionFacts:
    """Return what the manifest of a version says; reads no file.

    Raises
    ------
    CorruptTableError
    """
    manifest = table.manifest
    major, minor = manifest.data_storage_version
    fragments = manifest.fragments
    kinds = Counter(_version_name(file) for one in fragments for file in one.files)
    return VersionFacts(
        name=table.store.display,
        branch=table.branch,
        version=manifest.version,
        timestamp=manifest.timestamp,
        data_storage_version=f"{major}.{minor}",
        file_versions=tuple(f"{name} ({count})" for name, count in sorted(kinds.items())),
        stable_row_ids=bool(manifest.flags.reader & flags.STABLE_ROW_IDS),
        reader_flags=manifest.flags.reader,
        writer_flags=manifest.flags.writer,
        columns=tuple(_schema_column(one) for one in manifest.schema.fields),
        fragments=tuple(_fragment(one) for one in fragments),
        config=dict(manifest.config),
        metadata=dict(manifest.table_metadata),
        bases=base_facts(table),
    )


def base_facts(table: OpenTable) -> tuple[BaseFacts, ...]:
    """Return the places that data files of a version lie in; reads no file.

    Raises
    ------
    CorruptTableError
    """
    fragments: Counter[int | None] = Counter()
    files: Counter[int | None] = Counter()
    sizes: Counter[int | None] = Counter()
    for fragment in table.manifest.fragments:
        fragments.update({file.base_id for file in fragment.files})
        for file in fragment.files:
            files[file.base_id] += 1
            sizes[file.base_id] += file.file_size_bytes
    places: list[tuple[int | None, str | None, str, bool]] = [
        (None, None, table.store.display, True)
    ]
    for number, base in sorted(table.manifest.base_paths.items()):
        shown = parse_uri(base.path).display
        places.append((number, base.name, shown, base.is_dataset_root))
    return tuple(
        BaseFacts(number, name, path, is_root, fragments[number], files[number], sizes[number])
        for number, name, path, is_root in places
    )


def facts_of(
    dataset: Dataset,
    *,
    versions: int = DEFAULT_VERSIONS,
    fragments: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    files: int = DEFAULT_FILES,
) -> TableFacts:
    """Return what there is to say of a version of a table.

    Parameters
    ----------
    dataset : Dataset
    versions : int
        How many of the newest versions are told.
    fragments : collection of int, optional
        Fragments whose data files are read, all of them.
    columns : sequence of str, optional
        Names of columns, or dotted paths of fields in them: only these are told.
    files : int
        Without `fragments`: how many data files are read at most, from fragments spread evenly over the table.

    Raises
    ------
    InvalidInputError
        There is no such fragment or column.
    CorruptTableError, StorageError
    """
    with naming(dataset._table.store.display):
        return _facts_of(dataset, versions, fragments, columns, files)


def _facts_of(
    dataset: Dataset,
    versions: int,
    fragments: Collection[int] | None,
    columns: Sequence[str] | None,
    files: int,
) -> TableFacts:
    table = dataset._table
    about = version_facts(table)
    for name in columns or ():
        table.schema.path(name)
    read = _files(table, _chosen(table.manifest, fragments, files), columns)
    past, num_versions = past_versions(table.store, versions)
    problems = [f"{one.path}: {one.problem}" for one in read if one.problem]
    indexes: tuple[IndexFacts, ...] = ()
    try:
        indexes = _indexes(dataset)
    except LanceError as error:
        problems.append(f"indexes: {error}")
    return TableFacts(
        version=about,
        versions=tuple(past),
        num_versions=num_versions,
        files=read,
        columns=_totals(read),
        indexes=indexes,
        tags={
            name: _place(tag["branch"], tag["version"])
            for name, tag in sorted(dataset.tags.list().items())
        },
        branches={
            name: _place(one["parent_branch"], one["parent_version"])
            for name, one in sorted(dataset.branches.list().items())
        },
        problems=tuple(problems),
    )


def _schema_column(column: Field) -> SchemaColumn:
    return SchemaColumn(
        column.name, column.id, str(column.to_arrow().type), nullable=column.nullable
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


def _version_name(file: DataFile) -> str:
    major, minor = file.version
    if (major, minor) < (0, 3):
        return "0.1"
    return "2.0" if (major, minor) == (0, 3) else f"{major}.{minor}"


def _chosen(
    manifest: Manifest, wanted: Collection[int] | None, files: int
) -> list[tuple[Fragment, DataFile]]:
    """Return the data files to read: those of the fragments asked for, or some of the table."""
    fragments = manifest.fragments
    if wanted is not None:
        known = {one.id: one for one in fragments}
        unknown = sorted(set(wanted) - known.keys())
        if unknown:
            raise InvalidInputError(
                f"version {manifest.version} has no fragment {unknown[0]}: it has {len(fragments)}"
                + (f", from {min(known)} to {max(known)}" if known else "")
            )
        return [(known[one], file) for one in sorted(set(wanted)) for file in known[one].files]
    total = sum(len(one.files) for one in fragments)
    if total > files and fragments:
        # All files of a fragment, so that every column is among them.
        few = max(int(files * len(fragments) / total), 1) if files > 0 else 0
        places = np.unique(np.linspace(0, len(fragments) - 1, few).astype(np.int64))
        fragments = tuple(fragments[place] for place in places.tolist())
    return [(one, file) for one in fragments for file in one.files]


def _files(
    table: OpenTable, chosen: list[tuple[Fragment, DataFile]], columns: Sequence[str] | None
) -> tuple[FileFacts, ...]:
    def read(one: tuple[Fragment, DataFile]) -> FileFacts:
        return _file(table, *one, columns)

    return tuple(read_all(read, chosen, local=table.store.is_local))


def _file(
    table: OpenTable, fragment: Fragment, file: DataFile, columns: Sequence[str] | None
) -> FileFacts:
    name = _version_name(file)
    try:
        reader = open_file(table.paths.open_data_file(file), file.fields)
    except LanceError as error:
        return FileFacts(
            fragment.id, file.path, file.base_id, name, 0, file.file_size_bytes, (), str(error)
        )
    column_of = dict(zip(file.fields, file.column_indices, strict=False))
    size, rows = reader.source.size, reader.num_rows
    try:
        found: Iterable[ColumnPages] = columns_of(reader, table.schema, column_of)
        if columns is not None:
            found = [one for one in found if _is_wanted(one.path, columns)]
        return FileFacts(fragment.id, file.path, file.base_id, name, rows, size, tuple(found))
    except LanceError as error:
        return FileFacts(fragment.id, file.path, file.base_id, name, rows, size, (), str(error))
    finally:
        reader.close()


def _is_wanted(path: str, columns: Sequence[str]) -> bool:
    return any(
        path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.")
        for name in columns
    )


def _totals(files: Iterable[FileFacts]) -> tuple[ColumnTotal, ...]:
    """Add up the columns of all files, in the order in which they come first."""
    found: dict[tuple[str, str], list[tuple[int, ColumnPages]]] = {}
    for file in files:
        for column in file.columns:
            found.setdefault((column.path, column.kind), []).append((file.num_rows, column))
    totals = []
    for (path, kind), parts in found.items():
        pages: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for _, column in parts:
            for page in column.pages:
                stands_for = column.num_pages if len(column.pages) == 1 else 1
                pages[page.encoding] += stands_for
                sizes[page.encoding] += page.num_bytes
        totals.append(
            ColumnTotal(
                path,
                kind,
                sum(column.num_bytes for _, column in parts),
                sum(column.num_pages for _, column in parts),
                sum(rows for rows, _ in parts),
                tuple((name, pages[name], size) for name, size in sizes.most_common()),
            )
        )
    return tuple(totals)


def past_versions(store: ObjectStore, limit: int | None = None) -> tuple[list[PastVersion], int]:
    """Return the newest versions of a branch, newest first, and how many there are.

    Parameters
    ----------
    store : ObjectStore
        Root of the branch.
    limit : int, optional
        How many are read; all, if it is not given.

    Raises
    ------
    CorruptTableError, StorageError
    """
    located = list_manifests(store)[::-1]
    chosen = located if limit is None else located[: max(limit, 0)]
    found = [_past_version(*one) for one in manifests_with_transactions(store, chosen)]
    return found, len(located)


def _past_version(manifest: Manifest, transaction: Transaction | None) -> PastVersion:
    numbers = {name: int(text) for name, text in summarize(manifest).items()}
    properties = {} if transaction is None else dict(transaction.properties)
    return PastVersion(
        manifest.version,
        manifest.timestamp,
        "" if transaction is None else transaction.operation.kind,
        properties,
        None if transaction is None else transaction.read_version,
        numbers["total_fragments"],
        numbers["total_rows"],
        numbers["total_deletion_file_rows"],
        numbers["total_files_size"],
    )


def _indexes(dataset: Dataset) -> tuple[IndexFacts, ...]:
    return tuple(
        IndexFacts(
            one.name,
            one.index_type,
            one.field_names,
            one.num_rows_indexed,
            one.num_segments,
            one.total_size_bytes,
        )
        for one in dataset.describe_indices()
    )


def _place(branch: str | None, version: int) -> str:
    return f"version {version}" if branch is None else f"version {version} of {branch}"
