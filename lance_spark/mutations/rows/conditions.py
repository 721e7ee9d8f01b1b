"""Conditions that select the rows of a mutation: parsed for each attempt, and as text; and a guard
for those that select rows by address, while other clients change the table.

A mutation that is planned again looks for its rows in a newer version. A stable row id or a value
still selects a row that has moved. Its old address selects no row, or another row, and the mutation
would silently change nothing, or the wrong row.

| committed meanwhile | rows that may have moved |
| --- | --- |
| appends, deletes, indexes, configuration, new values in place | none |
| updates and merges that write rows to new fragments | rows of the fragments that lose rows |
| compactions | rows of the rewritten fragments |
| new columns | rows of the fragments that the new version lacks |
| overwrites, restores, unknown operations, versions that are cleaned up | all rows |

Positions in the table's order change with deletes as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.indexes.candidates import TableIndexes
from lance_spark.indexes.coverage import checked_section
from lance_spark.predicates.conditions import Condition
from lance_spark.predicates.tree import Predicate
from lance_spark.predicates.tuples import Comparison, parse_filters
from lance_spark.scan.fragment.row_meta import (
    FRAGMENT_ID,
    ROW_ADDRESS,
    ROW_ID,
    ROW_OFFSET,
    with_all,
)
from lance_spark.scan.take import RowFinder
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.history import manifests_with_transactions
from lance_spark.table.manifest.versions import list_since
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.deletions import Offsets

if TYPE_CHECKING:
    from lance_spark.table.operations.base import Operation


# --------------------------------------------------------------------------------------------------
# The rows that a change looks at: those that indexes of the table do not rule out.

#: Physical rows by the id of the fragment; None for all rows.
CandidateRows = Mapping[int, RowRanges] | None


def candidate_rows(
    table: OpenTable, fragments: Sequence[Fragment], conditions: Sequence[Condition]
) -> CandidateRows:
    """Return the rows of a version for which all conditions can hold, by its indexes.

    - `fragments`: Of the version.
    """
    if not conditions or table.manifest.index_section is None:
        return None
    indexes = TableIndexes(
        table.paths,
        checked_section(table.paths, table.manifest),
        table.manifest.flags.stable_row_ids,
        fragments,
        lambda row_ids: RowFinder(table, fragments).find(row_ids),
    )
    candidates = indexes.candidates(conditions)
    return None if candidates is None else candidates.rows


def with_candidates(
    fragments: Iterable[Fragment], candidates: CandidateRows
) -> tuple[Fragment, ...]:
    """Return the fragments that have candidates."""
    return tuple(
        fragment for fragment in fragments if candidates is None or fragment.id in candidates
    )


def candidates_of(fragments: Iterable[Fragment], candidates: CandidateRows) -> CandidateRows:
    """Return the candidates of some fragments, which have some."""
    if candidates is None:
        return None
    return {fragment.id: candidates[fragment.id] for fragment in fragments}


# --------------------------------------------------------------------------------------------------
# Conditions that select the rows of a mutation: parsed for each attempt, and as text; and a guard
# for those that select rows by address, while other clients change the table.

#: A condition on rows: (column, operator, value), or a predicate.
Filter = Sequence[Any] | Predicate
_OPERATORS = {"==": "=", "!=": "!=", "is_null": "IS NULL", "is_not_null": "IS NOT NULL"}
#: Maximum number of values of a list in the text of a condition.
_SHOWN = 16
_KEEPS_ADDRESSES = frozenset(
    {
        "append",
        "create_index",
        "data_overlay",
        "data_replacement",
        "delete",
        "project",
        "reserve_fragments",
        "update_bases",
        "update_config",
        "update_mem_wal_state",
    }
)
_ROW_CHANGES = frozenset({"delete", "update"})


class RowAddressGuard:
    """Records which fragments rows may have left since a version.

    - `vacated`: Fragments of that version that rows may have left, up to the last version of
      `follow`, and the version and operation that moved the rows.
    """

    def __init__(self, table: OpenTable) -> None:
        self._first = table
        self._fragments = frozenset(fragment.id for fragment in table.manifest.fragments)
        self._seen = table.version
        self._shifted: str | None = None
        self.vacated: dict[int, str] = {}

    def follow(self, table: OpenTable) -> None:
        """Read the transactions of the versions up to a newer one, each of them once.

        Raises CorruptTableError, StorageError.
        """
        if table.version == self._seen:
            return
        located = [
            version
            for version in list_since(table.store, self._seen)
            if self._seen < version.version <= table.version
        ]
        read = 0
        for manifest, transaction in manifests_with_transactions(table.store, located):
            operation = None if transaction is None else transaction.operation
            name = "" if operation is None else operation.name
            self._record(operation, f"version {manifest.version} ({name or 'unknown operation'})")
            read += 1
        if read != table.version - self._seen:
            self._record(None, f"one of the versions up to {table.version}, which is cleaned up")
        self._seen = table.version

    def check(self, table: OpenTable, names: Iterable[str]) -> None:
        """Raise an error if rows that are selected by address or position may have moved.

        - `table`: The newer version that the mutation is planned on.
        - `names`: The columns by which the mutation selects rows. Without a metadata column of
          addresses or positions among them, nothing is checked.

        Raises CorruptTableError, StorageError. Raises CommitConflictError: the mutation cannot be
        planned again.
        """
        columns = _address_columns(self._first, names)
        if not columns:
            return
        self.follow(table)
        cause = next(iter(self.vacated.values()), None)
        if cause is None and ROW_OFFSET.name in columns:
            cause = self._shifted
        if cause is None:
            return
        raise CommitConflictError(
            f"{table.store.display}: the change selects rows of version {self._first.version} by "
            f"{', '.join(columns)}, and rows were moved or removed by another client meanwhile, in "
            f"{cause}; nothing was changed, find the rows again in the newest version",
            retryable=False,
        )

    def _record(self, operation: Operation | None, cause: str) -> None:
        for number in _vacated_by(operation, self._fragments):
            self.vacated.setdefault(number, cause)
        if operation is None or operation.name not in _ROW_CHANGES or self._shifted is not None:
            return
        if operation.name == "delete" or operation.moves_rows:
            self._shifted = cause if operation.touched_fragments & self._fragments else None


def _address_columns(table: OpenTable, names: Iterable[str]) -> list[str]:
    """Return the names of metadata columns that hold addresses or positions of rows.

    A column of the table hides a metadata column of the same name.
    """
    meta_names = {ROW_ADDRESS.name, ROW_OFFSET.name, FRAGMENT_ID.name}
    if not table.manifest.flags.stable_row_ids:
        meta_names.add(ROW_ID.name)
    table_names = set(table.schema.names)
    return [name for name in dict.fromkeys(names) if name in meta_names and name not in table_names]


def _vacated_by(operation: Operation | None, fragments: frozenset[int]) -> Collection[int]:
    """Return the fragments whose rows an operation may have moved."""
    from lance_spark.table.operations.columns import Merge
    from lance_spark.table.operations.rewrite import Rewrite
    from lance_spark.table.operations.update import Update

    if isinstance(operation, Rewrite):
        return fragments & operation.touched_fragments
    if isinstance(operation, Update):
        # Without new fragments, the update deleted rows or changed them in place.
        moves = operation.moves_rows and operation.new_fragments
        return fragments & operation.touched_fragments if moves else ()
    if isinstance(operation, Merge):
        return fragments - {fragment.id for fragment in operation.fragments}
    return () if operation is not None and operation.name in _KEEPS_ADDRESSES else fragments


def conditions_of(filters: str | Iterable[Filter] | None) -> list[Filter]:
    """Return filters, or a text, that each attempt can parse again: iterators become lists.

    Raises InvalidInputError: a filter is not a sequence.
    """
    if isinstance(filters, str) or _is_arrow(filters):
        return [filters]
    conditions: list[Filter] = []
    for part in filters or ():
        if isinstance(part, Predicate) or _is_arrow(part):
            conditions.append(part)
            continue
        if isinstance(part, str) or not isinstance(part, Sequence):
            raise InvalidInputError(f"a filter must be (column, operator, value), not {part!r}")
        conditions.append(
            tuple(list(value) if isinstance(value, Iterator) else value for value in part)
        )
    return conditions


def parse_conditions(table: OpenTable, filters: Iterable[Filter] | None) -> tuple[Condition, ...]:
    """Return the parsed conditions: comparisons first, then predicates.

    Raises InvalidInputError: a filter cannot be parsed, or names row offsets, which a task of some
    fragments cannot compute.
    """
    schema = with_all(table.schema)
    parts = [filters] if isinstance(filters, str) else list(filters or ())
    predicates: list[Condition] = [part for part in parts if isinstance(part, Predicate)]
    expressions = [part for part in parts if _is_arrow(part)]
    for expression in expressions:
        from lance_spark.predicates.arrow import arrow_condition

        predicates.append(arrow_condition(expression, schema))
    for text in (part for part in parts if isinstance(part, str)):
        from lance_spark.predicates.sql import parse_local

        predicates.append(parse_local(text, schema))
    tuples = [
        part for part in parts if not isinstance(part, Predicate | str) and not _is_arrow(part)
    ]
    comparisons = parse_filters(tuples, schema)
    conditions: tuple[Condition, ...] = (*comparisons, *predicates)
    if any(path[0].id == ROW_OFFSET.id for condition in conditions for path in condition.paths):
        raise InvalidInputError(
            f"filter on {ROW_OFFSET.name!r}: rows to change cannot be selected by it; use _rowaddr "
            "or _rowid"
        )
    return conditions


def address_check(table: OpenTable, conditions: Iterable[Filter]) -> Callable[[OpenTable], None]:
    """Return a check for newer versions that raises an error if addressed rows may have moved.

    See `RowAddressGuard.check`.
    """
    guard = RowAddressGuard(table)
    condition_list = list(conditions)

    def check(newer: OpenTable) -> None:
        parsed = parse_conditions(table, condition_list)
        guard.check(newer, (path[0].name for condition in parsed for path in condition.paths))

    return check


def _is_arrow(value: object) -> TypeGuard[Any]:
    """Return whether a value is an expression of Arrow, without the import of its functions."""
    return type(value).__module__ == "pyarrow._compute" and type(value).__name__ == "Expression"


def describe(
    conditions: Iterable[Condition], rows: Mapping[int, Offsets | BitMap] | None = None
) -> str:
    """Return conditions as the text that a transaction records."""
    parts = [
        _text(condition) if isinstance(condition, Comparison) else str(condition)
        for condition in conditions
    ]
    if rows is not None:
        parts.insert(0, f"_rowaddr IN ({sum(map(len, rows.values()))} addresses)")
    return " AND ".join(parts) or "true"


def _text(comparison: Comparison) -> str:
    name = ".".join(node.name for node in comparison.path)
    op, value = comparison.op, comparison.value
    if value is None:
        return f"{name} {_OPERATORS[op]}"
    if op in ("in", "not in"):
        shown = [_literal(_plain(scalar)) for scalar in value[:_SHOWN]]
        ellipsis = ", ..." if len(value) > len(shown) else ""
        return f"{name} {op.upper()} ({', '.join(shown)}{ellipsis})"
    return f"{name} {_OPERATORS.get(op, op)} {_literal(_plain(value))}"


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (LookupError, ValueError, OverflowError):
        # The time zone is unknown, or the time is out of Python's range: use the stored number.
        return getattr(value, "value", None)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"
