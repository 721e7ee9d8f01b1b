"""Reads that are planned on the version that was the newest, while the versions are listed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from contextlib import nullcontext

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, NullType, StructField, StructType

import lance_spark
from lance_spark.errors import InvalidInputError, LanceError, TableNotFoundError
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.table import open as opened
from lance_spark.table.open import OpenTable, SupersededError, expect_newest, presume_newest
from tests.support.spark.requests import parsed
from tests.support.stores.aws import BUCKET, SECRET, Aws


class Readings:
    """What a read gets to see."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def read(self, table: OpenTable) -> int:
        self.versions.append(table.version)
        return sum(fragment.num_rows for fragment in table.manifest.fragments)


def removed(aws: Aws, name: str) -> None:
    for key in aws.names(f"{name}/"):
        aws.s3.delete_object(Bucket=BUCKET, Key=f"{name}/{key}")


def test_a_read_sees_what_it_would_see_after_the_listing(aws: Aws) -> None:
    uri = f"s3://{BUCKET}/presumed"
    rows = pa.table({"x": [1, 2, 3]})
    lance.write_dataset(rows, uri, storage_options=aws.theirs)
    KEPT.clear()
    assert presume_newest(uri, aws.ours) is None
    lance_spark.open_dataset(uri, storage_options=aws.ours)

    def result() -> tuple[int, list[int]]:
        table, readings = presume_newest(uri, aws.ours), Readings()
        assert table is not None
        return table.result_of(readings.read), readings.versions

    with aws.counted() as requests:
        assert result() == (3, [1])
    assert len(requests) == 1, "only a listing is needed"
    lance.write_dataset(rows, uri, mode="append", storage_options=aws.theirs)
    assert result() == (6, [1, 2])
    assert result() == (6, [2])
    # A table that is created again has the same numbers of versions.
    removed(aws, "presumed")
    for _ in range(2):
        lance.write_dataset(rows[:1], uri, mode="append", storage_options=aws.theirs)
    assert result() == (2, [2, 2])

    def refuse_new(table: OpenTable) -> int:
        raise InvalidInputError(f"version {table.version}")

    for version in (2, 3):
        table = presume_newest(uri, aws.ours)
        assert table is not None
        table._listing.result()
        with nullcontext() if version == 2 else pytest.raises(SupersededError):
            table.check()
        with pytest.raises(InvalidInputError, match=f"^version {version}$"):
            table.result_of(refuse_new)
        lance.write_dataset(rows, uri, mode="append", storage_options=aws.theirs)
    removed(aws, "presumed")
    table = presume_newest(uri, aws.ours)
    assert table is not None
    with pytest.raises(TableNotFoundError):
        table.result_of(Readings().read)


def test_the_tables_of_a_query_are_listed_together(aws: Aws) -> None:
    uris = [f"s3://{BUCKET}/together{number}" for number in range(3)]
    options = [{"path": uri, **stored(aws)} for uri in uris]
    for uri in uris:
        lance.write_dataset(pa.table({"x": range(3)}), uri, storage_options=aws.theirs)
    schema, *_ = (LanceDataSource(CaseInsensitiveDict(given)).schema() for given in options)

    def planned(number: int, query: str, others: Sequence[int] = ()) -> list[str]:
        """Return the requests of a count."""
        with aws.counted() as requests:
            text = json.dumps({"aggregates": [{"op": "count_star"}], "query": query})
            metadata = {"request": text}
            if others:
                metadata["others"] = json.dumps([options[other] for other in others])
            request = StructField("__lance_request", NullType(), True, metadata)
            wanted = StructType([StructField("agg0", LongType()), request])
            reader = LanceDataSource(CaseInsensitiveDict(options[number])).reader(wanted)
            assert repr(reader.partitions()[0])
            for listing in opened._expected.values():
                listing.result()
        assert SECRET not in repr(reader.request)
        assert pickle.loads(pickle.dumps(reader)).request.others == ()
        return requests

    assert schema.names == ["x"]
    assert len(planned(0, "first", [1, 2])) == 3
    assert len(planned(1, "first")) == 0
    # The listing of one query says nothing to another.
    assert len(planned(2, "second")) == 1
    assert len(planned(2, "first")) == 0
    assert len(planned(2, "first")) == 1
    expect_newest(f"{uris[0]}-unknown", aws.theirs, "first")
    assert not opened._expected


def stored(aws: Aws) -> dict[str, str]:
    """Return the options of Spark that find the server."""
    return {f"storage_options.{name}": value for name, value in aws.theirs.items()}


def test_the_driver_of_spark_plans_and_reads_the_newest_version(aws: Aws) -> None:
    uri = f"s3://{BUCKET}/planned"
    options = {"path": uri, **stored(aws)}
    lance.write_dataset(pa.table({"x": range(9)}), uri, storage_options=aws.theirs)
    schema = LanceDataSource(CaseInsensitiveDict(options)).schema()

    def planned() -> list[int]:
        """Return the rows that the driver reads."""
        source = LanceDataSource(CaseInsensitiveDict(options))
        request = StructField("__lance_request", NullType(), True, {"request": json.dumps({})})
        reply, *_ = source.reader(StructType([*schema.fields, request])).partitions()
        header, data = parsed(pickle.dumps(reply))
        assert header["data"] == "rows"
        rows: list[int] = pa.ipc.open_stream(data).read_all()["x"].to_pylist()
        return rows

    assert planned() == planned() == [*range(9)]
    lance.write_dataset(pa.table({"x": [9]}), uri, mode="append", storage_options=aws.theirs)
    assert planned() == [*range(10)]
    # The plan on the version that was the newest fails; the newest has the column again.
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    theirs.add_columns({"y": "x * 2"})
    theirs.drop_columns(["x"])
    with pytest.raises(LanceError, match="x"):
        planned()
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    theirs.alter_columns({"path": "y", "name": "x"})
    assert planned() == [2 * number for number in range(10)]
