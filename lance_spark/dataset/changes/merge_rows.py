"""The execution of a merge without Spark.

| step | what |
| --- | --- |
| 1 | read the keys of the table, the columns of the conditions and the addresses of the rows |
| 2 | match them with the keys of the source |
| 3 | evaluate the conditions |
| 4 | write the new rows and commit |

A merge that deletes no rows of the table without a match reads only rows whose first key is in the
source, if the source is small.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark import progress
from lance_spark.errors import (
    AmbiguousMergeError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import read_json, write_json
from lance_spark.file.schema.logical_types import storage_type
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.commits import at_version, retry_on_conflict
from lance_spark.mutations.rows.chunked_rows import ChunkedRows, parts
from lance_spark.mutations.rows.key_matching import KeyMatch, match_keys
from lance_spark.mutations.rows.merge_insert import (
    MergedRows,
    check_mergeable,
    commit_merge,
    merge_operation,
)
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.table.align import align
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import OpenTable

#: Most rows of a source whose keys filter the table.
_MAX_KEYS = 10_000
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

    Attributes
    ----------
    matched : str
        ``keep``, ``update``, ``delete`` or ``fail``.
    condition : str, optional
        Condition on both sides for an update.
    inserts : bool
        Whether rows of the source that match no row are inserted.
    deletes_others : bool
        Whether rows of the table that match no row of the source are deleted.
    others : str, optional
        Condition on the rows to delete.
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
    key_filter = _key_filter(source, on[0], clauses)
    scanner = dataset.scanner(
        [*read, ROW_ADDRESS.name], filters=key_filter, use_scalar_index=clauses.use_index
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

    Raises
    ------
    SchemaMismatchError
        A column of the key is missing, or the table does not have a column or has it in another
        type.
    UnsupportedTypeError
        A column of the key has blobs.
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

    Raises
    ------
    InvalidInputError
        A text is not valid JSON.
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
    from lance_spark.scan.predicates.sql import parse_local

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


def _key_filter(source: pa.Table, name: str, clauses: MergeClauses) -> list[Any] | None:
    """Return the condition that the first key is in a small source; None if all rows are needed."""
    dtype = source.schema.field(name).type
    if clauses.deletes_others or source.num_rows > _MAX_KEYS:
        return None
    if not (pat.is_integer(dtype) or pat.is_string(dtype) or pat.is_large_string(dtype)):
        return None
    values = source[name].unique().drop_null().to_pylist()
    return [(name, "in", values)]


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
