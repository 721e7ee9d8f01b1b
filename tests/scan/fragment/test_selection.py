"""Read plans have each selected row exactly once, and scans return the rows that pylance
returns.
"""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_spark
from lance_spark.file.reader import FileReader
from lance_spark.scan.fragment.reader import Costs, ReadRange, live_to_physical, plan_ranges
from tests.support.cells import number_of

NUMBERS = Costs.of([(pa.int64(), 8.0)])
STRINGS = Costs.of([(pa.string(), 20.0)])
VECTORS = Costs.of([(pa.list_(pa.float32(), 768), 3072.0)])
ROWS = 60_000


def physical(reading: ReadRange) -> list[int]:
    rows = np.array(reading.rows)
    return (rows if reading.indices is None else rows[reading.indices]).tolist()


@settings(max_examples=number_of(80, 200), deadline=None)
@given(
    start=st.integers(0, 5000),
    length=st.integers(1, 40_000),
    runs=st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 6000), st.floats(0, 1))),
    most=st.integers(1, 50_000),
    costs=st.sampled_from([NUMBERS, STRINGS, VECTORS, Costs.of([])]),
)
def test_each_selected_row_is_read_once(
    start: int, length: int, runs: list[tuple[int, int, float]], most: int, costs: Costs
) -> None:
    random = np.random.default_rng(length)
    wanted = np.zeros(length, np.bool_)
    for at, size, density in runs:
        part = wanted[at : at + size]
        part |= random.random(len(part)) < density
    most = max(most, length // 200)
    readings = list(plan_ranges(range(start, start + length), wanted, most, costs))
    result = [row for reading in readings for row in physical(reading)]
    assert result == (np.flatnonzero(wanted) + start).tolist()
    assert all(0 < len(reading.rows) <= most for reading in readings)
    assert all(len(physical(reading)) for reading in readings)


def test_all_rows_are_scanned_in_ranges() -> None:
    readings = list(plan_ranges(range(100, 20_000), None, 5000, NUMBERS))
    assert readings[0].rows == range(100, 4096)
    assert sum(len(reading.rows) for reading in readings) == 19_900


@pytest.mark.parametrize(
    ("costs", "density", "spans"),
    [
        (NUMBERS, 0.5, True),
        (NUMBERS, 0.0001, False),
        (STRINGS, 0.1, False),
        (STRINGS, 0.98, True),
        (VECTORS, 0.5, True),
        (VECTORS, 0.001, False),
    ],
)
def test_choice_between_scan_and_take(costs: Costs, density: float, spans: bool) -> None:
    wanted = np.random.default_rng(1).random(400_000) < density
    readings = list(plan_ranges(range(400_000), wanted, 1 << 20, costs))
    assert all(isinstance(reading.rows, range) == spans for reading in readings)


def test_rows_between_segments_are_not_read() -> None:
    wanted = np.zeros(500_000, np.bool_)
    wanted[10_000:60_000] = wanted[400_000:450_000] = True
    first, second = plan_ranges(range(500_000), wanted, 1 << 20, STRINGS)
    assert first == (range(10_000, 60_000), None)
    assert second == (range(400_000, 450_000), None)


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("survivors") / "t.lance"
    random = np.random.default_rng(3)
    table = pa.table(
        {
            "id": pa.array(range(ROWS)),
            "r": pa.array(random.integers(0, 10_000, ROWS), mask=random.random(ROWS) < 0.05),
            "run": np.arange(ROWS) // 700 * 2654435761 % 100,
            "s": pa.array([f"some text {i % 1000} and {i}" for i in range(ROWS)]),
            "v": pa.FixedSizeListArray.from_arrays(
                pa.array(random.random(ROWS * 96), pa.float32()), 96
            ),
            "l": pa.array([[f"{i}", None][: i % 3] for i in range(ROWS)]),
        }
    )
    lance.write_dataset(table, str(path), data_storage_version=request.param)
    return path


@pytest.mark.sample(8)
@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize(
    "text",
    ["r < 2", "r < 300", "r < 5000", "r >= 0", "run < 3", "run < 50", "id >= 20000 AND id < 40001"],
)
def test_scans_return_the_rows_of_pylance(path: Path, text: str, deleted: bool) -> None:
    theirs = lance.dataset(str(path), version=1)
    if deleted:
        theirs = lance.dataset(str(path))
        if theirs.version == 1:
            theirs.delete("id % 50 = 7 OR (id > 1000 AND id < 9000)")
    ours = lance_spark.open_dataset(str(path), version=theirs.version)
    expected = theirs.to_table(filter=text)
    assert len(expected)
    assert ours.to_table(filter=text).equals(expected)
    for columns in (["r", "v"], ["id", "r", "run"], ["l"], ["s", "_rowaddr"]):
        table = ours.to_table(columns, filter=text)
        assert table.select([name for name in columns if name != "_rowaddr"]).equals(
            expected.select([name for name in columns if name != "_rowaddr"])
        )


def test_columns_of_the_filter_are_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_names: list[str] = []
    read = FileReader.read

    def counted(self: FileReader, fields: list, *rest: object) -> list[pa.Array]:  # type: ignore[type-arg]
        read_names.extend(field.name for field in fields)
        return read(self, fields, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FileReader, "read", counted)
    dataset = lance_spark.open_dataset(str(path), version=1)
    assert len(dataset.to_table(["id", "r"], filter="r < 5000")) > 20_000
    assert read_names == ["r", "id"]


def test_batches_are_cut_to_the_byte_limit(path: Path) -> None:
    from lance_spark.scan.fragment import reader as fragment

    whole = lance_spark.open_dataset(str(path), version=1).to_table(["v", "s"])
    (piece,) = whole.combine_chunks().to_batches()
    batches = list(fragment.batches_of(piece, 1 << 20))
    assert max(batch.nbytes for batch in batches) <= fragment.BATCH_BYTES * 1.1
    assert pa.Table.from_batches(batches).equals(whole)
    first, *_ = fragment.batches_of(piece, 6250)
    assert first.num_rows == 6250


@given(st.integers(1, 200), st.data())
def test_live_rows_map_to_physical_offsets(rows: int, data: st.DataObject) -> None:
    deleted = sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=rows)))
    live = [row for row in range(rows) if row not in set(deleted)]
    offsets = live_to_physical(np.arange(len(live)), np.array(deleted, dtype=np.int64))
    assert offsets.tolist() == live
