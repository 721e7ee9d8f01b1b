"""`MergeInsertBuilder`, and the execution of merges of local tables."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark import progress
from lance_spark.arguments import check_least
from lance_spark.errors import (
    AmbiguousMergeError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.json_columns import read_json, write_json
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import storage_type
from lance_spark.mutations.columns.add import ColumnLookup, add_columns
from lance_spark.mutations.commits import at_version, retry_on_conflict
from lance_spark.mutations.rows.merge import (
    ChunkedRows,
    KeyMatch,
    MergedRows,
    check_mergeable,
    commit_merge,
    match_keys,
    merge_operation,
    parts,
)
from lance_spark.predicates.tuples import Comparison
from lance_spark.progress import ProgressCallback, reporting
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.table.align import align
from lance_spark.table.commit.options import CommitOptions, check_timeout
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import OpenTable
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.u64_segments import UInt64Array
from lance_spark.table.sources import table_of

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.predicates.tree import Predicate
    from lance_spark.table.manifest.manifest import Manifest


# --------------------------------------------------------------------------------------------------
# The columns of other rows, added to the rows with the same key.


def add_joined_columns(
    table: OpenTable,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    options: CommitOptions,
) -> OpenTable:
    """Add the columns of other rows; see `Dataset.merge`.

    Returns the version that was committed.
    """
    key = table.schema.field(left_on)
    joined = ColumnLookup.of(table_of(data, schema), right_on or left_on, key.to_arrow().type)
    return add_columns(table, joined, [left_on], joined.columns.schema, options=options)


# --------------------------------------------------------------------------------------------------
# The execution of a merge without Spark.
#
# | step | what |
# | --- | --- |
# | 1 | read the keys of the table, the columns of the conditions and the addresses of the rows |
# | 2 | match them with the keys of the source |
# | 3 | evaluate the conditions |
# | 4 | write the new rows and commit |
#
# A merge that deletes no rows of the table without a match takes only rows whose first key is in
# the source: a scan of the column, or an index, leaves out the others.

#: An index is asked for so many keys, and for more if the table has so many rows for each of them,
#: of keys of fixed and of other sizes. Otherwise a scan of the column takes less time.
_FEW_KEYS = 1_000
_ROWS_OF_KEY, _ROWS_OF_LONG_KEY = 512, 64
#: Most bytes of keys in one array, whose offsets may have 32 bits.
_MOST_KEY_BYTES = 1 << 30
_TARGET, _SOURCE = "target", "source"
_Indexes = npt.NDArray[np.int64]


class MergeCounts(TypedDict):
    """What a merge changes: numbers of rows."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int


class MergeResult(MergeCounts):
    """The result of a merge.

    Attributes
    ----------
    dataset : Dataset
        The version that was committed.
    num_inserted_rows, num_updated_rows, num_deleted_rows : int
    """

    dataset: Any


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """What a merge does with each kind of row.

    - `matched`: ``keep``, ``update``, ``delete`` or ``fail``.
    - `condition`: Condition on both sides for an update.
    - `inserts`: Whether rows of the source that match no row are inserted.
    - `deletes_others`: Whether rows of the table that match no row of the source are deleted.
    - `others`: Condition on the rows to delete.
    """

    matched: str = "keep"
    condition: str | None = None
    inserts: bool = False
    deletes_others: bool = False
    others: str | None = None
    use_index: bool = True

    @property
    def changes_rows(self) -> bool:
        """Whether the merge can change a row."""
        return self.matched in ("update", "delete") or self.inserts or self.deletes_others


def execute(
    dataset: Dataset,
    on: Sequence[str],
    clauses: MergeClauses,
    source: pa.Table,
    options: CommitOptions,
) -> MergeResult:
    """Merge rows; see `MergeInsertBuilder.execute`."""
    merged: list[MergedRows] = []

    def change(current: OpenTable) -> Manifest:
        check_mergeable(current)
        rows = plan_merge(dataset._committed(current), on, clauses, source)
        merged.append(rows)
        return commit_merge(current, rows, options)

    table = dataset._table
    manifest = retry_on_conflict(table, change, options)
    return {"dataset": dataset._committed(at_version(table, manifest)), **_counts(merged[-1])}


def execute_uncommitted(
    dataset: Dataset,
    on: Sequence[str],
    clauses: MergeClauses,
    source: pa.Table,
    options: CommitOptions,
) -> tuple[Transaction, MergeCounts]:
    """Write the files of a merge; see `MergeInsertBuilder.execute_uncommitted`."""
    check_mergeable(dataset._table)
    rows = plan_merge(dataset, on, clauses, source)
    operation = merge_operation(dataset._table, rows)
    return Transaction.new(dataset.version, operation, options.properties), _counts(rows)


def _counts(rows: MergedRows) -> MergeCounts:
    return {
        "num_inserted_rows": len(rows.inserts),
        "num_updated_rows": len(rows.updated),
        "num_deleted_rows": len(rows.deleted),
    }


def plan_merge(
    dataset: Dataset, on: Sequence[str], clauses: MergeClauses, source: pa.Table
) -> MergedRows:
    """Return what a merge changes in a version."""
    source = _aligned(source, dataset._table.schema, on)
    condition = _condition(clauses, dataset._table.schema, source.column_names)
    source = _normalized(source, dataset._table.schema, {*on, *_names(condition, _SOURCE)})
    read = dict.fromkeys([*on, *_names(condition, _TARGET)])
    (key,) = (field for field in dataset._table.schema.fields if field.name == on[0])
    key_filter = _key_filter(source, key, clauses)
    scanner = dataset.scanner(
        [*read, ROW_ADDRESS.name],
        filter=key_filter,
        use_scalar_index=clauses.use_index and _is_worth_a_search(dataset, key_filter),
    )
    is_counted = key_filter is None and progress.is_reported()
    total = dataset.count_rows() if is_counted else None
    batches = progress.counted(scanner.to_batches(), "match", total, "rows", lambda b: b.num_rows)
    target = pa.Table.from_batches(batches, scanner.projected_schema)
    addresses: UInt64Array = target[ROW_ADDRESS.name].to_numpy()
    match = match_keys([target[name] for name in on], [source[name] for name in on])
    changed = _changed(match, clauses, condition, target, source)
    _check(dataset, on, clauses, match, changed, target)
    none = np.empty(0, np.int64)
    is_update = clauses.matched == "update"
    updated, updates = (
        (addresses[match.target[changed]], match.source[changed])
        if is_update
        else (addresses[:0], none)
    )
    order = np.argsort(updated)
    deleted = [addresses[:0]]
    if clauses.matched == "delete":
        deleted.append(addresses[match.target])
    if clauses.deletes_others:
        others = np.delete(addresses, match.target)
        if clauses.others is not None:
            matching = dataset.to_table([ROW_ADDRESS.name], filter=clauses.others)
            others = np.intersect1d(others, matching[ROW_ADDRESS.name].to_numpy())
        deleted.append(others)
    return MergedRows(
        source,
        updated[order],
        updates[order],
        match.unmatched if clauses.inserts else none,
        np.sort(np.concatenate(deleted)),
    )


def _aligned(source: pa.Table, schema: Schema, on: Sequence[str]) -> pa.Table:
    """Return the source with the types of the table.

    Raises SchemaMismatchError: a column of the key is missing, or the table does not have a column
    or has it in another type. Raises UnsupportedTypeError: a column of the key has blobs.
    """
    names = source.column_names
    for name in on:
        if has_blobs(schema.field(name)):
            raise UnsupportedTypeError(
                f"merge_insert: column {name!r} has blobs, by which rows cannot be matched; choose "
                "another column"
            )
        if name not in names:
            raise SchemaMismatchError(
                f"merge_insert: the source has no column {name!r} of the key; it has "
                f"{', '.join(names)}"
            )
    for name in names:
        if name not in schema.names:
            raise SchemaMismatchError(f"merge_insert: the table has no column {name!r}")
    wanted = pa.schema([input_schema(schema).field(name) for name in names])
    batches = [align(batch, wanted) for batch in source.to_batches()]
    return pa.Table.from_batches(batches, batches[0].schema if batches else wanted)


def _normalized(source: pa.Table, schema: Schema, compared: Collection[str]) -> pa.Table:
    """Return the source with the JSON of compared columns as the table stores it.

    Raises InvalidInputError: a text is not valid JSON.
    """
    for index, name in enumerate(source.column_names):
        field = schema.field(name)
        if name in compared and field.has_json:
            label, row, chunks = "merge_insert: the source", 0, []
            for chunk in source[name].chunks:
                stored = write_json(chunk, field, label, row)
                chunks.append(read_json(stored, field, label))
                row += len(chunk)
            column = pa.chunked_array(chunks, source.schema.field(name).type)
            source = source.set_column(index, source.schema.field(name), column)
    return source


def _condition(clauses: MergeClauses, schema: Schema, names: Sequence[str]) -> Predicate | None:
    """Return the condition of an update, on the structs `source` and `target`."""
    if clauses.condition is None:
        return None
    from lance_spark.predicates.sql import parse_local

    source_fields = tuple(field for field in schema.fields if field.name in names)
    sides = (
        Field(_TARGET, -1, "struct", children=tuple(schema.fields)),
        Field(_SOURCE, -1, "struct", children=source_fields),
    )
    return parse_local(clauses.condition, Schema(sides))


def _names(condition: Predicate | None, side: str) -> list[str]:
    """Return the columns of one side that a condition reads."""
    if condition is None:
        return []
    names = []
    for path in condition.paths:
        if path[0].name == side:
            if len(path) == 1:
                raise InvalidInputError(f"merge_insert: a condition names {side} without a column")
            names.append(path[1].name)
    return list(dict.fromkeys(names))


def _key_filter(source: pa.Table, field: Field, clauses: MergeClauses) -> Comparison | None:
    """Return the condition that the first key is in the source; None if all rows are needed."""
    dtype = field.arrow_field.type
    # Keys of these types are equal if the filter and `match_keys` say so.
    is_compared = (
        pat.is_integer(dtype)
        or pat.is_temporal(dtype)
        or pat.is_decimal(dtype)
        or pat.is_string(dtype)
        or pat.is_large_string(dtype)
        or pat.is_binary(dtype)
        or pat.is_large_binary(dtype)
    )
    if clauses.deletes_others or not is_compared or field.has_json:
        return None
    # Equal keys cost less than their search.
    keys = source[field.name].drop_null()
    if keys.nbytes > _MOST_KEY_BYTES:
        return None
    return Comparison((field,), "in", pa.concat_arrays([pa.array([], keys.type), *keys.chunks]))


def _is_worth_a_search(dataset: Dataset, key_filter: Comparison | None) -> bool:
    """Return whether to ask an index for the rows that have the keys of the source."""
    if key_filter is None:
        return False
    keys = key_filter.value
    rows = _ROWS_OF_KEY if pat.is_primitive(keys.type) else _ROWS_OF_LONG_KEY
    return len(keys) <= _FEW_KEYS or len(keys) * rows <= dataset.count_rows()


def _changed(
    match: KeyMatch,
    clauses: MergeClauses,
    condition: Predicate | None,
    target: pa.Table,
    source: pa.Table,
) -> _Indexes:
    """Return the pairs whose row of the table is updated or deleted."""
    if condition is None or clauses.matched != "update":
        return np.arange(len(match.target))
    left, right = (
        ChunkedRows(table.select(_names(condition, side)))
        for side, table in ((_TARGET, target), (_SOURCE, source))
    )
    changed = [np.empty(0, np.int64)]
    sizes = left.sizes(match.target) + right.sizes(match.source)
    for part in parts(sizes):
        columns = [
            _struct(side, rows[part])
            for side, rows in ((left, match.target), (right, match.source))
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=[_TARGET, _SOURCE])
        holds = condition.holds(batch).to_numpy(zero_copy_only=False)
        changed.append(part.start + np.flatnonzero(holds))
    return np.concatenate(changed)


def _struct(table: ChunkedRows, rows: _Indexes) -> pa.StructArray:
    part = table.take(rows)
    if not part.num_columns:
        return pa.array([{}] * len(rows), pa.struct([]))
    batches = part.to_batches()
    if not batches:
        fields = [field.with_type(storage_type(field.type)) for field in part.schema]
        return pa.array([], pa.struct(fields))
    columns = [
        column.storage if isinstance(column, pa.ExtensionArray) else column
        for column in batches[0].columns
    ]
    return pa.StructArray.from_arrays(columns, names=part.column_names)


def _check(
    dataset: Dataset,
    on: Sequence[str],
    clauses: MergeClauses,
    match: KeyMatch,
    changed: _Indexes,
    target: pa.Table,
) -> None:
    """Refuse a merge whose result is not defined, or that must not find a match."""
    pairs = KeyMatch(match.target[changed], match.source[changed], match.unmatched)
    if clauses.matched == "fail" and len(match.target):
        key = _shown(target, on, int(match.target[0]))
        raise InvalidInputError(
            f"{dataset.uri}: the table has a row with the key {key}, and when_matched_fail is set; "
            "nothing was changed"
        )
    repeated = pairs.repeated() if clauses.matched in ("update", "delete") else None
    if repeated is not None:
        raise AmbiguousMergeError(
            f"{dataset.uri}: several rows of the source match the row with the key "
            f"{_shown(target, on, repeated)}, so its new values are not defined; nothing was "
            "changed, make the keys of the source unique"
        )


def _shown(target: pa.Table, on: Sequence[str], row: int) -> str:
    return ", ".join(f"{name}={target[name][row].as_py()!r}" for name in on)


# --------------------------------------------------------------------------------------------------
# `MergeInsertBuilder`: changes rows by the rows of a source, without Spark.

_WRITE_MODES = ("auto", "rewrite_rows", "rewrite_columns")


class MergeInsertBuilder:
    """Builder of a merge; `Dataset.merge_insert` returns it. Each method changes it and returns it.

    Parameters
    ----------
    dataset : Dataset
    on : sequence of str
        Columns by which rows match.
    """

    def __init__(self, dataset: Dataset, on: Sequence[str]) -> None:
        self._dataset = dataset
        self._on = tuple(on)
        self._clauses = MergeClauses()
        self._retries = 10
        self._timeout = datetime.timedelta(seconds=30)
        self._message: str | None = None
        self._properties: Mapping[str, str] | None = None

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Update matching rows with the values of all columns of the source.

        Parameters
        ----------
        condition : str, optional
            Update only rows for which this is true. Columns are named ``source.x`` and
            ``target.x``. Rows for which it is false are not inserted.
        """
        self._clauses = replace(self._clauses, matched="update", condition=condition)
        return self

    def when_matched_delete(self) -> Self:
        """Delete matching rows of the table."""
        self._clauses = replace(self._clauses, matched="delete", condition=None)
        return self

    def when_matched_fail(self) -> Self:
        """Make it an error that a row of the source matches a row of the table."""
        self._clauses = replace(self._clauses, matched="fail", condition=None)
        return self

    def when_not_matched_insert_all(self) -> Self:
        """Insert rows of the source that match no row. Columns that the source lacks are null."""
        self._clauses = replace(self._clauses, inserts=True)
        return self

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete rows of the table that match no row of the source.

        Parameters
        ----------
        expr : str, optional
            Delete only rows for which this is true, as in `Dataset.to_table`.
        """
        self._clauses = replace(self._clauses, deletes_others=True, others=expr)
        return self

    def conflict_retries(self, max_retries: int) -> Self:
        """Set how often the merge is planned again after a conflict; 10 by default."""
        check_least("max_retries", max_retries, 0)
        self._retries = max_retries
        return self

    def retry_timeout(self, timeout: datetime.timedelta) -> Self:
        """Set the time after which the merge is not planned again; 30 seconds by default."""
        check_timeout("timeout", timeout)
        self._timeout = timeout
        return self

    def use_index(self, use_index: bool) -> Self:
        """Set whether an index of the first key column may find matching rows; true by default."""
        self._clauses = replace(self._clauses, use_index=use_index)
        return self

    def data_storage_version(self, version: str) -> Self:
        """Set the file version of new data files, which must be that of the table.

        Raises
        ------
        UnsupportedFeatureError
            It is another version.
        """
        if version != self._dataset.data_storage_version:
            raise UnsupportedFeatureError(
                f"a merge writes files of version {self._dataset.data_storage_version}, the version"
                f" of the table, not {version!r}"
            )
        return self

    def write_mode(self, mode: str) -> Self:
        """Set how updated rows are written: ``auto`` or ``rewrite_rows``, which are the same.

        Raises
        ------
        UnsupportedFeatureError
            The mode is ``rewrite_columns``; `LanceTable.update_columns_from` does that.
        """
        if mode not in _WRITE_MODES:
            raise InvalidInputError(f"mode must be one of {', '.join(_WRITE_MODES)}, not {mode!r}")
        if mode == "rewrite_columns":
            raise UnsupportedFeatureError(
                "a merge rewrites rows; use update_columns_from of LanceTable to rewrite columns"
            )
        return self

    def target_bases(self, bases: Sequence[str]) -> Self:
        """Write new data files to these base paths; see `Dataset.with_target_bases`."""
        self._dataset = self._dataset.with_target_bases(bases)
        return self

    def target_all_bases(self, include_primary: bool = True) -> Self:
        """Write new data files to all base paths of the table.

        Parameters
        ----------
        include_primary : bool
            Whether the root of the table is one of them.
        """
        self._dataset = self._dataset.with_target_bases(target_all_bases=include_primary)
        return self

    def commit_message(self, message: str) -> Self:
        """Set the commit message."""
        self._message = message
        return self

    def transaction_properties(self, properties: Mapping[str, str]) -> Self:
        """Set the properties of the transaction."""
        self._properties = properties
        return self

    def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> MergeResult:
        """Merge rows in one commit, also if nothing changes.

        Parameters
        ----------
        data_obj : Table, RecordBatch, RecordBatchReader, DataFrame of pandas, ...
            The source, as `write_dataset` takes it. It is held in memory. It has the columns of the
            key and other columns of the table, in any order.
        schema : pa.Schema, optional
            As in `write_dataset`.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

        Returns
        -------
        dict
            ``dataset``: the version that was committed; ``num_inserted_rows``,
            ``num_updated_rows`` and ``num_deleted_rows``.

        Raises
        ------
        InvalidInputError
            The builder has no clause that changes rows, a condition is not valid, a value does not
            fit its column, or a row matches and `when_matched_fail` is set.
        SchemaMismatchError
            The source lacks a column of the key, or has a column that the table does not have.
        AmbiguousMergeError
            Several rows of the source match one row that is updated or deleted.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        source, options = self._prepared(data_obj, schema)
        with reporting("merge_insert", progress_callback):
            return execute(self._dataset, self._on, self._clauses, source, options)

    def execute_uncommitted(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> tuple[Transaction, MergeCounts]:
        """Write the files of a merge without a commit.

        Parameters
        ----------
        data_obj, schema, progress_callback
            As in `execute`.

        Returns
        -------
        (Transaction, dict)
            The transaction, for `Dataset.commit`, and the counts of `execute`. Another client that
            changes one of the rows first makes the commit fail.

        Raises
        ------
        InvalidInputError, SchemaMismatchError, AmbiguousMergeError, UnsupportedFeatureError,
        CorruptFileError, CorruptTableError, StorageError
            As in `execute`.
        """
        source, options = self._prepared(data_obj, schema)
        with reporting("merge_insert", progress_callback):
            return execute_uncommitted(self._dataset, self._on, self._clauses, source, options)

    def _prepared(self, data_obj: Any, schema: pa.Schema | None) -> tuple[pa.Table, CommitOptions]:
        if not self._clauses.changes_rows:
            raise InvalidInputError(
                "merge_insert: add a clause that changes rows, such as when_matched_update_all"
            )
        options = CommitOptions.of(
            commit_message=self._message,
            transaction_properties=self._properties,
            conflict_retries=self._retries,
            retry_timeout=self._timeout,
        )
        return table_of(data_obj, schema), options


def key_names(schema: Schema, on: str | Iterable[str] | None) -> list[str]:
    """Return the columns by which the rows of a merge match; see `Dataset.merge_insert`.

    Raises InvalidInputError: a column does not exist, or no column is given and the table has no
    primary key.
    """
    if on is None:
        paths = primary_key(schema)
        if not paths or any(len(path) > 1 for path in paths):
            raise InvalidInputError(
                "merge_insert: give the columns `on`; the table has no primary key of "
                "top-level columns"
            )
        return [path[0].name for path in paths]
    names = [on] if isinstance(on, str) else list(on)
    if not names:
        raise InvalidInputError("merge_insert: `on` must have at least one column")
    for name in names:
        if name not in schema.names:
            schema.field(name)
            raise InvalidInputError(
                f"merge_insert: {name!r} must be a top-level column, not a child of a struct"
            )
    return names
