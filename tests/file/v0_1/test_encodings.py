"""The encodings of version 0.1 against pages made by hand from the tables of bytes in their
docstrings.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedTypeError
from lance_spark.file.v0_1.fields import FieldNode, open_field
from lance_spark.file.v0_1.pages import FieldPages, bounds_of, spans_of
from lance_spark.storage.source import run_plans
from tests.file.sources import MemorySource


class File:
    """Several pages, with unused bytes between them."""

    def __init__(self) -> None:
        self.data = bytearray(b"?")

    def add(self, page: bytes) -> int:
        position = len(self.data)
        self.data += page + b"?" * (1 + len(self.data) % 3)
        return position

    def texts(self, values: Sequence[bytes]) -> int:
        start = self.add(b"".join(values))
        ends = start + np.cumsum([0, *map(len, values)])
        return self.add(struct.pack(f"<{len(ends)}q", *ends.tolist()))


def pages(entries: Sequence[tuple[int, int]]) -> FieldPages:
    array = np.array(entries, np.int64).reshape(-1, 2)
    return FieldPages(array[:, 0], array[:, 1])


def read(file: File, node: FieldNode, counts: Sequence[int], rows: Rows) -> pa.Array:
    reader = open_field(node, np.array(counts, np.int64), len(file.data))
    (result,) = run_plans(MemorySource(bytes(file.data)), [reader.read(rows)])
    result.validate(full=True)
    return result


def plain(
    dtype: pa.DataType, batches: Sequence[bytes], lengths: Sequence[int]
) -> tuple[File, FieldNode]:
    file = File()
    entries = [(file.add(page), n) for page, n in zip(batches, lengths, strict=True)]
    return file, FieldNode(pa.field("x", dtype), pages(entries))


def test_plain_numbers() -> None:
    file, node = plain(pa.int16(), [struct.pack("<3h", 1, -2, 3), struct.pack("<2h", 4, 5)], [3, 2])
    assert read(file, node, [3, 2], range(5)).to_pylist() == [1, -2, 3, 4, 5]
    assert read(file, node, [3, 2], range(1, 4)).to_pylist() == [-2, 3, 4]
    assert read(file, node, [3, 2], np.array([0, 2, 3])).to_pylist() == [1, 3, 4]
    assert read(file, node, [3, 2], range(2, 2)).to_pylist() == []


def test_plain_bools() -> None:
    bits = [[1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1], [0, 1, 1], [1] * 8]
    packed = [np.packbits(batch, bitorder="little").tobytes() for batch in bits]
    counts = [len(batch) for batch in bits]
    file, node = plain(pa.bool_(), packed, counts)
    expected = [bool(bit) for batch in bits for bit in batch]
    for start in range(23):
        for stop in range(start, 23):
            assert read(file, node, counts, range(start, stop)).to_pylist() == expected[start:stop]
    some = np.array([0, 1, 7, 9, 10, 11, 13, 14, 21])
    assert read(file, node, counts, some).to_pylist() == [expected[i] for i in some]


def test_plain_lists_of_bools() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (9, 3, 2))
    packed = [np.packbits(part, bitorder="little").tobytes() for part in (bits[:4], bits[4:])]
    file, node = plain(pa.list_(pa.list_(pa.bool_(), 2), 3), packed, [4, 5])
    for rows in (range(9), range(2, 7), np.array([0, 3, 4, 8])):
        expected = bits[np.array(rows)].astype(bool).tolist()
        assert read(file, node, [4, 5], rows).to_pylist() == expected


def test_plain_wide_values() -> None:
    values = [bytes([i]) * 5 for i in range(4)]
    file, node = plain(pa.binary(5), [b"".join(values[:1]), b"".join(values[1:])], [1, 3])
    assert read(file, node, [1, 3], range(4)).to_pylist() == values
    vectors = np.arange(12, dtype="<f4").reshape(4, 3)
    file, node = plain(pa.list_(pa.float32(), 3), [vectors.tobytes()], [4])
    assert read(file, node, [4], np.array([1, 3])).to_pylist() == vectors[[1, 3]].tolist()


def test_nulls_have_no_bytes() -> None:
    node = FieldNode(pa.field("x", pa.null()), pages([(5, 3), (5, 4)]))
    assert read(File(), node, [3, 4], range(2, 7)).to_pylist() == [None] * 5


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("nullable", [True, False])
def test_variable_width(dtype: pa.DataType, nullable: bool) -> None:
    batches = [[b"one", b"", b"three"], [], [b"", b"4"], [b"five"]]
    file = File()
    entries = [(file.texts(batch), len(batch)) for batch in batches]
    node = FieldNode(pa.field("x", dtype, nullable), pages(entries))
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    empty = None if nullable else b""
    expected = [v or empty for batch in batches for v in batch]
    expected = [v.decode() if text and v is not None else v for v in expected]
    counts = [3, 0, 2, 1]
    for start in range(7):
        for stop in range(start, 7):
            result = read(file, node, counts, range(start, stop))
            assert result.type == dtype
            assert result.to_pylist() == expected[start:stop]
    for some in ([0], [1], [0, 2, 5], [1, 3, 4], [0, 1, 2, 3, 4, 5]):
        rows = np.array(some)
        assert read(file, node, counts, rows).to_pylist() == [expected[i] for i in some]


def test_bytes_of_strings_may_lie_anywhere() -> None:
    file = File()
    offsets_at = len(file.data)
    file.add(struct.pack("<3q", 40, 43, 45))
    file.data += bytes(40 - len(file.data)) + b"abcde"
    node = FieldNode(pa.field("x", pa.string()), pages([(offsets_at, 2)]))
    assert read(file, node, [2], range(2)).to_pylist() == ["abc", "de"]


def test_dictionary() -> None:
    file = File()
    values = pages([(file.texts([b"red", b"", b"blue"]), 3)])
    entries = [(file.add(bytes([2, 0])), 2), (file.add(bytes([1, 2, 2])), 3)]
    dtype = pa.dictionary(pa.uint8(), pa.string())
    node = FieldNode(pa.field("x", dtype), pages(entries), dictionary=values)
    result = read(file, node, [2, 3], range(1, 5))
    assert result.type == dtype
    assert result.to_pylist() == ["red", None, "blue", "blue"]
    assert result.dictionary.to_pylist() == ["red", None, "blue"]
    with pytest.raises(CorruptFileError, match="does not say"):
        read(file, FieldNode(pa.field("x", dtype), pages(entries)), [2, 3], range(1))
    node = FieldNode(
        pa.field("x", dtype), pages(entries), dictionary=pages([(int(values.positions[0]), 2)])
    )
    with pytest.raises(CorruptFileError, match="position 2 in a dictionary of 2"):
        read(file, node, [2, 3], range(5))
    bool_field = pa.field("x", pa.dictionary(pa.uint8(), pa.bool_()))
    with pytest.raises(UnsupportedTypeError, match="bool"):
        read(file, FieldNode(bool_field, pages(entries), dictionary=values), [2, 3], range(1))


def lists() -> tuple[File, FieldNode, list[list[int]]]:
    expected = [[1, 2], [], [3], [4, 5, 6], [], []]
    file = File()
    offsets = [
        (file.add(struct.pack("<4i", 0, 2, 2, 3)), 4),
        (file.add(struct.pack("<4i", 0, 3, 3, 3)), 4),
    ]
    items = [(file.add(bytes([1, 2, 3])), 3), (file.add(bytes([4, 5, 6])), 3)]
    item = FieldNode(pa.field("item", pa.int8()), pages(items))
    return file, FieldNode(pa.field("x", pa.list_(pa.int8())), pages(offsets), (item,)), expected


def test_lists() -> None:
    file, node, expected = lists()
    for start in range(7):
        for stop in range(start, 7):
            assert read(file, node, [3, 3], range(start, stop)).to_pylist() == expected[start:stop]
    for some in ([0], [5], [0, 2, 3], [1, 4], [2, 3, 5]):
        assert read(file, node, [3, 3], np.array(some)).to_pylist() == [expected[i] for i in some]


def test_lists_that_leave_items_out() -> None:
    file, node, _ = lists()
    first = file.add(struct.pack("<3q", 1, 2, 2))
    second = file.add(struct.pack("<2q", 0, 2))
    wide = pa.field("x", pa.large_list(pa.int8()))
    large_node = FieldNode(wide, pages([(first, 3), (second, 2)]), node.children)
    assert read(file, large_node, [2, 1], range(3)).to_pylist() == [[2], [], [4, 5]]


def test_structs() -> None:
    file, node, expected = lists()
    numbers = FieldNode(
        pa.field("n", pa.int8()),
        pages([(file.add(bytes([7, 8, 9])), 3), (file.add(bytes([1, 2, 3])), 3)]),
    )
    dtype = pa.struct([numbers.field, node.field])
    struct_node = FieldNode(pa.field("s", dtype), children=(numbers, node))
    result = read(file, struct_node, [3, 3], range(2, 5))
    assert result.to_pylist() == [
        {"n": n, "x": x} for n, x in zip([9, 1, 2], expected[2:5], strict=True)
    ]
    assert (
        read(file, FieldNode(pa.field("s", pa.struct([]))), [3, 3], range(4)).to_pylist()
        == [{}] * 4
    )
    empty = FieldNode(
        pa.field("l", pa.list_(pa.struct([]))),
        node.pages,
        (FieldNode(pa.field("item", pa.struct([]))),),
    )
    with pytest.raises(UnsupportedTypeError, match="without fields"):
        read(file, empty, [3, 3], range(4))


@given(st.data())
def test_spans(data: st.DataObject) -> None:
    counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=8)), np.int64)
    bounds = bounds_of(counts)
    total = int(counts.sum())
    rows: Rows
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, total))
        rows = range(start, data.draw(st.integers(start, total)))
    else:
        chosen = data.draw(st.sets(st.integers(0, max(total - 1, 0)))) if total else set()
        rows = np.array(sorted(chosen), np.int64)
    spans = spans_of(rows, bounds)
    assert (spans.sizes > 0).all()
    pairs = zip(spans.batch.tolist(), spans.start.tolist(), spans.stop.tolist(), strict=True)
    result = [int(bounds[batch]) + at for batch, start, stop in pairs for at in range(start, stop)]
    assert result == list(rows)
    assert spans.num_values == len(rows)
    # A span begins only at a new batch or after a gap.
    gaps = sum(after != before + 1 for before, after in pairwise(result))
    assert len(spans.batch) <= 1 + gaps + len(counts)


def test_rows_that_are_not_there() -> None:
    with pytest.raises(CorruptFileError, match="row 7 is asked for"):
        spans_of(range(5, 8), bounds_of(np.array([3, 4])))
    with pytest.raises(CorruptFileError, match="more values than there can be"):
        bounds_of(np.array([2**62, 2**62, 2**62]))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([1, 5, 4, 6], "negative or decrease"),
        ([1, -5, 4, 6], "negative or decrease"),
        ([-1, 2, 4, 6], "negative or decrease"),
        ([1, 2, 4, 10**6], "ends at byte 1000000"),
        # Differences that overflow, and have a small sum.
        ([0, 2**63 - 1, -(2**63) + 1, 3], "negative or decrease"),
        ([0, 2**63 - 1, 2**63 - 1, 3], "negative or decrease"),
    ],
)
def test_offsets_that_lie(offsets: list[int], message: str) -> None:
    file = File()
    first = file.texts([b"a"])
    at = file.add(struct.pack("<4q", *offsets))
    node = FieldNode(pa.field("x", pa.string()), pages([(first, 1), (at, 3)]))
    with pytest.raises(CorruptFileError, match=message) as caught:
        read(file, node, [1, 3], range(4))
    assert "batch 1" in str(caught.value)


def test_lists_that_end_outside_their_batch() -> None:
    file, node, _ = lists()
    at = file.add(struct.pack("<4i", 0, 2, 2, 4))
    assert node.pages is not None
    bad = FieldNode(node.field, pages([(at, 4), (int(node.pages.positions[1]), 4)]), node.children)
    with pytest.raises(CorruptFileError, match="batch 0: a list ends at item 4 of 3"):
        read(file, bad, [3, 3], range(6))


@pytest.mark.parametrize(
    "entry", [(-1, 3), (10**9, 3), (5, 10**15), (5, -1), (5, 2**62), (2**62, 2**62)]
)
@pytest.mark.parametrize("dtype", [pa.int64(), pa.bool_(), pa.string(), pa.list_(pa.int8(), 7)])
def test_pages_outside_the_file(dtype: pa.DataType, entry: tuple[int, int]) -> None:
    file = File()
    file.add(bytes(100))
    node = FieldNode(pa.field("x", dtype), pages([(3, 2), entry]))
    with pytest.raises(CorruptFileError, match=r"'x'.*batch 1"):
        read(file, node, [2, entry[1]], range(2))


def test_lengths_that_contradict_the_batches() -> None:
    file, node = plain(pa.int8(), [bytes(3), bytes(2)], [3, 2])
    with pytest.raises(CorruptFileError, match="'x' has 2 values in batch 1 where 3 are expected"):
        read(file, node, [3, 3], range(6))


def test_types_without_encoding_are_refused() -> None:
    file, node = plain(pa.int8(), [bytes(30)], [1])
    for dtype in (pa.map_(pa.string(), pa.int8()), pa.list_(pa.string(), 2), pa.binary(0)):
        with pytest.raises(UnsupportedTypeError, match="'x'"):
            read(file, FieldNode(pa.field("x", dtype), node.pages), [1], range(1))


def test_too_many_bytes_for_one_array() -> None:
    claimed = 2**31
    file = File()
    at = file.add(struct.pack("<2q", 0, claimed))
    source = MemorySource(bytes(file.data))
    reader = open_field(
        FieldNode(pa.field("x", pa.string()), pages([(at, 1)])), np.array([1]), claimed + 1
    )
    with pytest.raises(InvalidInputError, match="read fewer rows"):
        run_plans(source, [reader.read(range(1))])
