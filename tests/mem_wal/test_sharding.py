"""Sharding fields have the values that pylance computes; rows are split by them."""

from __future__ import annotations

import math
import random
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import ShardingField, ShardingSpec

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal import sharding
from lance_spark.mem_wal.table.details import ShardingField as OwnField
from lance_spark.mem_wal.table.details import ShardingSpec as OwnSpec

NUMBERS = [0, 1, -1, 2, 7, 100, 127, -128, None]
TEXTS = ["", "a", "b", "ab", "abc", "abcd", "abcde", "ü", "日本語テキスト", "x" * 1000, None, "\0é"]


def columns() -> dict[str, pa.Array]:
    rng = random.Random(3)
    wide = [*NUMBERS, *(rng.randrange(-(2**63), 2**63) for _ in range(40))]
    middle = [*NUMBERS, *(rng.randrange(-(2**31), 2**31) for _ in range(40))]
    natural = [None if n is None else abs(n) for n in wide]
    floats = [0.0, -0.0, 1.25, math.nan, -math.nan, math.inf, None, 1e-40, 3.4e38]
    return {
        "bool": pa.array([True, False, None]),
        "int8": pa.array(NUMBERS, pa.int8()),
        "int16": pa.array(NUMBERS, pa.int16()),
        "int32": pa.array(middle, pa.int32()),
        "int64": pa.array(wide, pa.int64()),
        "uint8": pa.array([0, 255, None], pa.uint8()),
        "uint16": pa.array([0, 65535, None], pa.uint16()),
        "uint32": pa.array([0, 2**32 - 1, None], pa.uint32()),
        "uint64": pa.array([*natural, 2**64 - 1], pa.uint64()),
        "float32": pa.array(floats, pa.float32()),
        "float64": pa.array(floats, pa.float64()),
        "date32": pa.array(middle, pa.int32()).cast(pa.date32()),
        "time32": pa.array([0, 1, None], pa.int32()).cast(pa.time32("ms")),
        "time64": pa.array([0, 1, None]).cast(pa.time64("ns")),
        "timestamp": pa.array(wide).cast(pa.timestamp("us")),
        "timestamp with zone": pa.array(wide).cast(pa.timestamp("ns", "UTC")),
        "string": pa.array(TEXTS),
        "large_string": pa.array(TEXTS, pa.large_string()),
        "slice": pa.array(TEXTS).slice(3, 5),
        "nan": pa.array(np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)),
    }


def spec(kind: type, part: type, *fields: tuple) -> object:  # type: ignore[type-arg]
    return kind(1, [part(*field) for field in fields])


FIELDS = (
    ("bucket", [0], "bucket", None, "int32", {"num_buckets": "8"}),
    ("many", [0], "bucket", None, "int32", {"num_buckets": "1021"}),
    ("value", [0], "identity", None, "", {}),
    ("all", [], "unsharded", None, "int32", {}),
)


@pytest.mark.parametrize("name", columns())
def test_values_are_those_of_pylance(tmp_path: Path, name: str) -> None:
    batch = pa.record_batch({"c": columns()[name]})
    dataset = lance.write_dataset(pa.table({"c": pa.nulls(0, batch.schema[0].type)}), str(tmp_path))
    theirs = lance.evaluate_sharding_spec(
        batch, spec(ShardingSpec, ShardingField, *FIELDS), dataset.lance_schema
    )
    schema = Schema.from_arrow(batch.schema)
    own = sharding.evaluate_sharding_spec(batch, spec(OwnSpec, OwnField, *FIELDS), schema)
    assert own.schema == theirs.schema
    for field in own.schema.names:
        if field != "value" or not name.startswith(("float", "nan")):
            assert own[field].equals(theirs[field])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (("b", [0], "bucket", None, "int32", {}), "num_buckets"),
        (("b", [0], "bucket", None, "int32", {"num_buckets": "0"}), "num_buckets"),
        (("b", [0], "bucket", None, "int32", {"num_buckets": "-3"}), "num_buckets"),
        (("b", [9], "bucket", None, "int32", {"num_buckets": "2"}), "no field with id 9"),
        (("b", [], "identity", None, "int32", {}), "no source column"),
        (("b", [0], "year", None, "int32", {}), "year"),
        (("b", [0], None, "c + 1", "int32", {}), "c \\+ 1"),
        (("b", [1], "bucket", None, "int32", {"num_buckets": "2"}), "double|float16|halffloat"),
        (("b", [2], "bucket", None, "int32", {"num_buckets": "2"}), "no column 'other'"),
    ],
)
def test_other_specs_are_refused(field: tuple, message: str) -> None:  # type: ignore[type-arg]
    batch = pa.record_batch({"c": [1], "half": pa.array([1.0]).cast(pa.float16())})
    schema = Schema.from_arrow(pa.schema([*batch.schema, pa.field("other", pa.int32())]))
    with pytest.raises(LanceError, match=message):
        sharding.evaluate_sharding_spec(batch, spec(OwnSpec, OwnField, field), schema)  # type: ignore[arg-type]


def test_rows_are_split_in_their_order() -> None:
    rows = pa.table({"c": pa.array(range(1000), pa.int64()), "v": range(1000)})
    schema = Schema.from_arrow(rows.schema)
    buckets = spec(OwnSpec, OwnField, FIELDS[0])
    parts = sharding.split_by_shard(buckets, schema, rows)  # type: ignore[arg-type]
    assert len({part.shard for part in parts}) == 8
    assert sum(part.rows.num_rows for part in parts) == 1000
    for part in parts:
        values = sharding.evaluate_sharding_spec(part.rows, buckets, schema)["bucket"].unique()  # type: ignore[arg-type]
        assert part.entries == sharding.bucket_entries(buckets, values[0].as_py())  # type: ignore[arg-type]
        assert len(values) == 1
        assert part.rows["v"].to_pylist() == sorted(part.rows["v"].to_pylist())
    assert sharding.split_by_shard(buckets, schema, rows.slice(0, 0)) == []  # type: ignore[arg-type]


def test_shards_of_other_specs_are_others() -> None:
    eight = spec(OwnSpec, OwnField, FIELDS[0])
    more = spec(OwnSpec, OwnField, ("bucket", [0], "bucket", None, "int32", {"num_buckets": "16"}))
    entries = sharding.bucket_entries(eight, 3)  # type: ignore[arg-type]
    assert entries == (("bucket", b"\3\0\0\0"),)
    assert sharding.shard_uuid(eight, entries) == sharding.shard_uuid(eight, entries)  # type: ignore[arg-type]
    assert sharding.shard_uuid(eight, entries) != sharding.shard_uuid(more, entries)  # type: ignore[arg-type]


def test_null_belongs_to_no_shard() -> None:
    rows = pa.table({"c": pa.array(["a", None])})
    identity = spec(OwnSpec, OwnField, ("c", [0], "identity", None, "utf8", {}))
    with pytest.raises(InvalidInputError, match="1 rows have null"):
        sharding.split_by_shard(identity, Schema.from_arrow(rows.schema), rows)  # type: ignore[arg-type]
