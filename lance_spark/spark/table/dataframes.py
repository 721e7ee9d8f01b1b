"""DataFrames of one version of a table, and expressions of users on them.

A frame has the addresses of the rows and the columns that expressions name, and no others: Spark
computes values and finds rows, but does not move rows. A frame reads a fixed version, and always in
tasks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.scan.plan import default_target_rows, estimated_bytes, read_bytes, select_fragments
from lance_spark.spark.job import parallelism
from lance_spark.spark.jvm.classes import is_stack_overflow
from lance_spark.spark.options.declared import FILTER_TREE, canonical
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.quoting import has_star
from lance_spark.spark.types.field_metadata import DEFAULT
from lance_spark.spark.types.mapping import spark_type_of, to_spark_schema
from lance_spark.spark.types.recorded import text_limit
from lance_spark.table.rows.addresses import OFFSET_BITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.file.schema.schema import Schema

#: Options of a read that select a version.
VERSION_OPTIONS = ("version", "tag", "timestamp")
_OVER = re.compile(r"\bover\s*(\(|\w)", re.IGNORECASE)
_TARGET_ROWS = "target_rows_per_partition"
#: Minimum number of rows of a task that writes.
_MIN_TASK_ROWS = 65_536


class FrameSource(Protocol):
    """The attributes of a table through Spark that its frames need."""

    spark: SparkSession
    options: dict[str, str]
    alias_name: str | None


def frame(
    handle: FrameSource,
    dataset: Dataset,
    columns: Sequence[str],
    *,
    row_columns: Sequence[str] = (ROW_ADDRESS.name,),
    fragments: Collection[int] | None = None,
    whole_fragments: bool = False,
    filter_tree: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return a frame of a version of a table, under the alias of the table.

    - `columns`: Top-level columns of the table, and columns of `META_FIELDS`.
    - `row_columns`: More columns of `META_FIELDS`, after `columns`.
    - `fragments`: Ids of the fragments to read; all by default.
    - `whole_fragments`: Whether all rows of a fragment are in one partition, in order.
    - `filter_tree`: Condition that the scan evaluates, as `condition_tree` returns it.
    """
    reader = (
        handle.spark.read.format("lance")
        .schema(schema_of(handle, dataset, [*columns, *row_columns]))
        .options(**without_version(handle.options))
        .option("version", dataset.version)
        # Rows that are read while planning would come in one partition.
        .option("driver_read_bytes", 0)
    )
    if fragments is not None:
        reader = reader.option("fragment_ids", ranges(fragments))
    if whole_fragments:
        reader = reader.option("whole_fragments", "true")
        if _TARGET_ROWS not in {name.lower() for name in handle.options}:
            target = _task_rows(handle, dataset, columns, fragments)
            reader = reader.option(_TARGET_ROWS, target)
    if filter_tree is not None:
        reader = reader.option(FILTER_TREE, json.dumps(filter_tree))
    return _aliased(handle, reader.load(dataset.uri))


def without_version(options: Mapping[str, str]) -> dict[str, str]:
    """Return options without those that select a version or a branch."""
    names = (*VERSION_OPTIONS, "branch")
    return {name: value for name, value in options.items() if canonical(name) not in names}


def schema_of(handle: FrameSource, dataset: Dataset, columns: Sequence[str]) -> StructType:
    """Return the Spark schema of columns. A name that occurs twice is one column."""
    names = list(dict.fromkeys(columns))
    blobs = ReadOptions.parse({**handle.options, "path": dataset.uri}).blob_handling
    return to_spark_schema(dataset._stored_schema(names, blob_handling=blobs))


def named_columns(dataset: Dataset, *expressions: str | Column | None) -> list[str]:
    """Return the columns whose names occur as words in the texts of expressions.

    A word can have another meaning, so the result can have columns that are not needed. Not all
    columns are taken, because Spark cannot read some values, such as times in nanoseconds that are
    not whole microseconds.

    Returns
    -------
    list of str
        Columns of the table in its order, then columns of `META_FIELDS`.
    """
    with _depth_errors():
        texts = [str(expression) for expression in expressions if expression is not None]
    text = "\n".join(texts).lower()
    return [name for name in (*dataset.schema.names, *META_FIELDS) if is_named(name, text)]


def is_named(name: str, text: str) -> bool:
    """Return whether a text in lower case has a name as a separate word."""
    return re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) is not None


def resolve_columns(
    handle: FrameSource,
    dataset: Dataset,
    columns: Sequence[str],
    *expressions: str | Column | None,
    condition: str | Column | None = None,
    labels: Sequence[str] = (),
) -> list[str]:
    """Return columns with which Spark can analyse expressions: the given columns, or all.

    - `columns`: See `named_columns`.
    - `*expressions`: Expressions of any type.
    - `labels`: Names of the expressions in errors.

    Raises InvalidInputError: Spark cannot analyse an expression with all columns either.
    """
    if condition is None and all(expression is None for expression in expressions):
        return list(columns)
    return analyze(handle, dataset, columns, *expressions, condition=condition, labels=labels)[0]


def analyze(
    handle: FrameSource,
    dataset: Dataset,
    columns: Sequence[str],
    *expressions: str | Column | None,
    condition: str | Column | None = None,
    labels: Sequence[str] = (),
) -> tuple[list[str], DataFrame]:
    """Return the columns of `resolve_columns`, and the expressions over an empty frame of them.

    - `handle`, `dataset`, `columns`, `expressions`, `condition`, `labels`: As in `resolve_columns`;
      at least one condition or expression is not None.

    Raises InvalidInputError.
    """
    from pyspark.errors import AnalysisException

    labelled = [
        (label, to_column(expression, label))
        for label, expression in zip(
            labels or ["expression"] * len(expressions), expressions, strict=True
        )
        if expression is not None
    ]
    values = [value for _, value in labelled]
    predicate = None if condition is None else to_column(condition, "condition")
    every = [*dataset.schema.names, *META_FIELDS]
    for names in (list(columns), every):
        # A frame needs at least one column.
        schema = schema_of(handle, dataset, [*names, ROW_ADDRESS.name])
        empty = _aliased(handle, handle.spark.createDataFrame([], schema))
        try:
            with _depth_errors():
                rows = empty if predicate is None else empty.where(predicate)
                selected = rows.select(*values) if values else rows
                # Spark Connect analyses when it is asked for the schema.
                _ = selected.schema
        except AnalysisException:
            continue
        return names, selected
    # Analysed one by one, so that the error names the expression.
    with analysis_errors("condition"):
        rows = empty if predicate is None else empty.where(predicate)
        _ = rows.schema
    for label, value in labelled:
        with analysis_errors(label):
            _ = rows.select(value).schema
    with analysis_errors("expressions"):
        _ = rows.select(*values).schema
    raise AssertionError("the second analysis returns or raises")


@contextmanager
def _depth_errors() -> Iterator[None]:
    """Turn an overflow of Spark's stack into `InvalidInputError`."""
    try:
        yield
    except Exception as error:
        if not is_stack_overflow(error):
            raise
        raise InvalidInputError(
            "a condition or an expression is nested too deep for Spark: it overflows the stack of "
            "the JVM; use isin for many values, or write the condition as a text"
        ) from None


@contextmanager
def analysis_errors(label: str) -> Iterator[None]:
    """Turn Spark's analysis errors into `InvalidInputError`, with the name of the expression."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except AnalysisException as error:
        first = str(error).strip().partition("\n")[0]
        hint = (
            "; name columns as in F.col('x'): columns of a DataFrame, as in df['x'], are not known "
            "here"
        )
        if isinstance(error, ParseException):
            hint = ""
        raise InvalidInputError(f"{label}: {first}{hint}") from error


def has_windows(*expressions: str | Column | None) -> bool:
    """Return whether expressions may have window functions, which change the order of rows.

    A text that only looks like a window function counts too.
    """
    return any(
        _OVER.search(str(expression)) for expression in expressions if expression is not None
    )


def to_column(expression: str | Column, label: str) -> Column:
    """Return an expression, or a text in SQL, as a Column.

    Raises InvalidInputError: the value is neither a text that Spark can parse nor a Column, or it
    names columns by a star: the frames of this package have more columns than the table, or fewer.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    if isinstance(expression, (str, Column)) and has_star(text_of(expression)):
        raise InvalidInputError(
            f"{label}: * in {text_of(expression)!r} cannot stand for the columns here; name them, "
            "as in struct(a, b)"
        )
    if isinstance(expression, str):
        with analysis_errors(label):
            return F.expr(expression)
    if isinstance(expression, Column):
        return expression
    raise InvalidInputError(
        f"{label} must be an expression in SQL or a Column, not {type(expression).__name__}; "
        f"write a constant as F.lit({expression!r})"
    )


def text_of(expression: str | Column) -> str:
    """Return the text of an expression."""
    if isinstance(expression, str):
        return expression
    return str(expression).removeprefix("Column<'").removesuffix("'>")


def by_fragment(rows: DataFrame, partitions: int) -> DataFrame:
    """Return rows with ``_rowaddr``. Rows of a fragment are in one partition and in order."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    fragment = F.shiftright(ROW_ADDRESS.name, OFFSET_BITS)
    return rows.repartition(max(partitions, 1), fragment).sortWithinPartitions(ROW_ADDRESS.name)


def cast_to(value: Column, field: Field) -> Column:
    """Return a value cast to the type of a column of the table.

    A cast that fails is an error, unless ANSI mode is off. Blobs are not cast: writes accept them
    as bytes or as references.
    """
    if field.is_blob:
        return value
    arrow = field.to_arrow()
    cast = value.cast(spark_type_of(arrow))
    limit = text_limit(arrow)
    if limit is None or not limit[2]:
        return cast
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    # The table has padded values of char(n).
    length = limit[1]
    return F.when(F.length(cast) < length, F.rpad(cast, length, " ")).otherwise(cast)


def default_of(field: Field) -> Column | None:
    """Return the value of a column in rows that give it none; None if that is null."""
    text = field.metadata.get(DEFAULT)
    if text is None:
        return None
    return cast_to(to_column(text.decode(), f"default of column {field.name}"), field)


def null_of(field: Field) -> Column:
    """Return a null of the type of a column."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    return cast_to(F.lit(None), field)


def with_defaults(source: DataFrame, schema: Schema) -> DataFrame:
    """Return new rows with the defaults of the columns that they leave out."""
    given = {name.lower() for name in source.columns}
    defaults = {
        field.name: value
        for field in schema.fields
        if field.name.lower() not in given and (value := default_of(field)) is not None
    }
    return source.withColumns(defaults) if defaults else source


def ranges(numbers: Collection[int]) -> str:
    """Return ids in the form of the option ``fragment_ids``: ``3,7-9``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _task_rows(
    handle: FrameSource, dataset: Dataset, columns: Sequence[str], fragments: Collection[int] | None
) -> int:
    """Return the number of rows of a task that writes computed values.

    A task that only reads needs millions of rows to be worthwhile. Functions of users can take
    long for each row, so here every core gets some rows.
    """
    table = dataset._table
    selected = select_fragments(dataset.fragments, fragments)
    rows = sum(fragment.physical_rows for fragment in selected)
    fields = [field for field in table.schema.fields if field.name in columns]
    read = read_bytes(estimated_bytes(selected, rows), rows, fields, table.schema.fields)
    cores = parallelism(handle.spark)
    usual = default_target_rows(rows, read, cores, max(len(columns), 1))
    return min(usual, max(-(-rows // cores), _MIN_TASK_ROWS))


def _aliased(handle: FrameSource, rows: DataFrame) -> DataFrame:
    return rows if handle.alias_name is None else rows.alias(handle.alias_name)
