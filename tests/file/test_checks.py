"""Dictionaries with indices of few bits, which differ from page to page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.file import writer

VERSIONS = ["2.0", "2.1", "2.2", "2.3"]


def rows(part: int, count: int = 100, index: pa.DataType | None = None) -> pa.Table:
    """Return rows; each part has its own values."""
    words = pa.array([f"{part}-{number}" for number in range(count)])
    indices = pa.array(range(count), index or pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, words)
    return pa.table({"row": pa.array(range(part * count, (part + 1) * count)), "word": column})


def words_of(table: pa.Table) -> list[str]:
    result: list[str] = table["word"].cast(pa.string()).to_pylist()
    return result


def plain(column: pa.Array) -> pa.Array:
    return column


def in_struct(column: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([column], ["inner"])


def in_list(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(column) + 1), pa.int32()), column)


@pytest.mark.parametrize("version", VERSIONS)
def test_compaction_makes_no_file_that_nobody_can_read(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    uri = str(tmp_path / "t")
    for part in range(3):
        write_dataset(rows(part), uri, "append", data_storage_version=version)
    before = words_of(lance.dataset(uri).to_table())
    open_dataset(uri).compact_files()
    assert re.search(r"stay as they are: .*'word': .* more than 127 .*int8.*cast", caplog.text)
    assert len(list(Path(uri, "data").iterdir())) == 3
    assert words_of(lance.dataset(uri).to_table()) == before
    assert words_of(open_dataset(uri).to_table()) == before


@pytest.mark.sample(3)
@pytest.mark.parametrize("nested", [plain, in_struct, in_list])
@pytest.mark.parametrize(
    ("index", "room"), [(pa.int8(), 127), (pa.uint8(), 255), (pa.int16(), 32767)]
)
def test_values_beyond_the_indices_of_a_dictionary_are_refused(
    tmp_path: Path, index: pa.DataType, room: int, nested: Callable[[pa.Array], pa.Array]
) -> None:
    uri = str(tmp_path / "t")
    half = room // 2
    first, second, third = (nested(rows(part, half, index)["word"].chunk(0)) for part in range(3))
    batches = [pa.RecordBatch.from_arrays([part], ["c"]) for part in (first, second, third)]
    fitting = [*batches[:2], batches[0], batches[1].slice(3)]
    write_dataset(fitting, uri)
    expected = pa.Table.from_batches(fitting)["c"].to_pylist()
    assert lance.dataset(uri).to_table()["c"].to_pylist() == expected
    assert open_dataset(uri).to_table()["c"].to_pylist() == expected
    with pytest.raises(InvalidInputError, match=f"more than {room} .*too many"):
        write_dataset(batches, str(tmp_path / "more"))
    assert not list(Path(tmp_path / "more").rglob("*.lance"))


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8()])
def test_one_dictionary_may_be_full(tmp_path: Path, index: pa.DataType) -> None:
    full = rows(0, 1 << (7 if index == pa.int8() else 8), index)
    uri = str(tmp_path / "t")
    for _ in range(2):
        write_dataset([*full.to_batches(), *full.to_batches()], uri, "append")
    open_dataset(uri).compact_files()
    assert words_of(lance.dataset(uri).to_table()) == 4 * words_of(full)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_somebody_else_is_read_in_parts(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "t")
    monkeypatch.setattr(writer.DictionaryCapacity, "add", lambda *_: None)
    parts = [rows(part) for part in range(3)]
    write_dataset(
        [batch for part in parts for batch in part.to_batches()], uri, data_storage_version=version
    )
    monkeypatch.undo()
    dataset = open_dataset(uri)
    expected = [f"{part}-{number}" for part in range(3) for number in range(100)]
    assert words_of(lance.dataset(uri).to_table(batch_size=10)) == expected
    assert words_of(dataset.to_table()) == expected
    assert sum(len(batch) for batch in dataset.to_batches(batch_size=10)) == 300
    (result,) = dataset.to_table(filters=[("word", "==", "2-7")]).to_pylist()
    assert result == {"row": 207, "word": "2-7"}
    assert dataset.delete([("word", "==", "2-7")]).count_rows() == 299
