"""Conditions of users on the rows of a table, read by Spark's own parser and analyzer.

| session | condition | who evaluates it |
| --- | --- | --- |
| classic | supported by push-down | scans, from the tree of the rule (`filter_trees`) |
| classic | any other | Spark |
| Spark Connect, or an unknown version of Spark | any | Spark |

This package has no parser of its own for the text, so all settings of the session apply. Spark's
optimizer folds constants and moves casts from columns to literals before the condition is
translated. What is left compares values of one type, which scans answer exactly. A condition that
can raise an error for some row is left to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field
from lance_spark.spark.jvm.classes import call_static, conditions_class, is_connect
from lance_spark.spark.jvm.shims.pyspark_names import java_error, java_frame
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.read.planning import known_columns
from lance_spark.spark.read.projection import find
from lance_spark.spark.table.dataframes import (
    analyze,
    frame,
    named_columns,
    resolve_columns,
    to_column,
)
from lance_spark.spark.types.mapping import refuse_descriptors, spark_type_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.predicates.tree import Predicate
    from lance_spark.spark.table.base import TableHandle


# --------------------------------------------------------------------------------------------------
# Casts of values to the types of columns.
#
# Spark casts a struct by the order of its children. Here children are matched by name, as in writes
# and in SQL statements that change rows.


def cast_to_field(value: Column, source: DataType, field: Field, by_name: bool) -> Column:
    """Return a value cast to the type of a column of the table.

    A cast that fails is an error, unless ANSI mode is off. Blobs are not cast: writes accept them
    as bytes or as references.

    - `source`: Type of the value.
    - `field`: The column of the table.
    - `by_name`: Whether children of structs must have the same names as in the table. Otherwise,
      children with other names are matched by their order, if those that the table has, too, are in
      their places.

    Raises SchemaMismatchError: children of a struct have other names, and must not. Or the values
    are descriptors of blobs.
    """
    refuse_descriptors(source, field.name)
    if has_blobs(field):
        return value
    target = spark_type_of(field.to_arrow())
    return _cast(value, source, target, field.name, by_name)


def _cast(value: Column, source: DataType, target: DataType, path: str, by_name: bool) -> Column:
    """Cast a value; match children of structs by name, where Spark matches them by order.

    Raises SchemaMismatchError.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
    from pyspark.sql import types as spark

    if _has_same_names(source, target):
        return value.cast(target)
    if isinstance(source, spark.StructType) and isinstance(target, spark.StructType):
        positions = _positions(source.names, target.names)
        if positions is None:
            if by_name or _is_reordered(source.names, target.names):
                raise SchemaMismatchError(
                    f"column {path}: the source has children {', '.join(source.names)}, the table "
                    f"{', '.join(target.names)}"
                )
            return value.cast(target)
        children = []
        for position, new in zip(positions, target.fields, strict=True):
            old = source.fields[position]
            child = _cast(
                value.getField(old.name), old.dataType, new.dataType, f"{path}.{new.name}", by_name
            )
            children.append(child.alias(new.name))
        return F.when(value.isNotNull(), F.struct(*children))
    if isinstance(source, spark.ArrayType) and isinstance(target, spark.ArrayType):
        old_type, new_type = source.elementType, target.elementType
        return F.transform(
            value, lambda item: _cast(item, old_type, new_type, f"{path}[]", by_name)
        )
    if isinstance(source, spark.MapType) and isinstance(target, spark.MapType):
        old_type, new_type = source.valueType, target.valueType
        return F.transform_values(
            value, lambda _, item: _cast(item, old_type, new_type, f"{path}[]", by_name)
        ).cast(target)
    return value.cast(target)


def _has_same_names(source: DataType, target: DataType) -> bool:
    """Return whether structs, at any depth, have the same names in the same order."""
    from pyspark.sql import types as spark

    if isinstance(source, spark.StructType) and isinstance(target, spark.StructType):
        return _positions(source.names, target.names) == list(range(len(source))) and all(
            _has_same_names(old.dataType, new.dataType)
            for old, new in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, spark.ArrayType) and isinstance(target, spark.ArrayType):
        return _has_same_names(source.elementType, target.elementType)
    if isinstance(source, spark.MapType) and isinstance(target, spark.MapType):
        return _has_same_names(source.valueType, target.valueType)
    return True


def _positions(source: Sequence[str], target: Sequence[str]) -> list[int] | None:
    """Return the place of each name of the target in the source; None if the names differ."""
    positions = [find(source, name) for name in target]
    is_complete = sorted(positions) == list(range(len(source)))
    return positions if is_complete else None


def _is_reordered(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether the source has a name of the target in another place."""
    return any(find(source, name) not in (-1, index) for index, name in enumerate(target))


# --------------------------------------------------------------------------------------------------
# Conditions of users on the rows of a table, read by Spark's own parser and analyzer.


def scan_predicate(
    handle: TableHandle, dataset: Dataset, condition: str | Column | None
) -> Predicate | None:
    """Return a condition as a predicate for scans; None if only Spark can evaluate it.

    - `condition`: None is returned for None.

    Raises InvalidInputError: Spark cannot analyse the condition.
    """
    tree = condition_tree(handle, dataset, condition)
    return None if tree is None else to_predicate(tree, known_columns(dataset))


def condition_tree(
    handle: TableHandle, dataset: Dataset, condition: str | Column | None
) -> dict[str, Any] | None:
    """Return a condition as the optimizer rule passes it to the reader.

    Returns a tree of `filter_trees` that `to_predicate` accepts; None if only Spark can evaluate
    the condition, or if it is None. Raises InvalidInputError: Spark cannot analyse the condition.
    """
    if condition is None or is_connect(handle.spark):
        return None
    translator = conditions_class(handle.spark)
    if translator is None:
        return None
    columns = named_columns(dataset, condition)
    _, rows = analyze(handle, dataset, columns, condition=condition)
    try:
        text = call_static(handle.spark, translator, "write", java_frame(rows).queryExecution())
    except java_error():
        # The jar of another release does not know this version of Spark.
        return None
    if text is None:
        return None
    tree: dict[str, Any] = json.loads(text)
    try:
        to_predicate(tree, known_columns(dataset))
    except InvalidInputError:
        # Spark compares another type than the type in which the scan stores the column.
        return None
    return tree


def matching_rows(
    handle: TableHandle,
    dataset: Dataset,
    condition: str | Column | None,
    *expressions: str | Column,
    fragments: Collection[int] | None = None,
    whole_fragments: bool = False,
    labels: Sequence[str] = (),
) -> DataFrame:
    """Return the rows that meet a condition: their addresses, and the columns of expressions.

    - `condition`: Evaluated by the scan if it can, otherwise by Spark.
    - `*expressions`: Expressions that the caller selects from the frame.
    - `fragments`: Ids of the fragments to read; all by default.
    - `whole_fragments`: Whether all rows of a fragment are in one partition, in order, unless the
      condition needs other rows.
    - `labels`: Names of the expressions in errors.

    Raises InvalidInputError: Spark cannot analyse the condition or an expression.
    """
    scan: dict[str, Any] = {"fragments": fragments, "whole_fragments": whole_fragments}
    tree = condition_tree(handle, dataset, condition)
    if condition is None or tree is not None:
        names = named_columns(dataset, *expressions)
        columns = resolve_columns(handle, dataset, names, *expressions, labels=labels)
        return frame(handle, dataset, columns, filter_tree=tree, **scan)
    names = named_columns(dataset, condition, *expressions)
    columns = resolve_columns(
        handle, dataset, names, *expressions, condition=condition, labels=labels
    )
    rows = frame(handle, dataset, columns, **scan)
    return rows.where(to_column(condition, "condition"))
