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

from lance_spark.errors import InvalidInputError
from lance_spark.spark.jvm.classes import (
    call_static,
    conditions_class,
    is_connect,
)
from lance_spark.spark.jvm.shims.pyspark_names import java_error, java_frame
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.read.planning import known_columns
from lance_spark.spark.table.dataframes import (
    analyze,
    frame,
    named_columns,
    resolve_columns,
    to_column,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.spark.table.base import TableHandle


def scan_predicate(
    handle: TableHandle, dataset: Dataset, condition: str | Column | None
) -> Predicate | None:
    """Return a condition as a predicate for scans; None if only Spark can evaluate it.

    Parameters
    ----------
    condition : str, Column or None
        None is returned for None.

    Raises
    ------
    InvalidInputError
        Spark cannot analyse the condition.
    """
    tree = condition_tree(handle, dataset, condition)
    return None if tree is None else to_predicate(tree, known_columns(dataset))


def condition_tree(
    handle: TableHandle, dataset: Dataset, condition: str | Column | None
) -> dict[str, Any] | None:
    """Return a condition as the optimizer rule passes it to the reader.

    Returns
    -------
    dict or None
        A tree of `filter_trees` that `to_predicate` accepts; None if only Spark can evaluate the
        condition, or if it is None.

    Raises
    ------
    InvalidInputError
        Spark cannot analyse the condition.
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

    Parameters
    ----------
    condition : str, Column or None
        Evaluated by the scan if it can, otherwise by Spark.
    *expressions : str or Column
        Expressions that the caller selects from the frame.
    fragments : collection of int, optional
        Ids of the fragments to read; all by default.
    whole_fragments : bool
        Whether all rows of a fragment are in one partition, in order, unless the condition needs
        other rows.
    labels : sequence of str
        Names of the expressions in errors.

    Raises
    ------
    InvalidInputError
        Spark cannot analyse the condition or an expression.
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
