"""Methods of `Dataset` that return some of its rows, or its rows joined and sorted in memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.scanning.methods import ScannerMethods
from lance_spark.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as pads

    from lance_spark.dataset.planning import Columns, Filter
    from lance_spark.dataset.rows.sql import SqlQueryBuilder


class SampleMethods(ScannerMethods):
    """Methods of `Dataset` that return rows in other forms."""

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Return the first rows.

        Parameters
        ----------
        num_rows : int
            Maximum number of rows.
        **options
            Other arguments of `to_table`, such as ``columns`` and ``filter``.

        Raises
        ------
        InvalidInputError
            `num_rows` is negative; or errors of `to_table`.
        CorruptFileError, CorruptTableError, StorageError
        """
        return self.to_table(**{**options, "limit": num_rows})

    def sample(
        self,
        num_rows: int,
        columns: Columns | None = None,
        randomize_order: bool = True,
        **options: Any,
    ) -> pa.Table:
        """Return random rows, each at most once.

        The rows are chosen by `random.sample`, so that `random.seed` makes them the same again.

        Parameters
        ----------
        num_rows : int
            Number of rows.
        columns : sequence of str or mapping, optional
            As in `take`.
        randomize_order : bool
            Whether the order of the rows is random, too. The table's order is read faster.
        **options
            Other arguments of `take`.

        Raises
        ------
        InvalidInputError
            The table has fewer rows, or `num_rows` is negative.
        CorruptFileError, CorruptTableError, StorageError
        """
        check_least("num_rows", num_rows, 0)
        total = self.count_rows()
        if num_rows > total:
            raise InvalidInputError(f"num_rows must be at most {total}, not {num_rows}")
        positions = random.sample(range(total), num_rows)
        return self.take(positions if randomize_order else sorted(positions), columns, **options)

    def slice(self, start: int, end: int, columns: Columns | None = None) -> pa.Table:
        """Return the rows at some positions of the table's order. Deleted rows are not counted.

        Parameters
        ----------
        start : int
            Position of the first row, from 0 on.
        end : int
            Position after the last row. Positions after the end of the table have no rows.
        columns : sequence of str or mapping, optional
            As in `to_table`.

        Raises
        ------
        InvalidInputError
            `start` is negative, or `end` is less than `start`.
        CorruptFileError, CorruptTableError, StorageError
        """
        check_least("start", start, 0)
        if end < start:
            raise InvalidInputError(f"end must be at least start, {start}, not {end}")
        return self.to_table(columns, limit=end - start, offset=start)

    def to_pandas(
        self,
        columns: Columns | None = None,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        *,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """Return the rows as a DataFrame of pandas.

        Parameters
        ----------
        columns, filter, limit, offset, nearest, batch_size
            As in `to_table`.
        blob_mode : str
            Content of blob columns: ``lazy`` (`BlobFile` objects, see `take_blobs`), ``bytes`` or
            ``descriptions`` (positions and sizes of the bytes).
        **options
            Other arguments of `to_table`, and arguments of `pyarrow.Table.to_pandas`.

        Raises
        ------
        InvalidInputError
            `blob_mode` is unknown, pandas is not installed; or errors of `to_table`.
        CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> frame = dataset.to_pandas(["id", "name"], filter="id > 5", split_blocks=True)
        """
        from lance_spark.dataset.rows.frames import parted

        scan, others = parted(options, self.scanner)
        scanner = self.scanner(columns, filter, limit, offset, nearest, batch_size, **scan)
        return scanner.to_pandas(blob_mode=blob_mode, **others)

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Query this version in SQL. Needs DuckDB: ``lance-spark[sql]``.

        The table has the name ``dataset``. The language is DuckDB's, that of pylance DataFusion's.

        Parameters
        ----------
        sql : str
            A `SELECT` statement.

        Returns
        -------
        SqlQueryBuilder

        Examples
        --------
        >>> query = dataset.sql("SELECT name, count(*) FROM dataset GROUP BY name").build()
        >>> query.to_batch_records()
        """
        from lance_spark.dataset.rows.sql import SqlQueryBuilder

        return SqlQueryBuilder(self, sql)

    def sort_by(self, sorting: str | list[tuple[str, str]], **options: Any) -> pads.InMemoryDataset:
        """Return all rows, sorted in memory; see `pyarrow.dataset.Dataset.sort_by`.

        Parameters
        ----------
        sorting : str or list of (name, order)
            Names of columns, each with ``ascending`` or ``descending``.
        **options
            Options of pyarrow's `SortOptions`.

        Returns
        -------
        pyarrow.dataset.InMemoryDataset
        """
        return self._in_memory().sort_by(sorting, **options)

    def join(
        self,
        right_dataset: Any,
        keys: str | list[str],
        right_keys: str | list[str] | None = None,
        join_type: str = "left outer",
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        coalesce_keys: bool = True,
        use_threads: bool = True,
    ) -> pads.InMemoryDataset:
        """Join all rows with other rows in memory; see `pyarrow.dataset.Dataset.join`.

        Parameters
        ----------
        right_dataset : Dataset, pyarrow.dataset.Dataset, Table, ...
            The other rows, in any form that `write_dataset` takes.
        keys, right_keys, join_type, left_suffix, right_suffix, coalesce_keys, use_threads
            As in pyarrow.

        Returns
        -------
        pyarrow.dataset.InMemoryDataset

        Examples
        --------
        >>> orders.join(customers, "customer_id", join_type="inner").to_table()
        """
        return self._in_memory().join(
            _in_memory(right_dataset),
            keys,
            right_keys=right_keys,
            join_type=join_type,
            left_suffix=left_suffix,
            right_suffix=right_suffix,
            coalesce_keys=coalesce_keys,
            use_threads=use_threads,
        )

    def join_asof(
        self,
        right_dataset: Any,
        on: str,
        by: str | list[str],
        tolerance: int,
        right_on: str | list[str] | None = None,
        right_by: str | list[str] | None = None,
    ) -> pads.InMemoryDataset:
        """Join with the nearest row in time; see `pyarrow.dataset.Dataset.join_asof`.

        Both sides are read into memory, and must be sorted by `on`.
        """
        right = _in_memory(right_dataset)
        return self._in_memory().join_asof(right, on, by, tolerance, right_on, right_by)

    def _in_memory(self) -> pads.InMemoryDataset:
        return _in_memory(self.to_table())


def _in_memory(data: Any) -> pads.InMemoryDataset:
    import pyarrow.dataset as pads

    from lance_spark.table.sources import table_of

    return pads.InMemoryDataset(table_of(data))
