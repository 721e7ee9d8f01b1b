"""Bloom filters that this package writes are those of pylance, and searches find all rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from lance.indices import IndexConfig

import lance_spark
from lance_spark.errors import InvalidOptionError
from lance_spark.indexes.bloom_filter import files
from lance_spark.indexes.bloom_filter.blocks import hashes
from tests.support.tables.index_contents import IndexContent, column_names, typed_rows

ROWS = 6_000
COLUMNS = [
    name for name in column_names(typed_rows(2)) if name not in ("f16", "flag", "span", "d", "d256")
]
_WORD = (1 << 64) - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _WORD


def hash_of(data: bytes) -> int:
    """The hash of one value, by the text of its specification."""
    p1, p2, p3, p4, p5 = _PRIMES

    def word(size: int) -> int:
        nonlocal data
        part, data = data[:size], data[size:]
        return int.from_bytes(part, "little")

    def of_round(state: int, part: int) -> int:
        return rotated((state + part * p2) & _WORD, 31) * p1 & _WORD

    size, state = len(data), p5
    if size >= 32:
        lanes = [(p1 + p2) & _WORD, p2, 0, -p1 & _WORD]
        while len(data) >= 32:
            lanes = [of_round(lane, word(8)) for lane in lanes]
        state = sum(map(rotated, lanes, (1, 7, 12, 18))) & _WORD
        for lane in lanes:
            state = ((state ^ of_round(0, lane)) * p1 + p4) & _WORD
    state = (state + size) & _WORD
    while len(data) >= 8:
        state = (rotated(state ^ of_round(0, word(8)), 27) * p1 + p4) & _WORD
    if len(data) >= 4:
        state = (rotated(state ^ (word(4) * p1 & _WORD), 23) * p2 + p3) & _WORD
    while data:
        state = rotated(state ^ (word(1) * p5 & _WORD), 11) * p1 & _WORD
    state = (state ^ (state >> 33)) * p2 & _WORD
    state = (state ^ (state >> 29)) * p3 & _WORD
    return state ^ (state >> 32)


def test_hashes() -> None:
    assert (hash_of(b""), hash_of(b"a")) == (0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B)
    rng = np.random.default_rng(5)
    values = [rng.bytes(size) for size in [*range(150), 1000, 3, 0, *range(99, 0, -1)]]
    expected = [hash_of(value) for value in values]
    for dtype in (pa.binary(), pa.large_binary()):
        assert hashes(pa.array(values, dtype)).tolist() == expected
        assert hashes(pa.array(values, dtype).slice(7, 100)).tolist() == expected[7:107]
    assert hashes(pa.array(["", ""])).tolist() == [hash_of(b"")] * 2
    assert hashes(pa.array([], pa.string())).tolist() == []
    for width in (np.uint8, np.int16, np.float32, np.int64):
        numbers = rng.integers(0, 100, 40).astype(width)
        expected = [hash_of(number.tobytes()) for number in numbers]
        assert hashes(pa.array(numbers)).tolist() == expected
        assert hashes(pa.array(numbers).slice(11)).tolist() == expected[11:]


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2", "stable"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with deleted rows: in the middle of a fragment, at both ends, and a whole fragment."""
    path = tmp_path_factory.mktemp("filters") / "t.lance"
    is_stable = request.param == "stable"
    lance.write_dataset(
        typed_rows(ROWS).drop(["st"] if request.param == "2.0" else []),
        str(path),
        max_rows_per_file=1_600,
        enable_stable_row_ids=is_stable,
        data_storage_version="2.2" if is_stable else request.param,
    )
    dataset = lance.dataset(str(path))
    dataset.delete("id < 3 OR (id >= 500 AND id < 900) OR (id >= 1600 AND id < 3200) OR id > 5990")
    return path


def without_value_type(content: IndexContent, dtype: pa.DataType | None) -> IndexContent:
    """Return the content of a file without the type of its values, which pylance does not record."""
    metadata = dict(content.metadata)
    text = metadata.pop(files.VALUE_TYPE)
    assert dtype is None or text == str(dtype).encode()
    return replace(content, metadata=metadata)


@pytest.mark.sample(8)
@pytest.mark.parametrize("column", COLUMNS)
def test_files_are_those_of_pylance(path: Path, column: str) -> None:
    if column not in column_names(lance.dataset(str(path)).schema.empty_table()):
        column = "id"
    options = {"number_of_items": 300, "probability": 0.01} if column != "id" else {}
    config = IndexConfig("bloomfilter", options)
    lance.dataset(str(path)).create_scalar_index(column, config, f"{column}_theirs")
    dataset = lance_spark.open_dataset(str(path))
    dataset.create_scalar_index(column, "bloomfilter", f"{column}_own", **options)
    own, theirs = (IndexContent.read(path, f"{column}_{who}") for who in ("own", "theirs"))
    dtype = dataset.schema.field(column).type if "." not in column else None
    assert without_value_type(own, dtype) == theirs


@pytest.mark.parametrize("number_of_items", [1, 7, 1000, 20_000])
@pytest.mark.parametrize("probability", [0.5, 0.01, 1e-7])
def test_sizes_are_those_of_pylance(
    tmp_path: Path, number_of_items: int, probability: float
) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": np.arange(30)}), str(path))
    options = {"number_of_items": number_of_items, "probability": probability}
    lance.dataset(str(path)).create_scalar_index(
        "id", IndexConfig("bloomfilter", options), "theirs"
    )
    lance_spark.open_dataset(str(path)).create_scalar_index("id", "BLOOMFILTER", "own", **options)
    own, theirs = (IndexContent.read(path, who) for who in ("own", "theirs"))
    assert without_value_type(own, pa.int64()) == theirs


@pytest.mark.parametrize(
    "options", [{"probability": 1.0}, {"probability": 0}, {"number_of_items": 0.5}]
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1]}), str(path))
    with pytest.raises(InvalidOptionError, match=r"must be (a number between|an integer from 1)"):
        lance_spark.open_dataset(str(path)).create_scalar_index("id", "BLOOMFILTER", **options)


def write(path: Path, **columns: Any) -> lance_spark.Dataset:
    """Write two fragments of 500 rows, with filters of 100 rows of `x` by default."""
    rows = pa.table({"id": np.arange(1000), **columns})
    lance.write_dataset(rows, str(path), max_rows_per_file=500)
    dataset = lance_spark.open_dataset(str(path))
    return dataset.create_scalar_index("x", "BLOOMFILTER", number_of_items=100, probability=1e-4)


def kept(dataset: lance_spark.Dataset, text: str) -> list[range]:
    """Return the rows that a scan reads, counted from the first row of the table."""
    slices = [part for task in dataset.plan(filter=text) for part in task.slices]
    return [
        range(500 * part.fragment.id + rows.start, 500 * part.fragment.id + rows.stop)
        for part in slices
        for rows in (part.rows or [range(part.start, part.stop)])
    ]


def test_zones_that_may_have_a_value(tmp_path: Path) -> None:
    text = [f"word{number}" * (number % 30) for number in range(1000)]
    text[430] = None
    dataset = write(tmp_path / "t.lance", x=pa.array(text))
    assert kept(dataset, f"x = '{text[257]}'") == [range(200, 300)]
    assert kept(dataset, f"x IN ('{text[31]}', 'nowhere', '{text[999]}')") == [
        range(100),
        range(900, 1000),
    ]
    assert kept(dataset, "x IS NULL") == [range(400, 500)]
    assert kept(dataset, f"x > '{text[257]}'") == [range(500), range(500, 1000)]
    dataset = dataset.create_scalar_index("id", "BLOOMFILTER", number_of_items=100)
    assert kept(dataset, f"x = '{text[257]}' AND id = 700") == []
    many = ", ".join(map(str, range(2000, 3001)))
    assert kept(dataset, f"id IN ({many})") == [range(500), range(500, 1000)]
    assert kept(dataset, "id IN (2000, 3000, 4000)") == []
    # A zone map and a filter of one column are used together.
    dataset = dataset.create_scalar_index("id", "ZONEMAP", "zones", rows_per_zone=50)
    assert kept(dataset, "id = 257") == [range(250, 300)]
    shown = dataset.explain(filter="id = 257")
    assert "index: zones (ZONEMAP): 50 rows" in shown
    assert "index: id_idx (BLOOMFILTER): 100 rows" in shown


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()])
def test_zeros_are_equal_and_nan_is_found(tmp_path: Path, dtype: pa.DataType) -> None:
    numbers = np.arange(1000) + 1.0
    numbers[150], numbers[250], numbers[350] = 0.0, -0.0, math.nan
    numbers[450] = np.copysign(math.nan, -1)
    dataset = write(tmp_path / "t.lance", x=pa.array(numbers).cast(dtype))
    for text in ("x = 0.0", "x = -0.0", "x IN (0, 5000)"):
        assert kept(dataset, text) == [range(100, 300)]
        assert dataset.to_table(["id"], filter=text)["id"].to_pylist() == [150, 250]
    assert dataset.to_table(["id"], filter="isnan(x)")["id"].to_pylist() == [350, 450]
    assert len(dataset.to_table(filter="x = double('NaN')")) == 2
    assert len(dataset.to_table(filter="x IN (double('NaN'), 7)")) == 3


def test_filters_that_are_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_KEPT_BYTES", 0)
    monkeypatch.setattr(files, "_WINDOW_BYTES", 600)
    monkeypatch.setattr(files, "_COMPARED_BLOCKS", 3)
    dataset = write(tmp_path / "t.lance", x=np.arange(1000) * 3)
    assert kept(dataset, "x = 771") == [range(200, 300)]
    assert kept(dataset, "x IN (3, 771, 5000, 6000, 2997)") == [
        range(100),
        range(200, 300),
        range(900, 1000),
    ]


def test_values_are_added_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(typed_rows(1000), str(path))
    dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.create_scalar_index("s", "BLOOMFILTER", "whole", number_of_items=400)
    monkeypatch.setattr(files, "_HASHED_VALUES", 70)
    dataset.create_scalar_index("s", "BLOOMFILTER", "parts", number_of_items=400)
    assert IndexContent.read(path, "parts") == IndexContent.read(path, "whole")


def test_filters_of_several_sizes(tmp_path: Path) -> None:
    """As other clients may merge them."""
    path = tmp_path / "t.lance"
    dataset = write(path, x=np.arange(1000))
    other = dataset.create_scalar_index(
        "x", "BLOOMFILTER", "other", number_of_items=100, probability=0.01
    )
    own, others = (
        IndexContent.read(path, name).rows["bloom_filter_data"].to_pylist()
        for name in ("x_idx", "other")
    )
    mixed = [pair[number % 2] for number, pair in enumerate(zip(own, others, strict=True))]
    assert len(set(map(len, mixed))) == 2
    other.drop_index("other")
    rewrite(path, bloom_filter_data=pa.array(mixed, pa.binary()))
    dataset = lance_spark.open_dataset(str(path))
    for value in (5, 150, 250, 999):
        first = value // 100 * 100
        assert range(first, first + 100) in kept(dataset, f"x = {value}")
    assert kept(dataset, "x = 250") == [range(200, 300)]


def rewrite(path: Path, **columns: pa.Array | None) -> None:
    """Write the file of the index `x_idx` again, with other columns; None for no column."""
    (uuid,) = (
        index["uuid"]
        for index in lance_spark.open_dataset(str(path)).list_indices()
        if index["name"] == "x_idx"
    )
    file = path / "_indices" / uuid / "bloomfilter.lance"
    reader = LanceFileReader(str(file))
    rows, metadata = reader.read_all().to_table(), reader.metadata().schema.metadata
    for name, column in columns.items():
        index = rows.column_names.index(name)
        rows = rows.remove_column(index)
        if column is not None:
            rows = rows.add_column(index, pa.field(name, column.type), column)
    metadata.pop(b"null_bitmap", None)
    file.unlink()
    with LanceFileWriter(str(file), rows.schema.with_metadata(metadata)) as out:
        out.write_batch(rows)


def worse_filters() -> Iterator[pa.Array | None]:
    good = b"\xff" * 512
    for bad in (b"", bytes(16), bytes(48), bytes(3000), None):
        yield pa.array([good] * 9 + [bad], pa.binary())
    yield pa.array(["text"] * 10)
    yield None


@pytest.mark.parametrize("number", range(len(list(worse_filters()))))
@pytest.mark.parametrize("is_kept", [True, False])
def test_damaged_filters_are_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    is_kept: bool,
) -> None:
    if not is_kept:
        monkeypatch.setattr(files, "_KEPT_BYTES", 0)
    path = tmp_path / "t.lance"
    dataset = write(path, x=np.arange(1000))
    rewrite(path, bloom_filter_data=list(worse_filters())[number])
    assert dataset.to_table(["id"], filter="x = 950")["id"].to_pylist() == [950]
    assert "index 'x_idx' is ignored: " in caplog.text
    assert "rebuild the index" in caplog.text
