"""Queries in SQL over one version of a table, by DuckDB.

DuckDB reads the table as an `ArrowDataset`: columns and filters are pushed down to the scan. It has
no access to files, to the network, or to variables of Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.arguments import check_least
from lance_spark.dataset.arrow_dataset import ArrowDataset
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset

#: The first major release that keeps its meaning of NaN in filters that it pushes down. With older
#: ones a filter such as ``x > 1`` would lose rows with NaN.
_FIRST_WITH_NAN = 2
#: Rows of a batch of the result, unless the query sets another number.
_BATCH_ROWS = 65_536
_CONFIG: dict[str, Any] = {"enable_external_access": "false", "python_enable_replacements": "false"}


class SqlQueryBuilder:
    """Builder of a query; `Dataset.sql` returns it. Each method changes it and returns it.

    Parameters
    ----------
    dataset : Dataset
    text : str
        A `SELECT` statement of DuckDB.
    """

    def __init__(self, dataset: Dataset, text: str) -> None:
        self._dataset = dataset
        self._text = text
        self._name = "dataset"
        self._batch_size = _BATCH_ROWS
        self._options: dict[str, Any] = {}

    def table_name(self, table_name: str) -> Self:
        """Set the name that the query gives the table; ``dataset`` by default."""
        self._name = table_name
        return self

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Give the table the column ``_rowid``."""
        self._options["with_row_id"] = with_row_id
        return self

    def with_row_addr(self, with_row_addr: bool = True) -> Self:
        """Give the table the column ``_rowaddr``."""
        self._options["with_row_address"] = with_row_addr
        return self

    def blob_handling(self, blob_handling: str) -> Self:
        """Set the content of blob columns; see `Dataset.to_batches`."""
        self._options["blob_handling"] = blob_handling
        return self

    def batch_size(self, batch_size: int) -> Self:
        """Set the maximum number of rows of a batch of the result."""
        check_least("batch_size", batch_size, 1)
        self._batch_size = batch_size
        return self

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """Accept a size of the batches of the scan, which has no effect on the result."""
        check_least("batch_size_bytes", batch_size_bytes, 1)
        return self

    def build(self) -> SqlQuery:
        """Return the query."""
        source = _SqlSource(self._dataset, self._options)
        return SqlQuery(source, self._name, self._text, self._batch_size)


class SqlQuery:
    """A query that can be run, any number of times."""

    def __init__(self, source: _SqlSource, name: str, text: str, batch_size: int) -> None:
        self._source = source
        self._name = name
        self._text = text
        self._batch_size = batch_size

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Run the query, and return its rows.

        Raises
        ------
        UnsupportedFeatureError
            DuckDB is not installed.
        InvalidInputError
            DuckDB cannot run the query.
        CorruptFileError, CorruptTableError, StorageError
        """
        return list(self.to_stream_reader())

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Run the query, and return a reader of its rows; see `to_batch_records`."""
        try:
            import duckdb
        except ImportError:
            raise UnsupportedFeatureError(
                "Dataset.sql needs DuckDB; install lance-spark[sql]"
            ) from None
        connection = duckdb.connect(config={**_CONFIG})
        try:
            connection.register(self._name, self._source)
            if int(duckdb.__version__.split(".")[0]) < _FIRST_WITH_NAN and self._source.has_floats:
                _keep_filters(connection)
            statements = connection.extract_statements(self._text)
            if [statement.type.name for statement in statements] != ["SELECT"]:
                raise InvalidInputError("sql: the text must be one SELECT statement")
            relation = connection.sql(self._text)
        except duckdb.Error as error:
            raise InvalidInputError(f"sql: {error}") from None
        # Releases before 1.4 have the other name.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        try:
            reader = read(self._batch_size)
        except duckdb.Error as error:
            raise InvalidInputError(f"sql: {error}") from None

        def batches() -> Iterator[pa.RecordBatch]:
            # The connection must outlive the reader.
            with connection:
                try:
                    yield from reader
                except (duckdb.Error, pa.ArrowException, OSError) as error:
                    raise InvalidInputError(f"sql: {error}") from None

        return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _keep_filters(connection: Any) -> None:
    """Let DuckDB evaluate filters itself."""
    import duckdb

    for names in ("filter_pushdown,join_filter_pushdown", "filter_pushdown"):
        try:
            connection.execute(f"SET disabled_optimizers = '{names}'")
        except duckdb.Error:
            continue
        return


class _SqlSource(ArrowDataset):
    """A version of a table with some hidden columns, as DuckDB reads it."""

    def __init__(self, dataset: Dataset, options: dict[str, Any]) -> None:
        super().__init__(dataset)
        self._blob_handling = options.get("blob_handling")
        self._schema = dataset.schema_of(**options)

    @property
    def has_floats(self) -> bool:
        """Whether a column, or a child of one, may have NaN."""
        return any(pat.is_floating(dtype) for dtype in _leaves(pa.struct(list(self._schema))))

    @property
    def schema(self) -> pa.Schema:
        """The columns that a query can name."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | dict[str, str] | None = None,
        filter: Any = None,
        *_: Any,
        **others: Any,
    ) -> Any:
        """Return a scanner of some columns."""
        if columns is None:
            columns = self._schema.names
        return super().scanner(columns, filter, blob_handling=self._blob_handling, **others)


def _leaves(dtype: pa.DataType) -> Iterator[pa.DataType]:
    if not dtype.num_fields:
        yield dtype
    for index in range(dtype.num_fields):
        yield from _leaves(dtype.field(index).type)
