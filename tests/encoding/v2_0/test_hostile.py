"""Damaged pages and messages give errors of this package or other values, never anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark.encoding.meta import ColumnMeta, PageMeta
from lance_spark.encoding.v2_0.field import open_field
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedEncodingError,
)
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, run_plans
from tests.encoding.v2_0.files import File, make, write
from tests.encoding.v2_0.test_columns import CASES, UNREADABLE, many_pages
from tests.file.sources import StrictSource

ROWS = 300
NAMES = [name for name in CASES if name not in (*UNREADABLE, "wide_vectors", "zstd_level")]
FLIPS = 150


def reads(field: pa.Field, columns: Sequence[ColumnMeta], source: StrictSource) -> bool:
    """Read in two ways; return False if an error of this package is raised."""
    try:
        reader = open_field(field, columns, "memory")
        whole, part = run_plans(source, [reader.read(range(ROWS)), reader.read(np.array([3, 90]))])
    except LanceError:
        return False
    assert len(whole) == ROWS
    assert len(part) == 2
    whole.validate()
    return True


def table_of(name: str) -> pa.Table:
    if name in CASES:
        array, metadata = CASES[name]
        array = pa.concat_arrays([array] * (-(-ROWS // len(array))))[:ROWS]
        if name in ("fsst", "fsst_binary", "fsst_nulls_at_the_ends"):
            # Writers leave short columns as they are.
            array = pc.binary_repeat(array, 10)
        field = pa.field("c", array.type, metadata=metadata)
        return pa.table([array], schema=pa.schema([field]))
    return many_pages()[:ROWS].select([name]).rename_columns(["c"])


@pytest.fixture(scope="module", params=[*NAMES, "n", "s", "l", "nested", "t", "flag"])
def damaged(request, tmp_path_factory):
    table = table_of(request.param)
    path = write(tmp_path_factory.mktemp("f") / "f.lance", table)
    file = File(path, table.schema)
    field = table.schema.field("c")
    columns = file.columns["c"]
    assert reads(field, columns, StrictSource(bytearray(Path(path).read_bytes())))
    return field, columns, Path(path).read_bytes()


@pytest.mark.sample(2)
def test_flipped_bits_of_pages(damaged) -> None:
    field, columns, raw = damaged
    spans = [b for column in columns for page in column.pages for b in page.buffers if b.length]
    if not spans:
        return
    rng = np.random.default_rng(1)
    for _ in range(FLIPS):
        data = bytearray(raw)
        for _ in range(rng.integers(1, 4)):
            offset, length = spans[rng.integers(len(spans))]
            data[offset + rng.integers(length)] ^= 1 << int(rng.integers(8))
        reads(field, columns, StrictSource(data))


@pytest.mark.sample(2)
def test_flipped_bits_of_messages(damaged) -> None:
    field, columns, raw = damaged
    source = StrictSource(bytearray(raw))
    rng = np.random.default_rng(2)
    failed = 0
    for _ in range(FLIPS):
        number = rng.integers(len(columns))
        page = columns[number].pages[0]
        encoding = bytearray(page.encoding)
        if not encoding:
            continue
        encoding[rng.integers(len(encoding))] ^= 1 << int(rng.integers(8))
        broken = replace(columns[number], pages=(replace(page, encoding=bytes(encoding)),))
        failed += not reads(field, [*columns[:number], broken, *columns[number + 1 :]], source)
    assert failed


def test_buffers_cut_short(damaged) -> None:
    field, columns, raw = damaged
    source = StrictSource(bytearray(raw))
    for number, column in enumerate(columns):
        page = column.pages[0]
        for i, buffer in enumerate(page.buffers):
            if not buffer.length:
                continue
            for length in (0, buffer.length - 1):
                cut = ByteRange(buffer.offset, length)
                buffers = (*page.buffers[:i], cut, *page.buffers[i + 1 :])
                broken = replace(column, pages=(replace(page, buffers=buffers),))
                assert not reads(field, [*columns[:number], broken, *columns[number + 1 :]], source)
        if page.buffers:
            broken = replace(column, pages=(replace(page, buffers=page.buffers[:-1]),))
            assert not reads(field, [*columns[:number], broken, *columns[number + 1 :]], source)


def test_pages_that_claim_more_rows(damaged) -> None:
    field, columns, raw = damaged
    source = StrictSource(bytearray(raw))
    for number, column in enumerate(columns):
        page = column.pages[0]
        if not page.buffers:
            continue
        for rows in (page.num_rows * 1000, 1 << 40, (1 << 63) - 1):
            broken = replace(column, pages=(replace(page, num_rows=rows),))
            assert not reads(field, [*columns[:number], broken, *columns[number + 1 :]], source)


def flat(bits: int, index: int = 0) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(flat=pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=index)))


def read_made(
    tmp_path: Path,
    dtype: pa.DataType,
    rows: int,
    buffers: Sequence[bytes],
    encoding: pb.ArrayEncoding,
) -> pa.Array:
    field = pa.field("c", dtype)
    path = make(tmp_path / "f.lance", field, rows, buffers, encoding)
    return File(path, pa.schema([field])).read("c", range(rows))


def ends(*values: int) -> bytes:
    return np.array(values, "<u8").tobytes()


@pytest.mark.parametrize(
    ("numbers", "match"),
    [
        ((3, 2, 4), "decrease"),
        ((1, 2, 5), "outside"),
        ((1, 2, 1 << 63), "bounds"),
        ((1, 2, 10**9), "outside"),
    ],
)
def test_ends_of_strings(numbers: tuple[int, ...], match: str, tmp_path: Path) -> None:
    message = pb.Binary(indices=flat(64), bytes=flat(8, 1), null_adjustment=(1 << 64) - 1)
    encoding = pb.ArrayEncoding(binary=message)
    with pytest.raises(CorruptFileError, match=f"column 'c', page 0.*{match}"):
        read_made(tmp_path, pa.string(), 3, [ends(*numbers), b"abcd"], encoding)


def test_positions_outside_a_dictionary(tmp_path: Path) -> None:
    items = pb.ArrayEncoding(
        binary=pb.Binary(indices=flat(64, 1), bytes=flat(8, 2), null_adjustment=3)
    )
    message = pb.Dictionary(indices=flat(8), items=items, num_dictionary_items=2)
    encoding = pb.ArrayEncoding(dictionary=message)
    buffers = [bytes([0, 1, 2]), ends(1, 2), b"ab"]
    assert read_made(tmp_path, pa.string(), 3, buffers, encoding).to_pylist() == [None, "a", "b"]
    with pytest.raises(CorruptFileError, match="position 2 in a dictionary of 2 items"):
        read_made(tmp_path, pa.string(), 3, [bytes([0, 1, 3]), *buffers[1:]], encoding)


def test_a_dictionary_of_countless_nulls(tmp_path: Path) -> None:
    nothing = pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))
    message = pb.Dictionary(indices=flat(8), items=nothing, num_dictionary_items=(1 << 32) - 1)
    encoding = pb.ArrayEncoding(dictionary=message)
    assert read_made(tmp_path, pa.string(), 2, [b"\1\2"], encoding).to_pylist() == [None, None]


def test_compressed_bytes_that_claim_too_much(tmp_path: Path) -> None:
    packed = pa.compress(b"abcd", codec="zstd", asbytes=True)
    data = flat(8, 1)
    data.flat.compression.scheme = "zstd"
    message = pb.Binary(indices=flat(64), bytes=data, null_adjustment=100)
    encoding = pb.ArrayEncoding(binary=message)
    good = [ends(1, 4), (4).to_bytes(8, "little") + packed]
    assert read_made(tmp_path, pa.string(), 2, good, encoding).to_pylist() == ["a", "bcd"]
    for size in (5, 3, 1 << 40, (1 << 64) - 1):
        with pytest.raises(CorruptFileError, match="column 'c', page 0"):
            read_made(
                tmp_path,
                pa.string(),
                2,
                [ends(1, 4), size.to_bytes(8, "little") + packed],
                encoding,
            )


def test_encodings_of_other_versions_are_named(tmp_path: Path) -> None:
    encoding = pb.ArrayEncoding(rle=pb.Rle(bits_per_value=64))
    with pytest.raises(UnsupportedEncodingError, match=r"f\.lance.*column 'c', page 0.*'rle'"):
        read_made(tmp_path, pa.int64(), 2, [bytes(16)], encoding)


def test_messages_nested_without_end() -> None:
    encoding = flat(64).SerializeToString()
    for _ in range(200):
        # ArrayEncoding.nullable = 2, Nullable.no_nulls = 1, NoNull.values = 1.
        for number in (1, 1, 2):
            size = len(encoding)
            varint = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
            encoding = bytes([number << 3 | 2]) + varint + encoding
    page = PageMeta((ByteRange(0, 16),), 2, 0, encoding)
    reader = open_field(pa.field("c", pa.int64()), [ColumnMeta((page,))], "memory")
    with pytest.raises(CorruptFileError, match=r"column 'c', page 0.*cannot be parsed"):
        run_plans(StrictSource(bytearray(16)), [reader.read(range(2))])


def test_the_pages_hold_fewer_rows(tmp_path: Path) -> None:
    field = pa.field("c", pa.int64())
    path = make(tmp_path / "f.lance", field, 2, [bytes(16)], flat(64))
    with pytest.raises(CorruptFileError, match="row 2 was asked for, but the pages hold 2 rows"):
        File(path, pa.schema([field])).read("c", range(3))


def test_lists_of_countless_nulls() -> None:
    message = pb.List(offsets=flat(64), null_offset_adjustment=1 << 50, num_items=1 << 45)
    lists = PageMeta((ByteRange(0, 8),), 1, 0, pb.ArrayEncoding(list=message).SerializeToString())
    nothing = pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))
    items = PageMeta((), 1 << 45, 0, nothing.SerializeToString())
    columns = [ColumnMeta((lists,)), ColumnMeta((items,))]
    source = StrictSource(bytearray(ends(1 << 45)))
    reader = open_field(pa.field("c", pa.large_list(pa.int64())), columns, "memory")
    with pytest.raises(CorruptFileError, match="nulls do not fit into memory"):
        run_plans(source, [reader.read(range(1))])
    reader = open_field(pa.field("c", pa.list_(pa.int64())), columns, "memory")
    with pytest.raises(InvalidInputError, match="read fewer rows at a time"):
        run_plans(source, [reader.read(range(1))])
    huge = ColumnMeta((replace(items, num_rows=(1 << 63) - 1),) * 2)
    with pytest.raises(CorruptFileError, match="the pages claim"):
        open_field(pa.field("c", pa.large_list(pa.int64())), [columns[0], huge], "memory")
