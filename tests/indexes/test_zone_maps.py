"""Zone maps exclude rows, but never a row that matches by Spark's rules."""

from __future__ import annotations

import math
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.file.reader import FileReader
from tests.interop.test_overlays import commit, overlay

ROWS = 60_000
TEXTS = [
    *("id = 31000", "id BETWEEN 100 AND 200 OR id > 59990", "id IN (5, 25000, 70000)", "id <> 5"),
    *("f > 50000", "f >= 59999", "f < 3", "f = 8192.5", "NOT (f <= 100000)", "isnan(f)"),
    *("f > 100000", "f IS NULL", "f IS NOT NULL AND id < 9000", "n = 3", "n <> 3"),
    *("n IS NULL AND id < 30000", "n IS NOT NULL", "s = 'k40000'", "s LIKE 'k59%'", "s < 'k1'"),
    "s LIKE 'k59999%' OR s LIKE 'l%'",
    *("s LIKE 'k\U0010ffff%' OR s LIKE '\ud7ff%' OR s LIKE '\U0010ffff%'", "st.a > 59990"),
    *("st.a IS NULL AND id < 50", "t >= TIMESTAMP_NTZ'1970-01-01 16:00:00'", "b", "NOT b"),
    *("d > 599.5", "x < 10 AND id > 59000", "flat = 7 OR id = 3", "flat <> 7"),
]


def table(ids: np.ndarray) -> pa.Table:
    f = ids + 0.5
    f[(ids >= 8192) & (ids < 24576)] = math.nan
    f[ids == 40000] = math.nan
    return pa.table(
        {
            "id": ids,
            "f": pa.array(f, mask=ids % 3 == 0),
            "n": pa.array(ids // 10_000, pa.int32(), mask=(ids < 20_000) | (ids % 2 == 0)),
            "s": pa.array([f"k{i:05}" for i in ids.tolist()]),
            "st": pa.StructArray.from_arrays([pa.array(ids)], ["a"], mask=pa.array(ids % 5 == 0)),
            "t": pa.array(ids, pa.timestamp("s")),
            "b": pa.array(ids >= 50_000),
            "d": pa.array(ids).cast(pa.decimal128(22, 2)),
            "x": np.random.default_rng(1).permutation(ids),
            "flat": np.full(len(ids), 7),
        }
    )


INDEXED = ["id", "f", "n", "s", "st.a", "t", "b", "d", "flat"]


@pytest.fixture(scope="module", params=["plain", "stable", "deleted", "mixed"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with zone maps: with deletions before and after; appended to, updated and
    compacted afterwards.
    """
    path = tmp_path_factory.mktemp("zones") / "t.lance"
    table_kind = request.param
    ids = np.arange(ROWS)
    dataset = lance.write_dataset(
        table(ids), str(path), max_rows_per_file=25_000, enable_stable_row_ids=table_kind != "plain"
    )
    if table_kind in ("deleted", "mixed"):
        dataset.delete("id < 10 OR id % 4 = 1 OR (id > 24000 AND id < 26000)")
    for name in INDEXED:
        dataset.create_scalar_index(name, "ZONEMAP")
    if table_kind in ("deleted", "mixed"):
        dataset.delete("id % 11 = 7")
    if table_kind == "mixed":
        dataset.insert(table(np.arange(100, 9000)))
        dataset.update({"id": "id + 50000", "s": "'k99999'"}, where="id % 1000 = 0")
        dataset.merge_insert("x").when_matched_update_all().execute(table(ids[:50]).slice(0, 50))
        dataset.optimize.compact_files(target_rows_per_fragment=12_000)
        dataset.optimize.optimize_indices(index_names=["s_idx"])
    return path


@pytest.mark.sample(9)
@pytest.mark.parametrize("text", TEXTS)
def test_same_rows_as_without_zone_maps(path: Path, text: str) -> None:
    dataset = lance_spark.open_dataset(str(path))
    # NaN is not equal to itself.
    columns = [name for name in dataset.schema.names if name != "f"]
    result = dataset.to_table(columns, filter=text)
    assert result.equals(dataset.to_table(columns, filter=text, use_scalar_index=False))


def rows_read(monkeypatch: pytest.MonkeyPatch, path: Path, **filters: object) -> tuple[int, int]:
    """Return how many rows of the filter's columns were read, and how many rows matched."""
    dataset = lance_spark.open_dataset(str(path))
    tasks = dataset.plan([], rows_per_task=ROWS, **filters)  # type: ignore[arg-type]
    rows = 0
    read = FileReader.read

    def counted(self: FileReader, fields: object, rows_: range, *rest: object) -> list[pa.Array]:
        nonlocal rows
        rows += len(rows_)
        return read(self, fields, rows_, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(FileReader, "read", counted)
        result = sum(batch.num_rows for task in tasks for batch in task.batches())
    return rows, result


def test_pruned_rows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(table(np.arange(ROWS)), str(path), max_rows_per_file=25_000)
    assert rows_read(monkeypatch, path, filter="id = 31000") == (ROWS, 1)
    for name in INDEXED:
        dataset.create_scalar_index(name, "ZONEMAP")
    assert rows_read(monkeypatch, path, filter="id = 31000") == (8192, 1)
    assert rows_read(monkeypatch, path, filters=[("id", "==", 31000)]) == (8192, 1)
    assert rows_read(monkeypatch, path, filter="s LIKE 'k31000%'") == (8192, 1)
    assert rows_read(monkeypatch, path, filter="s LIKE 'k%1'")[0] == ROWS
    assert rows_read(monkeypatch, path, filter="id = 31000 AND s = 'k00001'") == (0, 0)
    assert rows_read(monkeypatch, path, filter="id > 70000") == (0, 0)
    assert lance_spark.open_dataset(str(path)).plan(filter="flat <> 7") == []
    # One zone of the middle fragment, and one of the last.
    rows, result = rows_read(monkeypatch, path, filter="id = 31000 OR id = 55000")
    assert (rows, result) == (16_384, 2)
    (task,) = lance_spark.open_dataset(str(path)).plan(
        filter="id = 31000 OR id = 55000", rows_per_task=ROWS
    )
    assert [item.fragment.id for item in task.slices] == [1, 2]
    # Both zones of NaN are greater than all.
    assert rows_read(monkeypatch, path, filter="f > 100000")[0] < 40_000


def test_overlaid_zones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t.lance"
    values = pa.table({"number": pa.array(range(20_000)), "word": ["w"] * 20_000})
    dataset = lance.write_dataset(values, str(path), max_rows_per_file=10_000)
    dataset.create_scalar_index("number", "ZONEMAP")
    dataset.create_scalar_index("word", "ZONEMAP")
    commit(path, 0, overlay(path, "o.lance", pa.table({"number": [77_777]}), [5]))
    ours = lance_spark.open_dataset(str(path))
    assert ours.to_table(["_rowaddr"], filter="number = 77777").to_pydict() == {"_rowaddr": [5]}
    assert ours.to_table(filter="number = 5").num_rows == 0
    # The first zone and the value of the overlay are read.
    assert rows_read(monkeypatch, path, filter="number > 50000") == (8192 + 1, 1)
    assert rows_read(monkeypatch, path, filter="word > 'x'") == (0, 0)


def test_a_missing_index_file_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(table(np.arange(20_000)), str(path))
    dataset.create_scalar_index("id", "ZONEMAP")
    (file,) = path.glob("_indices/*/zonemap.lance")
    file.unlink()
    assert len(lance_spark.open_dataset(str(path)).to_table(filter="id = 3")) == 1
    assert "is ignored" in caplog.text
