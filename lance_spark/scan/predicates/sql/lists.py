"""Functions that search lists.

| function | as in | result, if no item equals |
| --- | --- | --- |
| `array_contains(list, value)` | Spark | null if the list has a null, else false |
| `arrays_overlap(list, array(...))` | Spark | null if one of both has a null and none is empty |
| `array_has(list, value)` | pylance | false |
| `array_has_any(list, [...])`, `array_has_all(list, [...])` | pylance | false; null equals null |

The result for a null list is null, but pylance decides empty arrays without the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.logical_types import SPARK_TYPE
from lance_spark.scan.predicates import coercion
from lance_spark.scan.predicates.column_predicates import IsNull
from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.list_predicates import HasItems, item_column
from lance_spark.scan.predicates.sql_settings import DEFAULTS, SqlSettings
from lance_spark.scan.predicates.tree import Column, Constant, Or, Predicate
from lance_spark.scan.predicates.typed_values import Typed, is_text, type_name

#: Spark types whose values Spark does not compare by their bytes.
_OTHER_ORDER = re.compile(r"collate|\bchar\(")

#: Builds a condition from a column of lists and literals.
Build = Callable[[Column, Sequence[Typed], SqlSettings], Predicate]


def array_contains(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has an item that equals a literal.

    Raises InvalidInputError, NoCommonTypeError.
    """
    (value,) = items
    if pat.is_null(value.dtype):
        raise NoCommonTypeError("array_contains does not take NULL; write CAST(NULL AS type)")
    test = _equals_any(column, items, settings)
    return Constant(None) if value.value is None else HasItems(column, (test,), unknown=True)


def arrays_overlap(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has an item that equals one of some literals.

    Raises InvalidInputError, NoCommonTypeError.
    """
    item_type = coercion.type_of(item_column(column))
    for item in items:
        if not pat.is_null(item.dtype) and (
            pat.is_decimal(item.dtype) != pat.is_decimal(item_type)
        ):
            raise NoCommonTypeError(
                f"arrays_overlap does not compare {type_name(item_type)} with "
                f"{type_name(item.dtype)}; cast the literal"
            )
    if not items:
        return Constant(False, where_valid=column)
    return HasItems(column, (_equals_any(column, items, settings),), unknown=True)


def array_has(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has an item that equals a literal; a null item does not.

    Raises InvalidInputError, NoCommonTypeError.
    """
    test = _equals_any(column, items, settings)
    if items[0].value is None:
        return Constant(None)
    return HasItems(column, (test,), unknown=False)


def array_has_any(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has one of some items, which may be null.

    Raises InvalidInputError, NoCommonTypeError.
    """
    item = item_column(column)
    if not items:
        return Constant(False)
    values = [literal for literal in items if literal.value is not None]
    tests: list[Predicate] = [_equals_any(column, values, settings)] if values else []
    if len(values) < len(items):
        tests.append(IsNull(item))
    test = tests[0] if len(tests) == 1 else Or(tuple(tests))
    return HasItems(column, (test,), unknown=False)


def array_has_all(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has all of some items, which may be null.

    Raises InvalidInputError, NoCommonTypeError.
    """
    item = item_column(column)
    tests: list[Predicate] = [
        IsNull(item) if literal.value is None else _equals_any(column, [literal], settings)
        for literal in dict.fromkeys(items)
    ]
    return HasItems(column, tuple(tests), unknown=False) if tests else Constant(True)


#: Functions of a list and a value, and of a list and an array.
OF_VALUE: Mapping[str, Build] = {"array_contains": array_contains, "array_has": array_has}
OF_ARRAY: Mapping[str, Build] = {
    "arrays_overlap": arrays_overlap,
    "array_has_any": array_has_any,
    "array_has_all": array_has_all,
}


def _equals_any(column: Column, items: Sequence[Typed], settings: SqlSettings) -> Predicate:
    item = item_column(column)
    for field in (column.field, item.field):
        dtype = field.metadata.get(SPARK_TYPE, b"").decode(errors="replace")
        if _OTHER_ORDER.search(dtype):
            raise InvalidInputError(
                f"filter: column {column} is {dtype}, which Spark does not compare by bytes; "
                "filter by DataFrame.where or by SQL"
            )
    item_type = coercion.type_of(item)
    for literal in items:
        if not pat.is_null(literal.dtype) and is_text(literal.dtype) != is_text(item_type):
            raise NoCommonTypeError(
                f"a list of {type_name(item_type)} is not searched for "
                f"{type_name(literal.dtype)}; cast the literal"
            )
    return coercion.is_in(item, items, settings)
