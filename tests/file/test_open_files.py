from __future__ import annotations

import pickle
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from lance_spark.file.open import open_file
from lance_spark.file.open_files import FilesOfTable, OpenFiles
from lance_spark.file.reader import FileReader
from lance_spark.storage.local import LocalSource


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


def test_threads_share_an_open_file(tmp_path: Path) -> None:
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
    if sys.platform == "linux":
        opened = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
        assert sum(link.readlink() == path for link in opened) == 1
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
