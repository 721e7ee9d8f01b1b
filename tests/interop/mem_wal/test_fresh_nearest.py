"""Vector searches of fresh rows: equal to those of a table that has the same rows."""

from __future__ import annotations

import uuid
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import LsmVectorSearchPlanner, ShardSnapshot
from lance_spark.errors import InvalidInputError
from lance_spark.mem_wal.table.shard_manifest import read_latest_manifest
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import PylanceWriter, key_field, pylance_snapshots

DIMENSION = 8
SCHEMA = pa.schema(
    [
        key_field("id", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("v", pa.list_(pa.float32(), DIMENSION)),
    ]
)
RANDOM = np.random.default_rng(11)


def rows_of(ids: list[int], text: str) -> pa.Table:
    numbers = pa.array(RANDOM.normal(size=len(ids) * DIMENSION).astype(np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, DIMENSION)
    return pa.table({"id": ids, "s": [text] * len(ids), "v": vectors}, schema=SCHEMA)


@pytest.fixture(scope="module", params=["indexed", "flat"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("nearest") / "t.lance")
    dataset = lance.write_dataset(rows_of(list(range(400)), "base"), path, max_rows_per_file=150)
    if request.param == "indexed":
        dataset.create_index("v", "IVF_FLAT", num_partitions=2)
        dataset = lance.dataset(path)
    dataset.initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    writer = PylanceWriter(path, shard)
    writer.put(rows_of([*range(60), 900], "sstable"))
    writer.delete(pa.table({"id": pa.array([70, 71], pa.int64())}))
    writer.close()
    writer = PylanceWriter(path, shard)
    writer.put(rows_of([*range(50, 110), 901], "log"))
    writer.delete(pa.table({"id": pa.array([0, 1], pa.int64())}))
    return path


def query() -> list[float]:
    return RANDOM.normal(size=DIMENSION).tolist()


def expected(path: str) -> Any:
    """Return a table without MemWAL that has the same rows."""
    rows = lance_spark.open_dataset(path).fresh().to_table()
    return lance_spark.write_dataset(rows, f"memory://{uuid.uuid4()}")


def pairs(rows: pa.Table) -> list[tuple[Any, ...]]:
    names = [name for name in ("query_index", "id", "s") if name in rows.column_names]
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_the_nearest_rows(path: str, metric: str) -> None:
    fresh, whole = lance_spark.open_dataset(path).fresh(), expected(path)
    for changes in (
        {},
        {"filter": "s <> 'base'", "prefilter": True},
        {"filter": "s <> 'base'"},
        {"filter": "id IN (3, 70, 80, 300)", "prefilter": True},
        {"columns": ["_distance", "s", "id"]},
        {"limit": 4},
    ):
        nearest = {"column": "v", "q": query(), "k": 15, "nprobes": 2, "metric": metric}
        table = fresh.to_table(nearest=nearest, **changes)
        wanted = whole.to_table(nearest=nearest, **changes)
        assert pairs(table) == pairs(wanted), changes
        assert table.schema.names == wanted.schema.names
        np.testing.assert_allclose(
            table["_distance"].to_numpy(), wanted["_distance"].to_numpy(), rtol=1e-4, atol=1e-5
        )


def test_several_queries(path: str) -> None:
    fresh, whole = lance_spark.open_dataset(path).fresh(), expected(path)
    nearest = {"column": "v", "q": [query() for _ in range(3)], "k": 6, "nprobes": 2}
    table = fresh.to_table(["id", "s"], nearest=nearest)
    assert pairs(table) == pairs(whole.to_table(["id", "s"], nearest=nearest))
    bounded = {**nearest, "distance_range": (2.0, 9.0)}
    assert pairs(fresh.to_table(nearest=bounded)) == pairs(whole.to_table(nearest=bounded))


def test_the_planner_is_as_pylances(path: str) -> None:
    theirs = pylance_snapshots(path)
    own = []
    for part in theirs:
        manifest = read_latest_manifest(open_table(path).store, uuid.UUID(part.shard_id))
        assert manifest is not None
        snapshot = ShardSnapshot(part.shard_id)
        for sstable in manifest.sstables:
            snapshot.with_sstable(sstable.generation, sstable.folder)
        own.append(snapshot)
    dataset = lance.dataset(path)
    if not any(index.name == "v_idx" for index in dataset.describe_indices()):
        pytest.skip("pylance finds no rows without an index")
    opened = lance_spark.open_dataset(path)
    for options in (
        {},
        {"columns": ["s"]},
        {"k": 40},
        {"columns": ["v"], "refine_base_table": True},
    ):
        vector = pa.array(query(), pa.float32())
        plan = LsmVectorSearchPlanner(opened, own, "v").plan_search(vector, **options)
        pylance = lance.LsmVectorSearchPlanner(dataset, theirs, "v").plan_search(
            vector, **options, overfetch_factor=4.0
        )
        table, wanted = plan.to_table(), pylance.to_table()
        assert table.schema.names == wanted.schema.names == plan.schema.names
        assert len(set(table["id"].to_pylist())) == table.num_rows
        # pylance measures SSTables by a graph of quantized vectors.
        same = set(table["id"].to_pylist()) & set(wanted["id"].to_pylist())
        assert len(same) >= 0.8 * table.num_rows
        assert "SSTable of generation 1: " in plan.explain()
    for options in ({"k": 0}, {"nprobes": 0}, {"overfetch_factor": 0.5}):
        with pytest.raises(InvalidInputError):
            LsmVectorSearchPlanner(opened, own, "v").plan_search(pa.array(query()), **options)


def test_what_a_search_refuses(path: str) -> None:
    fresh = lance_spark.open_dataset(path).fresh()
    nearest = {"column": "v", "q": query(), "k": 3}
    with pytest.raises(InvalidInputError, match="cannot be used in a fresh read"):
        fresh.to_table(nearest=nearest, with_row_id=True)
    with pytest.raises(InvalidInputError, match="_rowaddr cannot be used in a fresh read"):
        fresh.to_table(nearest=nearest, filter="_rowaddr > 5")


def test_addresses(path: str) -> None:
    dataset = lance_spark.open_dataset(path)
    nearest = {"column": "v", "q": query(), "k": 300}
    found = dataset.fresh().to_table(["id", "s"], nearest=nearest, with_row_address=True)
    places = dataset.to_table(["id"], with_row_address=True)
    known = dict(zip(*(column.to_pylist() for column in places.columns), strict=True))
    for row in found.to_pylist():
        assert row["_rowaddr"] == (known[row["id"]] if row["s"] == "base" else None)
