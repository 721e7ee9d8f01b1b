"""A stream whose options are wrong: each call raises the error.

Spark 4 answers an error of `DataSource.streamReader` by an `UnboundLocalError`, and shows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lance_spark.spark.python_process import plain_messages

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_spark.errors import LanceError


class RefusedReader(DataSourceStreamReader):
    """Raises an error in place of reading."""

    def __init__(self, error: LanceError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Raise the error."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        self._raise()

    def _raise(self) -> NoReturn:
        with plain_messages():
            raise self.error
