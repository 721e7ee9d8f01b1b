"""Least and greatest values and counts out of indexes are those of the rows, or not told; they are told where they can be."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.scan.extremes import extremes, value_count
from tests.interop.test_overlays import commit, overlay

ROWS = 20_000
FILE_ROWS = 9_000
#: Without an order, or none that indexes keep.
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


def write(path: Path, kind: str | None, columns: list[str] = COLUMNS) -> lance.LanceDataset:
    dataset = lance.write_dataset(table(np.arange(ROWS)), str(path), max_rows_per_file=FILE_ROWS)
    if kind:
        for name in columns:
            dataset.create_scalar_index(name, kind)
    return dataset


def order(value: Any) -> tuple[bool, Any]:
    """Spark's order: NaN is greater than all."""
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value


def values_of(path: Path, column: str) -> list[Any]:
    """Return the values that pylance reads, without nulls."""
    name = column.rpartition(".")[2]
    read = lance.dataset(str(path)).scanner(columns={name: column}).to_table()[name]
    kind = read.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        read = read.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    return [value for value in read.to_pylist() if value is not None]


def plain(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        scalar = scalar.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    return scalar.as_py()


def opened(path: Path) -> Dataset:
    return lance_spark.open_dataset(str(path))


def asked(path: Path, column: str) -> tuple[tuple[pa.Scalar, pa.Scalar] | None, int | None]:
    dataset = opened(path)
    names = column.split(".")
    return (
        extremes(dataset._table, dataset.fragments, names),
        value_count(dataset._table, dataset.fragments, names),
    )


def check(path: Path, column: str) -> tuple[bool, bool]:
    """Return whether extremes and count are told, after they have been found right."""
    found, count = asked(path, column)
    values = values_of(path, column)
    if found is not None:
        field = opened(path).schema.field(column.split(".")[0])
        for name in column.split(".")[1:]:
            field = field.type.field(name)
        assert [one.type for one in found] == [field.type] * 2
        expected = (min(values, key=order), max(values, key=order)) if values else (None, None)
        assert [order(plain(one)) for one in found] == [order(one) for one in expected]
    assert count in (None, len(values))
    return found is not None, count is not None


@pytest.fixture(scope="module", params=["ZONEMAP", "BTREE"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extremes") / request.param / "t.lance"
    write(path, request.param)
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_every_type(path: Path, column: str) -> None:
    assert check(path, column) == (True, True)


@pytest.mark.parametrize("kind", ["ZONEMAP", "BTREE"])
@pytest.mark.parametrize("stable", [False, True])
class TestChanges:
    """After the index was built; what is told is right, and it is told where it can be."""

    @pytest.fixture
    def dataset(self, kind: str, stable: bool, tmp_path: Path) -> lance.LanceDataset:
        values = table(np.arange(ROWS)).select(["id", "sparse", "nan", "s"])
        dataset = lance.write_dataset(
            values,
            str(tmp_path / "t.lance"),
            max_rows_per_file=FILE_ROWS,
            enable_stable_row_ids=stable,
        )
        for name in values.column_names:
            dataset.create_scalar_index(name, kind)
        return dataset

    def told(self, dataset: lance.LanceDataset) -> list[tuple[bool, bool]]:
        return [check(Path(dataset.uri), name) for name in ("id", "sparse", "nan", "s")]

    def test_deletions(self, dataset: lance.LanceDataset, kind: str) -> None:
        dataset.delete("id < 100 OR id > 19900 OR id % 10 = 4")
        zoned = kind == "ZONEMAP"
        told = self.told(dataset)
        assert [one for one, _ in told] == [zoned] * 4
        # How many of the deleted rows were null is not known.
        assert [count for _, count in told] == [zoned, False, zoned, zoned]

    def test_whole_zones_deleted(self, dataset: lance.LanceDataset, kind: str) -> None:
        dataset.delete("id < 8500 OR id > 18000")
        assert check(Path(dataset.uri), "id") == (kind == "ZONEMAP",) * 2

    def test_all_deleted(self, dataset: lance.LanceDataset) -> None:
        dataset.delete("id >= 0")
        assert self.told(dataset) == [(True, True)] * 4

    def test_append(self, dataset: lance.LanceDataset) -> None:
        dataset.insert(table(np.arange(50_000, 50_010)).select(["id", "sparse", "nan", "s"]))
        assert self.told(dataset) == [(False, False)] * 4
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
        assert self.told(dataset) == [(True, True)] * 4
        dataset.optimize.optimize_indices(num_indices_to_merge=5)
        assert self.told(dataset) == [(True, True)] * 4

    def test_append_of_nulls(self, dataset: lance.LanceDataset) -> None:
        dataset.insert(pa.table({"id": pa.array([-5, 77_777])}))
        told = self.told(dataset)
        assert told[0] == (False, False)
        assert told[1:] == [(True, True)] * 3

    def test_update(self, dataset: lance.LanceDataset) -> None:
        dataset.update({"id": "id - 30000", "s": "'zz'"}, where="id % 5000 = 7")
        assert self.told(dataset)[0] == (False, False)
        dataset.optimize.optimize_indices()
        self.told(dataset)

    def test_merge(self, dataset: lance.LanceDataset) -> None:
        new = pa.table({"id": np.arange(50), "sparse": pa.array(np.full(50, -9), pa.int32())})
        dataset.merge_insert("id").when_matched_update_all().execute(new)
        self.told(dataset)
        dataset.optimize.optimize_indices()
        self.told(dataset)

    @pytest.mark.parametrize("deferred", [False, True])
    def test_compaction(
        self, dataset: lance.LanceDataset, kind: str, stable: bool, deferred: bool
    ) -> None:
        if stable and deferred:
            pytest.skip("pylance does not support it")
        dataset.delete("id < 100 OR id > 19900 OR id % 10 = 4")
        dataset.optimize.compact_files(target_rows_per_fragment=50_000, defer_index_remap=deferred)
        assert len(dataset.get_fragments()) == 1
        told = self.told(dataset)
        if kind == "BTREE" and not deferred:
            assert told == [(True, True)] * 4
        # Zone maps that are merged now keep bounds of rows that are gone.
        dataset.optimize.optimize_indices(num_indices_to_merge=5)
        self.told(dataset)
        if not deferred:
            return
        dataset.insert(table(np.arange(300, 310)).select(["id", "sparse", "nan", "s"]))
        dataset.optimize.optimize_indices(num_indices_to_merge=5)
        self.told(dataset)
