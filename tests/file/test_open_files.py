from __future__ import annotations

import pickle

from lance_spark.file.open_files import FilesOfTable, OpenFiles


class File:
    """Stands in for a reader of a data file."""

    def __init__(self) -> None:
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
