"""The validation of one version of a table: its manifest, and the files that the manifest names.

| part | what must hold |
| --- | --- |
| fragments | ids are unique and increase |
| data files | exist and can be opened; each holds a column of the schema |
| columns | a field is in one file of a fragment; a column has one value per row of the fragment |
| overlays | files exist and cover only rows of the fragment |
| deletion files | can be read; delete as many rows as recorded, only rows of the fragment |
| row ids, versions | one for each row; ids of live rows are unique and below the next new id |
| indexes | names and ids are unique, fields are in the schema, files exist |
| index segments | segments of one index cover different fragments |

pylance's `validate` makes the same checks, except the checks of index files, of index fields, and
of columns of data files. The values of columns are not read.

Readers and writers call the same check functions. This module collects their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice, pairwise

from pyroaring import BitMap

from lance_spark import progress
from lance_spark.errors import CorruptError, CorruptTableError, MissingFileError, error_context
from lance_spark.file.open import open_file
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment.assemble import Overlays, files_of, locate
from lance_spark.storage.disk_ranges import bypassed
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.storage.parallel import read_each
from lance_spark.table.fragments.files import DataFile, Lineage
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.row_counts import check_row_count, counted_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import INDICES, TablePaths
from lance_spark.table.rows.addresses import RowIndex
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.ids import created_versions_of, updated_versions_of

#: Most problems that an error lists. The check stops at the next problem.
MAX_PROBLEMS = 10
_HIDDEN = frozenset(lineage.field_id for lineage in Lineage)


def validate(table: OpenTable) -> None:
    """Check a version of a table.

    Raises CorruptTableError: lists the first `MAX_PROBLEMS` problems, with fragments and files.
    Raises UnsupportedFeatureError, UnsupportedEncodingError: a file cannot be checked by this
    release. Raises StorageError: the store failed for another reason than a missing file.
    """
    if not table.store.is_local:
        # The check is of the files, not of what was kept of them.
        KEPT.clear()
    with bypassed():
        # Two checks can report one error, for example of a deletion file.
        problems = list(islice(_unique(_problems(table)), MAX_PROBLEMS + 1))
    if not problems:
        return
    table_name = table.store.display
    if len(problems) == 1:
        with error_context(table_name):
            raise CorruptTableError(problems[0])
    has_more = len(problems) > MAX_PROBLEMS
    listed = "".join(f"\n  {problem}" for problem in problems[:MAX_PROBLEMS])
    raise CorruptTableError(
        f"{table_name}: version {table.version} has {'more than ' if has_more else ''}"
        f"{min(len(problems), MAX_PROBLEMS)} problems:{listed}"
    )


def _unique(problems: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for problem in problems:
        if problem not in seen:
            seen.add(problem)
            yield problem


def _error_of(check: Callable[[], object]) -> Iterator[str]:
    """Run a check, and yield the message of its error if it fails."""
    try:
        check()
    except (CorruptError, MissingFileError) as error:
        yield str(error)


def _problems(table: OpenTable) -> Iterator[str]:
    manifest, paths = table.manifest, table.paths
    message = manifest.message
    yield from _error_of(lambda: check_unique(message.fragments, manifest.name))
    yield from _error_of(lambda: _check_order(message.fragments, manifest.name))
    yield from _index_problems(table)
    fragments = manifest.fragments
    try:
        fragments = counted_fragments(paths, manifest)
    except (CorruptError, MissingFileError) as error:
        yield str(error)

    def check(fragment: Fragment) -> list[str]:
        return list(_fragment_problems(paths, table.schema.fields, fragment))

    checked = read_each(check, fragments, local=paths.store.is_local)
    for problems in progress.counted(checked, "check_fragments", len(fragments), "fragments"):
        yield from problems
    if manifest.flags.stable_row_ids:
        yield from _error_of(lambda: _check_row_ids(table, fragments))


def _check_order(fragments: Iterable[table_pb2.DataFragment], source: str) -> None:
    """Refuse fragments whose ids do not increase; ids that repeat are refused by `check_unique`."""
    for before, after in pairwise(fragments):
        if after.id < before.id:
            raise CorruptTableError(
                f"{source}: fragment {after.id} comes after fragment {before.id}; fragments must "
                "be in the order of their ids"
            )


def _check_row_ids(table: OpenTable, fragments: Iterable[Fragment]) -> None:
    """Refuse row ids that two live rows have, or that are not below the next new id."""
    greatest = RowIndex.build(table.paths, tuple(fragments)).greatest_id
    next_id = table.manifest.next_row_id
    if greatest is not None and greatest >= next_id:
        raise CorruptTableError(
            f"{table.manifest.name}: a row has the id {greatest}, but {next_id} is the next id of "
            "a new row"
        )


def _fragment_problems(
    paths: TablePaths, fields: tuple[Field, ...], fragment: Fragment
) -> Iterator[str]:
    try:
        files = fragment.files
    except CorruptTableError as error:
        yield str(error)
        return
    yield from _error_of(lambda: _check_unique_fields(fragment))
    file_of = files_of(fragment)
    parts: dict[int, list[Field]] = {}
    for field in fields:
        for part in locate(field, file_of):
            parts.setdefault(part.file, []).append(part.field)
    field_ids = {node.id for field in fields for node in field.walk()} | _HIDDEN
    for number, file in enumerate(files):
        file_fields = parts.get(number, ())
        yield from _error_of(partial(_check_file, paths, fragment, file, file_fields, field_ids))
    if fragment.has_overlays:
        yield from _error_of(lambda: _check_overlays(paths, fragment))
    yield from _error_of(lambda: read_deletions(paths, fragment))
    for read_versions in (created_versions_of, updated_versions_of):
        yield from _error_of(partial(read_versions, fragment, paths))


def _check_unique_fields(fragment: Fragment) -> None:
    """Refuse a field that two data files of a fragment hold."""
    holders: dict[int, str] = {}
    for file in fragment.files:
        for number in file.fields:
            if number >= 0 and number in holders:
                raise CorruptTableError(
                    f"{fragment.name}: field id {number} is in two data files, {holders[number]} "
                    f"and {file.path}"
                )
            holders[number] = file.path


def _check_file(
    paths: TablePaths,
    fragment: Fragment,
    file: DataFile,
    fields: Iterable[Field],
    field_ids: set[int],
) -> None:
    """Check that a data file exists, its number of rows, and its columns of the schema."""
    with closing(open_file(paths.open_data_file(file), file.fields)) as reader:
        check_row_count(reader, fragment)
        if file.fields and field_ids.isdisjoint(file.fields):
            raise CorruptTableError(
                f"{fragment.name}: data file {file.path} has no column of the schema: its field "
                f"ids are {', '.join(map(str, sorted(file.fields)))}"
            )
        # A file of version 0.1 has no column indices, only field ids.
        columns = dict(zip(file.fields, file.column_indices, strict=False))
        with error_context(reader.source.name):
            reader.check_columns(list(fields), columns)


def _check_overlays(paths: TablePaths, fragment: Fragment) -> None:
    with closing(Overlays(paths, fragment)) as overlays:
        overlays.check()


def _index_problems(table: OpenTable) -> Iterator[str]:
    manifest = table.manifest
    try:
        section = indexes.section_of(manifest)
    except CorruptTableError as error:
        yield str(error)
        return
    uuids: set[str] = set()
    covered: dict[str, BitMap] = {}
    field_ids = {node.id for field in table.schema.fields for node in field.walk()}
    for index in section.indices:
        name = f"{manifest.name}: index {index.name!r}"
        uuid = indexes.uuid_of(index)
        if uuid in uuids:
            yield f"{name}: two segments have the id {uuid}"
        uuids.add(uuid)
        if index.name == indexes.FRAGMENT_REUSE:
            yield from _error_of(partial(fragment_reuse.read_content, table.paths, index))
        if indexes.is_system(index):
            continue
        unknown = sorted(set(index.fields) - field_ids)
        if unknown:
            yield f"{name}: the schema has no field with id {unknown[0]}"
        bitmap = indexes.fragment_bitmap(index)
        if bitmap is not None:
            covered_fragments = covered.setdefault(index.name, BitMap())
            if covered_fragments & bitmap:
                yield f"{name}: two segments cover fragment {(covered_fragments & bitmap).min()}"
            covered_fragments |= bitmap
            covered[index.name] = covered_fragments
        yield from _error_of(partial(_check_index_files, table.paths, index, name))


def _check_index_files(paths: TablePaths, index: table_pb2.IndexMetadata, name: str) -> None:
    """Refuse an index that lacks a file which the manifest lists, or that has no files at
    all though it covers fragments.
    """
    folder = indexes.uuid_of(index)
    base = index.base_id if index.HasField("base_id") else None
    store, path = paths.locate(base, INDICES, folder)
    present = {info.path for info in store.list_tree(path)}
    missing = sorted({f"{path}/{file.path}" for file in index.files} - present)
    if missing:
        raise MissingFileError(f"{name}: file not found: {store.name(missing[0])}")
    # An index of vectors has no files before there are vectors to learn from.
    if not present and indexes.fragment_bitmap(index) != BitMap():
        raise MissingFileError(f"{name}: no files found in {store.name(path)}")
