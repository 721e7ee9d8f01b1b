"""Fresh reads leave out shards that cannot have a selected key, and never a row."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.mem_wal import snapshot
from lance_spark.mem_wal.fresh.scan import count_sources
from lance_spark.mem_wal.table.shard_manifest import (
    list_shards,
    publish,
    read_latest_manifest,
    wal_path,
)
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import PylanceWriter, key_field

_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [-3, 1, 7],
    pa.string(): ["", "ä", "bbb"],
    pa.bool_(): [False, True],
}


def put(path: str, rows: pa.Table, *, close: bool = True) -> None:
    """Write rows to their shards; without `close` they stay in the logs."""
    dataset = lance_spark.open_dataset(path)
    for shard, part in dataset.split_by_shard(rows).items():
        writer = dataset.mem_wal_writer(shard)
        writer.put(part)
        writer.close(flush=close)


def shards_of(path: str, condition: Any) -> set[str]:
    """Return the shards that a read with a condition opens."""
    fresh = lance_spark.open_dataset(path).fresh()
    if isinstance(condition, str):
        fresh.to_table(filter=condition)
    else:
        fresh.to_table(filters=condition)
    return {str(shard) for shard in fresh._reader.scan._opened}


def literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("dtype", "is_identity"),
    [
        (pa.int32(), False),
        (pa.string(), False),
        (pa.string(), True),
        (pa.bool_(), False),
    ],
    ids=str,
)
def test_filters_on_the_sharding_column(
    tmp_path: Path, dtype: pa.DataType, is_identity: bool
) -> None:
    """The key has two columns, and the rows are dealt out by the second one."""
    path, values, pick = str(tmp_path / "t.lance"), _VALUES[dtype], random.Random(3)
    schema = pa.schema(
        [key_field("a", pa.int32(), 1), key_field("b", dtype, 2), pa.field("s", pa.string())]
    )

    def rows(keys: list[tuple[int, Any]], text: str) -> pa.Table:
        columns = [[a for a, _ in keys], [b for _, b in keys], [text] * len(keys)]
        return pa.table(columns, schema=schema)

    keys = [(a, b) for a in range(3) for b in values]
    dataset = lance.write_dataset(rows(keys, "base"), path, max_rows_per_file=5)
    if is_identity:
        dataset.initialize_mem_wal(identity_column="b")
    else:
        dataset.initialize_mem_wal(bucket_column="b", num_buckets=3)
    model = dict.fromkeys(keys, "base")
    for number in range(2):
        chosen = list({(pick.randrange(5), pick.choice(values)) for _ in range(5)})
        put(path, rows(chosen, f"put {number}"), close=not number)
        model |= dict.fromkeys(chosen, f"put {number}")
    fresh = lance_spark.open_dataset(path).fresh()
    all_shards = {str(shard.shard) for shard in fresh._reader.scan.state.manifests}
    shard_of = {}
    for value in values:
        (shard_of[value],) = lance_spark.open_dataset(path).split_by_shard(
            pa.table({"b": pa.array([value], dtype)})
        )

    def check(condition: Any, holds: Any, expected: set[str]) -> None:
        assert shards_of(path, condition) == expected & all_shards, condition
        arguments = {"filter" if isinstance(condition, str) else "filters": condition}
        rows = fresh.to_table(**arguments).to_pylist()
        wanted = {key: text for key, text in model.items() if holds(*key)}
        assert {(row["a"], row["b"]): row["s"] for row in rows} == wanted, condition
        assert len(rows) == len(wanted)

    for value in values[:2]:
        own = {shard_of[value]}
        check(f"b = {literal(value)}", lambda a, b, v=value: b == v, own)
        check([("b", "==", value)], lambda a, b, v=value: b == v, own)
        check(
            f"b = {literal(value)} AND a < 2 AND s <> 'x'",
            lambda a, b, v=value: b == v and a < 2,
            own,
        )
        check(f"b = {literal(value)} OR a = 1", lambda a, b, v=value: b == v or a == 1, all_shards)
        check(f"b = {literal(value)} OR b IS NULL", lambda a, b, v=value: b == v, all_shards)
        check(f"b <> {literal(value)}", lambda a, b, v=value: b != v, all_shards)
    some = values[:2]
    text = ", ".join(map(literal, some))
    check(f"b IN ({text})", lambda a, b: b in some, {shard_of[value] for value in some})
    check([("b", "in", some)], lambda a, b: b in some, {shard_of[value] for value in some})
    check("a = 1", lambda a, b: a == 1, all_shards)
    check("s = 'base'", lambda a, b: model[a, b] == "base", all_shards)
    if pa.types.is_integer(dtype):
        # Literals of other types.
        check("b = 1.0D", lambda a, b: b == 1, shards_of(path, "b = 1.0D"))
        check("b = CAST(7 AS BIGINT)", lambda a, b: b == 7, shards_of(path, "b = 7"))
        check("b = 0.5", lambda a, b: False, shards_of(path, "b = 0.5"))


def test_shards_that_say_no_value_are_read(tmp_path: Path) -> None:
    """pylance takes any shard id, records no value, and does not check the rows."""
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64()), pa.field("s", pa.string())])
    lance.write_dataset(pa.table([[1, 2], ["base"] * 2], schema=schema), path).initialize_mem_wal(
        bucket_column="id", num_buckets=8
    )
    writer = PylanceWriter(path, str(uuid.uuid4()))
    writer.put(pa.table([[1, 2, 3], ["new"] * 3], schema=schema))
    writer.close()
    fresh = lance_spark.open_dataset(path).fresh()
    for number in (1, 2, 3):
        assert fresh.to_table(filter=f"id = {number}")["s"].to_pylist() == ["new"]


def test_a_sharding_outside_of_the_key_rules_nothing_out(tmp_path: Path) -> None:
    """A row of another shard can hide a selected row of the table."""
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64()), pa.field("region", pa.string())])
    dataset = lance.write_dataset(pa.table([[1, 2], ["eu", "eu"]], schema=schema), path)
    dataset.initialize_mem_wal(identity_column="region")
    writer = PylanceWriter(path, str(uuid.uuid4()))
    writer.put(pa.table([[1], ["us"]], schema=schema))
    writer.close()
    store = open_table(path).store
    (shard,) = list_shards(store)
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    entries = (("bucket", b"us"),)
    assert publish(
        store, replace(manifest, version=manifest.version + 1, spec_id=1, field_entries=entries)
    )
    fresh = lance_spark.open_dataset(path).fresh()
    assert fresh.to_table(filter="region = 'eu'")["id"].to_pylist() == [2]
    assert fresh.to_table(filter="region = 'us'")["id"].to_pylist() == [1]


def test_values_of_a_shard_with_rows_are_not_recorded_later(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64())])
    dataset = lance.write_dataset(pa.table([[1]], schema=schema), path)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=2)
    opened = lance_spark.open_dataset(path)
    (shard_id,) = opened.split_by_shard(pa.table([[7]], schema=schema))
    writer = PylanceWriter(path, str(shard_id))
    writer.put(pa.table([list(range(20))], schema=schema))
    writer.close()
    with opened.mem_wal_writer(shard_id) as own:
        with pytest.raises(InvalidInputError, match="do not belong to shard"):
            own.put(pa.table([list(range(20))], schema=schema))
        own.put(pa.table([[7]], schema=schema))
    fresh = opened.fresh()
    assert [fresh.count_rows(f"id = {number}") for number in range(21)] == [1] * 20 + [0]


def test_a_table_without_key(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    values = [0.0, -0.0, 1.5, float("nan"), None]
    rows = pa.table({"f": pa.array(values, pa.float64()), "n": pa.array([1] * 5, pa.int64())})
    lance.write_dataset(rows, path).initialize_mem_wal(bucket_column="f", num_buckets=16)
    put(path, rows)
    put(path, rows, close=False)
    fresh = lance_spark.open_dataset(path).fresh()
    counts = {"f = 0": 6, "f = 1.5": 3, "f <=> NULL": 3, "f IS NULL": 3, "f = -0.0D": 6}
    assert {condition: fresh.count_rows(condition) for condition in counts} == counts
    assert fresh.count_rows("f = double('NaN')") == 3
    assert len(shards_of(path, "f = 1.5")) == 1
    assert count_sources(fresh.plan(filter="f = 1.5")) == (1, 1)


def test_entries_that_are_cleaned_up_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64())])
    lance.write_dataset(pa.table([[1]], schema=schema), path).initialize_mem_wal(unsharded=True)
    put(path, pa.table([[2]], schema=schema), close=False)
    early, late = (lance_spark.open_dataset(path).fresh() for _ in range(2))
    put(path, pa.table([[3]], schema=schema))
    assert sorted(early.to_table()["id"].to_pylist()) == [1, 2, 3]
    (shard,) = late._reader.scan.state.manifests
    for position in (1, 2, 3):
        (Path(path) / wal_path(shard.shard, position)).unlink()
    monkeypatch.setattr(snapshot, "_PROMPT", 0)
    with pytest.raises(CorruptFileError, match="after position 0 do not exist any more"):
        late.to_table()
