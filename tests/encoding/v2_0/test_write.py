"""Pages of version 2.0 byte by byte; `tests/interop/files/test_write_2_0.py` lets pylance read pages
of all types.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_0.field_write import check_field, encode_field
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.proto import encodings_v2_0_pb2 as pb

PACKED = {"lance-encoding:packed": "true"}


def message_of(page: EncodedPage) -> pb.ArrayEncoding:
    return pb.ArrayEncoding.FromString(page.encoding)


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
