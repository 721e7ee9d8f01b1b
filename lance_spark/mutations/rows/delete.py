"""Delete rows: plan on the driver, write deletion files in tasks, commit on the driver.

| step | where | what |
| --- | --- | --- |
| `plan_delete` | driver | cuts the fragments that can have such rows into tasks |
| `DeleteTask.run` | task | finds the rows, writes one deletion file for each fragment |
| `commit_deletes` | driver | commits one `Delete` of all fragments |

`run_delete` plans and runs, `delete_once` commits as well, `delete_rows` plans again after a
conflict. A deletion of no rows makes a version too, as in pylance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyroaring import BitMap

from lance_spark import progress
from lance_spark.errors import InvalidInputError
from lance_spark.mutations.commits import at_version, commit_rows, retry_on_conflict
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.readers import matching_offsets
from lance_spark.mutations.rewrite.writers import Written, undo
from lance_spark.mutations.rows.conditions import (
    CandidateRows,
    Filter,
    address_check,
    candidate_rows,
    candidates_of,
    conditions_of,
    describe,
    parse_conditions,
    with_candidates,
)
from lance_spark.predicates.conditions import Condition
from lance_spark.runner import FragmentTask, LocalRunner, Runner, check_once, runner_for
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.update import Delete, with_deletion_file
from lance_spark.table.paths import TablePaths, deletion_path
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.deletions import (
    Offsets,
    bitmap_of,
    encode_bitmap,
    offsets_of,
    read_deletions,
    write_deletions,
)

#: Limits of one task: rows, unless it is a single large fragment, and fragments.
_TASK_ROWS = 1 << 18
_TASK_FRAGMENTS = 1024
#: Rows of a task that runs on local disks in this process, after the task before it. It writes the
#: deletion files of all its fragments at the same time.
_LOCAL_TASK_ROWS = 1 << 23
#: Deletion files that are written at the same time: each takes a request, or a wait until the disk
#: has it.
_FILE_THREADS = 8

#: Offsets of rows by fragment.
RowsByFragment = Mapping[int, Offsets | BitMap]


@dataclass(frozen=True, slots=True)
class FragmentDeletion(Written):
    """Rows that a task deleted from one fragment. Small, and can be pickled.

    - `file`: All deleted rows, also rows deleted earlier; None if no row is left.
    - `bitmap`: Offsets of the rows that were deleted now, as a Roaring bitmap.
    """

    fragment_id: int
    file: DeletionFile | None
    bitmap: bytes
    num_rows: int

    @property
    def offsets(self) -> Offsets:
        """Offsets of the rows that were deleted now, increasing."""
        return offsets_of(BitMap.deserialize(self.bitmap))

    @property
    def new_deletion_files(self) -> Iterable[str]:
        """The deletion file, unless no row is left."""
        return () if self.file is None else (deletion_path(self.file, self.fragment_id),)


class Affected(Mapping[int, Offsets]):
    """Offsets of deleted rows by fragment, decoded only if another client changed the fragment."""

    def __init__(self, deletions: Mapping[int, FragmentDeletion]) -> None:
        self._deletions = deletions

    def __getitem__(self, fragment_id: int) -> Offsets:
        return self._deletions[fragment_id].offsets

    def __iter__(self) -> Iterator[int]:
        return iter(self._deletions)

    def __len__(self) -> int:
        return len(self._deletions)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTask(FragmentTask):
    """Fragments from which one task deletes rows. Can be pickled; holds no manifest.

    - `filters`: Rows that meet all of them are deleted.
    - `rows`: Offsets by fragment of the rows that can be deleted; all rows by default.
    - `candidates`: By fragment, the rows for which the filters can hold.
    """

    read_version: int
    filters: tuple[Condition, ...] = ()
    rows: RowsByFragment | None = None
    candidates: CandidateRows = None

    def run(self) -> list[FragmentDeletion]:
        """Find the rows, and write deletion files.

        Returns the fragments that have such rows. Raises CorruptFileError, CorruptTableError,
        UnsupportedEncodingError, StorageError.
        """
        paths = self.open_paths()
        rows = self._given()
        if self.filters:
            matching = matching_offsets(paths, self.fragments, self.filters, self.candidates)
            rows = {number: offsets & rows[number] for number, offsets in matching.items()}
        deletions = delete_offsets(paths, self.fragments, rows, self.read_version, self.tag)
        progress.advance(len(self.fragments), "fragments")
        return deletions

    def _given(self) -> dict[int, BitMap]:
        given = {fragment.id: BitMap(range(fragment.physical_rows)) for fragment in self.fragments}
        if self.rows is None:
            return given
        return {number: rows & _as_bitmap(self.rows[number]) for number, rows in given.items()}


def delete_offsets(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    rows: Mapping[int, BitMap],
    read_version: int,
    tag: bytes = b"",
) -> list[FragmentDeletion]:
    """Write the deletion files of fragments that lose rows; delete them if one fails.

    - `rows`: Offsets of rows by fragment. Rows that are deleted already stay so.

    Returns the fragments that lose rows.
    """

    def write(fragment: Fragment) -> list[FragmentDeletion]:
        return _write(paths, fragment, read_version, rows[fragment.id], tag)

    losing = [fragment for fragment in fragments if rows.get(fragment.id)]
    if len(losing) == 1:
        return write(losing[0])
    runner = LocalRunner(paths.store.is_local, _FILE_THREADS)
    parts = runner.run(losing, write, partial(undo, paths))
    return [deletion for part in parts for deletion in part]


def _write(
    paths: TablePaths, fragment: Fragment, read_version: int, rows: BitMap, tag: bytes
) -> list[FragmentDeletion]:
    """Write the deletion file of a fragment; return nothing if it loses no live row."""
    deleted = bitmap_of(read_deletions(paths, fragment))
    rows = rows - deleted
    if not rows:
        return []
    file = None
    if len(rows) + len(deleted) < fragment.physical_rows:
        file = write_deletions(paths.store, fragment.id, read_version, rows | deleted, tag=tag)
    return [FragmentDeletion(fragment.id, file, encode_bitmap(rows), len(rows))]


def plan_delete(
    table: OpenTable,
    filters: Iterable[Filter] | None = None,
    *,
    rows: RowsByFragment | None = None,
    fragments_per_task: int | None = None,
    rows_per_task: int | None = None,
    tag: bytes = b"",
    check: Callable[..., None] = check_rows_changeable,
) -> list[DeleteTask]:
    """Cut a deletion into tasks.

    - `filters` (iterable of (column, operator, value) or Predicate): Rows that meet all of them are
      deleted: all rows without filters.
    - `rows` (mapping of int to int64 array or BitMap): Offsets by fragment of the rows that can be
      deleted; all rows by default.
    - `fragments_per_task`: By default small fragments share a task, which reads them together, and
      each large fragment has a task.
    - `rows_per_task`: Rows up to which fragments share a task by default.
    - `check`: Raises an error for a table whose rows must not change. A compaction of a MemWAL has
      `check_rows_writable`.

    Raises InvalidInputError: a filter cannot be parsed, or the version has no such fragment. Raises
    UnsupportedFeatureError, UnsupportedError: the table needs a newer release.
    """
    check(table, data_files=False)
    conditions = parse_conditions(table, filters)
    every = fragments = counted_fragments(table.paths, table.manifest)
    if rows is not None:
        missing = sorted(rows.keys() - {fragment.id for fragment in fragments})
        if missing:
            raise InvalidInputError(
                f"{table.store.display}: version {table.version} has no fragment {missing[0]}"
            )
        fragments = tuple(fragment for fragment in fragments if len(rows.get(fragment.id, ())))
    candidates = candidate_rows(table, every, conditions)
    fragments = with_candidates(fragments, candidates)
    return [
        DeleteTask(
            uri=table.store.uri,
            fragments=chosen,
            read_version=table.version,
            filters=conditions,
            rows=None if rows is None else {fragment.id: rows[fragment.id] for fragment in chosen},
            candidates=candidates_of(chosen, candidates),
            base_paths=table.manifest.base_paths,
            storage_options=table.store.options,
            tag=tag,
        )
        for chosen in _grouped(
            fragments,
            fragments_per_task,
            candidates,
            (rows_per_task or _TASK_ROWS) if conditions else sys.maxsize,
        )
    ]


def _grouped(
    fragments: Sequence[Fragment],
    fragments_per_task: int | None,
    candidates: CandidateRows,
    rows_per_task: int,
) -> Iterator[tuple[Fragment, ...]]:
    """Yield the fragments of each task; see `plan_delete`."""
    max_fragments = fragments_per_task or _TASK_FRAGMENTS
    max_rows = sys.maxsize if fragments_per_task else rows_per_task
    group: list[Fragment] = []
    rows = 0
    for fragment in fragments:
        size = fragment.physical_rows
        if candidates is not None:
            size = candidates[fragment.id].num_decoded
        if group and (len(group) == max_fragments or rows + size > max_rows):
            yield tuple(group)
            group, rows = [], 0
        group.append(fragment)
        rows += size
    if group:
        yield tuple(group)


def run_delete(
    table: OpenTable,
    runner: Runner,
    filters: Iterable[Filter] = (),
    rows: RowsByFragment | None = None,
    check: Callable[..., None] = check_rows_changeable,
) -> list[FragmentDeletion]:
    """Plan a deletion and run its tasks; no version refers to the deletion files yet."""
    in_turn = table.store.is_local and isinstance(runner, LocalRunner)
    per_task = _LOCAL_TASK_ROWS if in_turn else None
    tasks = plan_delete(
        table, filters, rows=rows, rows_per_task=per_task, tag=runner.tag, check=check
    )
    undo_all = partial(undo, table.paths)
    total = sum(len(task.fragments) for task in tasks)
    parts = runner.run_counted(tasks, DeleteTask.run, undo_all, "delete", total, "fragments")
    return [deletion for part in parts for deletion in part]


def delete_operation(
    table: OpenTable, deletions: Iterable[FragmentDeletion], predicate: str = ""
) -> Delete:
    """Return the operation that makes deletions part of the table; see `commit_deletes`."""
    fragments, removed, affected = deletion_effects(table, deletions)
    return Delete(
        fragments=fragments, deleted_fragment_ids=removed, predicate=predicate, affected=affected
    )


def deletion_effects(
    table: OpenTable, deletions: Iterable[FragmentDeletion]
) -> tuple[tuple[Fragment, ...], tuple[int, ...], Affected]:
    """Return what deletions change in a table.

    Returns
    -------
    tuple of Fragment
        The fragments that keep some rows, with their new deletion files, in order.
    tuple of int
        Ids of the fragments that lose all rows.
    Affected
        The deleted rows.

    Raises
    ------
    InvalidInputError
        Two deletions are of one fragment.
    """
    deletions = list(deletions)
    check_once(table, (deletion.fragment_id for deletion in deletions))
    by_id = {deletion.fragment_id: deletion for deletion in deletions}
    pairs = (
        (fragment, by_id.get(fragment.id))
        for fragment in counted_fragments(table.paths, table.manifest)
    )
    fragments = tuple(
        with_deletion_file(fragment, deletion.file)
        for fragment, deletion in pairs
        if deletion is not None and deletion.file is not None
    )
    removed = sorted(number for number, deletion in by_id.items() if deletion.file is None)
    return fragments, tuple(removed), Affected(by_id)


def commit_deletes(
    table: OpenTable,
    deletions: Iterable[FragmentDeletion],
    predicate: str = "",
    options: CommitOptions | None = None,
) -> Manifest:
    """Make the deletions of all tasks part of the table.

    - `deletions`: No deletions make a version too.
    - `predicate`: Condition of the rows, as text.

    Raises UncertainCommitError, StorageError, CorruptTableError. Raises CommitConflictError:
    another client changed the same rows; the deletion files are deleted. Raises InvalidInputError:
    two deletions are of one fragment.
    """
    operation = delete_operation(table, deletions, predicate)
    return commit_rows(table, operation, options or CommitOptions())


def delete_once(
    table: OpenTable,
    runner: Runner,
    filters: Sequence[Filter],
    rows: RowsByFragment | None,
    text: str | None,
    options: CommitOptions,
) -> tuple[Manifest, int]:
    """Delete rows of one version: plan, run and commit.

    - `table`, `runner`, `filters`, `rows`: As for `run_delete`.
    - `text`: Condition of the rows that the transaction records; made of the filters by default.

    Returns the new version, and the number of deleted rows.
    """
    deletions = run_delete(table, runner, filters, rows)
    predicate = text or describe(parse_conditions(table, filters), rows)
    manifest = commit_deletes(table, deletions, predicate, options)
    return manifest, sum(deletion.num_rows for deletion in deletions)


def delete_rows(
    table: OpenTable,
    filters: str | Iterable[Filter] | None,
    rows: Callable[[OpenTable], RowsByFragment] | None,
    options: CommitOptions,
    runner: Runner | None = None,
    text: str | None = None,
) -> OpenTable:
    """Delete rows; see `Dataset.delete`.

    - `rows`: Returns the offsets of the rows in a version, by fragment.
    - `text`: As for `delete_once`.
    """
    if filters is None and rows is None:
        raise InvalidInputError(
            "no condition of the rows to delete is given; filters=[] deletes all rows"
        )
    conditions = conditions_of(filters)
    text = text or (filters if isinstance(filters, str) else None)

    def change(current: OpenTable) -> Manifest:
        chosen = None if rows is None else rows(current)
        task_runner = runner_for(current, runner)
        return delete_once(current, task_runner, conditions, chosen, text, options)[0]

    check = address_check(table, conditions)
    manifest = retry_on_conflict(table, change, options, before_replan=check)
    return at_version(table, manifest)


def union_rows(parts: Iterable[Mapping[int, bytes]], *, disjoint: bool) -> dict[int, BitMap]:
    """Return the rows of all parts, by fragment.

    - `parts`: Roaring bitmaps of offsets, by fragment.
    - `disjoint`: Whether it is an error that two parts have a row in common.

    Raises InvalidInputError: two parts have a row in common.
    """
    rows: dict[int, BitMap] = {}
    for part in parts:
        for number, data in part.items():
            offsets = BitMap.deserialize(data)
            fragment_rows = rows.setdefault(number, BitMap())
            if disjoint and not fragment_rows.isdisjoint(offsets):
                address = (number << OFFSET_BITS) + (fragment_rows & offsets).min()
                raise InvalidInputError(
                    f"the row with _rowaddr {address} (fragment {number}) was handled by two "
                    "tasks; nothing was changed"
                )
            fragment_rows |= offsets
    return rows


def _as_bitmap(rows: Offsets | BitMap) -> BitMap:
    return rows if isinstance(rows, BitMap) else bitmap_of(rows)
