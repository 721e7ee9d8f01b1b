"""Rows in forms of other tools, and those that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.table.sources import rows_of, table_of


class Lazy:
    """Costs much when it is asked for its schema, as a LazyFrame of polars."""

    @property
    def schema(self) -> Any:
        raise AssertionError("the schema is asked for")


class NotIterable:
    """Has the method of iterables without items, as a Dataset of Ray."""

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("`Dataset` objects aren't iterable")


class UnknownType:
    """Has a type that Arrow does not have, as integers of 128 bits of polars."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise pa.ArrowInvalid("Invalid or unsupported format string: '_pli128'")


class Stream:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"id": [1]}).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("data", [Lazy(), NotIterable(), UnknownType(), "text", 5])
def test_data_that_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInputError, match="data "):
        rows_of(data)


def test_streams() -> None:
    assert table_of(Stream()).to_pylist() == [{"id": 1}]
