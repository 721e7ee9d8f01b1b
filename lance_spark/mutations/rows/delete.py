"""Deleting rows: planned on the driver, carried out by any number of workers, committed on the driver.

| step | where | what |
| --- | --- | --- |
| `plan_delete` | driver | tasks: fragments that can have such rows |
| `DeleteTask.run` | workers | finds the rows, writes each fragment's new deletion file; nothing refers to it yet |
| `commit_deletes` | driver | one `Delete` of all fragments |

No row that meets the filters makes a version too, as in pylance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.mutations.retry import (
    check_once,
    check_rows_writable,
    commit_rows,
    retry_on_conflict,
    run_all,
)
from lance_spark.mutations.rewrite.fragment_rows import matching_offsets
from lance_spark.mutations.rows.row_address_guard import RowAddressGuard
from lance_spark.mutations.runner import Runner, runner_for
from lance_spark.scan.fragment.row_meta import ROW_OFFSET, with_all
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.predicates.tree import Predicate
from lance_spark.scan.predicates.tuples import Comparison, parse_filters
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.delete import Delete
from lance_spark.table.operations.data.row_deletions import with_deletion_file
from lance_spark.table.paths import BasePath, TablePaths, deletion_path
from lance_spark.table.rows.deletion_writer import bitmap_of, encode_bitmap, write_deletions
from lance_spark.table.rows.deletions import Offsets, offsets_of, read_deletions

#: What chooses rows: (column, operator, value), or a predicate.
Filter = Sequence[Any] | Predicate
_OPERATORS = {"==": "=", "!=": "!=", "is_null": "IS NULL", "is_not_null": "IS NOT NULL"}
#: Rows and fragments of a task at most, but for one large fragment.
_TASK_ROWS = 1 << 18
_TASK_FRAGMENTS = 1024
#: So many deletion files, and more, are written several at a time.
_MANY_FILES = 16
_FILES_AT_ONCE = 8
#: Values of a list that the text of a condition shows.
_SHOWN = 16


@dataclass(frozen=True, slots=True)
class FragmentDeletion:
    """What a task deleted of a fragment. Small, and can be pickled.

    Attributes
    ----------
    fragment_id : int
    file : DeletionFile or None
        With all deleted rows, those of before too; None if no row is left.
    bitmap : bytes
        Offsets of the rows that were deleted now, as a Roaring bitmap.
    num_rows : int
        Their number.
    """

    fragment_id: int
    file: DeletionFile | None
    bitmap: bytes
    num_rows: int

    @property
    def offsets(self) -> Offsets:
        """Offsets of the rows that were deleted now, increasing."""
        return offsets_of(BitMap.deserialize(self.bitmap))


class Affected(Mapping[int, Offsets]):
    """Offsets of deleted rows by fragment, which are looked at if others changed the same fragment.

    Parameters
    ----------
    deletions : mapping of int to FragmentDeletion
    """

    def __init__(self, deletions: Mapping[int, FragmentDeletion]) -> None:
        self._deletions = deletions

    def __getitem__(self, fragment_id: int) -> Offsets:
        return self._deletions[fragment_id].offsets

    def __iter__(self) -> Iterator[int]:
        return iter(self._deletions)

    def __len__(self) -> int:
        return len(self._deletions)


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Fragments that one worker deletes rows of. Can be pickled; holds no manifest.

    Attributes
    ----------
    uri : str
        Root of the table.
    fragments : tuple of Fragment
    read_version : int
        The version that the deletion is planned on.
    filters : tuple of Condition
        Rows that meet all of them are deleted.
    rows : mapping of int to int64 array or BitMap, optional
        Offsets of rows, by fragment, that are deleted if they meet the filters; all of them can be if none are given.
    base_paths : mapping of int to BasePath
        Other roots that data files may stand in, by id.
    storage_options : mapping, not shown by `repr`
    tag : bytes
        Which the deletion files carry.
    """

    uri: str = field(repr=False)
    fragments: tuple[Fragment, ...]
    read_version: int
    filters: tuple[Condition, ...] = ()
    rows: Mapping[int, Offsets | BitMap] | None = None
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = b""

    def run(self) -> list[FragmentDeletion]:
        """Find the rows, and write deletion files.

        Returns
        -------
        list of FragmentDeletion
            For the fragments that have such rows.

        Raises
        ------
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        paths = TablePaths.open(self.uri, self.storage_options, self.base_paths)
        found = matching_offsets(paths, self.fragments, self.filters)
        if self.rows is not None:
            found = {number: one & _as_bitmap(self.rows[number]) for number, one in found.items()}
        return delete_offsets(paths, self.fragments, found, self.read_version, self.tag)


def delete_offsets(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    rows: Mapping[int, BitMap],
    read_version: int,
    tag: bytes = b"",
) -> list[FragmentDeletion]:
    """Write the deletion files of fragments that lose rows; if that fails, delete them again.

    Parameters
    ----------
    paths : TablePaths
    fragments : iterable of Fragment
    rows : mapping of int to BitMap
        Offsets of live rows by fragment.
    read_version : int
        The version that the deletion is planned on.
    tag : bytes
        Which the files carry.

    Returns
    -------
    list of FragmentDeletion
        For the fragments that lose rows.
    """

    def write(fragment: Fragment) -> FragmentDeletion:
        return _write(paths, fragment, read_version, rows[fragment.id], tag)

    losing = [fragment for fragment in fragments if rows.get(fragment.id)]
    if len(losing) >= _MANY_FILES:
        # Each file takes a request, or a wait until the disk has it.
        return run_all(
            losing,
            write,
            lambda one: undo(paths.store, [one]),
            local=paths.store.is_local,
            threads=_FILES_AT_ONCE,
        )
    deletions: list[FragmentDeletion] = []
    try:
        for fragment in losing:
            deletions.append(write(fragment))
    except BaseException:
        with suppress(StorageError):
            undo(paths.store, deletions)
        raise
    return deletions


def _write(
    paths: TablePaths, fragment: Fragment, read_version: int, rows: BitMap, tag: bytes
) -> FragmentDeletion:
    """Write the deletion file of a fragment that loses some live rows."""
    deleted = read_deletions(paths, fragment)
    file = None
    if len(rows) + len(deleted) < fragment.physical_rows:
        union = rows | bitmap_of(deleted)
        file = write_deletions(paths.store, fragment.id, read_version, union, tag=tag)
    return FragmentDeletion(fragment.id, file, encode_bitmap(rows), len(rows))


def plan_delete(
    table: OpenTable,
    filters: Iterable[Filter] | None = None,
    *,
    rows: Mapping[int, Offsets | BitMap] | None = None,
    fragments_per_task: int | None = None,
    tag: bytes = b"",
) -> list[DeleteTask]:
    """Cut a deletion into tasks.

    Parameters
    ----------
    table : OpenTable
        At the version that it is planned on.
    filters : iterable of (column, operator, value) or Predicate, optional
        Rows that meet all of them are deleted: all rows if there are none.
    rows : mapping of int to int64 array or BitMap, optional
        Offsets of rows, by fragment: only these can be deleted.
    fragments_per_task : int, optional
        By default small fragments share a task, which reads them together, and large ones have a task each.
    tag : bytes
        Which the deletion files carry.

    Raises
    ------
    InvalidInputError
        A filter makes no sense.
    UnsupportedFeatureError, UnsupportedError
        The table needs more than this release does.
    """
    check_rows_writable(table, data_files=False)
    comparisons = parse_conditions(table, filters)
    fragments = candidates(table, rows)
    return [
        DeleteTask(
            uri=table.store.uri,
            fragments=chosen,
            read_version=table.version,
            filters=comparisons,
            rows=None if rows is None else {one.id: rows[one.id] for one in chosen},
            base_paths=table.manifest.base_paths,
            storage_options=table.store.options,
            tag=tag,
        )
        for chosen in _together(fragments, fragments_per_task)
    ]


def _together(
    fragments: Sequence[Fragment], fragments_per_task: int | None
) -> Iterator[tuple[Fragment, ...]]:
    """Yield the fragments of each task; see `plan_delete`."""
    most = fragments_per_task or _TASK_FRAGMENTS
    most_rows = sys.maxsize if fragments_per_task else _TASK_ROWS
    chosen: list[Fragment] = []
    rows = 0
    for fragment in fragments:
        if chosen and (len(chosen) == most or rows + fragment.physical_rows > most_rows):
            yield tuple(chosen)
            chosen, rows = [], 0
        chosen.append(fragment)
        rows += fragment.physical_rows
    if chosen:
        yield tuple(chosen)


def conditions_of(filters: str | Iterable[Filter] | None) -> list[Filter]:
    """Return filters, or a text, that can be parsed for each attempt: what yields its values once has none for the second.

    Raises
    ------
    InvalidInputError
        One is no sequence.
    """
    if isinstance(filters, str):
        return [filters]
    conditions: list[Filter] = []
    for part in filters or ():
        if isinstance(part, Predicate):
            conditions.append(part)
            continue
        if isinstance(part, str) or not isinstance(part, Sequence):
            raise InvalidInputError(f"a filter is (column, operator, value), not {part!r}")
        conditions.append(tuple(list(one) if isinstance(one, Iterator) else one for one in part))
    return conditions


def parse_conditions(
    table: OpenTable, filters: Iterable[Filter] | None
) -> tuple[Comparison | Predicate, ...]:
    """Return the conditions that rows which change must meet: filters of pyarrow's kind first, then predicates.

    Raises
    ------
    InvalidInputError
        A filter makes no sense, or is about positions in the table, of which a fragment alone knows nothing.
    """
    known = with_all(table.schema)
    given = [filters] if isinstance(filters, str) else list(filters or ())
    predicates = [one for one in given if isinstance(one, Predicate)]
    for text in (one for one in given if isinstance(one, str)):
        from lance_spark.scan.predicates.sql import parse_predicate

        predicates.append(parse_predicate(text, known))
    others = [one for one in given if not isinstance(one, Predicate | str)]
    comparisons = parse_filters(others, known)
    conditions: tuple[Comparison | Predicate, ...] = (*comparisons, *predicates)
    if any(path[0].id == ROW_OFFSET.id for one in conditions for path in one.paths):
        raise InvalidInputError(
            f"filter on {ROW_OFFSET.name!r}: rows cannot be changed by it; choose them by _rowaddr or _rowid"
        )
    return conditions


def in_place(table: OpenTable, conditions: Iterable[Filter]) -> Callable[[OpenTable], None]:
    """Return what refuses newer versions, if conditions name rows by where they are, and these moved; see `Places.check`."""
    places = RowAddressGuard(table)
    given = list(conditions)

    def check(newer: OpenTable) -> None:
        parsed = parse_conditions(table, given)
        places.check(newer, (path[0].name for one in parsed for path in one.paths))

    return check


def candidates(
    table: OpenTable, rows: Mapping[int, Offsets | BitMap] | None
) -> tuple[Fragment, ...]:
    """Return the fragments, with their rows counted, that have some of the rows; all if there are none given."""
    fragments = counted_fragments(table.paths, table.manifest)
    return fragments if rows is None else tuple(one for one in fragments if one.id in rows)


def delete_operation(
    table: OpenTable, deletions: Iterable[FragmentDeletion], predicate: str = ""
) -> Delete:
    """Return the operation that makes deletions part of the table; see `commit_deletes`."""
    deletions = list(deletions)
    check_once(table, (one.fragment_id for one in deletions))
    by_id = {one.fragment_id: one for one in deletions}
    updated = changed_fragments(table, by_id)
    return Delete(
        fragments=updated,
        deleted_fragment_ids=tuple(sorted(i for i, one in by_id.items() if one.file is None)),
        predicate=predicate,
        affected=Affected(by_id),
    )


def changed_fragments(
    table: OpenTable, deletions: Mapping[int, FragmentDeletion]
) -> tuple[Fragment, ...]:
    """Return the fragments that keep some rows, with their new deletion files, in the table's order."""
    fragments = counted_fragments(table.paths, table.manifest)
    kept = ((one, deletions.get(one.id)) for one in fragments)
    return tuple(
        with_deletion_file(fragment, deletion.file)
        for fragment, deletion in kept
        if deletion is not None and deletion.file is not None
    )


def commit_deletes(
    table: OpenTable,
    deletions: Iterable[FragmentDeletion],
    predicate: str = "",
    *,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> Manifest:
    """Make the deletions of all tasks part of the table.

    Parameters
    ----------
    table : OpenTable
        At the version that they were planned on.
    deletions : iterable of FragmentDeletion
        None at all make a version too.
    predicate : str
        Which rows were meant, as text.
    properties : mapping of str to str, optional
        Of the transaction.
    max_retries : int
        How often to start again after other writers were faster.

    Returns
    -------
    Manifest
        The new version.

    Raises
    ------
    CommitConflictError
        Others changed the same rows; the deletion files are deleted again.
    InvalidInputError
        Two of them are about one fragment.
    UncertainCommitError, StorageError, CorruptTableError
    """
    operation = delete_operation(table, deletions, predicate)
    return commit_rows(table, operation, properties=properties, max_retries=max_retries)


def undo(store: ObjectStore, deletions: Iterable[FragmentDeletion]) -> None:
    """Delete the deletion files of tasks that are not committed.

    Raises
    ------
    StorageError
    """
    store.delete([deletion_path(d.file, d.fragment_id) for d in deletions if d.file is not None])


def delete_rows(
    table: OpenTable,
    filters: str | Iterable[Filter] | None,
    rows: Callable[[OpenTable], Mapping[int, Offsets | BitMap]] | None,
    *,
    properties: Mapping[str, str] | None,
    conflict_retries: int,
    max_retries: int,
    runner: Runner | None = None,
    text: str | None = None,
) -> OpenTable:
    """Delete rows; see `Dataset.delete`.

    Parameters
    ----------
    table : OpenTable
    filters : str, or iterable of (column, operator, value) or Predicate, optional
    rows : callable, optional
        Returns the offsets by fragment, in a version, of the rows that are meant.
    properties : mapping of str to str, optional
        Of the transaction.
    conflict_retries, max_retries : int
    runner : Runner, optional
        Runs the tasks; this machine by default.
    text : str, optional
        Which rows are meant, as the transaction notes it; made of the filters by default.
    """
    if filters is None and rows is None:
        raise InvalidInputError("say which rows to delete: filters=[] stands for all of them")
    conditions = conditions_of(filters)

    def change(current: OpenTable) -> Manifest:
        chosen = None if rows is None else rows(current)
        by = runner_for(current, runner)
        tasks = plan_delete(current, conditions, rows=chosen, tag=by.tag)
        done = by.run(tasks, DeleteTask.run, partial(undo, current.store))
        deletions = [deletion for part in done for deletion in part]
        noted = (
            text
            or (filters if isinstance(filters, str) else None)
            or describe(parse_conditions(current, conditions), chosen)
        )
        return commit_deletes(
            current, deletions, noted, properties=properties, max_retries=max_retries
        )

    return retry_on_conflict(table, change, conflict_retries, again=in_place(table, conditions))


def describe(
    conditions: Iterable[Comparison | Predicate],
    rows: Mapping[int, Offsets | BitMap] | None = None,
) -> str:
    """Return conditions as text, as transactions note them."""
    parts = [str(one) if isinstance(one, Predicate) else _text(one) for one in conditions]
    if rows is not None:
        parts.insert(0, f"_rowaddr IN ({sum(map(len, rows.values()))} addresses)")
    return " AND ".join(parts) or "true"


def _text(comparison: Comparison) -> str:
    name = ".".join(node.name for node in comparison.path)
    op, value = comparison.op, comparison.value
    if value is None:
        return f"{name} {_OPERATORS[op]}"
    if op in ("in", "not in"):
        shown = [_literal(_plain(one)) for one in value[:_SHOWN]]
        more = ", ..." if len(value) > len(shown) else ""
        return f"{name} {op.upper()} ({', '.join(shown)}{more})"
    return f"{name} {_OPERATORS.get(op, op)} {_literal(_plain(value))}"


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (LookupError, ValueError, OverflowError):
        # A time zone that nobody knows, or a time that Python has not: its number says it too.
        return getattr(value, "value", None)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"


def _as_bitmap(rows: Offsets | BitMap) -> BitMap:
    return rows if isinstance(rows, BitMap) else bitmap_of(rows)
