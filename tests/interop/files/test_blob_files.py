"""Blobs as files: `take_blobs` of both clients, read by the same random calls, and files in other
libraries.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, MissingFileError
from lance_spark.storage.local import LocalSource
from tests.support.interop.blobs import extended, in_struct, marked, table

ROOT = Path(__file__).parents[3]
SIZES = [0, 1, 99, 100, 101, 5_000, 5_001, 70_000]
VERSIONS = ("2.0", "2.1", "2.2")


@pytest.fixture(params=VERSIONS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    values = [rng.bytes(size) for size in SIZES]
    column = extended(values) if request.param == "2.2" else marked(values)
    lance.write_dataset(table(column), str(tmp_path / "t"), data_storage_version=request.param)
    return tmp_path / "t"


def call(file: Any, rng: np.random.Generator, size: int) -> Any:
    """Call a random method of a file; return its result, and the position in the file."""
    number = int(rng.integers(-1, size + 20))
    action = int(rng.integers(0, 8))
    if action == 0:
        answer: Any = file.read(number)
    elif action == 1:
        answer = file.seek(max(number, 0))
    elif action == 2:
        answer = file.seek(-(max(number, 0) % (size + 1)), io.SEEK_END)
    elif action == 3:
        place = file.tell()
        answer = file.seek(max(number - place, -place), io.SEEK_CUR)
    elif action == 4:
        buffer = bytearray(max(number, 0))
        answer = file.readinto(buffer), bytes(buffer)
    elif action == 5:
        start = max(min(number, size), 0)
        length = int(rng.integers(0, size - start + 1))
        answer = file.read_range(start, length)
        answer = answer, file.read_ranges([(start, length), (0, min(size, 3)), (size, 0)])
    elif action == 6:
        answer = file.read() if number % 3 == 0 else file.size()
    else:
        answer = file.readable(), file.seekable(), file.writable(), file.closed
    return answer, file.tell()


@pytest.mark.parametrize("buffer_size", [0, 1, 64, 512 * 1024])
def test_the_same_calls_give_the_same(path: Path, buffer_size: int) -> None:
    theirs = lance.dataset(str(path)).take_blobs(
        "b", indices=range(len(SIZES)), buffer_size=buffer_size
    )
    ours = lance_spark.open_dataset(str(path)).take_blobs(
        "b", indices=range(len(SIZES)), buffer_size=buffer_size
    )
    for number, (our_file, their_file) in enumerate(zip(ours, theirs, strict=True)):
        assert isinstance(our_file, io.BufferedIOBase)
        for step in range(60):
            seeds = [np.random.default_rng([number, step]) for _ in range(2)]
            size = SIZES[number]
            assert call(our_file, seeds[0], size) == call(their_file, seeds[1], size), (size, step)
        our_file.close()
        their_file.close()


def test_ranges_outside_a_blob_are_refused(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    (file,) = dataset.take_blobs("b", indices=[3])
    assert file is not None
    assert repr(file) == "<BlobFile size=100>"
    for start, length in ((0, 101), (101, 0), (-1, 2), (50, -1), (1 << 62, 1 << 62)):
        with pytest.raises(InvalidInputError, match="out of range in a blob of 100 bytes"):
            file.read_range(start, length)
    with pytest.raises(ValueError, match=r"negative|no position"):
        file.seek(-1)
    with pytest.raises((ValueError, io.UnsupportedOperation)):
        file.seek(0, 7)
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    with file:
        pass
    assert file.closed
    for closed in (
        file.read,
        file.readall,
        lambda: file.read_range(0, 1),
        lambda: file.seek(0),
        file.tell,
    ):
        with pytest.raises(ValueError, match="closed"):
            closed()
    file.close()
    for rows in ({"indices": [len(SIZES)]}, {"addresses": [99]}, {"ids": [1 << 40]}):
        with pytest.raises(InvalidInputError, match=r"row 8 is out of range|row \d+ not found"):
            dataset.take_blobs("b", **rows)
    for rows in ({"indices": [-1]}, {"indices": [0.5]}, {"addresses": ["a"]}, {"indices": [[0]]}):
        with pytest.raises(InvalidInputError):
            dataset.take_blobs("b", **rows)
    with pytest.raises(InvalidInputError, match="one of ids, addresses and indices, not 0"):
        dataset.take_blobs("b")
    with pytest.raises(InvalidInputError, match="one of ids, addresses and indices, not 2"):
        dataset.take_blobs("b", indices=[0], ids=[0])
    with pytest.raises(InvalidInputError, match="'i' is not a blob column"):
        dataset.take_blobs("i", indices=[0])
    with pytest.raises(InvalidInputError, match="buffer_size"):
        dataset.take_blobs("b", indices=[0], buffer_size=-1)
    with pytest.raises(InvalidInputError, match="'c'"):
        dataset.take_blobs("c", indices=[0])


def test_deleted_rows_have_no_address(path: Path) -> None:
    lance.dataset(str(path)).delete("i = 2")
    dataset = lance_spark.open_dataset(str(path))
    with pytest.raises(InvalidInputError, match="row 2 is deleted"):
        dataset.take_blobs("b", addresses=[1, 2])
    (file,) = dataset.take_blobs("b", indices=[2])
    assert file is not None
    assert file.size() == SIZES[3]


def test_numbers_may_come_as_arrays(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    for rows in (
        range(2, 5),
        np.array([2, 3, 4]),
        pa.array([2, 3, 4]),
        pa.chunked_array([[2], [3, 4]]),
    ):
        files = dataset.take_blobs("b", indices=rows)
        assert [file and file.size() for file in files] == SIZES[2:5]


def test_libraries_that_take_files(tmp_path: Path) -> None:
    archive, parquet, text = io.BytesIO(), io.BytesIO(), b"one\ntwo\n\nfour"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a.txt", b"a" * 100_000)
        packed.writestr("b.txt", b"b")
    pq.write_table(pa.table({"x": range(1_000)}), parquet)
    values = [archive.getvalue(), parquet.getvalue(), text, None]
    lance_spark.write_dataset(table(extended(values)), str(tmp_path / "t"))
    zipped, columns, lines, nothing = lance_spark.open_dataset(str(tmp_path / "t")).take_blobs(
        "b", indices=range(4)
    )
    assert nothing is None
    with zipfile.ZipFile(zipped) as opened:
        assert opened.namelist() == ["a.txt", "b.txt"]
        assert opened.read("a.txt") == b"a" * 100_000
    assert pq.read_table(columns)["x"].to_pylist() == list(range(1_000))
    assert list(io.TextIOWrapper(lines)) == ["one\n", "two\n", "\n", "four"]
    zipped, *_ = lance_spark.open_dataset(str(tmp_path / "t")).take_blobs("b", indices=[0])
    copy = io.BytesIO()
    shutil.copyfileobj(zipped, copy)
    assert copy.getvalue() == values[0]


def test_only_what_is_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [bytes([index]) * 300_000 for index in range(20)]
    lance.write_dataset(table(marked(values)), str(tmp_path / "t"), data_storage_version="2.2")
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    files = dataset.take_blobs("b", indices=range(20), buffer_size=1_000)
    lengths: list[int] = []
    read = LocalSource.read

    def counted(self: LocalSource, ranges: Any) -> Any:
        lengths.extend(length for _, length in ranges)
        return read(self, ranges)

    monkeypatch.setattr(LocalSource, "read", counted)
    assert files[3].read(10) == b"\3" * 10
    assert lengths == [1_000]
    assert files[3].read(900) == b"\3" * 900
    assert lengths == [1_000]
    assert files[7].read_ranges([(5, 10), (200_000, 20)]) == [b"\7" * 10, b"\7" * 20]
    assert lengths == [1_000, 10, 20]


def test_a_file_that_is_gone_is_missed_when_it_is_read(tmp_path: Path) -> None:
    lance.write_dataset(table(marked([b"a" * 70_000])), str(tmp_path / "t"))
    (file,) = lance_spark.open_dataset(str(tmp_path / "t")).take_blobs("b", indices=[0])
    (sidecar,) = (tmp_path / "t").glob("data/*/*.blob")
    sidecar.unlink()
    assert file is not None
    assert file.size() == 70_000
    with pytest.raises(MissingFileError, match=r"\.blob"):
        file.read()


def test_blobs_in_structs(tmp_path: Path) -> None:
    values = [b"a", None, b"ccc", b"", b"d" * 7_000] * 4
    lance.write_dataset(table(in_struct(values, True)), str(tmp_path / "t"))
    files = lance_spark.open_dataset(str(tmp_path / "t")).take_blobs("s.b", indices=range(20))
    expected = [None if index % 7 == 3 else value for index, value in enumerate(values)]
    assert [file and file.read() for file in files] == expected


def test_the_example(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "blobs.py"), str(tmp_path / "t")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "F lasts 1.0 s" in done.stdout
    assert lance.dataset(str(tmp_path / "t")).count_rows() == 7
