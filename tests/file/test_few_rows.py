"""Few rows of several files are read by one loop over their pages, as pylance reads them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError
from lance_spark.file import few_rows, reader

ROWS = 24_000


def table() -> pa.Table:
    rng = np.random.default_rng(7)
    ids = np.arange(ROWS)
    mask = rng.random(ROWS) < 0.2
    names = [f"name {number}" for number in ids.tolist()]
    vectors = pa.array(rng.standard_normal(ROWS * 48, dtype=np.float32))
    return pa.table(
        {
            "id": ids,
            "number": pa.array(rng.integers(0, 1 << 40, ROWS), mask=mask),
            "flag": pa.array(rng.random(ROWS) < 0.5, mask=mask),
            "float": rng.random(ROWS),
            "decimal": pa.array([Decimal(n) for n in ids.tolist()], pa.decimal128(20, 2)),
            "name": pa.array(names, mask=mask),
            "few": pa.array([("red", "blue", None)[n % 3] for n in ids.tolist()]),
            "wide": pa.array([f"{n:05d}" * (60 + n % 5) for n in ids.tolist()], mask=mask),
            "same": pa.array(np.full(ROWS, 7)),
            "null": pa.nulls(ROWS, pa.int32()),
            "runs": pa.array(ids // 900),
            "time": pa.array(ids * 1_000_000, pa.timestamp("us", "UTC")),
            "words": pa.array(names).dictionary_encode(),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 48),
            "list": pa.array([[n, None][: n % 3] for n in ids.tolist()]),
            "inner": pa.StructArray.from_arrays([pa.array(ids), pa.array(names)], ["a", "b"]),
        }
    )


#: Columns that `few_rows` leaves to plans.
NESTED = ["list", "inner"]


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("few") / "t.lance")
    lance.write_dataset(
        table(), path, max_rows_per_file=ROWS // 3, data_storage_version=request.param
    )
    lance.dataset(path).delete("id % 10 = 3")
    lance.dataset(path).create_scalar_index("id", "BTREE")
    return path


def test_rows_are_those_of_pylance(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, dataset = lance.dataset(path), lance_spark.open_dataset(path)
    read: list[bool] = []
    original = few_rows.read_few_rows

    def spy(*arguments: Any) -> Any:
        arrays = original(*arguments)
        read.append(arrays is not None)
        return arrays

    monkeypatch.setattr(few_rows, "read_few_rows", spy)
    rng = np.random.default_rng(3)
    plain = [name for name in oracle.schema.names if name not in NESTED]
    for columns in (plain, ["vector", "id"], ["few"], [*NESTED, "id"]):
        # The second read finds what the first one has kept of the pages.
        for count in (1, 2, 17, 17, 200):
            positions = rng.integers(0, oracle.count_rows(), count).tolist()
            expected = oracle.take(positions, columns)
            assert dataset.take(positions, columns).to_pylist() == expected.to_pylist()
        ids = ", ".join(map(str, rng.integers(0, ROWS, 30)))
        text = f"id IN ({ids}) AND (number % 2 = 0 OR few = 'red')"
        found = dataset.to_table(columns, filter=text)
        assert found.to_pylist() == oracle.to_table(columns, text).to_pylist()
        version = oracle.data_storage_version
        assert not read if version == "2.0" else all(read) == (columns[0] not in NESTED)
        read.clear()


def test_pages_of_many_bytes_are_not_kept(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lance_spark.open_dataset(path)
    monkeypatch.setattr(reader, "_KEPT_BYTES", 0)
    expected = lance.dataset(path).take([5, 9_000])
    for _ in range(2):
        assert dataset.take([5, 9_000]).to_pylist() == expected.to_pylist()
        assert not any(file._readers for file in dataset._reader.open_files._files.values())


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(table().select(["id", "name"]), str(path), max_rows_per_file=ROWS // 2)
    for file in (path / "data").iterdir():
        data = bytearray(file.read_bytes())
        # The chunk tables and chunks are in front.
        data[:60_000] = b"\xff" * 60_000
        file.write_bytes(data)
    dataset = lance_spark.open_dataset(str(path))
    for positions in ([7], [7, ROWS - 5]):
        with pytest.raises(CorruptFileError, match="column 'id'"):
            dataset.take(positions)
