from __future__ import annotations

import pickle
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.file import open_files
from lance_spark.file.open import open_file
from lance_spark.file.open_files import FilesOfTable, OpenFiles, WholeFiles
from lance_spark.file.reader import FileReader
from lance_spark.storage import local
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange


class File:
    """Stands in for a reader of a data file."""

    def __init__(self, source: LocalSource | None = None) -> None:
        self.source = source
        self.closed = self.forgotten = 0

    def close(self) -> None:
        self.closed += 1

    def forget_pages(self) -> None:
        self.forgotten += 1


def test_a_file_is_taken_out_once() -> None:
    files, file = OpenFiles(), File()
    assert files.take_out("a") is None
    files.give_back("a", file)  # type: ignore[arg-type]
    assert file.forgotten == 1
    assert files.take_out("b") is None
    assert files.take_out("a") is file
    assert files.take_out("a") is None
    assert not file.closed


def test_a_second_reader_of_one_file_is_closed() -> None:
    files, first, second = OpenFiles(), File(), File()
    files.give_back("a", first)  # type: ignore[arg-type]
    files.give_back("a", second)  # type: ignore[arg-type]
    assert (first.closed, second.closed) == (0, 1)
    assert files.take_out("a") is first


def test_the_least_recently_used_files_are_closed() -> None:
    files, opened = OpenFiles(2), [File() for _ in range(3)]
    for number, file in enumerate(opened[:2]):
        files.give_back(str(number), file)  # type: ignore[arg-type]
    result = files.take_out("0")
    assert result is opened[0]
    files.give_back("0", result)
    files.give_back("2", opened[2])  # type: ignore[arg-type]
    assert [file.closed for file in opened] == [0, 1, 0]


def test_files_are_not_pickled() -> None:
    files = OpenFiles(7)
    files.give_back("a", File())  # type: ignore[arg-type]
    copy = pickle.loads(pickle.dumps(files))
    assert copy.take_out("a") is None


def test_tables_share_a_cache() -> None:
    shared, file = OpenFiles(), File()
    first, second = FilesOfTable(shared, "first"), FilesOfTable(shared, "second")
    first.give_back("a", file)  # type: ignore[arg-type]
    assert second.take_out("a") is None
    assert FilesOfTable(shared, "first").take_out("a") is file
    assert first.take_out("a") is None


def test_whole_files_stay_mapped_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 20
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(size))
    monkeypatch.setattr(open_files, "_MAPPED_BYTES", 2 * size)
    monkeypatch.setattr(local, "_RESIDENT_BYTES", size // 2)
    shared, files = OpenFiles(), {name: File(LocalSource(str(tmp_path / name))) for name in "ab"}
    whole = WholeFiles(shared)
    sources = {name: file.source for name, file in files.items()}
    assert whole.keeps_whole
    assert not shared.keeps_whole
    for name, file in files.items():
        whole.give_back(name, file)  # type: ignore[arg-type]
    for name in "ab":
        taken = whole.take_out(name)
        assert taken is files[name]
        for _ in range(2):
            sources[name].read([ByteRange(0, size // 2), ByteRange(size // 2, size // 2)])
        whole.give_back(name, taken)
    # The pages of the file that was read first are released.
    assert [sources[name].resident_bytes for name in "ab"] == [0, size]
    sources["a"].most_resident_bytes = size // 2
    sources["a"].read([ByteRange(0, size // 2)])
    sources["a"].read([ByteRange(0, 8)])
    assert sources["a"].resident_bytes == 8
    for file in files.values():
        file.source.close()


def test_threads_share_the_map_of_a_file(tmp_path: Path) -> None:
    # Long enough that the pages are not in the bytes that are read with the footer.
    numbers = pa.array(np.random.default_rng(0).integers(0, 1 << 60, 50_000))
    dataset = lance.write_dataset(pa.table({"a": numbers, "b": numbers}), tmp_path / "t")
    (path,) = (tmp_path / "t" / "data").iterdir()
    files, first = OpenFiles(), open_file(LocalSource(str(path)), [0, 1])
    assert isinstance(first, FileReader)
    files.give_back("a", first)
    assert files.take_out("a") is first
    second = files.take_out("a")
    assert isinstance(second, FileReader)
    assert second.source is not first.source
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert sum(line.endswith(str(path)) for line in maps) == 1
    for reader in (first, second):
        for number, name in enumerate("ab"):
            field = reader.schema.fields[number]
            assert reader.read([field], range(20, 30)) == [dataset.to_table()[name][20:30].chunk(0)]
        files.give_back("a", reader)
    # The second is closed, as the cache has the first.
    assert second.shared() is None
    assert files.take_out("a") is first
    first.close()
    assert files.take_out("a") is None
