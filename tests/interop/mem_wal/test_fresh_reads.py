"""Fresh reads: schemas, keys, filters, sources that are left out, races and damage."""

from __future__ import annotations

import os
import pickle
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import ColumnOrdering, LsmPointLookupPlanner, LsmScanner, ShardSnapshot
from lance_spark.errors import (
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lance_spark.mem_wal import snapshot as snapshots
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.fresh.scan import LogTask, SsTableTask, count_sources
from lance_spark.mem_wal.table.shard_manifest import (
    publish,
    read_latest_manifest,
    sstable_path,
    wal_path,
)
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import (
    PylanceWriter,
    StepWriter,
    key_field,
    pylance_snapshots,
)

SCHEMA = pa.schema(
    [key_field("id", pa.int64()), pa.field("v", pa.float32()), pa.field("s", pa.string())]
)


def rows_of(ids: list[int], text: str) -> pa.Table:
    values = {"id": ids, "v": [float(number) for number in ids], "s": [text] * len(ids)}
    return pa.table(values, schema=SCHEMA)


def keys_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def texts(rows: pa.Table) -> dict[int, str]:
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["id"].to_pylist(), rows["s"].to_pylist(), strict=True))


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows_of(list(range(10)), "base"), path, max_rows_per_file=4)
    dataset.initialize_mem_wal(unsharded=True)
    return path


def write(path: str, shard: str, *steps: list[int] | tuple[int, ...], close: bool = True) -> None:
    """Let pylance put the lists, and delete the tuples."""
    writer = PylanceWriter(path, shard)
    for number, ids in enumerate(steps):
        if isinstance(ids, tuple):
            writer.delete(keys_of(*ids))
        else:
            writer.put(rows_of(ids, f"step {number}"))
    if close:
        writer.close()


def fresh(path: str) -> Any:
    return lance_spark.open_dataset(path).fresh()


def test_sources_without_a_key_are_not_read(path: str) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [1, 2])
    write(path, shard, [3], (4,))
    write(path, shard, [1], close=False)
    dataset = fresh(path)
    assert (dataset.num_shards, dataset.num_sstables, dataset.num_entries) == (1, 2, 1)
    read = {
        "id = 1": (1, 1),
        "id = 2": (1, 0),
        "id = 4": (1, 0),
        "id = 7": (0, 0),
        "id IN (2, 3)": (2, 0),
        "id = 2 OR id = 3": (2, 0),
        "id = 7 AND s = 'base'": (0, 0),
        "id = 7 OR s = 'base'": (2, 1),
        "id > 100": (2, 1),
        "NOT (id = 7)": (2, 1),
    }
    expected = dict.fromkeys(range(10), "base") | {1: "step 0", 2: "step 0", 3: "step 0"}
    del expected[4]
    assert texts(dataset.to_table()) == expected
    for condition, sources in read.items():
        assert count_sources(dataset.plan(filter=condition)) == sources, condition
        plain = pa.table({"id": list(expected), "s": list(expected.values())})
        plain = plain.append_column("v", pa.array(map(float, expected), pa.float32()))
        local = lance_spark.write_dataset(plain, f"memory://{uuid.uuid4()}")
        assert texts(dataset.to_table(filter=condition)) == texts(local.to_table(filter=condition))


def test_scanners_of_fresh_rows(path: str) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [1, 30])
    write(path, shard, [2, 20], close=False)
    opened = fresh(path)
    down = ColumnOrdering("id", ascending=False)
    ordered = opened.to_table(["s"], order_by=[down], limit=3, offset=1)
    assert ordered.to_pylist() == [{"s": "step 0"}, {"s": "base"}, {"s": "base"}]
    assert opened.to_table(order_by="id")["id"].to_pylist() == [*range(10), 20, 30]
    scanner = opened.scanner(columns=["id"], filter="id >= 2", limit=4, offset=8)
    assert scanner.to_table()["id"].to_pylist() == [2, 20]
    assert pa.RecordBatchReader.from_stream(opened).read_all().num_rows == 12
    assert opened.explain(filter="id = 30").endswith("fresh: 1 SSTables, 0 WAL entries")
    assert "fresh: 1 SSTables, 1 WAL entries" in opened.scanner().explain_plan()
    with pytest.raises(InvalidInputError, match="a fresh read is of the newest version"):
        opened.checkout_version(1)


def test_a_base_table_without_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of([], "base"), path).initialize_mem_wal(unsharded=True)
    write(path, str(uuid.uuid4()), [1], close=False)
    opened = fresh(path)
    assert texts(opened.to_table()) == {1: "step 0"}
    assert opened.count_rows() == 1
    assert "the table has no rows" in opened.explain()


def test_tasks_can_be_pickled(path: str) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [1, 2, 20])
    write(path, shard, [3], (4,), close=False)
    dataset = fresh(path)
    tasks = pickle.loads(pickle.dumps(dataset.plan(["id", "s"], filter="id < 15")))
    assert {type(task).__name__ for task in tasks} == {"ScanTask", "SsTableTask", "LogTask"}
    rows = [batch for task in tasks for batch in task.batches()]
    assert texts(pa.Table.from_batches(rows)) == texts(dataset.to_table(filter="id < 15"))


def test_shards_are_read_together(path: str) -> None:
    for number in range(3):
        write(path, str(uuid.uuid4()), [number, 100 + number], close=number > 0)
    expected = dict.fromkeys(range(3, 10), "base")
    for number in range(3):
        expected |= {number: "step 0", 100 + number: "step 0"}
    assert texts(fresh(path).to_table()) == expected
    assert fresh(path).count_rows("v >= 100") == 3


def test_compacted_generations_are_not_read(path: str) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [1], (2,))
    compact_mem_wal(open_table(path), drains=False)
    write(path, shard, [3])
    manifest = read_latest_manifest(open_table(path).store, uuid.UUID(shard))
    assert manifest is not None
    assert len(manifest.sstables) == 2
    lance.dataset(path).update({"s": "'direct'"}, where="id = 1")
    dataset = fresh(path)
    assert dataset.num_sstables == 1
    text_of = texts(dataset.to_table())
    assert (text_of[1], text_of[3], 2 in text_of) == ("direct", "step 0", False)
    # pylance reads the generation again if a caller names it.
    own = ShardSnapshot(shard)
    theirs = lance.ShardSnapshot(shard).with_current_generation(3)
    for sstable in manifest.sstables:
        own.with_sstable(sstable.generation, sstable.folder)
        theirs = theirs.with_sstable(sstable.generation, sstable.folder)
    opened = lance_spark.open_dataset(path)
    assert texts(LsmScanner.from_snapshots(opened, [own]).to_table()) == text_of
    scanner = lance.LsmScanner.from_snapshots(lance.dataset(path), [theirs])
    assert texts(scanner.to_table())[1] == "step 0"


def test_columns_are_matched_by_id(path: str) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [1, 20])
    write(path, shard, [2, 21], close=False)
    dataset = lance.dataset(path)
    dataset.alter_columns({"path": "s", "name": "label"})
    dataset.drop_columns(["v"])
    # The new column has the id that `_tombstone` has in the SSTable.
    dataset.add_columns(pa.schema([pa.field("v", pa.string()), pa.field("n", pa.bool_())]))
    rows = {row["id"]: row for row in fresh(path).to_table().to_pylist()}
    assert rows[1] == {"id": 1, "label": "step 0", "v": None, "n": None}
    assert rows[20] == {"id": 20, "label": "step 0", "v": None, "n": None}
    assert rows[21] == {"id": 21, "label": "step 0", "v": None, "n": None}
    assert rows[3] == {"id": 3, "label": "base", "v": None, "n": None}
    assert fresh(path).count_rows("label = 'step 0' AND n IS NULL") == 4
    scanner = lance.LsmScanner.from_snapshots(lance.dataset(path), pylance_snapshots(path))
    theirs = {row["id"]: row for row in scanner.to_table().to_pylist()}
    assert {key: row for key, row in rows.items() if key not in (2, 21)} == {
        key: row for key, row in theirs.items() if key not in (2, 21)
    }
    writer = PylanceWriter(path, shard)
    assert {row["id"]: row for row in writer._writer.lsm_scanner().to_table().to_pylist()} == rows


def test_nested_values_and_json(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    schema = pa.schema(
        [
            key_field("id", pa.string()),
            pa.field("point", pa.struct([("x", pa.int32()), ("l", pa.list_(pa.float64()))])),
            pa.field("map", pa.map_(pa.string(), pa.int32())),
            pa.field("vector", pa.list_(pa.float32(), 2)),
            pa.field("doc", pa.json_()),
            pa.field("day", pa.date32()),
            pa.field("amount", pa.decimal128(10, 2)),
        ]
    )
    rows = pa.table(
        {
            "id": ["a", "b", "c"],
            "point": [{"x": 1, "l": [0.5]}, None, {"x": None, "l": None}],
            "map": [[("k", 1)], [], None],
            "vector": [[1.0, 2.0], None, [3.0, 4.0]],
            "doc": pa.array(['{"n": 1}', None, '["x"]'], pa.json_()),
            "day": pa.array([1, 2, None], pa.date32()),
            "amount": pa.array([1, None, 3], pa.decimal128(10, 2)),
        },
        schema=schema,
    )
    dataset = lance.write_dataset(rows.slice(0, 0), path, data_storage_version="2.2")
    dataset.initialize_mem_wal(unsharded=True)
    expected = rows.to_pylist()
    for closes in (False, True):
        writer = StepWriter(path, str(uuid.uuid5(uuid.NAMESPACE_OID, "nested")))
        if not closes:
            writer.put(rows)
        else:
            writer.close()
        opened = lance_spark.open_dataset(path).fresh()
        table = opened.to_table()
        assert table.schema.types == lance_spark.open_dataset(path).schema.types
        assert [
            {**row, "doc": row["doc"] and row["doc"].replace(" ", "")} for row in table.to_pylist()
        ] == [{**row, "doc": row["doc"] and row["doc"].replace(" ", "")} for row in expected]
        assert opened.to_table(["id"], filter="point.x = 1")["id"].to_pylist() == ["a"]
        assert opened.to_table(["point.x", "id"]).to_pylist()[0] == {"point.x": 1, "id": "a"}
        assert opened.count_rows("json_get_int(doc, 'n') = 1") == 1
        assert (opened.num_entries, opened.num_sstables) == ((0, 1) if closes else (1, 0))


def test_a_column_of_blobs_is_read_as_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([key_field("id", pa.int32()), blob])
    rows = pa.table({"id": [1, 2, 3], "b": [b"one", b"two", None]}, schema=schema)
    dataset = lance.write_dataset(rows, path, data_storage_version="2.1")
    dataset.initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    for closes, value in ((True, b"sstable"), (False, b"log")):
        writer = PylanceWriter(path, shard)
        writer.put(pa.table({"id": [1 if closes else 2], "b": [value]}, schema=schema))
        if closes:
            writer.close()
    opened = fresh(path)
    result = opened.to_table(blob_handling="all_binary").to_pylist()
    assert {row["id"]: row["b"] for row in result} == {1: b"sstable", 2: b"log", 3: None}
    assert sorted(opened.to_table(["id"])["id"].to_pylist()) == [1, 2, 3]
    assert opened.to_table(blob_handling="none").column_names == ["id"]
    with pytest.raises(InvalidInputError, match="descriptors of blobs"):
        opened.to_table()


def test_a_table_without_key_has_all_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    rows = pa.table({"n": [1, 1]})
    lance.write_dataset(rows, path).initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    for closes in (True, False):
        writer = PylanceWriter(path, shard)
        writer.put(pa.table({"n": [1, 2]}))
        if closes:
            writer.close()
    assert sorted(fresh(path).to_table()["n"].to_pylist()) == [1, 1, 1, 1, 2, 2]
    assert fresh(path).count_rows("n = 1") == 4
    opened = lance_spark.open_dataset(path)
    with pytest.raises(UnsupportedFeatureError, match="no primary key"):
        LsmScanner.from_snapshots(opened, [])


def test_a_table_without_mem_wal_is_read_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of([1, 2], "base"), path)
    assert texts(fresh(path).to_table()) == {1: "base", 2: "base"}
    assert repr(fresh(path)).endswith("version=1, 0 SSTables, 0 WAL entries)")
    # Shards of a table without the index are rests of a MemWAL that was disabled.
    lance.dataset(path).initialize_mem_wal(unsharded=True)
    write(path, str(uuid.uuid4()), [1])
    lance.dataset(path).drop_index("__lance_mem_wal")
    assert texts(fresh(path).to_table()) == {1: "base", 2: "base"}


def test_a_branch_has_its_own_shards(path: str) -> None:
    lance.dataset(path).create_branch("side")
    branch = str(Path(path) / "tree" / "side")
    write(path, str(uuid.uuid4()), [1])
    write(branch, str(uuid.uuid4()), [2])
    main, side = texts(fresh(path).to_table()), texts(fresh(branch).to_table())
    assert (main[1], main[2]) == ("step 0", "base")
    assert (side[1], side[2]) == ("base", "step 0")
    opened = lance_spark.open_dataset(path, branch="side").fresh()
    assert texts(opened.to_table()) == side


def test_rows_without_addresses_are_refused(path: str) -> None:
    write(path, str(uuid.uuid4()), [1])
    opened = fresh(path)
    for read in (
        lambda: opened.to_table(["_rowid"]),
        lambda: opened.to_table(with_row_address=True),
        lambda: opened.to_table(filter="_rowaddr = 1"),
        lambda: opened.take([0]),
        lambda: opened.take_rows([0]),
    ):
        with pytest.raises(InvalidInputError, match="cannot be used in a fresh read"):
            read()
    with pytest.raises(InvalidInputError, match="in no fragment"):
        opened.plan(fragment_ids=[0])


def test_hidden_rows_are_not_evaluated(path: str) -> None:
    """The old row of a key would make the filter fail."""
    write(path, str(uuid.uuid4()), [0])
    lance.dataset(path).update({"v": "7"}, where="id = 0")
    condition = "CAST(concat('1', if(id = 0 AND s = 'base', 'x', '')) AS INT) = 1"
    with pytest.raises(InvalidInputError):
        lance_spark.open_dataset(path).to_table(filter=condition)
    assert fresh(path).count_rows(condition) == 10


@pytest.mark.parametrize("columns", [["id"], ["s"], []])
def test_limits_and_projections(path: str, columns: list[str]) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [0, 1, 30])
    write(path, shard, [31], (3,), close=False)
    opened = fresh(path)
    for limit in (0, 1, 10, 11, 12):
        rows = opened.to_table(["id"], limit=limit)
        assert rows.num_rows == min(limit, 11)
    assert opened.to_table(columns or ["id"]).num_rows == 11
    assert sum(b.num_rows for t in opened.plan(columns) for b in t.batches()) == 11


def _state_after_a_compaction(path: str, monkeypatch: pytest.MonkeyPatch, calls: list[int]) -> Any:
    """Let a compaction finish between the reads of shards and base table."""
    read = snapshots._read_manifests

    def reading(store: Any) -> Any:
        manifests = read(store)
        calls.append(len(manifests))
        if len(calls) == 1:
            write(path, str(manifests[0].shard), [5])
            compact_mem_wal(open_table(path))
        return manifests

    monkeypatch.setattr(snapshots, "_read_manifests", reading)
    return fresh(path)


def test_a_compaction_meanwhile_is_noticed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, str(uuid.uuid4()), [1])
    calls: list[int] = []
    opened = _state_after_a_compaction(path, monkeypatch, calls)
    assert len(calls) == 2
    text_of = texts(opened.to_table())
    assert (text_of[1], text_of[5], len(text_of)) == ("step 0", "step 0", 10)


def test_a_generation_that_is_nowhere_is_an_error(path: str) -> None:
    shard = uuid.uuid4()
    write(path, str(shard), [1])
    store = open_table(path).store
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    assert publish(store, replace(manifest, version=manifest.version + 1, sstables=()))
    with pytest.raises(CorruptTableError, match="no SSTable of generation 1"):
        fresh(path)
    shutil.rmtree(Path(path) / sstable_path(shard, manifest.sstables[0].folder))
    assert publish(store, replace(manifest, version=manifest.version + 2))
    with pytest.raises(Exception, match="not a Lance table"):
        fresh(path).to_table()


def test_an_entry_that_vanishes_is_an_error(path: str) -> None:
    shard = uuid.uuid4()
    write(path, str(shard), [1], close=False)
    tasks = pickle.loads(pickle.dumps(fresh(path).plan()))
    os.remove(Path(path) / wal_path(shard, 1))
    (task,) = [task for task in tasks if isinstance(task, LogTask)]
    with pytest.raises(CorruptFileError, match="does not exist any more"):
        list(task.batches())


def test_an_sstable_may_lack_its_sidecars(path: str) -> None:
    shard = uuid.uuid4()
    write(path, str(shard), [1], (2,))
    manifest = read_latest_manifest(open_table(path).store, shard)
    assert manifest is not None
    folder = Path(path) / sstable_path(shard, manifest.sstables[0].folder)
    expected = texts(fresh(path).to_table())
    os.remove(folder / "bloom_filter.bin")
    shutil.rmtree(folder / "_pk_index")
    assert texts(fresh(path).to_table()) == expected
    assert fresh(path).count_rows("id = 7") == 1
    (folder / "bloom_filter.bin").write_bytes(b"\0" * 31)
    with pytest.raises(CorruptFileError, match="31 bytes"):
        fresh(path).count_rows("id = 7")


def test_lookups_of_composite_keys(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    schema = pa.schema(
        [key_field("b", pa.int32(), 2), pa.field("s", pa.string()), key_field("a", pa.string(), 1)]
    )

    def rows(keys: list[tuple[str, int]], text: str) -> pa.Table:
        return pa.table(
            {"b": [b for _, b in keys], "s": [text] * len(keys), "a": [a for a, _ in keys]},
            schema=schema,
        )

    keys = [(a, b) for a in "xyz" for b in range(4)]
    dataset = lance.write_dataset(rows(keys, "base"), path)
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(str(uuid.uuid4())) as writer:
        writer.put(rows([("x", 1), ("w", 9)], "new"))
        writer.delete(rows([("y", 2)], "").select(["b", "a"]))
    own, theirs = [], pylance_snapshots(path)
    for part in theirs:
        manifest = read_latest_manifest(open_table(path).store, uuid.UUID(part.shard_id))
        assert manifest is not None
        snapshot = ShardSnapshot(part.shard_id).with_current_generation(2)
        for sstable in manifest.sstables:
            snapshot.with_sstable(sstable.generation, sstable.folder)
        own.append(snapshot)
    planner = LsmPointLookupPlanner(lance_spark.open_dataset(path), own)
    pylance = lance.LsmPointLookupPlanner(lance.dataset(path), theirs)
    for a, b in [*keys, ("w", 9), ("v", 0), ("x", 9)]:
        key = pa.array([{"a": a, "b": b}], pa.struct([("a", pa.string()), ("b", pa.int32())]))
        plan = planner.plan_lookup(key)
        table = plan.to_table()
        assert table.to_pylist() == pylance.plan_lookup(key).to_table().to_pylist()
        assert table.schema.names == plan.schema.names == ["b", "s", "a"]
        is_in_sstable = (a, b) in [("x", 1), ("w", 9), ("y", 2)]
        assert ("SSTable" in plan.explain()) == is_in_sstable
    with pytest.raises(InvalidInputError, match="struct with the fields a, b"):
        planner.plan_lookup(pa.array(["x"]))
    with pytest.raises(InvalidInputError, match="does not have the field 'b'"):
        planner.plan_lookup(pa.array([{"a": "x"}]))


def test_the_scanner_is_as_pylances(path: str) -> None:
    shard = str(uuid.uuid4())
    write(path, shard, [1, 50], (2,))
    (theirs,) = pylance_snapshots(path)
    manifest = read_latest_manifest(open_table(path).store, uuid.UUID(shard))
    assert manifest is not None
    own = ShardSnapshot(shard).with_spec_id(1).with_current_generation(2)
    own.with_sstable(1, manifest.sstables[0].folder)

    def scanners() -> list[Any]:
        return [
            lance.LsmScanner.from_snapshots(lance.dataset(path), [theirs]),
            LsmScanner.from_snapshots(lance_spark.open_dataset(path), [own]),
        ]

    changes = [
        lambda scan: scan,
        lambda scan: scan.project(["s"]),
        lambda scan: scan.project([]).with_memtable_gen(),
        lambda scan: scan.filter("s = 'base'").with_row_address(),
        lambda scan: scan.project(["v", "s"]).with_row_address().with_memtable_gen(),
        lambda scan: scan.filter("v > 100"),
    ]
    for change in changes:
        pylance, scanner = map(change, scanners())
        left, right = pylance.to_table(), scanner.to_table()
        assert left.schema.names == right.schema.names == scanner.schema.names
        assert left.schema.types == right.schema.types
        assert left.sort_by("id").to_pylist() == right.sort_by("id").to_pylist()
        assert pylance.count_rows() == scanner.count_rows() == scanner.to_batch().num_rows
    for number, offset in ((3, 0), (2, 9), (None, 4), (0, 0), (100, 100)):
        pylance, scanner = (scan.limit(number, offset) for scan in scanners())
        assert pylance.to_table().num_rows == scanner.to_table().num_rows == scanner.count_rows()
    twice = ShardSnapshot(shard).with_sstable(1, "a").with_sstable(1, "b")
    with pytest.raises(InvalidInputError, match="generation is given twice"):
        LsmScanner.from_snapshots(lance_spark.open_dataset(path), [twice])
    for name in ("../x", "wal", ""):
        with pytest.raises(InvalidInputError, match="name of a folder"):
            own.with_sstable(9, name)
    with pytest.raises(InvalidInputError, match="must be a UUID"):
        ShardSnapshot("1")
    assert texts(lance_spark.open_dataset(path).lsm_scanner().to_table()) == texts(
        fresh(path).to_table()
    )
    assert isinstance(fresh(path).plan(filter="id = 50")[-1], SsTableTask)
