"""Conditions of users on the rows of a table, as Spark's own parser and analyzer read them.

| session | condition | who finds the rows |
| --- | --- | --- |
| classic | one that push-down would take | scans, by the tree that the optimizer rule would send (`filter_trees`) |
| classic | any other | Spark |
| Spark Connect, or an unknown version of Spark | any | Spark |

The text is never read by a parser of this package, so all settings of the session count. Spark's
optimizer folds constants and moves casts from columns to literals before the condition is
translated: what is left is a comparison of values of one type, which scans answer exactly. What may
raise an error for some row is left to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.pushdown.java_classes import (
    call_static,
    conditions_class,
    is_connect,
    java_error,
)
from lance_spark.spark.read.planning import known_columns
from lance_spark.spark.table.dataframes import analysed, frame, named_in, resolved, to_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.spark.table.base import TableBase


def native(base: TableBase, dataset: Dataset, condition: str | Column | None) -> Predicate | None:
    """Return a condition as scans take it; None if it is only for Spark, or there is none.

    Parameters
    ----------
    base : TableBase
    dataset : Dataset
        At the version that is scanned.
    condition : str, Column or None

    Raises
    ------
    InvalidInputError
        Spark cannot make sense of the condition.
    """
    tree = condition_tree(base, dataset, condition)
    return None if tree is None else to_predicate(tree, known_columns(dataset))


def condition_tree(
    base: TableBase, dataset: Dataset, condition: str | Column | None
) -> dict[str, Any] | None:
    """Return a condition as the reader takes it from the optimizer rule; None if it is only for
    Spark, or there is none.

    Parameters
    ----------
    base : TableBase
    dataset : Dataset
        At the version that is scanned.
    condition : str, Column or None

    Returns
    -------
    dict or None
        A tree of `filter_trees`, for which `to_predicate` has a predicate.

    Raises
    ------
    InvalidInputError
        Spark cannot make sense of the condition.
    """
    if condition is None or is_connect(base.spark):
        return None
    translator = conditions_class(base.spark)
    if translator is None:
        return None
    columns = named_in(dataset, condition)
    _, rows = analysed(base, dataset, columns, condition=condition)
    try:
        text = call_static(base.spark, translator, "write", rows._jdf.queryExecution())
    except java_error():
        # The jar of another release does not know this version of Spark.
        return None
    if text is None:
        return None
    tree: dict[str, Any] = json.loads(text)
    try:
        to_predicate(tree, known_columns(dataset))
    except InvalidInputError:
        # The scan stores the column in a type that is not the one that Spark compares.
        return None
    return tree


def matching(
    base: TableBase,
    dataset: Dataset,
    condition: str | Column | None,
    *expressions: str | Column,
    fragments: Collection[int] | None = None,
    whole_fragments: bool = False,
    called: Sequence[str] = (),
) -> DataFrame:
    """Return the rows that meet a condition, with their addresses and the columns that expressions
    name.

    Parameters
    ----------
    base : TableBase
    dataset : Dataset
        At the version.
    condition : str, Column or None
        Met by the scan, if it knows how; by Spark otherwise.
    *expressions : str or Column
        What is to be selected of the frame.
    fragments : collection of int, optional
        Ids of those to read; all by default.
    whole_fragments : bool
        Whether all rows of a fragment are in one partition, in order, unless the condition needs
        other rows.
    called : sequence of str
        What errors call each of the expressions.

    Raises
    ------
    InvalidInputError
        Spark cannot make sense of the condition, or of an expression.
    """
    which: dict[str, Any] = {"fragments": fragments, "whole_fragments": whole_fragments}
    tree = condition_tree(base, dataset, condition)
    if condition is None or tree is not None:
        names = named_in(dataset, *expressions)
        columns = resolved(base, dataset, names, *expressions, called=called)
        return frame(base, dataset, columns, filter_tree=tree, **which)
    names = named_in(dataset, condition, *expressions)
    columns = resolved(base, dataset, names, *expressions, condition=condition, called=called)
    rows = frame(base, dataset, columns, **which)
    return rows.where(to_column(condition, "condition"))
