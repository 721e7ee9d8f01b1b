"""Minimum, maximum and count from indexes are right or unknown, and known where possible."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from lance.fragment import DataFile

import lance_spark
from lance_spark.dataset.dataset import Dataset
from lance_spark.file.reader import FileReader
from lance_spark.indexes import cache as index_cache
from lance_spark.indexes.aggregates import min_max_from_metadata, value_count
from tests.interop.test_overlays import commit, overlay

ROWS = 20_000
FILE_ROWS = 9_000
#: Columns with an index, of every type, with and without nulls and NaN.
COLUMNS = [
    "id", "u8", "u64", "d", "dec", "dec40", "ts", "zoned", "ns", "t", "s", "ls", "b", "fsb", "ok",
    "f", "f32", "nan", "onlynan", "sparse", "null", "st.a", "flat", "shuffled",
]  # fmt: skip


def table(ids: np.ndarray) -> pa.Table:
    numbers = pa.array(ids)
    f = ids + 0.5
    f32 = (ids - 0.25).astype(np.float32)
    f32[ids % 7 == 0] = math.nan
    nan = np.where(ids == 12_345, -math.nan, ids / 4)
    days = pa.array(ids % 9_000, pa.int32()).cast(pa.date32())
    return pa.table(
        {
            "id": numbers,
            "u8": pa.array(ids % 200, pa.uint8()),
            "u64": pa.array(ids.astype(np.uint64) + np.uint64(2**63)),
            "d": days,
            "dec": numbers.cast(pa.decimal128(22, 2)),
            "dec40": numbers.cast(pa.decimal128(22, 2)).cast(pa.decimal256(40, 2)),
            "ts": pa.array(ids * 1_000_003, pa.timestamp("us")),
            "zoned": pa.array(ids * 1_000_003, pa.timestamp("us", "Europe/Berlin")),
            "ns": pa.array(ids, pa.timestamp("ns")),
            "t": pa.array(ids % 80_000, pa.int32()).cast(pa.time32("s")),
            "s": pa.array([f"\u00e9{i:05}" * 60 if i % 3 else f"{i:05}" for i in ids.tolist()]),
            "ls": pa.array([f"{i}" for i in ids.tolist()], pa.large_string()),
            "b": pa.array([b"\xff" * (i % 3) + b"%05d" % i for i in ids.tolist()]),
            "fsb": pa.array([i.tobytes() for i in ids], pa.binary(8)),
            "ok": pa.array(ids >= 5_000, mask=ids % 2 == 0),
            "f": f,
            "f32": pa.array(f32, mask=ids % 3 == 0),
            "nan": nan,
            "onlynan": pa.array(np.full(len(ids), math.nan), mask=ids % 2 == 0),
            "sparse": pa.array(ids, pa.int32(), mask=ids % 5 != 3),
            "null": pa.nulls(len(ids), pa.int64()),
            "st": pa.StructArray.from_arrays(
                [pa.array(ids, mask=ids % 2 == 0), pa.array(ids)], ["a", "b"], mask=pa.array(ids % 3 == 0)
            ),
            "flat": np.full(len(ids), 7),
            "shuffled": np.random.default_rng(3).permutation(ids),
        }
    )  # fmt: skip


def write(path: Path, index_type: str | None, columns: list[str] = COLUMNS) -> lance.LanceDataset:
    dataset = lance.write_dataset(table(np.arange(ROWS)), str(path), max_rows_per_file=FILE_ROWS)
    if index_type:
        for name in columns:
            dataset.create_scalar_index(name, index_type)
    return dataset


def order(value: Any) -> tuple[bool, Any]:
    """Return a sort key for Spark's order: NaN is the greatest value."""
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value


def values_of(path: Path, column: str) -> list[Any]:
    """Return the values that pylance reads, without nulls."""
    name = column.rpartition(".")[2]
    read = lance.dataset(str(path)).scanner(columns={name: column}).to_table()[name]
    dtype = read.type
    if pa.types.is_timestamp(dtype) or pa.types.is_time(dtype):
        read = read.cast(pa.int64() if dtype.bit_width == 64 else pa.int32())
    return [value for value in read.to_pylist() if value is not None]


def plain(scalar: pa.Scalar) -> Any:
    dtype = scalar.type
    if pa.types.is_timestamp(dtype) or pa.types.is_time(dtype):
        scalar = scalar.cast(pa.int64() if dtype.bit_width == 64 else pa.int32())
    return scalar.as_py()


def opened(path: Path) -> Dataset:
    return lance_spark.open_dataset(str(path))


def aggregates_of(path: Path, column: str) -> tuple[tuple[pa.Scalar, pa.Scalar] | None, int | None]:
    dataset = opened(path)
    names = column.split(".")
    return (
        min_max_from_metadata(dataset._table, dataset.fragments, names),
        value_count(dataset._table, dataset.fragments, names),
    )


def check(path: Path, column: str) -> tuple[bool, bool]:
    """Check the known aggregates; return whether minimum and maximum, and the count, are known."""
    result, count = aggregates_of(path, column)
    values = values_of(path, column)
    if result is not None:
        top, *below = column.split(".")
        field = opened(path).schema.field(top)
        for name in below:
            field = field.type.field(name)
        assert [item.type for item in result] == [field.type] * 2
        expected = (min(values, key=order), max(values, key=order)) if values else (None, None)
        assert [order(plain(item)) for item in result] == [order(item) for item in expected]
    assert count in (None, len(values))
    return result is not None, count is not None


@pytest.fixture(scope="module", params=["ZONEMAP", "BTREE"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extremes") / request.param / "t.lance"
    write(path, request.param)
    return path


@pytest.mark.sample(5)
@pytest.mark.parametrize("column", COLUMNS)
def test_every_type(path: Path, column: str) -> None:
    assert check(path, column) == (True, True)


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["ZONEMAP", "BTREE"])
@pytest.mark.parametrize("stable", [False, True])
class TestChanges:
    """Changes after the index was built: aggregates are right, and known where possible."""

    @pytest.fixture
    def dataset(self, index_type: str, stable: bool, tmp_path: Path) -> lance.LanceDataset:
        values = table(np.arange(ROWS)).select(["id", "sparse", "nan", "s"])
        dataset = lance.write_dataset(
            values,
            str(tmp_path / "t.lance"),
            max_rows_per_file=FILE_ROWS,
            enable_stable_row_ids=stable,
        )
        for name in values.column_names:
            dataset.create_scalar_index(name, index_type)
        return dataset

    def known(self, dataset: lance.LanceDataset) -> list[tuple[bool, bool]]:
        return [check(Path(dataset.uri), name) for name in ("id", "sparse", "nan", "s")]

    def test_deletions(self, dataset: lance.LanceDataset, index_type: str) -> None:
        dataset.delete("id < 100 OR id > 19900 OR id % 10 = 4")
        zoned = index_type == "ZONEMAP"
        known = self.known(dataset)
        assert [minimum_known for minimum_known, _ in known] == [zoned] * 4
        # The number of nulls among the deleted rows is unknown.
        assert [count for _, count in known] == [zoned, False, zoned, zoned]

    def test_whole_zones_deleted(self, dataset: lance.LanceDataset, index_type: str) -> None:
        dataset.delete("id < 8500 OR id > 18000")
        assert check(Path(dataset.uri), "id") == (index_type == "ZONEMAP",) * 2

    def test_all_deleted(self, dataset: lance.LanceDataset) -> None:
        dataset.delete("id >= 0")
        assert self.known(dataset) == [(True, True)] * 4

    def test_append(self, dataset: lance.LanceDataset) -> None:
        dataset.insert(table(np.arange(50_000, 50_010)).select(["id", "sparse", "nan", "s"]))
        assert self.known(dataset) == [(False, False)] * 4
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
        assert self.known(dataset) == [(True, True)] * 4
        dataset.optimize.optimize_indices(num_indices_to_merge=5)
        assert self.known(dataset) == [(True, True)] * 4

    def test_append_of_nulls(self, dataset: lance.LanceDataset) -> None:
        dataset.insert(pa.table({"id": pa.array([-5, 77_777])}))
        known = self.known(dataset)
        assert known[0] == (False, False)
        assert known[1:] == [(True, True)] * 3

    def test_update(self, dataset: lance.LanceDataset) -> None:
        dataset.update({"id": "id - 30000", "s": "'zz'"}, where="id % 5000 = 7")
        assert self.known(dataset)[0] == (False, False)
        dataset.optimize.optimize_indices()
        self.known(dataset)

    def test_merge(self, dataset: lance.LanceDataset) -> None:
        new = pa.table({"id": np.arange(50), "sparse": pa.array(np.full(50, -9), pa.int32())})
        dataset.merge_insert("id").when_matched_update_all().execute(new)
        self.known(dataset)
        dataset.optimize.optimize_indices()
        self.known(dataset)

    @pytest.mark.parametrize("deferred", [False, True])
    def test_compaction(
        self, dataset: lance.LanceDataset, index_type: str, stable: bool, deferred: bool
    ) -> None:
        if stable and deferred:
            pytest.skip("pylance does not support it")
        dataset.delete("id < 100 OR id > 19900 OR id % 10 = 4")
        dataset.optimize.compact_files(target_rows_per_fragment=50_000, defer_index_remap=deferred)
        assert len(dataset.get_fragments()) == 1
        known = self.known(dataset)
        if index_type == "BTREE" and not deferred:
            assert known == [(True, True)] * 4
        # Merged zone maps keep bounds of deleted rows.
        dataset.optimize.optimize_indices(num_indices_to_merge=5)
        self.known(dataset)
        if not deferred:
            return
        dataset.insert(table(np.arange(300, 310)).select(["id", "sparse", "nan", "s"]))
        dataset.optimize.optimize_indices(num_indices_to_merge=5)
        self.known(dataset)


@pytest.mark.parametrize("index_type", ["ZONEMAP", "BTREE"])
def test_empty_tables(tmp_path: Path, index_type: str) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), str(path))
    dataset.create_scalar_index("id", index_type)
    assert check(path, "id") == (True, True)


def test_loose_bounds_are_corrected(tmp_path: Path) -> None:
    """Zone maps that are merged after a compaction have loose bounds."""
    path = tmp_path / "t.lance"
    write(path, "ZONEMAP", ["shuffled", "f32", "sparse"])
    for file in path.glob("_indices/*/zonemap.lance"):
        reader = LanceFileReader(str(file))
        zones = reader.read_all().to_table()
        metadata = reader.metadata().schema.metadata
        dtype = zones["min"].type
        low = pa.array([max(value - 700, 0) for value in zones["min"].to_pylist()], dtype)
        high = pa.array([value + 700 for value in zones["max"].to_pylist()], dtype)
        zones = zones.set_column(0, "min", low).set_column(1, "max", high)
        counts = pa.array([min(value, 1) for value in zones["null_count"].to_pylist()], pa.uint32())
        zones = zones.set_column(2, zones.schema.field("null_count"), counts)
        del metadata[b"null_bitmap"]
        file.unlink()
        with LanceFileWriter(str(file), zones.schema.with_metadata(metadata), version="2.0") as out:
            out.write_batch(zones)
    assert check(path, "shuffled") == (True, True)
    # Only the existence of nulls is known, not their number.
    assert check(path, "f32") == (True, False)
    assert check(path, "sparse") == (True, False)


def test_few_zones_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    ids = np.arange(ROWS)
    values = pa.table({"id": ids, "low": np.where(ids % 100 == 0, 0, ids + 1)})
    dataset = lance.write_dataset(values, str(path))
    for name in values.column_names:
        dataset.create_scalar_index(
            name, lance.indices.IndexConfig("zonemap", {"rows_per_zone": 100})
        )
    dataset.delete("id % 100 = 0")
    # All zones but the decoded zone could still have the 0.
    assert check(path, "low") == (False, True)
    with monkeypatch.context() as patch:
        patch.setattr("lance_spark.indexes.aggregates._MAX_ZONES", ROWS // 100)
        assert check(path, "low") == (True, True)
    monkeypatch.setattr("lance_spark.indexes.aggregates._MAX_ZONES", 1)
    assert check(path, "id") == (True, True)
    # Zones without a live row need no decoding.
    dataset.delete("id < 3000")
    assert check(path, "id") == (True, True)
    monkeypatch.setattr("lance_spark.indexes.aggregates._MAX_ROWS", 99)
    assert check(path, "id") == (False, True)


def test_pages_of_nulls_and_values(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    values = pa.array([None] * 37 + [math.nan, 3.5, -2.5] + [-math.nan] * 25 + [9.0] * 50)
    dataset = lance.write_dataset(
        pa.table({"x": values, "n": pa.nulls(115, pa.int16())}), str(path)
    )
    for name in ("x", "n"):
        dataset.create_scalar_index(name, lance.indices.IndexConfig("btree", {"zone_size": 20}))
        assert check(path, name) == (True, True)


@pytest.mark.parametrize("index_type", ["ZONEMAP", "BTREE"])
class TestNewValues:
    """New values of an indexed column in existing fragments."""

    @pytest.fixture
    def path(self, index_type: str, tmp_path: Path) -> Path:
        path = tmp_path / "t.lance"
        values = pa.table({"number": np.arange(200), "other": np.arange(200)})
        dataset = lance.write_dataset(values, str(path), max_rows_per_file=100)
        for name in values.column_names:
            dataset.create_scalar_index(name, index_type)
        return path

    def test_overlay(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        commit(path, 0, overlay(path, "o.lance", pa.table({"number": [77_777]}), [5]))
        assert check(path, "number") == (False, False)
        assert check(path, "other") == (True, True)

    def test_replaced_column(self, path: Path) -> None:
        dataset = lance.dataset(str(path))
        dataset.drop_columns(["other"])
        dataset.add_columns({"other": "number * 2"})
        assert check(path, "other") == (False, False)
        dataset.create_scalar_index("other", "ZONEMAP")
        assert check(path, "other") == (True, True)
        new = pa.table({"other": np.arange(5_000, 5_100)})
        with LanceFileWriter(str(path / "data" / "new.lance"), new.schema) as writer:
            writer.write_batch(new)
        number = next(f.id() for f in dataset.lance_schema.fields() if f.name() == "other")
        file = next(
            f for f in dataset.get_fragments()[0].metadata.files if list(f.fields) == [number]
        )
        replacement = DataFile(
            "new.lance", [number], [0], file.file_major_version, file.file_minor_version
        )
        group = lance.LanceOperation.DataReplacementGroup(0, replacement)
        operation = lance.LanceOperation.DataReplacement([group])
        lance.LanceDataset.commit(str(path), operation, read_version=dataset.version)
        assert check(path, "other") == (False, False)
        assert check(path, "number") == (True, True)

    def test_a_missing_index_file_is_ignored(
        self, path: Path, index_type: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for file in path.glob("_indices/*/*"):
            file.unlink()
        index_cache.CACHE.clear()
        assert check(path, "number") == (False, False)
        assert "is ignored" in caplog.text


def test_btree_and_zone_map_together(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = write(path, "BTREE", ["sparse"])
    dataset.insert(table(np.arange(50_000, 50_100)))
    assert check(path, "sparse") == (False, False)
    dataset.create_scalar_index("sparse", "ZONEMAP", name="zones")
    assert check(path, "sparse") == (True, True)
    dataset.delete("id = 50098")
    # The BTREE covers the old fragments, and the zone map the new fragment.
    assert check(path, "sparse") == (True, False)
    dataset.delete("id = 3")
    assert check(path, "sparse") == (True, False)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_changes(tmp_path: Path, seed: int) -> None:
    """Known aggregates are right after any sequence of changes."""
    randomness = np.random.default_rng(seed)
    path = tmp_path / "t.lance"
    columns = ["id", "sparse", "nan", "s"]

    def some() -> pa.Table:
        return table(randomness.integers(-5_000, 30_000, 700)).select(columns)

    dataset = lance.write_dataset(
        some(), str(path), max_rows_per_file=300, enable_stable_row_ids=bool(seed % 2)
    )
    for name in columns:
        index_type, options = [("zonemap", {"rows_per_zone": 64}), ("btree", {"zone_size": 50})][
            int(randomness.integers(2))
        ]
        dataset.create_scalar_index(name, lance.indices.IndexConfig(index_type, options))
        assert check(path, name) == (True, True)
    for _ in range(10):
        first = int(randomness.integers(-5_000, 30_000))
        match int(randomness.integers(6)):
            case 0:
                dataset.delete(f"id BETWEEN {first} AND {first + 700}")
            case 1:
                dataset.insert(some().slice(0, 30))
            case 2:
                dataset.update({"id": "id - 100"}, where=f"id BETWEEN {first} AND {first + 1000}")
            case 3:
                dataset.optimize.compact_files(
                    target_rows_per_fragment=500, defer_index_remap=not seed % 2
                )
            case 4:
                dataset.optimize.optimize_indices(num_indices_to_merge=int(randomness.integers(3)))
            case 5:
                dataset.delete(f"id % 20 = {first % 20}")
        for name in columns:
            check(path, name)


def test_files_that_an_aggregate_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index on the column, no file is read; otherwise the index is read once, and two
    zones.
    """
    path = tmp_path / "t.lance"
    write(path, None)
    opens: list[str] = []
    rows = 0
    read = FileReader.read

    def counted(self: FileReader, fields: Any, rows_: Any, *rest: Any) -> list[pa.Array]:
        nonlocal rows
        opens.append(self.source.name)
        rows += 0 if "_indices" in self.source.name else len(rows_)
        return read(self, fields, rows_, *rest)

    monkeypatch.setattr(FileReader, "read", counted)
    assert aggregates_of(path, "shuffled") == (None, None)
    lance.dataset(str(path)).create_scalar_index("shuffled", "ZONEMAP")
    assert aggregates_of(path, "id") == (None, None)
    assert (
        aggregates_of(path, "absent")
        == aggregates_of(path, "st")
        == aggregates_of(path, "st.b")
        == (None, None)
    )
    assert not opens
    assert None not in aggregates_of(path, "shuffled")
    assert sum("_indices" in name for name in opens) == 1
    assert rows <= 2 * 8192
    opens.clear()
    assert None not in aggregates_of(path, "shuffled")
    assert opened(path).to_table(["id"], filter="shuffled = 5").num_rows == 1
    assert not [name for name in opens if "_indices" in name]


@pytest.mark.sample(3)
@pytest.mark.parametrize("index_type", ["ZONEMAP", "BTREE"])
@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.3"])
def test_every_file_version(tmp_path: Path, version: str, index_type: str) -> None:
    path = tmp_path / "t.lance"
    columns = ["id", "d", "dec", "s", "f32", "sparse", "ok"]
    values = table(np.arange(-3_000, 3_000)).select(columns)
    dataset = lance.write_dataset(
        values, str(path), max_rows_per_file=2_500, data_storage_version=version
    )
    for name in columns:
        dataset.create_scalar_index(name, index_type)
    if index_type == "ZONEMAP":
        dataset.delete("id > 2990")
    for name in columns:
        assert check(path, name)[0]
