"""The join keys of a small source, as a filter of the target of a merge.

A merge without clauses for rows that match no row of the source needs only rows of the table whose
keys are in the source. The scan leaves out the others: by indexes and statistics of the table, and
before Spark shuffles rows.

| source | its keys are collected |
| --- | --- |
| rows that are part of the plan | if they are few |
| a projection of anything | if it has few rows |
| the same with filters or aggregates | if it also reads few bytes |
| any other | never: to count its rows may cost as much as the merge |

Spark keeps the rows of a source that is not part of the plan, so that the collected keys are those
of the rows that are joined.

Spark resolves the condition. A comparison ``target column = expression`` counts if Spark compares
the column in its own type, or integers in a wider type. Others, such as ``<=>``, are left to the
join.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.field_metadata import BLOB_KEY
from lance_spark.errors import InvalidInputError, UnsupportedError
from lance_spark.spark.catalog.tables import MIN_TABLE_ROWS
from lance_spark.spark.job import job_group
from lance_spark.spark.jvm.classes import is_connect
from lance_spark.spark.jvm.shims.pyspark_names import java_error, java_frame
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.read.planning import known_columns
from lance_spark.spark.table.merge.join import ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.dataset.dataset import Dataset

#: Most rows of a source whose keys are collected.
MAX_ROWS = 10_000
#: Most bytes, by Spark's estimate, that a source with filters and aggregates reads.
_MAX_BYTES = 16 * 1024 * 1024
_FIXED = frozenset({"LocalRelation", "SubqueryAlias", "View"})
_CHEAP = frozenset({"Filter", "Aggregate", "Sort", "GlobalLimit", "LocalLimit"})
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_OTHERS = frozenset({"string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"})
_Json = dict[str, Any]


def kept_source(source: DataFrame, dataset: Dataset) -> DataFrame | None:
    """Return a small source, with rows that stay the same when it is read again.

    Returns
    -------
    DataFrame or None
        None if the source is not small, or if to know that may be much work.
    """
    if is_connect(source.sparkSession) or source.isStreaming:
        return None
    if dataset.count_rows() < MIN_TABLE_ROWS:
        return None
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    try:
        execution = java_frame(source).queryExecution()
        is_fixed = all(_name(node) in _FIXED for node in _nodes(execution.analyzed()))
        if not is_fixed and not _is_cheap(execution.optimizedPlan()):
            return None
        if not is_fixed and any(BLOB_KEY in field.metadata for field in source.schema.fields):
            # To keep its rows is to keep the bytes of blobs, which otherwise stay in their files.
            return None
    except java_error():
        # The error is reported when the source is joined.
        return None
    with job_group(source.sparkSession, _title(dataset)):
        if len(source.select(F.lit(1)).take(MAX_ROWS + 1)) > MAX_ROWS:
            return None
        return source if is_fixed else source.localCheckpoint()


def _title(dataset: Dataset) -> str:
    """Return the description of the Spark jobs."""
    return f"lance merge {dataset._table.store.display}: read the keys of the source"


def key_tree(joined: DataFrame, source: DataFrame, dataset: Dataset) -> _Json | None:
    """Return the filter of the table by the keys of a source, as a tree of `filter_trees`.

    Parameters
    ----------
    joined : DataFrame
        The rows of `Join.rows`.
    source : DataFrame
        The result of `kept_source`, which is joined.

    Returns
    -------
    dict or None
        None if the condition has no key whose values scans compare as Spark does.
    """
    try:
        keys = _keys(java_frame(joined).queryExecution().analyzed(), len(source.columns))
    except java_error():
        return None
    if not keys:
        return None
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    numbered = source.toDF(*map(str, range(len(source.columns))))
    values = [F.col(str(position)).cast(dtype) for _, _, position, dtype in keys]
    with job_group(source.sparkSession, _title(dataset)):
        rows = numbered.select(*(value.alias(f"k{i}") for i, value in enumerate(values))).toArrow()
    known, parts = known_columns(dataset), []
    for (name, dtype, _, _), column in zip(keys, rows.columns, strict=True):
        part = _in(name, dtype, column)
        try:
            to_predicate(part, known)
        except (InvalidInputError, UnsupportedError):
            continue
        parts.append(part)
    return {"op": "and", "args": parts} if parts else None


def _is_cheap(plan: Any) -> bool:
    """Return whether to count a few rows of a plan is little work."""
    nodes = list(_nodes(plan))
    inner = {_name(node) for node in nodes if not node.children().isEmpty()}
    leaves = [node for node in nodes if node.children().isEmpty()]
    if len(leaves) != 1 or not inner <= _CHEAP | {"Project"}:
        return False
    if inner <= {"Project"}:
        return True
    return int(str(leaves[0].stats().sizeInBytes())) <= _MAX_BYTES


def _keys(plan: Any, num_columns: int) -> list[tuple[str, str, int, str]]:
    """Return the keys of the join in an analyzed plan.

    Returns
    -------
    list of (str, str, int, str)
        Column of the table, its type, position of the column of the source, and the type that it is
        cast to.
    """
    join = next(node for node in _nodes(plan) if _name(node) == "Join")
    if join.condition().isEmpty():
        return []
    left, right = list(_seq(join.left().output())), list(_seq(join.right().output()))
    target, source = (
        (left, right) if any(side.name() == ADDRESS for side in left) else (right, left)
    )
    columns = {side.exprId().id(): side for side in target}
    positions = {side.exprId().id(): i for i, side in enumerate(source[:num_columns])}
    keys = []
    for comparison in _conjuncts(join.condition().get()):
        if _name(comparison) != "EqualTo":
            continue
        sides = [_column_of(side) for side in (comparison.left(), comparison.right())]
        for own, other in (sides, sides[::-1]):
            if own is None or other is None or own[0] not in columns or other[0] not in positions:
                continue
            column = columns[own[0]]
            dtype = column.dataType().catalogString()
            if _is_compared(dtype, own[1]):
                keys.append((column.name(), dtype, positions[other[0]], other[1]))
    return keys


def _is_compared(dtype: str, common: str) -> bool:
    """Return whether values of a column, cast to another type, equal the same values only."""
    if dtype in _INTEGERS:
        return _INTEGERS.get(common, 0) >= _INTEGERS[dtype]
    return dtype == common and (dtype in _OTHERS or dtype.startswith("decimal("))


def _column_of(expression: Any) -> tuple[int, str] | None:
    """Return the id of a column, and its type after a cast; None for other expressions."""
    dtype = expression.dataType().catalogString()
    if _name(expression) == "Cast" and str(expression.evalMode()) != "TRY":
        expression = expression.child()
    if _name(expression) != "AttributeReference":
        return None
    return expression.exprId().id(), dtype


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _name(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _in(name: str, dtype: str, column: pa.ChunkedArray) -> _Json:
    """Return the condition that a column of the table has one of some values, as a tree."""
    values = column.combine_chunks().drop_null().unique()
    if dtype in _INTEGERS:
        limit = 1 << (_INTEGERS[dtype] - 1)
        values = values.cast(pa.int64())
        values = values.filter(
            pc.and_(pc.greater_equal(values, -limit), pc.less_equal(values, limit - 1))
        )
    if not len(values):
        return {"lit": "false", "type": "boolean"}
    literals = [{"lit": text, "type": dtype} for text in _texts(values)]
    return {"op": "in", "args": [{"col": [name]}, *literals]}


def _texts(values: pa.Array) -> list[str]:
    dtype = values.type
    if pat.is_binary(dtype) or pat.is_large_binary(dtype):
        return [value.hex() for value in values.to_pylist()]
    if pat.is_date32(dtype):
        values = values.cast(pa.int32())
    elif pat.is_timestamp(dtype):
        values = values.cast(pa.timestamp("us", dtype.tz)).cast(pa.int64())
    elif pat.is_decimal(dtype):
        return [format(value, "f") for value in values.to_pylist()]
    texts: list[str] = values.cast(pa.string()).to_pylist()
    return texts


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _seq(plan.children()):
        yield from _nodes(child)


def _seq(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.length()))


def _name(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name
