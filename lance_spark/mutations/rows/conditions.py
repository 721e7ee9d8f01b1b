"""Conditions that select the rows of a mutation: parsed for each attempt, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.rows.row_address_guard import RowAddressGuard
from lance_spark.scan.fragment.row_meta import ROW_OFFSET, with_all
from lance_spark.scan.predicates.tree import Predicate
from lance_spark.scan.predicates.tuples import Comparison, parse_filters
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.deletions import Offsets

#: A condition on rows: (column, operator, value), or a predicate.
Filter = Sequence[Any] | Predicate
_OPERATORS = {"==": "=", "!=": "!=", "is_null": "IS NULL", "is_not_null": "IS NOT NULL"}
#: Maximum number of values of a list in the text of a condition.
_SHOWN = 16


def conditions_of(filters: str | Iterable[Filter] | None) -> list[Filter]:
    """Return filters, or a text, that each attempt can parse again: iterators become lists.

    Raises
    ------
    InvalidInputError
        A filter is not a sequence.
    """
    if isinstance(filters, str):
        return [filters]
    conditions: list[Filter] = []
    for part in filters or ():
        if isinstance(part, Predicate):
            conditions.append(part)
            continue
        if isinstance(part, str) or not isinstance(part, Sequence):
            raise InvalidInputError(f"a filter must be (column, operator, value), not {part!r}")
        conditions.append(
            tuple(list(value) if isinstance(value, Iterator) else value for value in part)
        )
    return conditions


def parse_conditions(
    table: OpenTable, filters: Iterable[Filter] | None
) -> tuple[Comparison | Predicate, ...]:
    """Return the parsed conditions: comparisons first, then predicates.

    Raises
    ------
    InvalidInputError
        A filter cannot be parsed, or names row offsets, which a task of some fragments cannot
        compute.
    """
    schema = with_all(table.schema)
    given = [filters] if isinstance(filters, str) else list(filters or ())
    predicates = [part for part in given if isinstance(part, Predicate)]
    for text in (part for part in given if isinstance(part, str)):
        from lance_spark.scan.predicates.sql import parse_predicate

        predicates.append(parse_predicate(text, schema))
    tuples = [part for part in given if not isinstance(part, Predicate | str)]
    comparisons = parse_filters(tuples, schema)
    conditions: tuple[Comparison | Predicate, ...] = (*comparisons, *predicates)
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
    given = list(conditions)

    def check(newer: OpenTable) -> None:
        parsed = parse_conditions(table, given)
        guard.check(newer, (path[0].name for condition in parsed for path in condition.paths))

    return check


def describe(
    conditions: Iterable[Comparison | Predicate],
    rows: Mapping[int, Offsets | BitMap] | None = None,
) -> str:
    """Return conditions as the text that a transaction records."""
    parts = [
        str(condition) if isinstance(condition, Predicate) else _text(condition)
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
