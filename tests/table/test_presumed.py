"""Reads that are planned on the version that was the newest, while the versions are listed."""

from __future__ import annotations

import json
import pickle
import re
from contextlib import nullcontext

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import NullType, StructField, StructType

import lance_spark
from lance_spark.errors import InvalidInputError, LanceError, TableNotFoundError
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.table.open import OpenTable
from lance_spark.table.presumed import SupersededError, presume_newest
from tests.support.stores.aws import BUCKET, Aws


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
        presumed, readings = presume_newest(uri, aws.ours), Readings()
        assert presumed is not None
        return presumed.result_of(readings.read), readings.versions

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
        presumed = presume_newest(uri, aws.ours)
        assert presumed is not None
        presumed._listing.result()
        with nullcontext() if version == 2 else pytest.raises(SupersededError):
            presumed.check()
        with pytest.raises(InvalidInputError, match=f"^version {version}$"):
            presumed.result_of(refuse_new)
        lance.write_dataset(rows, uri, mode="append", storage_options=aws.theirs)
    removed(aws, "presumed")
    presumed = presume_newest(uri, aws.ours)
    assert presumed is not None
    with pytest.raises(TableNotFoundError):
        presumed.result_of(Readings().read)


def test_the_driver_of_spark_plans_and_reads_the_newest_version(aws: Aws) -> None:
    uri = f"s3://{BUCKET}/planned"
    options = {
        "path": uri,
        **{f"storage_options.{name}": value for name, value in aws.theirs.items()},
    }
    lance.write_dataset(pa.table({"x": range(9)}), uri, storage_options=aws.theirs)
    schema = LanceDataSource(CaseInsensitiveDict(options)).schema()

    def planned() -> list[int]:
        """Return the rows that the driver reads."""
        source = LanceDataSource(CaseInsensitiveDict(options))
        request = StructField("__lance_request", NullType(), True, {"request": json.dumps({})})
        reply, *_ = source.reader(StructType([*schema.fields, request])).partitions()
        text = pickle.dumps(reply)
        stream = re.search(rb" stream=(\d+);", text)
        assert stream is not None
        rows: list[int] = pa.ipc.open_stream(text[stream.end() :]).read_all()["x"].to_pylist()
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
