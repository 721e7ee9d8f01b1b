"""`ArrowDataset`: a version of a table for engines that read a `pyarrow.dataset.Dataset`.

A class of its own, because the import of `pyarrow.dataset` takes a quarter of a second, which a
`Dataset` does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from lance_spark.dataset.scan_request import scan_request
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.keywords import also_takes, parameters_of, shows_keywords

#: Arguments of `pyarrow.dataset.Dataset.scanner` that do not change which rows are read.
_IGNORED = {
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
}


class ArrowDataset(pads.Dataset):  # type: ignore[misc]
    """One version of a table, as a `pyarrow.dataset.Dataset`. Made by `Dataset.arrow_dataset`.

    Filters are expressions of Arrow, with Arrow's meaning. Indexes rule out rows for comparisons of
    columns with literals of their types, sets, and tests for null; Arrow evaluates the expression
    for the others.

    Parameters
    ----------
    dataset : Dataset
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __reduce__(self) -> tuple[Callable[[Any], ArrowDataset], tuple[Any]]:
        return ArrowDataset, (self._dataset,)

    def __repr__(self) -> str:
        return f"ArrowDataset({self._dataset!r})"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """True: the table has no partitions."""
        return pc.scalar(True)

    @shows_keywords
    @also_takes(scan_request)
    def scanner(
        self,
        /,
        columns: Sequence[str] | dict[str, str] | None = None,
        filter: pc.Expression | str | None = None,
        batch_size: int | None = None,
        **others: Any,
    ) -> Any:
        """Return a scanner; see `Dataset.scanner`."""
        kept = {name: value for name, value in others.items() if name not in _IGNORED}
        return self._dataset.scanner(columns, filter, batch_size=batch_size, **kept)

    @shows_keywords
    @parameters_of(scanner)
    def to_batches(self, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; the parameters are those of `scanner`."""
        yield from self.scanner(*args, **kwargs).to_batches()

    @shows_keywords
    @parameters_of(scanner)
    def to_table(self, *args: Any, **kwargs: Any) -> pa.Table:
        """Return the rows as an Arrow table; the parameters are those of `scanner`."""
        return self.scanner(*args, **kwargs).to_table()

    @shows_keywords
    @also_takes(scanner)
    def head(self, num_rows: int, *args: Any, **kwargs: Any) -> pa.Table:
        """Return the first rows; the other parameters are those of `scanner`."""
        return self.scanner(*args, **kwargs).head(num_rows)

    def count_rows(self, filter: pc.Expression | str | None = None, **_: Any) -> int:
        """Return the number of rows that meet a filter."""
        return int(self._dataset.count_rows(filter))

    def take(self, indices: Any, columns: Sequence[str] | None = None, **_: Any) -> pa.Table:
        """Return rows by their positions."""
        return self._dataset.take(indices, columns)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Yield the fragments."""
        return iter(self._dataset.get_fragments(filter))

    def filter(self, expression: pc.Expression) -> NoReturn:
        """Raise an error: give the filter to a read."""
        raise self._refused("filter", "give the filter to to_table")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raise an error: a version has one schema."""
        raise self._refused("replace_schema", "a version of a table has one schema")

    def join(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: join tables."""
        raise self._refused("join", "join the results of to_table")

    def join_asof(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: join tables."""
        raise self._refused("join_asof", "join the results of to_table")

    def sort_by(self, sorting: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: give the order to a read."""
        raise self._refused("sort_by", "give order_by to to_table")

    def _refused(self, method: str, advice: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(f"{self!r} does not support {method}; {advice}")
