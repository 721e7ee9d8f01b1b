"""Encoded arrays are decoded again: arrays of any shape, slices of them, and any rows of their
pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lance_spark
from lance_spark.encoding.meta import ColumnMeta, EncodedPage, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.field import open_field
from lance_spark.encoding.v2_0.field_write import check_field, encode_field
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, run_plans
from tests.file.sources import MemorySource
from tests.support.cells import number_of

#: Each type is compared with pylance in several sizes.
pytestmark = pytest.mark.slow

OCTETS = st.binary(max_size=6)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
PACKED = {"lance-encoding:packed": "true"}


class Pages:
    """The pages of one field in memory."""

    def __init__(self, field: pa.Field, pages: Sequence[Sequence[EncodedPage]]) -> None:
        data = bytearray()
        columns: list[list[PageMeta]] = [[] for _ in pages[0]]
        rows = 0
        for several in pages:
            for column, page in zip(columns, several, strict=True):
                ranges = []
                for buffer in page.buffers:
                    data += bytes(-len(data) % 64)
                    ranges.append(ByteRange(len(data), len(buffer)))
                    data += buffer.tobytes()
                if page.is_header and column:
                    total = column.pop().num_rows + page.num_rows
                    column.append(PageMeta((), total, 0, page.encoding))
                else:
                    column.append(PageMeta(tuple(ranges), page.num_rows, rows, page.encoding))
            rows += several[0].num_rows
        self.size = len(data)
        self._source = MemorySource(bytes(data))
        metas = [ColumnMeta(tuple(column), (), b"\x0a\x00") for column in columns]
        self._reader = open_field(field, metas, "memory")

    def read(self, rows: Rows) -> pa.Array:
        (array,) = run_plans(self._source, [self._reader.read(rows)])
        array.validate(full=True)
        return array


def message_of(page: EncodedPage) -> pb.ArrayEncoding:
    return pb.ArrayEncoding.FromString(page.encoding)


def check(array: pa.Array, metadata: dict[str, str] | None = None, step: int = 7) -> None:
    """Encode an array whole, a slice of it, and cut into pages; read all of it and some rows."""
    field = pa.field("c", array.type, metadata=metadata)
    start = len(array) // 3
    cut = [array[at : at + step] for at in range(0, len(array), step)]
    for parts in ([array], [array[start:]], cut):
        if not parts:
            continue
        expected = [value for part in parts for value in part.to_pylist()]
        pages = Pages(field, [encode_field(part, field) for part in parts])
        assert pages.read(range(len(expected))).to_pylist() == expected
        some = np.arange(len(expected))[::3]
        assert pages.read(some).to_pylist() == expected[::3]


def strings(dtype: pa.DataType) -> st.SearchStrategy[pa.Array]:
    text = OCTETS if "binary" in str(dtype) else st.text(max_size=5)
    return st.lists(st.none() | text, max_size=40).map(lambda v: pa.array(v, dtype))


def items_of(inner: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(st.none() | st.lists(st.none() | inner, max_size=5), max_size=40)


@settings(max_examples=number_of(30, 60), deadline=None)
@given(
    st.sampled_from([pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]).flatmap(
        strings
    ),
    st.sampled_from([None, "lz4", "zstd", "none", "fsst"]),
)
@example(pa.array(["", None, ""]), "zstd")
@example(pa.array([], pa.string()), "lz4")
def test_strings(array: pa.Array, scheme: str | None) -> None:
    check(array, None if scheme is None else {"lance-encoding:compression": scheme})


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(100, 600), st.integers(0, 2**32 - 1))
@example(255, 600, 0)
@example(256, 600, 0)
def test_repeated_strings(distinct: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = pa.array([None, "", *[f"v{i}" for i in range(distinct)]])
    check(text.take(pa.array(rng.integers(0, len(text), rows))), step=150)


@settings(max_examples=number_of(30, 60), deadline=None)
@given(items_of(NUMBERS), st.sampled_from([pa.list_, pa.large_list]))
def test_lists(values: list[object], of: object) -> None:
    check(pa.array(values, of(pa.int32())))  # type: ignore[operator]


@settings(max_examples=number_of(30, 60), deadline=None)
@given(items_of(st.lists(st.none() | OCTETS, max_size=4)))
def test_lists_of_lists(values: list[object]) -> None:
    check(pa.array(values, pa.list_(pa.large_list(pa.binary()))))


@settings(max_examples=number_of(30, 60), deadline=None)
@given(
    st.sampled_from([pa.int8(), pa.int64(), pa.bool_(), pa.uint32(), pa.float16(), pa.binary(3)]),
    st.integers(0, 70),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
def test_vectors(dtype: pa.DataType, rows: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = max(1, dtype.bit_width // 8)
    raw = pa.py_buffer(rng.integers(0, 60, rows * size * width, np.uint8))
    bits = pa.py_buffer(rng.integers(0, 255, rows * size // 8 + 1, np.uint8))
    items = pa.Array.from_buffers(dtype, rows * size, [bits if seed % 2 else None, raw])
    mask = pa.array(rng.random(rows) < 0.3)
    check(pa.FixedSizeListArray.from_arrays(items, size, mask=mask))
    deep = pa.FixedSizeListArray.from_arrays(items[: len(items) // 2 * 2], 2)
    check(deep)
    check(items)


@settings(max_examples=number_of(30, 60), deadline=None)
@given(
    st.lists(st.none() | st.integers(0, 3), max_size=40),
    st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.uint64()]),
    st.sampled_from(
        [pa.array(["a", None, "", "b"]), pa.array([1, 2, 3, None]), pa.array([True] * 4)]
    ),
)
def test_dictionaries(values: list[int | None], dtype: pa.DataType, items: pa.Array) -> None:
    check(pa.DictionaryArray.from_arrays(pa.array(values, dtype), items))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(NUMBERS, OCTETS, st.lists(NUMBERS, min_size=2, max_size=2)), max_size=30))
def test_structs(rows: list[tuple[int, bytes, list[int]]]) -> None:
    dtype = pa.struct(
        [
            ("n", pa.int32()),
            ("b", pa.binary()),
            ("v", pa.list_(pa.int64(), 2)),
            ("e", pa.struct([])),
        ]
    )
    array = pa.array([{"n": n, "b": b, "v": v, "e": {}} for n, b, v in rows], dtype)
    check(array)
    packed = pa.StructArray.from_arrays([array.field("n"), array.field("v")], ["n", "v"])
    check(packed, PACKED)
    offsets = pa.array(np.arange(0, len(array) + 1, 2), pa.int32())
    if len(offsets):
        check(pa.ListArray.from_arrays(offsets, array[: offsets[-1].as_py()]))


def test_a_page_of_strings_byte_by_byte() -> None:
    array = pa.array(["ab", None, "", "c"])
    (page,) = encode_field(array, pa.field("c", array.type))
    ends, data = page.buffers
    # An end beyond the bytes marks a null.
    assert ends.view("<u8").tolist() == [2, 2 + 4, 2, 3]
    assert data.tobytes() == b"abc"
    assert message_of(page).binary.null_adjustment == 4


def test_a_page_of_lists_byte_by_byte() -> None:
    array = pa.array([[1, 2], None, [], [3]])
    lists, items = encode_field(array, pa.field("c", array.type))
    assert lists.buffers[0].view("<u8").tolist() == [2, 2 + 4, 2, 3]
    message = message_of(lists).list
    assert (message.num_items, message.null_offset_adjustment) == (3, 4)
    assert (lists.num_rows, items.num_rows) == (4, 3)
    assert items.buffers[0].view("<i8").tolist() == [1, 2, 3]


def test_a_page_of_repeated_strings_byte_by_byte() -> None:
    array = pa.array(["x", None, "yy", "x"] * 25)
    (page,) = encode_field(array, pa.field("c", array.type))
    indices, ends, data = page.buffers
    assert indices.tolist() == [1, 0, 2, 1] * 25
    assert ends.view("<u8").tolist() == [1, 3]
    assert data.tobytes() == b"xyy"
    assert message_of(page).dictionary.num_dictionary_items == 2


def test_a_page_of_vectors_byte_by_byte() -> None:
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2))
    (page,) = encode_field(array, pa.field("c", array.type))
    valid, inner, items = page.buffers
    assert valid.tolist() == [0b101]
    assert inner[0] & 0b110011 == 0b010011
    assert items.view("<i2").tolist()[:2] == [1, 2]
    assert items.view("<i2")[4] == 3


def test_a_page_of_packed_structs_byte_by_byte() -> None:
    dtype = pa.struct([("a", pa.int8()), ("b", pa.int16())])
    (page,) = encode_field(
        pa.array([{"a": 1, "b": 2}, {"a": 3, "b": 4}], dtype), pa.field("c", dtype, metadata=PACKED)
    )
    assert [buffer.tobytes() for buffer in page.buffers] == [b"\1\2\0\3\4\0"]


def test_nothing_but_nulls_takes_no_buffer() -> None:
    for dtype in (pa.int32(), pa.null(), pa.bool_(), pa.list_(pa.int8(), 3)):
        (page,) = encode_field(pa.nulls(5, dtype), pa.field("c", dtype))
        assert not page.buffers
        assert message_of(page).nullable.HasField("all_nulls")


@pytest.mark.parametrize(
    "metadata",
    [
        {"lance-encoding:compression": "gzip"},
        {"lance-encoding:compression": ""},
        {"lance-encoding:compression-level": "high"},
        {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "100"},
        {"lance-encoding:bss": "maybe", "lance-encoding:rle-threshold": "x"},
    ],
    ids=str,
)
def test_hints_that_mean_nothing_are_ignored_as_pylance_does(
    metadata: dict[str, str], tmp_path: Path
) -> None:
    array = pa.array([f"text {i}" * 20 for i in range(300)])
    table = pa.table([array], schema=pa.schema([pa.field("c", pa.string(), metadata=metadata)]))
    path = str(tmp_path / "t.lance")
    lance.write_dataset(table, path, data_storage_version="2.0")
    lance_spark.write_dataset(table, path, mode="append")
    assert lance.dataset(path).to_table().equals(pa.concat_tables([table, table]))
    (page,) = encode_field(array, table.schema.field("c"))
    known = {k: v for k, v in metadata.items() if v == "zstd"}
    (plain,) = encode_field(array, pa.field("c", pa.string(), metadata=known))
    assert [bytes(b) for b in page.buffers] == [bytes(b) for b in plain.buffers]


def test_metadata_that_means_nothing_is_refused() -> None:
    field = pa.field("c", pa.struct([]), metadata={"lance-encoding:packed": "yes"})
    with pytest.raises(InvalidInputError, match=r"'c'.*'yes'.*true or false"):
        check_field(field)


def test_types_are_refused_by_name() -> None:
    for array, message in [
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "'c'.*maps"),
        (pa.array([["a"]], pa.list_(pa.string(), 1)), "'c'.*fixed-size lists of string"),
        (pa.array([[[("a", 1)]]], pa.list_(pa.map_(pa.string(), pa.int8()))), r"'c\.item'.*maps"),
    ]:
        with pytest.raises(UnsupportedTypeError, match=message):
            encode_field(array, pa.field("c", array.type))
