"""DataFrames of one version of a table, with the addresses of its rows, and expressions of users on
them.

A frame has the columns that expressions name, and no others: Spark computes values and finds rows,
it does not carry rows. It is of a version that is named, whatever others commit meanwhile, and is
always read by tasks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.scan.plan import default_target_rows, estimated_bytes, read_bytes, select_fragments
from lance_spark.spark.jobs.job import parallelism
from lance_spark.spark.options.names import FILTER_TREE
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.table.rows.addresses import OFFSET_BITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset

_OVER = re.compile(r"\bover\s*(\(|\w)", re.IGNORECASE)
_TARGET_ROWS = "target_rows_per_partition"
#: Rows of a task that writes, at least.
_LEAST_ROWS = 65_536


class FrameSource(Protocol):
    """The attributes of a table through Spark that its frames need."""

    spark: SparkSession
    options: dict[str, Any]
    alias_name: str | None

    def storage_options(self) -> dict[str, str]:
        """Return the options of the read about the store."""
        ...


def frame(
    base: FrameSource,
    dataset: Dataset,
    columns: Sequence[str],
    *,
    row_columns: Sequence[str] = (ROW_ADDRESS.name,),
    fragments: Collection[int] | None = None,
    whole_fragments: bool = False,
    filter_tree: Mapping[str, Any] | None = None,
    blob_handling: str | None = None,
) -> DataFrame:
    """Return a frame of a version of a table, under the alias of the table.

    Parameters
    ----------
    base : FrameSource
    dataset : Dataset
        At the version.
    columns : sequence of str
        Top-level columns, and those that every table has of its rows.
    row_columns : sequence of str
        More of the latter.
    fragments : collection of int, optional
        Ids of those to read; all by default.
    whole_fragments : bool
        Whether all rows of a fragment are in one partition, in order.
    filter_tree : mapping, optional
        Condition that the scan meets, as `condition_tree` returns it.
    blob_handling : str, optional
        What blobs give; see `Dataset.to_batches`.
    """
    reader = (
        base.spark.read.format("lance")
        .schema(schema_of(dataset, [*columns, *row_columns], blob_handling))
        .options(**base.storage_options())
        .option("version", dataset.version)
        # Rows that planning finds would come in one partition.
        .option("driver_read_bytes", 0)
    )
    if fragments is not None:
        reader = reader.option("fragment_ids", ranges(fragments))
    if whole_fragments:
        reader = reader.option("whole_fragments", "true")
        if _TARGET_ROWS not in {name.lower() for name in base.options}:
            target = _rows_of_tasks(base, dataset, columns, fragments)
            reader = reader.option(_TARGET_ROWS, target)
    if filter_tree is not None:
        reader = reader.option(FILTER_TREE, json.dumps(filter_tree))
    if blob_handling is not None:
        reader = reader.option("blob_handling", blob_handling)
    return _aliased(base, reader.load(dataset.uri))


def schema_of(
    dataset: Dataset, columns: Sequence[str], blob_handling: str | None = None
) -> StructType:
    """Return the Spark schema of some columns, each once."""
    names = list(dict.fromkeys(columns))
    return to_spark_schema(dataset.schema_of(names, blob_handling=blob_handling))


def named_in(dataset: Dataset, *expressions: str | Column | None) -> list[str]:
    """Return the columns whose names occur as words in the texts of expressions.

    Some may not be meant, but few: times in nanoseconds, for one, cannot be read by Spark if they
    are not whole microseconds.

    Parameters
    ----------
    dataset : Dataset
    *expressions : str, Column or None

    Returns
    -------
    list of str
        Of the table, in its order, then of those that every table has of its rows.
    """
    text = "\n".join(
        str(expression) for expression in expressions if expression is not None
    ).lower()
    return [name for name in (*dataset.schema.names, *META_FIELDS) if is_named(name, text)]


def is_named(name: str, text: str) -> bool:
    """Tell whether a text in small letters has a name as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) is not None


def resolved(
    base: FrameSource,
    dataset: Dataset,
    columns: Sequence[str],
    *expressions: str | Column | None,
    condition: str | Column | None = None,
    called: Sequence[str] = (),
) -> list[str]:
    """Return columns with which expressions can be analysed: those that are given, or all.

    Parameters
    ----------
    base : FrameSource
    dataset : Dataset
    columns : sequence of str
        See `named_in`.
    *expressions : str, Column or None
        Of any type.
    condition : str, Column or None
        Of rows.
    called : sequence of str
        What errors call each of the expressions.

    Raises
    ------
    InvalidInputError
        One cannot be analysed with all columns either.
    """
    if condition is None and all(expression is None for expression in expressions):
        return list(columns)
    return analysed(base, dataset, columns, *expressions, condition=condition, called=called)[0]


def analysed(
    base: FrameSource,
    dataset: Dataset,
    columns: Sequence[str],
    *expressions: str | Column | None,
    condition: str | Column | None = None,
    called: Sequence[str] = (),
) -> tuple[list[str], DataFrame]:
    """Return the columns of `resolved`, and the expressions over a frame of them without rows.

    Parameters
    ----------
    base, dataset, columns, expressions, condition, called
        As in `resolved`; there is a condition or an expression at least.

    Raises
    ------
    InvalidInputError
    """
    from pyspark.errors import AnalysisException

    names_of = called or ["expression"] * len(expressions)
    by_name = [
        (name, to_column(item, name))
        for name, item in zip(names_of, expressions, strict=True)
        if item is not None
    ]
    given = [item for _, item in by_name]
    where = None if condition is None else to_column(condition, "condition")
    every = [*dataset.schema.names, *META_FIELDS]
    for names in (list(columns), every):
        # What has no columns is no frame.
        shown = schema_of(dataset, [*names, ROW_ADDRESS.name])
        empty = _aliased(base, base.spark.createDataFrame([], shown))
        try:
            rows = empty if where is None else empty.where(where)
            selected = rows.select(*given) if given else rows
            # Spark Connect analyses when it is asked for the schema.
            _ = selected.schema
        except AnalysisException:
            continue
        return names, selected
    # One by one, so that the error says which.
    with understood("condition"):
        rows = empty if where is None else empty.where(where)
        _ = rows.schema
    for name, item in by_name:
        with understood(name):
            _ = rows.select(item).schema
    with understood("expressions"):
        _ = rows.select(*given).schema
    raise AssertionError("the second time returns or raises")


@contextmanager
def understood(what: str | None) -> Iterator[None]:
    """Have what Spark cannot analyse raise `InvalidInputError` that says what it is; nothing
    changes if that is None.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except AnalysisException as error:
        if what is None:
            raise
        first = str(error).strip().partition("\n")[0]
        hint = (
            "; columns are meant by name, as in F.col('x'): those of a DataFrame, as in df['x'], "
            "are not known here"
        )
        if isinstance(error, ParseException):
            hint = ""
        raise InvalidInputError(f"{what}: {first}{hint}") from error


def has_windows(*expressions: str | Column | None) -> bool:
    """Tell whether expressions seem to have window functions, whose rows come in another order;
    text that looks the same counts.
    """
    return any(
        _OVER.search(str(expression)) for expression in expressions if expression is not None
    )


def to_column(given: str | Column, what: str) -> Column:
    """Return an expression: of a text in SQL, or as it is given.

    Raises
    ------
    InvalidInputError
        It is neither a text that Spark can parse nor a Column.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    if isinstance(given, str):
        with understood(what):
            return F.expr(given)
    if isinstance(given, Column):
        return given
    raise InvalidInputError(
        f"{what}: give an expression in SQL, or a Column, not {type(given).__name__}; a value as "
        f"it is is F.lit({given!r})"
    )


def by_fragment(given: DataFrame, partitions: int) -> DataFrame:
    """Return the rows of a frame with ``_rowaddr`` so that those of a fragment are in one
    partition, in order.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    fragment = F.shiftright(ROW_ADDRESS.name, OFFSET_BITS)
    return given.repartition(max(partitions, 1), fragment).sortWithinPartitions(ROW_ADDRESS.name)


def cast_to(column: Column, field: Field) -> Column:
    """Return values as a column of the table has them; a cast that fails is an error, unless ANSI
    mode is off.

    Blobs are given as writes take them: bytes, or where they are.
    """
    if field.is_blob:
        return column
    return column.cast(to_spark_schema(pa.schema([field.to_arrow()]))[0].dataType)


def ranges(numbers: Collection[int]) -> str:
    """Return ids as the option ``fragment_ids`` takes them: ``3,7-9``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _rows_of_tasks(
    base: FrameSource, dataset: Dataset, columns: Sequence[str], fragments: Collection[int] | None
) -> int:
    """Return how many rows tasks get that write what they compute.

    Reading alone is worth a task for millions of rows only; functions of users can take long for
    each of them, so that all cores should have some.
    """
    table = dataset._table
    there = select_fragments(dataset.fragments, fragments)
    rows = sum(item.physical_rows for item in there)
    fields = [item for item in table.schema.fields if item.name in columns]
    read = read_bytes(estimated_bytes(there, rows), rows, fields, table.schema.fields)
    cores = parallelism(base.spark)
    usual = default_target_rows(rows, read, cores, max(len(columns), 1))
    return min(usual, max(-(-rows // cores), _LEAST_ROWS))


def _aliased(base: FrameSource, given: DataFrame) -> DataFrame:
    return given if base.alias_name is None else given.alias(base.alias_name)
