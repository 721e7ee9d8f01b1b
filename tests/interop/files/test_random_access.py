"""Reads of single rows in pages of some MiB, in every layout: how many reads they take, and how
many bytes.

`random_access` says what each layout may cost. Reads are counted in rounds: all ranges of a round
are asked for at once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file import writer as container
from lance_spark.file.reader import FileReader
from tests.file.sources import MemorySource, file_bytes
from tests.support.interop.random_access import COLUMNS, Cost, column, costs

READ = ("2.0", "2.1", "2.2", "2.3")
WRITTEN = tuple(f"{major}.{minor}" for major, minor in container._WRITABLE)
#: Columns that versions 2.0 and 2.1 cannot store.
LATER = {"packed strings": ("2.2", "2.3")}
ROWS = 8


def by_pylance(path: Path, array: pa.Array, field: pa.Field, version: str) -> bytes:
    with LanceFileWriter(str(path), pa.schema([field]), version=version) as writer:
        writer.write_batch(pa.record_batch([array], schema=pa.schema([field])))
    return path.read_bytes()


def by_us(array: pa.Array, field: pa.Field, version: str) -> bytes:
    return file_bytes(pa.record_batch([array], schema=pa.schema([field])), version)


class Counted:
    """A file whose reads are counted. The first round, which opens the file, is not counted."""

    def __init__(self, data: bytes) -> None:
        self.source = MemorySource(data)
        self.reader = FileReader.open(self.source)
        self.opening = list(self.source.calls)

    def take(self, rows: list[int]) -> tuple[pa.Array, int, int]:
        """Return rows, and the rounds and bytes of their reads."""
        self.source.calls.clear()
        (array,) = self.reader.read(self.reader.schema.fields, np.array(rows))
        calls = self.source.calls
        return array, len(calls), sum(part.length for call in calls for part in call)

    def costs(self) -> list[list[Cost]]:
        """Return the costs of the pages of each column that was read."""
        data = self.source._data
        version = self.reader.version
        return [
            costs(
                meta,
                version,
                lambda location: data[location.offset : location.offset + location.length],
            )
            for meta in self.reader._columns.values()
        ]


def check(data: bytes, array: pa.Array, note: str) -> set[str]:
    """Take rows of a file of one column; return the names of the layouts of its pages."""
    count = len(array)
    file = Counted(data)
    assert [len(call) for call in file.opening] == [1]
    places = np.random.default_rng(count).integers(1, count - 1, ROWS).tolist()
    middle = array.take(pa.array([count // 2])).nbytes
    _, first, first_size = file.take([count // 2])
    pages = [page for leaf in file.costs() for page in leaf]
    leaves = [leaf for leaf in file.costs() if leaf]
    depth = 1
    if file.reader.version == (2, 0):
        # The columns of a field are read one below the other, not at the same time.
        depth = sum(max(page.rounds for page in leaf) for leaf in leaves)
    rounds = max(depth, *(page.rounds for page in pages), 0)
    assert first <= max(depth, *(page.first for page in pages)), f"{note}: first take"
    if file.reader.version in ((2, 1), (2, 2)):
        assert first <= 2
        assert rounds <= 2

    # The first take reads search structures too. After that, a row costs what its layout allows.
    every = np.unique(np.linspace(0, count - 1, 400).astype(int)).tolist()
    file = Counted(data)
    _, _, size = file.take(every)
    known = sum(page.search for page in pages)
    most = sum(max(page.row for page in leaf) for leaf in leaves)
    reads_values = any(page.own for page in pages)
    gap = sum(max(page.gap for page in leaf) for leaf in leaves)
    assert first_size <= known + most + 2 * middle * reads_values, (
        f"{note}: {first_size} bytes at first"
    )
    plain = 2 * array.take(pa.array(every)).nbytes * reads_values
    assert size <= known + len(every) * (most + gap) + plain, f"{note}: search structures"
    for row in [0, count - 1, *places]:
        expected = array.take(pa.array([row]))
        array_read, took, size = file.take([row])
        assert array_read.equals(expected), f"{note}: row {row}"
        assert took <= rounds, f"{note}: {took} reads for row {row}"
        limit = most + 2 * expected.nbytes * reads_values
        assert size <= limit, f"{note}: {size} bytes for row {row}, not {limit}"
    rows = sorted({0, count - 1, *places})
    expected = array.take(pa.array(rows))
    array_read, took, size = file.take(rows)
    assert array_read.equals(expected), note
    assert took <= rounds, f"{note}: {took} reads for {len(rows)} rows"
    limit = len(rows) * (most + gap) + 2 * expected.nbytes * reads_values
    assert size <= limit, f"{note}: {size} bytes for {len(rows)} rows, not {limit}"
    return {page.kind for page in pages}


#: Layouts that must occur, so that none goes unchecked because writers choose another layout.
KINDS = {
    "2.0": {
        "2.0 nullable",
        "2.0 binary",
        "2.0 list",
        "2.0 dictionary",
        "2.0 fsst",
        "2.0 compressed",
    },
    "2.1": {"mini", "mini dictionary", "mini lists", "zip fixed", "zip indexed", "constant"},
    "2.2": {"mini", "mini dictionary", "mini lists", "zip fixed", "zip indexed", "constant"}
    | {"constant words"},
    "2.3": {"chunked", "zip fixed", "zip indexed", "sparse chunked", "sparse constant"},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", READ)
def test_pylance_wrote(tmp_path: Path, version: str) -> None:
    names: set[str] = set()
    for name in COLUMNS:
        if version not in LATER.get(name, READ):
            continue
        array, field = column(name)
        data = by_pylance(tmp_path / name, array, field, version)
        names |= check(data, array, f"{name} {version}")
    assert names >= KINDS[version], KINDS[version] - names


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", WRITTEN)
def test_random_access_to_written_columns(version: str) -> None:
    names: set[str] = set()
    for name in COLUMNS:
        array, field = column(name)
        if version not in LATER.get(name, READ):
            with pytest.raises(UnsupportedTypeError):
                by_us(array, field, version)
            continue
        names |= check(by_us(array, field, version), array, f"{name} {version}")
    missing = KINDS[version] - names - {"2.0 fsst", "sparse chunked", "sparse constant"}
    assert not missing
